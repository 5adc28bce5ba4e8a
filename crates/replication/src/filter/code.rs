//! Reads the code of a filter function from its design document at the source.
//!
//! SOURCE    couch_replicator_filters: fetch/3.

use serde_json::Value;

use super::Filter;
use crate::crash::Crash;
use crate::endpoint::{Cause, Endpoint, Request, StatusCode, encode_doc_id};
use crate::open::db_info;

/// Why the code of a filter is unknown. A replication treats this as temporary: the source may return, and the design
/// document may be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct FilterError {
    pub kind: FilterErrorKind,
    pub(crate) text: String,
    /// Why the source did not answer, if that is the cause.
    pub(crate) why: Option<Box<Crash>>,
}

/// See [`FilterError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterErrorKind {
    /// The source denies access to this user.
    Refused,
    /// No such database, design document or function.
    Missing,
    /// Any other cause, possibly short-lived.
    Unknown,
}

impl FilterError {
    /// Returns whether the source denies access to this user.
    pub fn is_refusal(&self) -> bool {
        self.kind == FilterErrorKind::Refused
    }

    /// Returns why there was no response.
    pub fn cause(&self) -> Option<&Cause> {
        self.why.as_ref()?.cause()
    }

    /// Describes it briefly, as [`Crash::short`] does.
    pub fn short(&self) -> String {
        match (&self.why, self.kind) {
            (Some(crash), _) => crash.short(),
            (None, FilterErrorKind::Missing) => "filter missing".to_owned(),
            (None, _) => "filter unreadable".to_owned(),
        }
    }
}

/// Reads the code of a filter function from its design document at the source; `None` if the filter
/// has no code.
///
/// # Errors
/// The source or the design document cannot be read, or there is no such function.
pub async fn fetch_code(source: &Endpoint, filter: &Filter) -> Result<Option<String>, FilterError> {
    let Filter::Function { ddoc, name, .. } = filter else {
        return Ok(None);
    };
    let url = source.url();
    db_info(source).await.map_err(|error| FilterError {
        kind: match &error {
            error if error.is_refusal() => FilterErrorKind::Refused,
            Crash::DbNotFound(_) | Crash::NoDatabase(_) => FilterErrorKind::Missing,
            _ => FilterErrorKind::Unknown,
        },
        text: format!("Could not open source database `{url}`: {error}"),
        why: Some(Box::new(error)),
    })?;
    code_of(&fetch_ddoc(source, ddoc).await?, ddoc, name, source).map(Some)
}

/// Reads a design document of the source as JSON text. `ddoc` is without `_design/`.
///
/// # Errors
/// It is missing, or cannot be read.
pub(super) async fn fetch_ddoc(source: &Endpoint, ddoc: &str) -> Result<String, FilterError> {
    let url = source.url();
    let path = encode_doc_id(&format!("_design/{ddoc}"));
    let not_opened = |kind, problem: String, why: Option<Crash>| {
        let text = format!(
            "Couldn't open document `_design/{ddoc}` from source database `{url}`: {problem}"
        );
        FilterError {
            kind,
            text,
            why: why.map(Box::new),
        }
    };
    let reply = source.request(Request::get(path)).await.map_err(|failed| {
        let kind = match failed.cause {
            Cause::Refused { .. } => FilterErrorKind::Refused,
            // No URL can contain this name.
            Cause::Invalid(_) => FilterErrorKind::Missing,
            _ => FilterErrorKind::Unknown,
        };
        not_opened(kind, failed.to_string(), Some(failed.into()))
    })?;
    if reply.status != StatusCode::OK {
        let url = url.to_owned();
        let (kind, why) = match reply.status {
            StatusCode::UNAUTHORIZED => (FilterErrorKind::Refused, Some(Crash::Unauthorized(url))),
            StatusCode::FORBIDDEN => (FilterErrorKind::Refused, Some(Crash::Forbidden(url))),
            StatusCode::NOT_FOUND => (FilterErrorKind::Missing, None),
            _ => (FilterErrorKind::Unknown, None),
        };
        let (error, reason) = reply.error_and_reason();
        let status = reply.status.as_u16();
        return Err(not_opened(
            kind,
            format!("{error}: {reason} (status {status})"),
            why,
        ));
    }
    let text: Box<serde_json::value::RawValue> = reply.json().map_err(|error| {
        not_opened(
            FilterErrorKind::Unknown,
            format!("{error}: {}", reply.excerpt()),
            None,
        )
    })?;
    Ok(text.get().to_owned())
}

