//! Selects the idle process that a client gets.
//!
//! SUMMARY   The pool's selection order, as one function over the idle indexes.
//! PROMISES  A request for a tenant's process gets one that is tagged for it, or one without a tag
//!           (PM-8, PM-24); where taught processes are lent, any if no design document is needed. Among
//!           equals the newest process, as the pool defines it.
//! SOURCE    couch_proc_manager 001, find_proc.

use super::idle::IdleIndex;
use super::{DdocKey, Pool, PoolSettings, RequestRow, Tenant};

/// Which processes can serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Untagged ones, and those of a tenant; tags stay as they are.
    Shared(&'a Tenant),
    /// Untagged ones, which learn the design document unless they know it.
    Untagged(&'a DdocKey),
    /// Those of a tenant, and untagged ones, which get its tag.
    Of(&'a Tenant, Option<&'a DdocKey>),
}

impl<'a> Wanted<'a> {
    /// Returns the tag that the chosen process will have.
    pub const fn tenant(self) -> Option<&'a Tenant> {
        match self {
            Self::Of(tenant, _) => Some(tenant),
            Self::Shared(_) | Self::Untagged(_) => None,
        }
    }

    /// Returns the tenant whose tagged processes can serve the request.
    pub const fn tag(self) -> Option<&'a Tenant> {
        match self {
            Self::Shared(tenant) | Self::Of(tenant, _) => Some(tenant),
            Self::Untagged(_) => None,
        }
    }
}

impl PoolSettings {
    /// Returns which processes can serve a request. Only this decides about reuse.
    pub(crate) const fn wanted<'r>(&self, request: &'r RequestRow) -> Wanted<'r> {
        match (&request.ddoc, &request.tenant) {
            (ddoc, tenant) if self.keeps_apart() => Wanted::Of(tenant, ddoc.as_ref()),
            (None, tenant) => Wanted::Shared(tenant),
            (ddoc, tenant @ Tenant::Database(_)) => Wanted::Of(tenant, ddoc.as_ref()),
            (Some(ddoc), _) => Wanted::Untagged(ddoc),
        }
    }
}

/// An idle process, and what it needs before it can be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub number: u64,
    pub fit: Fit,
}

/// Preparation that a chosen process still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Ready,
    /// It must learn the design document.
    Teach,
    /// It becomes tagged, and learns the design document if there is one; an untagged process is opened to replace it
    /// if there is a slot.
    Tag,
    /// It must forget another tenant, which has taught it no design document.
    Forget,
}

impl Pool {
    /// Chooses the idle process for the next request.
    pub fn choose(&self, request: &RequestRow) -> Option<Choice> {
        self.choose_own(request).or_else(|| {
            let number = self.lends_any_to(request).then(|| self.idle.last_resort());
            let fit = Fit::Ready;
            number.flatten().map(|number| Choice { number, fit })
        })
    }

    /// Whether any process can serve this request when its turn comes.
    pub fn lends_any_to(&self, request: &RequestRow) -> bool {
        let settings = &self.settings;
        settings.lends_taught && !settings.keeps_apart() && request.ddoc.is_none()
    }

    /// Chooses the idle process for a request among untagged ones and the tenant's own. A process without design
    /// documents to lose forgets its tenant, which is cheaper than opening one.
    pub fn choose_own(&self, request: &RequestRow) -> Option<Choice> {
        let found = choose(&self.idle, self.settings.wanted(request));
        // Without isolates every process has one tenant.
        let has_isolates = self.settings.isolates_max > 0;
        let is_apart = |choice: &Choice| {
            choice.fit == Fit::Tag && has_isolates && self.offenders.is_apart(&request.tenant)
        };
        found.filter(|choice| !is_apart(choice)).or_else(|| {
            let can_forget = self.settings.can_forget;
            let number = can_forget.then(|| self.idle.oldest_untaught()).flatten()?;
            let fit = Fit::Forget;
            Some(Choice { number, fit })
        })
    }
}

/// Returns the idle process for a client, or `None` when no idle process can serve it. In order of preference:
///
/// * shared: an untagged process; a process with the tag;
/// * of a tenant: a process with the tag that knows the design document; any process with the tag; an untagged process;
/// * untagged (`db_tag = none`): one that knows the design document; any other, which stays untagged.
fn choose(idle: &IdleIndex, wanted: Wanted<'_>) -> Option<Choice> {
    let untagged = || idle.newest(None, None);
    let found = match wanted {
        Wanted::Shared(tenant) => untagged().or_else(|| idle.newest(Some(tenant), None)),
        Wanted::Untagged(ddoc) => idle.newest(None, Some(ddoc)),
        Wanted::Of(tenant, ddoc) => idle.newest(Some(tenant), ddoc),
    };
    let (number, fit) = match (found, wanted) {
        (Some((number, true)), _) => (number, Fit::Ready),
        (Some((number, false)), _) => (number, Fit::Teach),
        (None, Wanted::Of(..)) => (untagged()?.0, Fit::Tag),
        (None, Wanted::Shared(_) | Wanted::Untagged(_)) => return None,
    };
    Some(Choice { number, fit })
}
