//! Sends a request, with retries.
//!
//! SOURCE    couch_replicator_httpc: waits, retries, redirects, rate limits, sessions.
//! DIFFERS   Redirects are bounded. They stay within the origin of the request, or lead to further origins that
//!           the configuration names; requests to these carry no credentials, cookies or user's headers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use httpdate::parse_http_date;
use reqwest::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderValue, RETRY_AFTER,
};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::body::BodyStream;
use super::errors::classify;
use super::excerpt::shown;
use super::http::sensitive;
use super::limiter::Key;
use super::location::{leads, redirected};
use super::sending::Sending;
use super::session::Credentials;
use super::upload::Activity;
use super::{Cause, Endpoint, Reply, Request, RequestFailed, SentRequest, StreamedReply};
use crate::counters::Counter;

/// Maximum resends of a request, or of a document, after its session was renewed.
pub(crate) const RENEWALS_MAX: u32 = 3;

/// Maximum length of a body that is drained to reuse its connection.
const DRAINED_BYTES_MAX: usize = 64 << 10;

/// Maximum time to drain a body.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Why an attempt yielded no response to return.
pub(super) enum TryFailed {
    /// Resend at once; not counted as a retry.
    Again,
    /// May be retried after a wait.
    Retry(Cause),
    /// Must not be retried.
    Final(Cause),
}

impl Endpoint {
    /// Sends a request, with retries, and reads the whole response.
    ///
    /// Returns responses of any status below 500, except 408, 429 and redirects: the caller interprets them. 408, 500
    /// and above, lost connections and time-outs are retried `retries_per_request` times, after 250 ms, 500 ms, 1 s
    /// and so on, unless the first failure is older than half the health threshold; 429 is retried as often as the
    /// rate limit allows. `Retry-After` is honoured up to 25 s. A request with a streamed body is sent once.
    ///
    /// # Errors
    /// [`RequestFailed`] has the last failure; further retries are up to the job.
    pub async fn request(&self, request: Request) -> Result<Reply, RequestFailed> {
        self.send_whole(self.sending(request)?).await
    }

    pub(super) async fn send_whole(&self, mut sending: Sending) -> Result<Reply, RequestFailed> {
        let retries = sending.request.retries;
        let mut retries = self.retries(retries.unwrap_or(self.0.settings.retries));
        let method = sending.request.method.clone();
        loop {
            let (cause, wait) = match self.try_whole(&mut sending).await {
                Ok(reply) => {
                    self.count(Counter::ResponsesSuccess);
                    return Ok(reply);
                }
                Err(TryFailed::Again) => continue,
                Err(TryFailed::Final(cause)) => (cause, None),
                Err(TryFailed::Retry(cause)) => (cause, retries.next(Instant::now())),
            };
            match wait {
                Some(wait) if !sending.spent => sleep(wait).await,
                _ => {
                    self.count(Counter::ResponsesFailure);
                    return Err(RequestFailed::new(&method, &sending.shown, cause));
                }
            }
        }
    }

    /// Sends a request and returns the response once its headers have arrived.
    ///
    /// Retries only 429, redirects and refused sessions: 408, 500 and above, lost connections and time-outs are
    /// [`RequestFailed`] immediately. Returns responses of other statuses.
    ///
    /// # Errors
    /// See [`Endpoint::request`].
    pub(crate) async fn stream(&self, request: Request) -> Result<StreamedReply, RequestFailed> {
        let (method, mut sending) = (request.method.clone(), self.sending(request)?);
        loop {
            match self.try_once(&mut sending).await {
                Ok(reply) => {
                    self.count(Counter::StreamResponsesSuccess);
                    return Ok(reply);
                }
                Err(TryFailed::Again) => {}
                Err(TryFailed::Retry(cause) | TryFailed::Final(cause)) => {
                    self.count(Counter::StreamResponsesFailure);
                    return Err(RequestFailed::new(&method, &sending.shown, cause));
                }
            }
        }
    }

