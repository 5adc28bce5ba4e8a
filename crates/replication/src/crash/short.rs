//! Crashes in a few words, for lists of jobs.
//!
//! PROMISES  One line without paths and credentials. Equal causes have equal texts at any step of a run, except for
//!           the id of a document, which is last ([`reason_group`]): [`of_status`] and [`of_cause`] name the causes
//!           that can occur at any step. A server's own words are not included.

use std::io::ErrorKind;

use super::{Answered, Crash};
use crate::endpoint::{Cause, RequestFailed, is_of_full_disk, is_of_proxy, shown};
use crate::log::{CheckpointError, LogError};

impl Crash {
    /// Returns in a few words why the run ended: `name not found: db7.example`.
    pub fn short(&self) -> String {
        if let Some(failed) = self.failed_request() {
            return of_request(failed);
        }
        match self {
            Self::Unauthorized(_) => UNAUTHORIZED.to_owned(),
            Self::Forbidden(_) => FORBIDDEN.to_owned(),
            Self::DbNotFound(_) => DATABASE_MISSING.to_owned(),
            Self::NoDatabase(url) => at("no database answers", server(url)),
            Self::Nxdomain(url) => at("name not found", host(url)),
            Self::ReplicationAuthError { code, .. } => of_status("login failed", *code),
            Self::CheckpointReadFailure(error)
            | Self::CheckpointCommitFailure(CheckpointError::Failed { error, .. }) => of_log(error),
            Self::CheckpointCommitFailure(CheckpointError::Restarted(side)) => {
                format!("database restarted: {side}")
            }
            Self::CheckpointCommitFailure(CheckpointError::SetBack) => {
                "database restarted: source".to_owned()
            }
            Self::LeaseLost => "lease lost".to_owned(),
            Self::MaxBackoff => RATE_LIMITED.to_owned(),
            // The database exists, as a query showed: the filter is missing.
            Self::ChangesReqFailed(Answered {
                code: Some(404), ..
            }) => "filter missing".to_owned(),
            Self::ChangesReqFailed(answered) => of_answer("changes feed failed", answered),
            Self::FilterFailed(_) => "filter failed".to_owned(),
            Self::RevsDiffFailed(answered) => of_answer("revs_diff failed", answered),
            Self::BulkDocsFailed(answered) => of_answer("bulk_docs failed", answered),
            Self::DocWriteFailed {
                code, id, error, ..
            } => of_any(*code).unwrap_or_else(|| of_document("document write failed", error, id)),
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

    /// Returns the failed request, if one ended the run.
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

const UNAUTHORIZED: &str = "unauthorized";
const FORBIDDEN: &str = "forbidden";
const DATABASE_MISSING: &str = "database missing";
const RATE_LIMITED: &str = "rate limited";
const NO_SPACE: &str = "no space";
const CANNOT_BE_REACHED: &str = "cannot be reached";

/// Resources that this host may lack for a connection: for each, words of the system's error, and the short text.
const LACKS: [(&str, &str); 2] = [
    ("max_user_watches", "no epoll watches left"),
    ("Too many open files", "too many open files"),
];

fn of_answer(what: &str, answered: &Answered) -> String {
    match answered.code {
        _ if answered.is_full => {
            let asked = answered.asked.as_deref().unwrap_or_default();
            at(
                NO_SPACE,
                asked.split_once(' ').and_then(|(_, url)| server(url)),
            )
        }
        Some(code) => match &answered.doc {
            Some((id, error)) => of_document(what, error, id),
            None => of_status(what, code),
        },
        None => what.to_owned(),
    }
}

/// Precedes the id of a document.
const DOCUMENT: &str = ": document '";

/// Returns the part of a short text that equal causes share: all except the id of a document.
pub fn reason_group(short: &str) -> &str {
    short.split_once(DOCUMENT).map_or(short, |(group, _)| group)
}

fn of_document(what: &str, error: &str, id: &str) -> String {
    let (error, id) = (shown(error.as_bytes()), shown(id.as_bytes()));
    format!("{what}: {error}{DOCUMENT}{id}'")
}

fn of_status(what: &str, code: u16) -> String {
    of_any(code).unwrap_or_else(|| match code {
        200..=299 => format!("{what}: the answer is not what was asked for"),
        code => format!("{what}: status {code}"),
    })
}

/// The meaning of a status at any step.
fn of_any(code: u16) -> Option<String> {
    let words = match code {
        401 => UNAUTHORIZED,
        403 => FORBIDDEN,
        404 => DATABASE_MISSING,
        _ => return None,
    };
    Some(words.to_owned())
}

fn of_log(error: &LogError) -> String {
    match error {
        LogError::Request(failed) => of_request(failed),
        LogError::Refused { status, .. } => of_status("checkpoint failed", *status),
        LogError::Conflict => "checkpoint conflict".to_owned(),
        LogError::Nonsense(_) => "checkpoint unreadable".to_owned(),
        LogError::Filter(error) => error.short(),
    }
}

fn of_request(failed: &RequestFailed) -> String {
    of_cause(&failed.cause, &failed.url)
}

fn of_cause(cause: &Cause, url: &str) -> String {
    if let Cause::Connect { said, .. } = cause
        && let Some((_, lack)) = LACKS.iter().find(|(words, _)| said.contains(words))
    {
        return (*lack).to_owned();
    }
    let what = match cause {
        Cause::NoSession(cause) => return of_cause(cause, url),
        Cause::UnknownHost => return at("name not found", host(url)),
        Cause::MaxBackoff => return RATE_LIMITED.to_owned(),
        Cause::Refused { status, .. } => return of_status("login failed", status.as_u16()),
        Cause::NoTls => "speaks no TLS",
        // rustls's error for a certificate that it rejects.
        Cause::Connect {
            kind: Some(ErrorKind::InvalidData),
            ..
        } => "TLS failed",
        Cause::Status { status, .. } if is_of_proxy(*status) => CANNOT_BE_REACHED,
        Cause::Status { status, said } if is_of_full_disk(status.as_u16(), said) => NO_SPACE,
        Cause::Status { status, .. } => {
            return at(&format!("status {}", status.as_u16()), server(url));
        }
        Cause::Connect { .. } | Cause::Timeout(_) | Cause::Protocol(_) => CANNOT_BE_REACHED,
        Cause::TooLong(_) | Cause::HeadTooLong => "answer too long",
        Cause::Redirect(_) | Cause::RedirectedElsewhere { .. } => "redirected",
        Cause::Denied(_) => "endpoint denied",
        Cause::Session(_) => "login failed",
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

/// Returns the host of the URL that a text begins with.
fn host(url: &str) -> Option<String> {
    let url = url::Url::parse(url.split_whitespace().next()?).ok()?;
    url.host_str().map(str::to_owned)
}

/// Returns host and port of the URL that a text begins with.
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
    fn a_resource_that_this_host_lacks_is_the_reason_and_no_server_is_blamed() {
        for (said, short) in [
            ("Too many open files (os error 24)", "too many open files"),
            (
                "they are used up (sysctl fs.epoll.max_user_watches)",
                "no epoll watches left",
            ),
        ] {
            let lack = Cause::Connect {
                kind: None,
                said: format!("tcp open error: {said}"),
            };
            assert_eq!(Crash::from(failed(lack)).short(), short);
        }
    }

    #[test]
    fn equal_causes_have_equal_words_without_credentials_or_server_messages() {
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
                "cannot be reached: db7.example:5984",
            ),
            (
                of_changes(status(StatusCode::BAD_GATEWAY)),
                "cannot be reached: db7.example:5984",
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
                "cannot be reached: db7.example:5984",
            ),
            (
                Crash::DocWriteFailed {
                    asked: "secret".to_owned(),
                    code: 500,
                    id: "a\nb".to_owned(),
                    error: "compilation_error".to_owned(),
                    reason: "secret".to_owned(),
                },
                "document write failed: compilation_error: document 'a b'",
            ),
            (Crash::WorkerDied("secret".to_owned()), "ended unexpectedly"),
        ] {
            assert_eq!(crash.short(), short, "{crash}");
        }
    }

    #[test]
    fn a_server_error_has_the_same_words_at_each_step() {
        let status = |status| Cause::Status {
            status,
            said: "secret".to_owned(),
        };
        let of_changes = |cause| Crash::ChangesReqFailed(failed(cause).into());
        for (crash, short) in [
            (of_changes(Cause::MaxBackoff), "rate limited"),
            (
                Crash::from(failed(Cause::Refused {
                    status: StatusCode::UNAUTHORIZED,
                    said: "secret".to_owned(),
                })),
                "unauthorized",
            ),
            (
                of_changes(status(StatusCode::INSUFFICIENT_STORAGE)),
                "no space: db7.example:5984",
            ),
            (
                of_changes(status(StatusCode::INTERNAL_SERVER_ERROR)),
                "status 500: db7.example:5984",
            ),
        ] {
            assert_eq!(crash.short(), short, "{crash}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported_with_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let url = format!("http://ann:secret@{address}/shop");
        let nobody = endpoint(&url, |config, _| config.sessions = false);
        let failed = nobody.request(Request::get("")).await.unwrap_err();
        let short = Crash::from(failed).short();
        assert_eq!(short, format!("cannot be reached: {address}"));
    }

    #[tokio::test]
    async fn a_server_without_tls_is_reported_as_such_with_its_address_and_the_remedy() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answering = async || {
            let (mut client, _) = listener.accept().await.unwrap();
            client
                .read_buf(&mut Vec::with_capacity(9000))
                .await
                .unwrap();
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            client.write_all(answer).await.unwrap();
            client
        };
        let url = format!("https://ann:secret@{address}/shop");
        for sessions in [false, true] {
            let plain = endpoint(&url, |config, _| config.sessions = sessions);
            let (_client, failed) = tokio::join!(answering(), plain.request(Request::get("")));
            let crash = Crash::from(failed.unwrap_err());
            assert_eq!(
                crash.short(),
                format!("speaks no TLS: {address}"),
                "{crash:?}"
            );
            let text = crash.to_string();
            assert!(
                text.ends_with("the server speaks no TLS: use http://"),
                "{text}"
            );
        }
    }
}
