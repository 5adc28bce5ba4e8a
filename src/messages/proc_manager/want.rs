//! What a client asks for: a language or a design document, from which pools, for which kind of work.

use std::sync::Arc;

use crate::query_server::abilities::Ability;
use crate::query_server::ddoc::Ddoc;
use crate::query_server::language::LanguageName;
use policy::pool::db_tag::DbTag;
use policy::pool::{Affinity, Lane, Tenant};

/// What a client wants a process for.
#[derive(Clone, Debug)]
pub struct Want {
    /// What the process is to speak or know.
    pub what: What,
    /// The pools that may serve it.
    pub from: TakeFrom,
    /// What kind of work it is for.
    pub lane: Lane,
    /// Whose functions it is to run, where no design document says it.
    pub tenant: TenantName,
}

/// Whose functions a process is to run. Where processes are not shared (`reuse = "database"`), one that
/// ran them runs nobody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantName {
    /// The client's own.
    #[default]
    Client,
    /// A database's, as the client names it; what of it counts is a setting (`db_tag`).
    Database(Arc<str>),
    /// A user's.
    User(Arc<str>),
}

/// None is the client itself.
impl From<Option<Arc<str>>> for TenantName {
    fn from(db: Option<Arc<str>>) -> Self {
        db.map_or(Self::Client, Self::Database)
    }
}

/// What a process is to speak or know.
#[derive(Clone, Debug)]
pub enum What {
    /// Whatever the pool speaks, or the group.
    Any,
    /// Any process of a language (`get_proc(Lang)`).
    Language(LanguageName),
    /// A process that knows a design document (`get_proc(DDoc, DbKey, DDocKey)`).
    Ddoc {
        /// The database, as the client names it; what of it counts is a setting (`db_tag`).
        db: Arc<str>,
        /// The design document; its language is its own.
        ddoc: Arc<Ddoc>,
    },
}

/// The pools that may serve a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TakeFrom {
    /// The language's own.
    #[default]
    Own,
    /// The one of this name.
    Pool(Arc<str>),
    /// Any of this group.
    Group(Arc<str>),
    /// Any of the language, its own among them.
    Any,
}

impl Want {
    /// Wants any process of a language, from its own pool.
    pub fn language(language: LanguageName) -> Self {
        Self {
            what: What::Language(language),
            from: TakeFrom::Own,
            lane: Lane::Bulk,
            tenant: TenantName::Client,
        }
    }

    /// Wants a process that knows a design document, from its language's own pool.
    pub fn ddoc(db: Arc<str>, ddoc: Arc<Ddoc>) -> Self {
        Self {
            what: What::Ddoc { db, ddoc },
            from: TakeFrom::Own,
            lane: Lane::Interactive,
            tenant: TenantName::Client,
        }
    }

    /// Wants whatever a pool or a group has.
    pub fn any_from(from: TakeFrom) -> Self {
        Self {
            what: What::Any,
            from,
            lane: Lane::Bulk,
            tenant: TenantName::Client,
        }
    }

    /// Wants it from these pools.
    #[must_use]
    pub fn from(mut self, from: TakeFrom) -> Self {
        self.from = from;
        self
    }

    /// Wants it for functions of this tenant. Those of a design document are their database's.
    #[must_use]
    pub fn of(mut self, tenant: impl Into<TenantName>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Returns what the pool learns of it.
    pub(crate) fn affinity(&self, db_tag: DbTag) -> Option<Affinity> {
        let (tenant, ddoc) = match (&self.what, &self.tenant) {
            (What::Ddoc { db, ddoc }, _) => (db_tag.tenant(db), Some(ddoc.key.clone())),
            (_, TenantName::Database(db)) => (db_tag.tenant(db), None),
            (_, TenantName::User(name)) => (Tenant::User(Arc::clone(name)), None),
            (_, TenantName::Client) => return None,
        };
        Some(Affinity { tenant, ddoc })
    }

    /// Returns the language that it takes; `None`: that of its pool.
    pub(crate) fn spoken(&self) -> Option<&LanguageName> {
        match &self.what {
            What::Any => None,
            What::Language(language) => Some(language),
            What::Ddoc { ddoc, .. } => Some(&ddoc.language),
        }
    }

    /// Returns what the language's query servers must be able to do for it.
    pub(crate) fn needs(&self) -> Option<Ability> {
        matches!(self.what, What::Ddoc { .. }).then_some(Ability::Ddoc)
    }

    /// Returns the design document's id, empty without one.
    pub(crate) fn ddoc_id(&self) -> String {
        match &self.what {
            What::Any | What::Language(_) => String::new(),
            What::Ddoc { ddoc, .. } => ddoc.key.id.to_string(),
        }
    }
}
