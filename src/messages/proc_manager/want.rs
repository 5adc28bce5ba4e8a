//! A client's requirements for a process: a language or a design document, the pools, the kind of work and the tenant.

use std::sync::Arc;

use crate::query_server::abilities::Ability;
use crate::query_server::ddoc::Ddoc;
use crate::query_server::language::LanguageName;
use policy::pool::db_tag::DbTag;
use policy::pool::{Affinity, Lane, Tenant};

/// A client's requirements for a process.
#[derive(Clone, Debug)]
pub struct Want {
    /// The language or design document it must know.
    pub what: What,
    /// The pools that may serve it.
    pub from: TakeFrom,
    /// The kind of work.
    pub lane: Lane,
    /// The owner of the functions to run, unless a design document determines it.
    pub tenant: TenantName,
}

/// The owner of the functions that a process runs. With `reuse = "database"`, a process that has run one tenant's
/// functions never runs another's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantName {
    /// The client's own.
    #[default]
    Client,
    /// A database's, by the client's name for it; which part counts is a setting (`db_tag`).
    Database(Arc<str>),
    /// A user's.
    User(Arc<str>),
}

/// `None` is the client itself.
impl From<Option<Arc<str>>> for TenantName {
    fn from(db: Option<Arc<str>>) -> Self {
        db.map_or(Self::Client, Self::Database)
    }
}

/// The language or design document that a process must know.
#[derive(Clone, Debug)]
pub enum What {
    /// Any language of the pool or group.
    Any,
    /// Any process of a language (`get_proc(Lang)`).
    Language(LanguageName),
    /// A process that knows a design document (`get_proc(DDoc, DbKey, DDocKey)`).
    Ddoc {
        /// The database, by the client's name for it; which part counts is a setting (`db_tag`).
        db: Arc<str>,
        /// The design document, which determines the language.
        ddoc: Arc<Ddoc>,
    },
}

/// The pools that may serve a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TakeFrom {
    /// The language's own.
    #[default]
    Own,
    /// The pool of this name.
    Pool(Arc<str>),
    /// Any pool of this group.
    Group(Arc<str>),
    /// Any pool of the language, including its own.
    Any,
}

impl Want {
    /// Wants any process of a language, from its own pool.
    pub fn language(language: LanguageName) -> Self {
        Self {
            what: What::Language(language),
            ..Self::any_from(TakeFrom::Own)
        }
    }

    /// Wants a process that knows a design document, from its language's own pool.
    pub fn ddoc(db: Arc<str>, ddoc: Arc<Ddoc>) -> Self {
        Self {
            what: What::Ddoc { db, ddoc },
            lane: Lane::Interactive,
            ..Self::any_from(TakeFrom::Own)
        }
    }

    /// Wants any process of a pool or a group.
    pub fn any_from(from: TakeFrom) -> Self {
        Self {
            what: What::Any,
            from,
            lane: Lane::Bulk,
            tenant: TenantName::Client,
        }
    }

    /// Sets the pools.
    #[must_use]
    pub fn from(mut self, from: TakeFrom) -> Self {
        self.from = from;
        self
    }

    /// Sets the tenant of the functions. Those of a design document are its database's.
    #[must_use]
    pub fn of(mut self, tenant: impl Into<TenantName>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Returns the requirements that the pool's core knows.
    pub(crate) fn affinity(&self, db_tag: DbTag) -> Option<Affinity> {
        let (tenant, ddoc) = match (&self.what, &self.tenant) {
            (What::Ddoc { db, ddoc }, _) => (db_tag.tenant(db), Some(ddoc.key.clone())),
            (_, TenantName::Database(db)) => (db_tag.tenant(db), None),
            (_, TenantName::User(name)) => (Tenant::User(Arc::clone(name)), None),
            (_, TenantName::Client) => return None,
        };
        Some(Affinity { tenant, ddoc })
    }

    /// Returns the required language; `None`: that of its pool.
    pub(crate) fn spoken(&self) -> Option<&LanguageName> {
        match &self.what {
            What::Any => None,
            What::Language(language) => Some(language),
            What::Ddoc { ddoc, .. } => Some(&ddoc.language),
        }
    }

    /// Returns the ability that the language's query servers must have.
    pub(crate) fn needs(&self) -> Option<Ability> {
        matches!(self.what, What::Ddoc { .. }).then_some(Ability::Ddoc)
    }

    /// Returns the design document's id, or an empty string.
    pub(crate) fn ddoc_id(&self) -> String {
        match &self.what {
            What::Ddoc { ddoc, .. } => ddoc.key.id.to_string(),
            _ => String::new(),
        }
    }
}
