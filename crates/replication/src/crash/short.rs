//! Crashes in a few words, for lists of jobs.
//!
//! PROMISES  One line without ids, paths and credentials, equal for equal causes. What a server says in its own
//!           words is not in it.

use std::io::ErrorKind;

use super::{Answered, Crash};
use crate::endpoint::{Cause, RequestFailed};
use crate::log::{CheckpointError, LogError};

impl Crash {
    /// Returns why the run ended in a few words: `name not found: db7.example`.
    pub fn short(&self) -> String {
        if let Some(failed) = self.failed_request() {
            return of_request(failed);
        }
        match self {
            Self::Unauthorized(_) => "unauthorized".to_owned(),
            Self::Forbidden(_) => "forbidden".to_owned(),
            Self::DbNotFound(_) => "database missing".to_owned(),
            Self::NoDatabase(url) => at("no database answers", server(url)),
            Self::Nxdomain(url) => at("name not found", host(url)),
            Self::ReplicationAuthError(_) => "login refused".to_owned(),
            Self::CheckpointReadFailure(error) => of_log(error),
            Self::CheckpointCommitFailure(CheckpointError::Failed { error, .. }) => of_log(error),
            Self::CheckpointCommitFailure(CheckpointError::Restarted(side)) => {
                format!("database restarted: {side}")
            }
            Self::LeaseLost => "lease lost".to_owned(),
            Self::MaxBackoff => "rate limited".to_owned(),
            Self::ChangesReqFailed(answered) => of_answer("changes feed failed", answered),
            Self::FilterFailed(_) => "filter failed".to_owned(),
            Self::RevsDiffFailed(answered) => of_answer("revs_diff failed", answered),
            Self::BulkDocsFailed(answered) => of_answer("bulk_docs failed", answered),
            Self::DocWriteFailed { code, .. } => of_status("document write failed", *code),
            Self::OpenDocRevsFailed { .. } => "document not delivered".to_owned(),
            Self::RequestUriTooLong { .. } => "URL too long for the source".to_owned(),
            Self::MissingDoc { .. } => "document missing at the source".to_owned(),
            Self::HttpRequestFailed(failed) => of_request(failed),
            Self::ChangesReaderDied(_)
            | Self::ChangesManagerDied(_)
            | Self::WorkerDied(_)
            | Self::JobDied(_) => "ended unexpectedly".to_owned(),
        }
    }

    /// Returns the request that had no answer, if that ended it.
    pub(super) fn failed_request(&self) -> Option<&RequestFailed> {
        match self {
            Self::HttpRequestFailed(failed) => Some(failed),
            Self::ChangesReqFailed(answered)
            | Self::RevsDiffFailed(answered)
            | Self::BulkDocsFailed(answered) => answered.failed.as_deref(),
            Self::OpenDocRevsFailed { failed, .. } => failed.as_deref(),
            _ => None,
        }
    }
}

fn of_answer(what: &str, answered: &Answered) -> String {
    match answered.code {
        Some(code) => of_status(what, code),
        None => what.to_owned(),
    }
}

fn of_status(what: &str, code: u16) -> String {
    match code {
        401 => "unauthorized".to_owned(),
        403 => "forbidden".to_owned(),
        code => format!("{what}: status {code}"),
    }
}

fn of_log(error: &LogError) -> String {
    match error {
        LogError::Request(failed) => of_request(failed),
        LogError::Refused { status, .. } => of_status("checkpoint failed", *status),
        LogError::Conflict => "checkpoint conflict".to_owned(),
        LogError::Nonsense(_) => "checkpoint unreadable".to_owned(),
        LogError::Filter(_) => "filter unreadable".to_owned(),
    }
}

fn of_request(failed: &RequestFailed) -> String {
    of_cause(&failed.cause, &failed.url)
}

