//! `/_scheduler/_export`, `_import` and `_backup`: the documents of `_replicator` for `settee jobs` and `settee store`.
//!
//! PROMISES  Credentials leave the service only with `secrets=true`.
//! LIMITS    Users of this machine alone may ask.

use actix_web::HttpRequest;
use actix_web::web::{Data, Payload};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::access::Order;
use super::answer::{self, Answer, Refusal};
use super::params::Params;
use super::request::IsJson;
use super::{HttpContext, body};
use crate::audit::Done;
use crate::replicator::Refused;
use crate::replicator::document::DocumentError;
use store::{Imported, RowKind};

/// `GET /_scheduler/_export`: some documents after the id `after`, in the order of their ids; none at the end.
pub(super) async fn export(params: Params, shared: Data<HttpContext>) -> Answer {
    let after = params.get("after").map(str::to_owned);
    let secrets = params.boolean("secrets", false)?;
    let database = shared.replications.database();
    Ok(answer::ok(&database.export(after, secrets).await?))
}

/// What is imported.
#[derive(Deserialize)]
struct Import {
    docs: Vec<Box<RawValue>>,
    #[serde(default)]
    replace: bool,
}

/// `POST /_scheduler/_import`: what became of each, in their order.
pub(super) async fn import(
    _: IsJson,
    request: HttpRequest,
    payload: Payload,
    shared: Data<HttpContext>,
    order: Order,
) -> Answer {
    let body = body::read(&request, payload, &shared).await?;
    let Import { docs, replace } = serde_json::from_str(body.text()?)
        .map_err(|error| Refusal::bad_request(format!("the body: {error}")))?;
    let docs: Vec<String> = docs.iter().map(|doc| doc.get().to_owned()).collect();
    let imported = shared
        .replications
        .database()
        .import(&docs, replace)
        .await?;
    let rows: Vec<Value> = imported.iter().map(imported_row).collect();
    order.did(Done::of_documents(&rows));
    Ok(answer::ok(&rows))
}

/// Returns what became of a document that was imported.
fn imported_row(result: &Result<(String, Imported), Refused>) -> Value {
    match result {
        Ok((id, Imported::Created)) => json!({"id": id, "ok": "created"}),
        Ok((id, Imported::Unchanged)) => json!({"id": id, "ok": "unchanged"}),
        Ok((id, Imported::Replaced)) => json!({"id": id, "ok": "replaced"}),
        Ok((id, Imported::Conflict)) => json!({
            "id": id,
            "error": DocumentError::Conflict.name(),
            "reason": "another document is there, and stays as it is",
        }),
        Err((id, error)) => {
            json!({"id": id, "error": error.name(), "reason": error.to_string()})
        }
    }
}

/// `GET /_scheduler/_backup`: holds a copy of the store as it is now, and tells its number; with that number, `copy`, the
/// next rows of it: of the kind `kind`, after the id `after`.
pub(super) async fn backup(params: Params, shared: Data<HttpContext>) -> Answer {
    let store = shared.replications.database().store();
    let Some(copy) = params.count("copy")? else {
        return Ok(answer::ok(&store.hold_copy().await?));
    };
    let kind = params.get("kind").unwrap_or_default();
    let kind: RowKind = serde_json::from_value(kind.into())
        .map_err(|_| Refusal::bad_request("kind must be documents, locals or jobs"))?;
    let after = params.get("after").unwrap_or_default().to_owned();
    Ok(answer::ok(
        &store.copy_rows(copy as u64, kind, after).await?,
    ))
}
