//! Probes a server: whether it answers at all, and whether it still accepts the user.
//!
//! SUMMARY   [`Http::answers`] requests a server's root once. After a 401 or 403 to a write, [`Endpoint::is_let_in`]
//!           checks whether the server still admits the user. [`EndpointSpec::server`] names a database's server.
//! PROMISES  The probe of the root carries no credentials and no headers of a document. Any answer below 500 counts:
//!           others may come from a proxy whose server is down.
//! DIFFERS   CouchDB's replicator takes every 401 and 403 to a write for a refusal of the document.
//! LIMITS    A server behind an unavailable proxy, or whose name does not resolve, counts as not answering.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};
use url::Url;

use super::session::Credentials;
use super::{Endpoint, Http, HttpSettings, Reply, Request, RequestFailed, StatusCode};
use crate::spec::EndpointSpec;

impl EndpointSpec {
    /// Returns the server's origin, such as `http://db.example:5984`; empty for an invalid URL.
    pub fn server(&self) -> String {
        Url::parse(&self.url)
            .map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
    }
}

impl Http {
    /// Probes a database's server once, and returns whether it answers within this time.
    pub async fn answers(
        &self,
        spec: &EndpointSpec,
        settings: HttpSettings,
        within: Duration,
    ) -> bool {
        let (Ok(root), Ok(endpoint)) = (Url::parse(&spec.server()), self.endpoint(spec, settings))
        else {
            return false;
        };
        let shown = root.to_string();
        let mut asking = endpoint.sending_to(root, shown, Request::get(""));
        // Without credentials and the user's headers.
        asking.leave();
        let answer = timeout(
            within,
            endpoint.exchange(&mut asking, &Credentials::Nothing),
        );
        matches!(answer.await, Ok(Ok((response, _))) if response.status().as_u16() < 500)
    }
}

/// Maximum length of a response, in bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

impl Endpoint {
    /// Returns whether the server, which refused a request with 401 or 403, otherwise admits this user. If so, the
    /// refusal was about the request. If not, the next request renews the session.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn is_let_in(&self, refused: &Reply) -> Result<bool, RequestFailed> {
        let epoch = refused.asked.epoch;
        let is_known = match epoch {
            Some(_) => self.is_session_known().await?,
            None => true,
        };
        // A public database proves nothing about a session, nor a session about a database.
        let is_let_in = is_known && self.request(Request::get("")).await?.status == StatusCode::OK;
        let mut session = self.0.session.lock().await;
        if let Some(epoch) = epoch
            && !is_let_in
        {
            session.expire(epoch, Instant::now());
        }
        // After a renewal, the answer is about the new session, not the refused one.
        Ok(is_let_in && session.epoch() == epoch)
    }

    /// Returns whether the server knows the session; assumes so after an unexpected status.
    async fn is_session_known(&self) -> Result<bool, RequestFailed> {
        let request = Request::get("").reply_bytes_max(REPLY_BYTES_MAX);
        let reply = self.send_whole(self.of_session(request)).await?;
        Ok(match reply.status {
            StatusCode::OK => {
                let about: Value = reply.json().unwrap_or_default();
                about["userCtx"]
                    .as_object()
                    .is_none_or(|user| user.get("name").is_some_and(|name| !name.is_null()))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => false,
            _ => true,
        })
    }
}
