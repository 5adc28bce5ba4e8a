//! Decides what an answer to a write means for a document.
//!
//! SUMMARY   [`of_put`] interprets the answer to a document written individually, [`of_entry`] an entry of
//!           `_bulk_docs`, [`of_batch`] its whole answer.
//! PROMISES  A document is refused only after an answer about it in a database's form, or after a 413: other answers of
//!           proxies or firewalls are ignored. After an unknown error, for example of a failing validation function or
//!           of a map function that the target's engine does not compile, it is refused if the error is repeated
//!           ([`super::bulk_docs`], [`super::single`]). Everything else is retried, and ends the job if it persists.
//! SOURCE    `couch_replicator_api_wrap:update_doc`, `couch_replicator_worker:flush_docs`.
//! DIFFERS   In CouchDB, a document is refused at once after any error of its entry, and after any 401 or 403.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::endpoint::{ErrorBody, Reply, StatusCode, is_of_full_disk, text_of};

/// Errors of a document that a retry does not fix.
const OF_DOCUMENT: [&str; 10] = [
    "forbidden",
    "unauthorized",
    "doc_validation",
    "illegal_docid",
    "bad_request",
    "too_large",
    "request_entity_too_large",
    "document_too_large",
    "attachment_too_large",
    "unsupported_media_type",
];
/// Errors of one document for which `_bulk_docs` rejects the whole batch.
const OF_BATCH: [&str; 2] = ["doc_validation", "illegal_docid"];
/// Errors of an entry that concern the server or are temporary: no document is refused because of them.
const OF_SERVER: [&str; 7] = [
    "internal_server_error",
    "service_unavailable",
    "insufficient_storage",
    "timeout",
    "too_many_requests",
    "conflict",
    "",
];

/// The outcome of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The target has it.
    Written,
    /// The target refuses it.
    Refused,
    /// The target refuses it, if it repeats the error for this document alone and accepts others.
    RefusedIfRepeated,
    /// The target lacks the attachment that a stub refers to.
    MissingStub,
    /// Nothing is known about the document: to be retried.
    Unclear,
    /// The request is wrong: a retry does not help.
    Wrong,
}

/// The outcome of a document, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub verdict: Verdict,
    pub error: String,
    pub reason: String,
}

impl Outcome {
    pub fn new(verdict: Verdict, error: impl Into<String>, reason: String) -> Self {
        Self {
            verdict,
            error: error.into(),
            reason,
        }
    }

    /// Whether it says that the target's disk is full.
    pub fn is_of_full_disk(&self) -> bool {
        self.verdict == Verdict::Unclear
            && [&self.error, &self.reason]
                .into_iter()
                .any(|text| is_of_full_disk(500, text))
    }
}

/// Returns what the answer to a PUT means for the document, if the target still admits the user.
pub(super) fn of_put(reply: &Reply) -> Verdict {
    let ErrorBody { error, reason } = reply.error();
    match (reply.status.as_u16(), &*error) {
        (200..=202, _) if says_written(&reply.body) => Verdict::Written,
        // A 413 is about the size of this body, even if a proxy sent it.
        (413, _) => Verdict::Refused,
        (401, "unauthorized") | (403, "forbidden") => Verdict::Refused,
        (412, "missing_stub") => Verdict::MissingStub,
        (400, error) if OF_BATCH.contains(&error) => Verdict::Refused,
        (400, "bad_request") if reason.starts_with("Attachment name ") => Verdict::Refused,
        (200..=399 | 401 | 403 | 404 | 409 | 412, _) | (_, "") => Verdict::Unclear,
        (415, _) => Verdict::Refused,
        // Also sent for malformed requests.
        (400, "bad_request") => Verdict::Wrong,
        (400..=499, _) => Verdict::RefusedIfRepeated,
        _ => Verdict::Wrong,
    }
}

/// Returns the error's name and reason for display. If the body does not name an error: the status, or `invalid_json`
/// if the body is not JSON, and the beginning of the body.
pub(super) fn error_and_reason(reply: &Reply) -> (String, String) {
    let is_json = serde_json::from_slice::<IgnoredAny>(&reply.body).is_ok();
    if reply.error().error.is_empty() && !is_json && !reply.status.is_success() {
        ("invalid_json".to_owned(), reply.excerpt())
    } else {
        reply.error_and_reason()
    }
}

/// Whether a target confirms that it has the document: `{"ok":true, ..}`, or `[]`, with which some servers answer
/// writes of replicated revisions.
fn says_written(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Written {
        ok: bool,
    }
    serde_json::from_slice::<Written>(body).is_ok_and(|written| written.ok)
        || serde_json::from_slice::<[(); 0]>(body).is_ok()
}

/// Returns error and reason of an answer that refuses a whole batch because of one document.
pub(super) fn of_batch(reply: &Reply) -> Option<(String, String)> {
    Some(reply.error())
        .filter(|_| reply.status == StatusCode::BAD_REQUEST)
        .filter(|said| OF_BATCH.contains(&&*said.error))
        .map(|said| (said.error, said.reason))
}

/// An entry in the answer to `_bulk_docs`, for one document.
#[derive(Debug, Deserialize)]
pub(super) struct WriteEntry<'a> {
    #[serde(borrow)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub rev: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
    /// The error's name, or `true` if the name is in `name`.
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    status: Option<u16>,
}

/// Returns what an entry means for its document.
pub(super) fn of_entry(entry: &WriteEntry<'_>) -> Outcome {
    let text = |raw: Option<&RawValue>| raw.map(text_of).unwrap_or_default();
    let is = |raw: Option<&RawValue>, text| raw.is_some_and(|raw| raw.get() == text);
    if entry.error.is_none() || is(entry.error, "false") {
        return if is(entry.ok, "false") || entry.status.is_some_and(|status| status >= 400) {
            Outcome::new(Verdict::Unclear, "not_ok", text(entry.reason))
        } else {
            Outcome::new(Verdict::Written, "", String::new())
        };
    }
    let error = if is(entry.error, "true") {
        entry.name
    } else {
        entry.error
    };
    let (error, reason) = (text(error), text(entry.reason.or(entry.message)));
    let fails = entry.status.is_some_and(|status| status >= 500);
    let verdict = match &*error {
        _ if fails => Verdict::Unclear,
        error if OF_DOCUMENT.contains(&error) => Verdict::Refused,
        error if OF_SERVER.contains(&error) => Verdict::Unclear,
        error if is_of_full_disk(500, error) || is_of_full_disk(500, &reason) => Verdict::Unclear,
        _ => Verdict::RefusedIfRepeated,
    };
    Outcome::new(verdict, error, reason)
}
