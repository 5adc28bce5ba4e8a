//! `/_session`: logging in and out with a cookie.
//!
//! SOURCE    couch_httpd_auth: handle_session_req/2.

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use actix_web::web::Query;
use serde::Deserialize;
use serde_json::json;

use super::access::{User, cookie, session_cookie};
use super::answer::{self, Answer, HttpResult, Refusal};
use super::body::{AtMost, UNKNOWN_BYTES_MAX};
use super::request::content_type;
use super::{HttpContext, Shared};
use crate::auth::rights::Rights;
use crate::auth::session::COOKIE;
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
    answer::ok(&json!({
        "ok": true,
        "userCtx": {"name": user.name, "roles": roles(&user.rights)},
        "info": info,
    }))
}

/// `DELETE /_session`: ends every session with a cookie in the request.
pub(super) async fn log_out(request: HttpRequest, shared: Shared) -> Answer {
    if let Ok(cookies) = request.cookies() {
        for cookie in cookies.iter().filter(|cookie| cookie.name() == COOKIE) {
            if let Some(session) = shared.authority.session(cookie.value()) {
                shared.authority.end(&session);
            }
        }
    }
    with_cookie(answer::done(), &cookie(&request, String::new(), 0))
}

fn with_cookie(answer: Answer, cookie: &Cookie<'_>) -> Answer {
    let mut response = answer?;
    // These characters are always valid in a cookie.
    let _ = response.add_cookie(cookie);
    Ok(response)
}

/// Returns the names of roles; administrators have CouchDB's role, `_admin`.
fn roles(rights: &Rights) -> Vec<&'static str> {
    rights
        .roles()
        .iter()
        .map(|role: &Role| match role {
            Role::Admin => "_admin",
            role => role.into(),
        })
        .collect()
}

/// `POST /_session`: opens a session; the sender is still unauthenticated.
pub(super) async fn log_in(
    request: HttpRequest,
    body: AtMost<UNKNOWN_BYTES_MAX>,
    shared: Shared,
    user: User,
) -> Answer {
    let text = || body.0.text();
    let name = match content_type(request.head()).as_str() {
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
    let session = shared.authority.begin(&name);
    let session =
        session.ok_or_else(|| Refusal::of("unauthorized", "this user no longer exists"))?;
    let cookie = session_cookie(&request, &shared, session);
    let value = json!({"ok": true, "name": name, "roles": roles(&shared.authority.rights(&name))});
    with_cookie(answer::ok(&value), &cookie)
}

/// Checks a password and returns the user's name.
async fn with_password(user: &User, shared: &HttpContext, login: Login) -> HttpResult<String> {
    let Login { name, password } = login;
    match shared.authority.log_in(&name, &password, user.peer()).await {
        Ok(()) => Ok(name),
        Err(error) => Err(Refusal::from(error).for_a_form()),
    }
}

/// Returns the name of the administrator that a link of `settee dashboard` logs in.
fn with_token(shared: &HttpContext, token: &str) -> HttpResult<String> {
    shared.authority.take_token(token).ok_or_else(|| {
        Refusal::unauthorized(
            "this link was used, or is older than a minute: `settee dashboard` prints a new one",
        )
        .for_a_form()
    })
}
