//! Who and what the pool's decision core speaks of: pools, processes, requests, clients, documents.
//!
//! DIFFERS   Where the reference has Erlang terms (pids, monitor references), identities here are
//!           ever-growing numbers, issued by the core or by the actor, so that a late event about
//!           something that is gone is recognised and ignored.

use std::fmt;
use std::sync::Arc;

use super::settings::{GroupId, LanguageId};

/// A pool: one language and one command under one name. Its index in [`super::Pools`].
///
/// The identity of a pool that is gone ([`Action::PoolGone`]) is given to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// A process, from the moment its opening is decided until it is gone; never reused.
///
/// Larger numbers were created later ("among equals the newest-created process is chosen").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcId {
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Its number, unique in the service.
    pub number: u64,
}

/// A request for a process. Issued by the actor in order of arrival: smaller is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A monitored client: one connection or one in-process caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One assignment of a process to a client. Fresh for every assignment (PM-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pool.0, self.number)
    }
}

/// The tag that ties a process to a database (`db_tag`), already reduced to what counts.
pub type DbKey = Arc<str>;

/// A design document in one revision. A process knows at most one revision of an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DdocKey {
    /// `_id`, for example `_design/shop`.
    pub id: Arc<str>,
    /// `_rev`, for example `3-a81f`.
    pub rev: Arc<str>,
}

/// What a design-document client wants beyond the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The database's tag; `None` with `db_tag = none`.
    pub db: Option<DbKey>,
    /// The design document that the process must know.
    pub ddoc: DdocKey,
}

/// Which pools may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// This one.
    Pool(PoolId),
    /// Any of a group.
    Group(GroupId),
    /// Any of a language, its own pool among them.
    Any(LanguageId),
}

/// What kind of work a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Somebody waits for the one answer: validate, update, show, filter.
    #[default]
    Interactive,
    /// Many documents, nobody in a hurry: map, reduce.
    Bulk,
}
