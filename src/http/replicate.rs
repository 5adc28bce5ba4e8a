//! `POST /_replicate`: a replication without a document.
//!
//! SOURCE    couch_replicator_httpd: handle_req/1.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Payload;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::access::{Order, User};
use super::answer::{self, Answer};
use super::replicator::person;
use super::request::IsJson;
use super::routes::shutting_down;
use super::{Shared, body};
use crate::actors::replicator_api::Replicated;
use crate::audit::Done;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::GetProcError;
use replication::spec::strip_url;

pub(super) async fn replicate(
    _: IsJson,
    request: HttpRequest,
    payload: Payload,
    shared: Shared,
    user: User,
    order: Order,
) -> Answer {
    let value = body::read(&request, payload, &shared).await?.json().await?;
    let asked = asked(&value);
    order.did(Done::default().asked(asked.clone()));
    if shared.drain.is_on() && value["cancel"] != true {
        return Err(ErrorReply::from(GetProcError::Draining).into());
    }
    let mut stopping = shared.stopping.subscribe();
    let person = person(&user);
    let replicated = tokio::select! {
        replicated = shared.replications.replicate(&value, &person) => replicated?,
        // A replication may take hours.
        _ = stopping.wait_for(|stopping| *stopping) => return Err(shutting_down()),
    };
    let (Replicated::Done(id, _) | Replicated::Begun(id) | Replicated::Cancelled(id)) = &replicated;
    let id = id.to_string();
    let local_id = json!({"ok": true, "_local_id": id});
    order.on(id);
    order.did(Done::to(1).asked(asked));
    match replicated {
        Replicated::Done(_, result) => answer::raw(done(result.get())),
        Replicated::Begun(_) => answer::with_status(StatusCode::ACCEPTED, &local_id),
        Replicated::Cancelled(_) => answer::ok(&local_id),
    }
}

/// Returns what a body requests, for the audit: both sides without credentials, and the flags that are set.
fn asked(body: &Value) -> Value {
    let mut asked = Map::new();
    for side in ["source", "target"] {
        let url = body[side].as_str().or_else(|| body[side]["url"].as_str());
        asked.extend(url.map(|url| (side.to_owned(), strip_url(url).into())));
    }
    for flag in ["cancel", "continuous"] {
        let is_set = body[flag] == true;
        asked.extend(is_set.then(|| (flag.to_owned(), true.into())));
    }
    asked.into()
}

/// Adds `ok` as the first member of an object. The other members keep their text, to preserve sequence numbers.
fn done(object: &str) -> Bytes {
    let members = object.trim().trim_start_matches('{').trim_start();
    let text = if members.starts_with('}') {
        "{\"ok\":true}\n".to_owned()
    } else {
        format!("{{\"ok\":true,{members}\n")
    };
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ok_precedes_the_members_of_a_result() {
        assert_eq!(done("{}"), "{\"ok\":true}\n");
        assert_eq!(done(" {\"a\": 1.0}"), "{\"ok\":true,\"a\": 1.0}\n");
        assert_eq!(done("{ \"a\":{}}"), "{\"ok\":true,\"a\":{}}\n");
    }
}
