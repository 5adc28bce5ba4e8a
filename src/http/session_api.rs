//! `/_session`: logging in and out with a cookie.
//!
//! SOURCE    couch_httpd_auth: handle_session_req/2.

use actix_web::cookie::Cookie;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Query};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;

use super::HttpContext;
use super::access::{User, end_sessions, new_session, no_session_cookie};
use super::answer::{self, Answer, Refusal};
use super::body::{AtMost, UNKNOWN_BYTES_MAX};
use super::request::content_type;
use crate::auth::rights::Rights;
use crate::config::Role;

#[derive(Deserialize)]
struct Login {
    /// CouchDB accepts both names of this member.
    #[serde(alias = "username")]
    name: String,
    password: String,
}

/// The body sent by a browser that was opened with a token.
#[derive(Deserialize)]
struct WithToken {
    token: String,
}

/// `GET /_session`: shows the user.
pub(super) async fn who(user: User) -> Answer {
    let mut info = json!({"authentication_handlers": ["cookie", "default"]});
    if let Some(by) = user.by {
        info["authenticated"] = by.into();
    }
    Ok(answer::ok(&json!({
        "ok": true,
        "userCtx": {"name": user.name, "roles": roles(&user.rights)},
        "info": info,
    })))
}

/// `DELETE /_session`: ends every session with a cookie in the request.
pub(super) async fn log_out(request: HttpRequest, shared: Data<HttpContext>) -> Answer {
    end_sessions(&request, &shared);
    with_cookie(answer::done(), &no_session_cookie(&request))
}

fn with_cookie(mut response: HttpResponse, cookie: &Cookie<'_>) -> Answer {
    // These characters are always valid in a cookie.
    let _ = response.add_cookie(cookie);
    Ok(response)
}

/// Returns the names of roles; administrators have CouchDB's role, `_admin`.
fn roles(rights: &Rights) -> Vec<&'static str> {
    let name = |role: &Role| match role {
        Role::Admin => "_admin",
        role => role.into(),
    };
    rights.roles().iter().map(name).collect()
}

/// `POST /_session`: opens a session; the sender is still unauthenticated.
pub(super) async fn log_in(
    request: HttpRequest,
    body: AtMost<UNKNOWN_BYTES_MAX>,
    shared: Data<HttpContext>,
    user: User,
) -> Answer {
    let text = || body.0.text();
    let name = match content_type(&request).as_str() {
        "application/json" => match serde_json::from_str(text()?) {
            Ok(WithToken { token }) => with_token(&shared, &token)?,
            Err(_) => {
                let login = serde_json::from_str(text()?).map_err(|error| {
                    Refusal::bad_request(format!(
                        "the body must be {{\"name\", \"password\"}}: {error}"
                    ))
                })?;
                with_password(&user, &shared, login).await?
            }
        },
        "application/x-www-form-urlencoded" => {
            let form = Query::<Login>::from_query(text()?);
            let form =
                form.map_err(|error| Refusal::bad_request(format!("name and password: {error}")))?;
            with_password(&user, &shared, form.into_inner()).await?
        }
        _ => {
            return Err(Refusal::bad_content_type(
                "application/json or application/x-www-form-urlencoded",
            ));
        }
    };
    let cookie = new_session(&request, &shared, &name).ok_or_else(|| {
        Refusal::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "this user no longer exists",
        )
    })?;
    let rights = shared.authority.rights(&name);
    let value = json!({"ok": true, "name": name, "roles": roles(&rights)});
    with_cookie(answer::ok(&value), &cookie)
}

/// Checks a password and returns the user's name.
async fn with_password(user: &User, shared: &HttpContext, login: Login) -> Result<String, Refusal> {
    let Login { name, password } = login;
    let checked = shared.authority.log_in(&name, &password, user.peer());
    match checked.await {
        Ok(()) => Ok(name),
        Err(error) => Err(Refusal::from(error).for_a_form()),
    }
}

/// Returns the name of the administrator that a link of `settee dashboard` logs in.
fn with_token(shared: &HttpContext, token: &str) -> Result<String, Refusal> {
    let name = shared.authority.take_token(token);
    name.ok_or_else(|| {
        Refusal::unauthorized(
            "this link was used, or is older than a minute: `settee dashboard` prints a new one",
        )
        .for_a_form()
    })
}
