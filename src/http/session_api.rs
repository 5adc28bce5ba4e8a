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
use crate::auth::rights::Rights;
use crate::config::Role;

/// What is sent to log in.
#[derive(Deserialize)]
struct Login {
    /// CouchDB takes both.
    #[serde(alias = "username")]
    name: String,
    password: String,
}

/// What a browser sends that was opened with a token.
#[derive(Deserialize)]
struct WithToken {
    token: String,
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
        "userCtx": {"name": visitor.name, "roles": roles(&visitor.rights)},
        "info": info,
    }))
}

/// The administrators' role has CouchDB's name.
fn roles(rights: &Rights) -> Vec<&'static str> {
    let name = |role: &Role| match role {
        Role::Admin => "_admin",
        role => role.name(),
    };
    rights.roles().iter().map(name).collect()
}

async fn log_in(request: &HttpRequest, payload: web::Payload, shared: &Shared) -> Answer {
    // Whoever logs in is not known yet.
    let body = body::read_at_most(body::UNKNOWN_BYTES_MAX, request, payload, shared).await?;
    let name = match content_type(request).as_str() {
        "application/json" => match serde_json::from_str::<WithToken>(body.text()?) {
            Ok(WithToken { token }) => with_token(shared, &token)?,
            Err(_) => {
                let login = serde_json::from_str(body.text()?).map_err(|error| {
                    Refusal::bad_request(format!(
                        "the body must be {{\"name\", \"password\"}}: {error}"
                    ))
                })?;
                with_password(request, shared, login).await?
            }
        },
        "application/x-www-form-urlencoded" => {
            let form = web::Query::<Login>::from_query(body.text()?);
            let form =
                form.map_err(|error| Refusal::bad_request(format!("name and password: {error}")))?;
            with_password(request, shared, form.into_inner()).await?
        }
        _ => {
            return Err(Refusal::bad_content_type(
                "application/json or application/x-www-form-urlencoded",
            ));
        }
    };
    let cookie = new_session(shared, &name).ok_or_else(|| {
        Refusal::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "there is no such user any more",
        )
    })?;
    let rights = shared.authority.rights(&name);
    let value = json!({"ok": true, "name": name, "roles": roles(&rights)});
    let mut response = answer::ok(&value);
    // A cookie of these letters can always be written.
    let _ = response.add_cookie(&cookie);
    Ok(response)
}

/// Returns the name of who logs in.
async fn with_password(
    request: &HttpRequest,
    shared: &Shared,
    login: Login,
) -> Result<String, Refusal> {
    let Login { name, password } = login;
    let checked = shared.authority.log_in(&name, &password, peer(request));
    match checked.await {
        Ok(()) => Ok(name),
        Err(error) => Err(Refusal::from(error).for_a_form()),
    }
}

/// Returns the name of the administrator in whose name `settee dashboard` lets in.
fn with_token(shared: &Shared, token: &str) -> Result<String, Refusal> {
    let name = shared.authority.take_token(token);
    name.ok_or_else(|| {
        Refusal::unauthorized(
            "this link was used, or is older than a minute: `settee dashboard` prints a new one",
        )
        .for_a_form()
    })
}
