//! The identities of the pool's decision core: pools, processes, requests, clients, documents.
//!
//! DIFFERS   The reference has Erlang terms (pids, monitor references). Here ids are increasing numbers, issued by
//!           the core or the actor, so that a late event about something gone is recognised and ignored.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use super::{GroupId, LanguageId};

/// A pool: one language and one command under one name. Its index in [`super::Pools`].
///
/// The id of a pool that is gone ([`PoolAction::PoolGone`]) is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// A process, from the moment its opening is decided until it is gone; never reused.
///
/// Larger numbers were created later: among equals, a language's own pool lends the newest-created process.
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

/// One loan of a process to a client. Every loan has a new one (PM-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pool.0, self.number)
    }
}

/// The tag that ties a process to a database (`db_tag`): the part of its name that counts.
pub type DbKey = Arc<str>;

/// A design document as taught to a process. A process knows at most one text of each id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DdocKey {
    /// `_id`, for example `_design/shop`.
    pub id: Arc<str>,
    /// The exact document. Its `_rev` does not identify it: another document may have the same.
    pub text: TaughtText,
}

/// The text of a design document, with a hash that quickly distinguishes most texts.
#[derive(Clone, Debug)]
pub struct TaughtText {
    hash: u64,
    text: Arc<str>,
}

impl TaughtText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<&str> for TaughtText {
    fn from(text: &str) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(text.as_bytes());
        Self {
            hash: hasher.finish(),
            text: text.into(),
        }
    }
}

/// The hash is only a shortcut; the text decides.
impl PartialEq for TaughtText {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for TaughtText {}

impl Hash for TaughtText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The owner of the functions that a request runs. A process is tagged for at most one tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tenant {
    /// A database, by the part of its name that counts (`db_tag`).
    Database(DbKey),
    /// All databases together (`db_tag = none`).
    Databases,
    /// A user, over all its connections.
    User(Arc<str>),
    /// A client that names none of these, while it is connected.
    Client(ClientId),
}

impl Tenant {
    /// Returns the database's tag.
    pub(super) const fn db(&self) -> Option<&DbKey> {
        match self {
            Self::Database(db) => Some(db),
            _ => None,
        }
    }
}

/// A client's requirements beyond the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The owner of the functions to run.
    pub tenant: Tenant,
    /// The design document that it must know, if there is one.
    pub ddoc: Option<DdocKey>,
}

/// Which pools may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// This pool alone.
    Pool(PoolId),
    /// Any pool of a group.
    Group(GroupId),
    /// Any pool of a language, including the language's own pool.
    Any(LanguageId),
}

/// The kind of work that a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A user waits for a single answer: validate, update, show, filter.
    #[default]
    Interactive,
    /// Many documents, without urgency: map, reduce.
    Bulk,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_the_same_hash_are_distinguished() {
        let one = TaughtText::from("one");
        let two = TaughtText {
            hash: one.hash,
            text: "two".into(),
        };
        assert_ne!(one, two);
        assert_eq!(one, TaughtText::from("one"));
    }
}