    /// Prepares a request to the database.
    fn sending(&self, request: Request) -> Result<Sending, RequestFailed> {
        let query = [&request.query[..], &request.secret_query].concat();
        let url = self.0.base.url(&request.path, &query).map_err(|problem| {
            RequestFailed::new(&request.method, self.url(), Cause::Invalid(problem))
        })?;
        let shown = shown(self.0.base.shown(&request).as_bytes());
        Ok(self.sending_to(url, shown, request))
    }

    /// Prepares a request to a URL of the database's server.
    pub(super) fn sending_to(&self, url: Url, shown: String, mut request: Request) -> Sending {
        let overriding = std::mem::replace(&mut request.headers, self.0.headers.clone());
        request.headers.extend(overriding);
        Sending {
            request,
            shown,
            url,
            spent: false,
            redirects: 0,
            renewals: 0,
            trusted: true,
        }
    }

    async fn try_whole(&self, sending: &mut Sending) -> Result<Reply, TryFailed> {
        let StreamedReply {
            asked,
            status,
            headers,
            body,
        } = self.try_once(sending).await?;
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let body = body
            .read_whole(length.unwrap_or(0), sending.request.reply_bytes_max)
            .await
            .map_err(|failed| match failed.into() {
                cause @ Cause::TooLong(_) => TryFailed::Final(cause),
                cause => TryFailed::Retry(cause),
            })?;
        Ok(Reply {
            asked,
            status,
            body,
        })
    }

