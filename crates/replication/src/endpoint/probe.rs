//! Whether a refusal is about the request or about the user.
//!
//! SUMMARY   After an answer 401 or 403 to a write, [`Endpoint::is_let_in`] asks the server whether it still knows the
//!           user and lets them read the database.
//! PROMISES  A session that turns out to be over is renewed with the next request.
//! DIFFERS   CouchDB's replicator takes every 401 and 403 to a write for a refusal of the document.

use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::body::RequestBody;
use super::{Endpoint, Reply, Request, RequestFailed, StatusCode};

/// The longest answer that is read, in bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

impl Endpoint {
    /// Returns whether the server, which has refused a request with 401 or 403, lets this user in otherwise. If so, the
    /// refusal was about the request.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn is_let_in(&self, refused: &Reply) -> Result<bool, RequestFailed> {
        let epoch = refused.asked.epoch;
        let is_known = match epoch {
            Some(_) => self.is_session_known().await?,
            None => true,
        };
        // A database that everybody may read says nothing about a session, and a session nothing about a database.
        let is_let_in = is_known && {
            let reply = self.request(Request::get("")).await?;
            reply.status == StatusCode::OK
        };
        let mut session = self.0.session.lock().await;
        if let Some(epoch) = epoch
            && !is_let_in
        {
            session.expire(epoch, Instant::now().into_std());
        }
        // A session that has begun since is known, but was not the one that was refused.
        Ok(is_let_in && session.epoch() == epoch)
    }

    /// Whether the server knows the session; so does one that cannot be asked about it.
    async fn is_session_known(&self) -> Result<bool, RequestFailed> {
        let asking = self.of_session(Method::GET, self.0.headers.clone(), RequestBody::Empty);
        let reply = self
            .send_whole(asking, self.0.settings.retries, REPLY_BYTES_MAX)
            .await?;
        Ok(match reply.status {
            StatusCode::OK => {
                let about: Value = reply.json().unwrap_or_default();
                let user = about["userCtx"].as_object();
                user.is_none_or(|user| user.get("name").is_some_and(|name| !name.is_null()))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => false,
            _ => true,
        })
    }
}
