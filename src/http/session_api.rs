//! `/_session`: logging in and out by cookie.
//!
//! SOURCE    couch_httpd_auth: handle_session_req/2.

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, web};
use serde::Deserialize;
use serde_json::json;

use super::access::{Visitor, end_sessions, new_session, no_session_cookie, peer};
use super::answer::{self, Answer, Refusal};
use super::request::{allow, content_type};
use super::{Shared, body};

/// What is sent to log in.
#[derive(Deserialize)]
struct Login {
    /// CouchDB takes both.
    #[serde(alias = "username")]
    name: String,
    password: String,
}

pub(super) async fn answer(
    request: &HttpRequest,
    payload: web::Payload,
    shared: &Shared,
    visitor: &Visitor,
) -> Answer {
    allow(request, &[Method::GET, Method::POST, Method::DELETE])?;
    match *request.method() {
        Method::POST => log_in(request, payload, shared).await,
        Method::DELETE => {
            end_sessions(request, shared);
            let mut response = answer::done();
            // A cookie of these letters can always be written.
            let _ = response.add_cookie(&no_session_cookie());
            Ok(response)
        }
        _ => Ok(who(visitor)),
    }
}

fn who(visitor: &Visitor) -> actix_web::HttpResponse {
    let mut info = json!({"authentication_handlers": ["cookie", "default"]});
    if let Some(by) = visitor.by {
        info["authenticated"] = by.into();
    }
    answer::ok(&json!({
        "ok": true,
        "userCtx": {"name": visitor.name, "roles": roles(visitor.is_admin())},
        "info": info,
    }))
}

fn roles(is_admin: bool) -> &'static [&'static str] {
    if is_admin { &["_admin"] } else { &[] }
}

async fn log_in(request: &HttpRequest, payload: web::Payload, shared: &Shared) -> Answer {
    // Whoever logs in is not known yet.
    let body = body::read_at_most(body::UNKNOWN_BYTES_MAX, request, payload, shared).await?;
    let login: Login = match content_type(request).as_str() {
        "application/json" => serde_json::from_str(body.text()?).map_err(|error| {
            Refusal::bad_request(format!(
                "the body must be {{\"name\", \"password\"}}: {error}"
            ))
        })?,
        "application/x-www-form-urlencoded" => {
            let form = web::Query::<Login>::from_query(body.text()?);
            form.map_err(|error| Refusal::bad_request(format!("name and password: {error}")))?
                .into_inner()
        }
        _ => {
            return Err(Refusal::bad_content_type(
                "application/json or application/x-www-form-urlencoded",
            ));
        }
    };
    shared
        .authority
        .log_in(&login.name, &login.password, peer(request))
        .await
        .map_err(|error| Refusal::from(error).for_a_form())?;
    let cookie = new_session(shared, &login.name).ok_or_else(|| {
        Refusal::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "there is no such admin any more",
        )
    })?;
    let value = json!({"ok": true, "name": login.name, "roles": roles(true)});
    let mut response = answer::ok(&value);
    // A cookie of these letters can always be written.
    let _ = response.add_cookie(&cookie);
    Ok(response)
}
