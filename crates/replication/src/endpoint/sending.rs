//! A request in flight: its current target and contents.
//!
//! PROMISES  After a redirect to another origin, a request carries no credentials, cookies or headers of the user,
//!           wherever it is redirected later.

use futures_util::{StreamExt, stream};
use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue,
};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::body::RequestBody;
use super::http::own_headers;
use super::location::{leads, redirected};
use super::send::TryFailed;
use super::upload::{Activity, PIECE_BYTES, paced, pieces};
use super::{Cause, Endpoint, Request};

/// Maximum number of successive redirects.
const REDIRECTS_MAX: u32 = 10;

/// A request in flight.
pub(super) struct Sending {
    /// As it is sent: with the endpoint's headers, and changed by redirects. Its target is `url`.
    pub request: Request,
    /// The original URL, for display.
    pub shown: String,
    pub url: Url,
    /// Whether the body was a stream that has been consumed.
    pub spent: bool,
    pub redirects: u32,
    pub renewals: u32,
    /// Whether it has never left the original origin: then it carries credentials.
    pub trusted: bool,
}

impl Sending {
    /// Follows a redirect.
    pub fn follow(&mut self, response: &Response, endpoint: &Endpoint) -> Result<(), TryFailed> {
        let failed = |problem: String| TryFailed::Final(Cause::Redirect(problem));
        if self.redirects == REDIRECTS_MAX {
            return Err(failed(format!("more than {REDIRECTS_MAX} times in a row")));
        }
        let mut to = redirected(&self.url, response.headers()).map_err(failed)?;
        let stays = leads(&endpoint.0.base_url, &mut to, &endpoint.0.redirects_to)
            .map_err(TryFailed::Final)?;
        if !stays {
            self.leave();
        }
        if response.status() == StatusCode::SEE_OTHER {
            self.request.method = Method::GET;
            self.request.body = RequestBody::Empty;
            self.spent = false;
            self.request.headers.remove(CONTENT_TYPE);
            self.request.headers.remove(CONTENT_LENGTH);
        }
        if self.spent {
            return Err(failed("with a body that can only be sent once".into()));
        }
        self.redirects += 1;
        self.url = to;
        Ok(())
    }

    /// Permanently removes the parts that only the original origin may get: another server may redirect back, to a
    /// path that it chose.
    pub fn leave(&mut self) {
        self.trusted = false;
        let headers = std::mem::replace(&mut self.request.headers, own_headers());
        for (name, value) in &headers {
            // Only the user's headers are marked as sensitive.
            if !value.is_sensitive() && !matches!(*name, AUTHORIZATION | COOKIE) {
                self.request.headers.insert(name, value.clone());
            }
        }
    }

    pub fn take_body(
        &mut self,
        headers: &mut HeaderMap,
        activity: &Activity,
    ) -> Result<Option<reqwest::Body>, TryFailed> {
        let activity = activity.clone();
        match std::mem::take(&mut self.request.body) {
            RequestBody::Empty if self.spent => Err(TryFailed::Final(Cause::Body(
                "it has been sent before".to_owned(),
            ))),
            RequestBody::Empty => {
                if matches!(self.request.method, Method::POST | Method::PUT) {
                    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
                }
                Ok(None)
            }
            RequestBody::Bytes(bytes) => {
                self.request.body = RequestBody::Bytes(bytes.clone());
                headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                Ok(match bytes.len() {
                    0 => None,
                    1..=PIECE_BYTES => Some(reqwest::Body::from(bytes)),
                    _ => Some(paced(stream::iter(pieces(bytes)).map(Ok), activity)),
                })
            }
            RequestBody::Stream { length, stream } => {
                self.spent = true;
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                Ok(Some(paced(stream, activity)))
            }
        }
    }
}
