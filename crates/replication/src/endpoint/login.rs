//! Requests a session from a server before a request that needs one.
//!
//! SOURCE    couch_replicator_auth_session.

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use tokio::time::Instant;

use super::body::RequestBody;
use super::connections::Lane;
use super::excerpt::shown;
use super::location::session_url;
use super::request::is_of_proxy;
use super::send::TryFailed;
use super::sending::Sending;
use super::session::{Credentials, LoggedIn};
use super::{Cause, Endpoint, Request};

impl Endpoint {
    /// Returns the credentials of a request; logs in first, if due.
    pub(super) async fn credentials(&self) -> Result<Credentials, TryFailed> {
        // While one request logs in, others wait for its session.
        let mut session = self.0.session.lock().await;
        loop {
            if let Some(credentials) = session.before(Instant::now()) {
                return Ok(credentials);
            }
            let mut login = self.login(session.with_basic);
            let _place = self.0.http.connections().place(Some(Lane::Login)).await;
            let (response, _) = self
                .exchange(&mut login, &Credentials::Nothing)
                .await
                .map_err(|failed| match failed {
                    // The unknown host explains more than the failed session.
                    TryFailed::Again | TryFailed::Retry(Cause::UnknownHost) => failed,
                    TryFailed::Retry(cause) | TryFailed::Final(cause) => {
                        TryFailed::Retry(Cause::NoSession(cause.into()))
                    }
                })?;
            if response.status().is_redirection() {
                self.stays(&login.url, &response)?;
            }
            let (status, headers) = (response.status(), response.headers().clone());
            let said = self.drain_shown(response).await;
            let in_full = |text: &str| format!("{text}: POST {}: {status}: {said}", login.shown);
            match session.logged_in(status, &headers, Instant::now()) {
                LoggedIn::Known => {}
                LoggedIn::Refused(text) => {
                    let said = in_full(text);
                    return Err(TryFailed::Final(Cause::Refused { status, said }));
                }
                LoggedIn::Failed(_) if is_of_proxy(status) => {
                    let cause = Cause::Status { status, said };
                    return Err(TryFailed::Retry(Cause::NoSession(cause.into())));
                }
                LoggedIn::Failed(text) => {
                    return Err(TryFailed::Retry(Cause::Session(in_full(&text))));
                }
            }
        }
    }

    /// Builds the session request.
    fn login(&self, with_basic: bool) -> Sending {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        if let Some(auth) = &self.0.auth {
            form.append_pair("name", &auth.user);
            form.append_pair("password", &auth.password);
        }
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut request = Request::post("")
            .header(CONTENT_TYPE, content_type)
            .body(RequestBody::Bytes(form.finish().into()));
        if with_basic && let Some(basic) = &self.0.basic {
            request = request.header(AUTHORIZATION, basic.clone());
        }
        self.of_session(request)
    }

    /// Builds a request about the session.
    pub(super) fn of_session(&self, request: Request) -> Sending {
        let url = session_url(&self.0.base_url);
        let shown = shown(url.as_str().as_bytes());
        self.sending_to(url, shown, request)
    }
}
