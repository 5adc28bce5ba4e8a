//! Records of orders and changes, as in `/_audit`: one type for HTTP, the log and tests.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The latest orders and changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The number of records kept.
    pub total_rows: usize,
    /// The latest first.
    pub records: Vec<AuditRecord>,
}

/// An order, or a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When it was answered, in the form `2026-11-26T10:00:00Z`.
    pub ts: String,
    /// The user; `anyone` if no login is needed, or the user is unknown.
    pub who: String,
    /// Its origin: `http 127.0.0.1:40000`, `socket uid 0 pid 77`, `signal HUP`, `daemon HOST:PORT`.
    pub from: String,
    /// The operation: the name of a call, or of an HTTP route.
    pub what: String,
    /// Its subject: a pool, a process, a job, a document, a selection of jobs; empty for the whole service.
    pub on: String,
    /// The number of settings, processes, jobs or documents that it affected; `None` if unknown.
    pub count: Option<u64>,
    /// The state before; `null` if there was none, or it is unknown.
    pub before: Value,
    /// The request: the new values, or an order's own members.
    pub asked: Value,
    /// Why it failed, completely or partly.
    pub error: Option<String>,
    /// The request's id.
    pub request_id: Option<String>,
}