fn of_cause(cause: &Cause, url: &str) -> String {
    let what = match cause {
        Cause::NoSession(cause) => return of_cause(cause, url),
        Cause::UnknownHost => return at("name not found", host(url)),
        Cause::MaxBackoff => "rate limited",
        Cause::Status { status, .. } => {
            return at(&format!("status {}", status.as_u16()), server(url));
        }
        Cause::Connect { kind, .. } => match kind {
            Some(ErrorKind::ConnectionRefused) => "connection refused",
            Some(ErrorKind::TimedOut) => "connection timed out",
            Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => "unreachable",
            // What rustls makes of a certificate that it does not accept.
            Some(ErrorKind::InvalidData) => "TLS failed",
            _ => "no connection",
        },
        Cause::Timeout(_) => "no answer",
        Cause::Protocol(_) => "connection lost",
        Cause::TooLong(_) => "answer too long",
        Cause::Redirect(_) | Cause::RedirectedElsewhere { .. } => "redirected",
        Cause::Denied(_) => "endpoint denied",
        Cause::Session(_) => "login failed",
        Cause::Refused(_) => "login refused",
        Cause::SessionLost => "session lost",
        Cause::Body(_) => "source broke off",
        Cause::Invalid(_) => "request invalid",
    };
    at(what, server(url))
}

fn at(what: &str, place: Option<String>) -> String {
    match place {
        Some(place) => format!("{what}: {place}"),
        None => what.to_owned(),
    }
}

/// Returns the host of a URL, of which there may be more behind it.
fn host(url: &str) -> Option<String> {
    let url = url::Url::parse(url.split_whitespace().next()?).ok()?;
    url.host_str().map(str::to_owned)
}

/// Returns host and port of a URL.
fn server(url: &str) -> Option<String> {
    let parsed = url::Url::parse(url.split_whitespace().next()?).ok()?;
    let port = parsed.port_or_known_default()?;
    Some(format!("{}:{port}", parsed.host_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Method, Request, StatusCode};
    use crate::testing::endpoint;

    fn failed(cause: Cause) -> RequestFailed {
        RequestFailed {
            method: Method::GET,
            url: "http://ann@db7.example:5984/shop/_changes?since=7".to_owned(),
            cause,
        }
    }

    #[test]
    fn equal_causes_have_equal_words_without_ids_or_credentials() {
        let refused = |kind| Cause::Connect {
            kind,
            said: "secret".to_owned(),
        };
        let url = || "http://ann@db7.example:5984/shop/".to_owned();
        let status = |status| Cause::Status {
            status,
            said: "secret".to_owned(),
        };
        let of_changes = |cause| Crash::ChangesReqFailed(failed(cause).into());
        for (crash, short) in [
            (Crash::Nxdomain(url()), "name not found: db7.example"),
            (
                of_changes(Cause::UnknownHost),
                "name not found: db7.example",
            ),
            (Crash::DbNotFound(url()), "database missing"),
            (
                Crash::NoDatabase(format!("{} (GET ..: 200: secret)", url())),
                "no database answers: db7.example:5984",
            ),
            (Crash::Unauthorized(url()), "unauthorized"),
            (
                Crash::from(failed(refused(Some(ErrorKind::ConnectionRefused)))),
                "connection refused: db7.example:5984",
            ),
            (
                of_changes(status(StatusCode::BAD_GATEWAY)),
                "status 502: db7.example:5984",
            ),
            (
                Crash::CheckpointCommitFailure(CheckpointError::Failed {
                    step: "x",
                    error: LogError::Conflict,
                }),
                "checkpoint conflict",
            ),
            (
                Crash::OpenDocRevsFailed {
                    id: "secret".to_owned(),
                    why: "secret".to_owned(),
                    failed: Some(Box::new(failed(refused(None)))),
                },
                "no connection: db7.example:5984",
            ),
            (
                Crash::DocWriteFailed {
                    asked: "secret".to_owned(),
                    code: 500,
                    error: "secret".to_owned(),
                    reason: "secret".to_owned(),
                },
                "document write failed: status 500",
            ),
            (Crash::WorkerDied("secret".to_owned()), "ended unexpectedly"),
        ] {
            assert_eq!(crash.short(), short, "{crash}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_is_told_with_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let url = format!("http://ann:secret@{address}/shop");
        let nobody = endpoint(&url, |config, _| config.sessions = false);
        let failed = nobody.request(Request::get("")).await.unwrap_err();
        let short = Crash::from(failed).short();
        assert_eq!(short, format!("connection refused: {address}"));
    }
}