/// Returns the code of a design document's filter function, as replication ids use it.
///
/// # Errors
/// There is no such function.
pub(super) fn code_of(
    text: &str,
    ddoc: &str,
    name: &str,
    source: &Endpoint,
) -> Result<String, FilterError> {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let code = body["filters"][name].as_str().ok_or_else(|| FilterError {
        kind: FilterErrorKind::Missing,
        text: format!(
            "Couldn't parse filter code from document {ddoc} on `{}`: \
             there is no function `{name}` among its filters",
            source.url()
        ),
        why: None,
    })?;
    Ok(trimmed(code))
}

/// Trims spaces around one-line code.
///
/// CouchDB uses a regular expression whose `.` matches no newline and whose blanks are spaces only, so multi-line
/// code and a trailing newline stay as they are. The ids of replications depend on it.
fn trimmed(code: &str) -> String {
    let (line, end) = match code.strip_suffix('\n') {
        Some(line) => (line, "\n"),
        None => (code, ""),
    };
    if line.contains('\n') {
        return code.to_owned();
    }
    format!("{}{end}", line.trim_matches(' '))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Answer, Server, replication};

    async fn fetched(answers: [(u16, &'static str); 2]) -> Result<Option<String>, String> {
        let server = Server::start(move |request| {
            let (status, body) = answers[usize::from(request.line != "GET /db/")];
            Answer::new(status, body)
        });
        let server = server.await;
        let body = json!({"source": server.url(""), "target": "http://t/", "filter": "d d/f"});
        let filter = replication(&body).options.filter;
        let source = server.endpoint();
        let code = fetch_code(&source, &filter).await;
        if code.is_ok() {
            assert_eq!(server.lines(), ["GET /db/", "GET /db/_design/d%20d"]);
        }
        code.map_err(|error| error.text.replace(&server.url(""), "URL"))
    }

    const INFO: (u16, &str) = (200, r#"{"update_seq":1,"instance_start_time":"0"}"#);

    #[tokio::test]
    async fn the_code_of_a_filter_is_read_from_the_source() {
        let ddoc = r#"{"filters":{"f":"  function(doc) { return true; } "}}"#;
        let code = fetched([INFO, (200, ddoc)]).await.unwrap();
        assert_eq!(code.as_deref(), Some("function(doc) { return true; }"));
        let server = Server::start(|_| Answer::new(500, "")).await;
        assert_eq!(fetch_code(&server.endpoint(), &Filter::All).await, Ok(None));
        assert!(server.lines().is_empty());
    }

    #[tokio::test]
    async fn missing_filters_and_designs_are_named() {
        let text = |answers| async move { fetched(answers).await.unwrap_err() };
        assert_eq!(
            text([(404, "{}"), (200, "{}")]).await,
            "Could not open source database `URL`: db_not_found: could not open URL"
        );
        assert_eq!(
            text([INFO, (404, r#"{"error":"not_found","reason":"missing"}"#)]).await,
            "Couldn't open document `_design/d d` from source database `URL`: \
             not_found: missing (status 404)"
        );
        for ddoc in ["{}", r#"{"filters":{}}"#, r#"{"filters":{"f":1}}"#] {
            let text = text([INFO, (200, ddoc)]).await;
            assert!(text.starts_with("Couldn't parse filter code from document d d on `URL`"));
        }
    }

    #[test]
    fn code_is_trimmed_as_couchdb_does_it() {
        assert_eq!(trimmed("  a b "), "a b");
        assert_eq!(trimmed("  a \n"), "a\n");
        assert_eq!(trimmed("  a \n b "), "  a \n b ");
        assert_eq!(trimmed("\ta\t"), "\ta\t");
        assert_eq!(trimmed("   "), "");
    }
}