    async fn try_once(&self, sending: &mut Sending) -> Result<StreamedReply, TryFailed> {
        let key = (Arc::clone(&self.0.key), sending.request.method.clone());
        self.wait_for_rate_limit(&key).await?;
        let credentials = self.credentials().await?;
        let permit = self.permit(self.lane(&sending.request)).await;
        let (mut response, deadline) = self.exchange(sending, &credentials).await?;
        let status = response.status();
        self.slow_down(&key, &response);
        match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
                sending.follow(&response, self)?;
                drain(response).await;
                return Err(TryFailed::Again);
            }
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                self.stays(&sending.url, &response)?;
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let said = self.drain_shown(response).await;
                if sending.spent {
                    return Err(TryFailed::Final(Cause::Status { status, said }));
                }
                return Err(TryFailed::Again);
            }
            status if status == StatusCode::REQUEST_TIMEOUT || status.as_u16() >= 500 => {
                let said = self.drain_shown(response).await;
                return Err(TryFailed::Retry(Cause::Status { status, said }));
            }
            _ => {}
        }
        self.0
            .http
            .limiter(|limiter, now| limiter.success(&key, now));
        let now = Instant::now();
        // Another origin's cookie or refusal does not concern the session. A streamed body cannot be sent again: its
        // sender checks whether the refusal concerns the session.
        let again = sending.trusted
            && (!sending.spent || status.is_success())
            && self
                .0
                .session
                .lock()
                .await
                .answered(&credentials, status, response.headers(), now);
        if again && sending.renewals < RENEWALS_MAX {
            sending.renewals += 1;
            drain(response).await;
            return Err(TryFailed::Again);
        }
        let epoch = match credentials {
            Credentials::Cookie(_, epoch) if sending.trusted => Some(epoch),
            _ => None,
        };
        let asked = SentRequest {
            endpoint: self.clone(),
            method: sending.request.method.clone(),
            url: sending.shown.clone(),
            epoch,
        };
        let silence = self.0.settings.connection_timeout;
        Ok(StreamedReply {
            asked,
            status,
            headers: std::mem::take(response.headers_mut()),
            body: BodyStream::of_response(response, silence, deadline, permit),
        })
    }

    /// Delays further requests after a 429, or a 503 with `Retry-After`.
    fn slow_down(&self, key: &Key, response: &Response) {
        let is_429 = match response.status() {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE => false,
            _ => return,
        };
        self.0.http.limiter(|limiter, now| {
            if is_429 {
                limiter.failure(key, now);
            }
            if let Some(pause) = retry_after(response.headers()) {
                limiter.pause(key, now, pause);
            }
        });
    }

    async fn wait_for_rate_limit(&self, key: &Key) -> Result<(), TryFailed> {
        let wait = self
            .0
            .http
            .limiter(|limiter, now| limiter.wait(key, now))
            .ok_or(TryFailed::Final(Cause::MaxBackoff))?;
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(())
    }

    /// Reads a short body for display.
    pub(super) async fn drain_shown(&self, mut response: Response) -> String {
        let mut body = BytesMut::new();
        let reading = async {
            while let Ok(Some(piece)) = response.chunk().await
                && body.len() + piece.len() <= DRAINED_BYTES_MAX
            {
                body.extend_from_slice(&piece);
            }
        };
        let _ = timeout(DRAIN_MAX, reading).await;
        self.excerpt(body)
    }

    /// Sends a request once and waits for the response's headers. Returns the response, with the deadline for its body.
    pub(super) async fn exchange(
        &self,
        sending: &mut Sending,
        credentials: &Credentials,
    ) -> Result<(Response, Option<Instant>), TryFailed> {
        self.count(Counter::Requests);
        let route = self
            .0
            .http
            .route(&sending.url, self.0.proxy.as_ref())
            .map_err(TryFailed::Final)?;
        let endless = sending.request.endless;
        let mut headers = sending.request.headers.clone();
        if let Some(host) = route.host {
            headers.insert(HOST, host);
        }
        if sending.trusted {
            self.authorize(&mut headers, credentials)?;
        }
        if self.0.http.connections().are_short() && !endless {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let silence = self.0.settings.connection_timeout;
        let activity = Activity::new();
        let body = sending.take_body(&mut headers, &activity)?;
        let mut request = reqwest::Request::new(sending.request.method.clone(), route.url);
        *request.headers_mut() = headers;
        *request.body_mut() = body;
        let timeout = self
            .0
            .request_timeout
            .filter(|_| !endless)
            .unwrap_or(Duration::MAX);
        let began = Instant::now();
        let deadline = began.checked_add(timeout);
        let response = tokio::select! {
            biased;
            response = route.client.execute(request) => response.map_err(|error| classify(&error)),
            () = activity.silent_for(silence) => Err(TryFailed::Retry(Cause::Timeout(silence))),
            () = sleep(timeout) => Err(TryFailed::Retry(Cause::Timeout(timeout))),
        };
        let has_waited = matches!(&response, Ok(_) | Err(TryFailed::Retry(Cause::Timeout(_))));
        if has_waited && !endless {
            self.0.http.note_wait(&self.0.server, began.elapsed());
        }
        Ok((response?, deadline))
    }

    /// Refuses redirects to origins that the configuration does not allow.
    pub(super) fn stays(&self, from: &Url, response: &Response) -> Result<(), TryFailed> {
        if let Ok(mut to) = redirected(from, response.headers()) {
            leads(&self.0.base_url, &mut to, &self.0.redirects_to).map_err(TryFailed::Final)?;
        }
        Ok(())
    }

    fn authorize(
        &self,
        headers: &mut HeaderMap,
        credentials: &Credentials,
    ) -> Result<(), TryFailed> {
        match credentials {
            Credentials::Basic => {
                if let Some(basic) = &self.0.basic {
                    headers.insert(AUTHORIZATION, basic.clone());
                }
            }
            Credentials::Nothing => {}
            Credentials::Cookie(cookie, _) => {
                let problem = "the session cookie has bytes that are not allowed in a header";
                let invalid = || TryFailed::Final(Cause::Session(problem.into()));
                // Keeps the user's own cookies.
                headers.append(COOKIE, sensitive(cookie).ok_or_else(invalid)?);
            }
        }
        Ok(())
    }
}

/// Returns `Retry-After`, given in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => parse_http_date(text)
            .ok()?
            .duration_since(SystemTime::now())
            .ok(),
    }
}

/// Drains a short body, so that its connection can be reused.
async fn drain(response: Response) {
    if response
        .content_length()
        .is_some_and(|length| length <= DRAINED_BYTES_MAX as u64)
    {
        let _ = timeout(DRAIN_MAX, response.bytes()).await;
    }
}
