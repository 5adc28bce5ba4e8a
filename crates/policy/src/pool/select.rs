//! Which idle process a client gets.
//!
//! SUMMARY   The selection order of the pool, as one function over the idle indexes.
//! PROMISES  A request for a tenant's process gets one that is tagged for it, or one without a tag
//!           (PM-8, PM-24); where taught processes are lent, any if no design document is needed. Among
//!           equals the newest-created process.
//! SOURCE    couch_proc_manager 001, find_proc.

use super::id::{DdocKey, Tenant};
use super::idle::IdleIndex;
use super::ledger::RequestRow;
use super::settings::PoolSettings;
use super::tables::Pool;

/// Which processes can serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Those without a tag, and those of a tenant; each stays as it is.
    Shared(&'a Tenant),
    /// Those without a tag, if they know the design document or have learned it.
    Untagged(&'a DdocKey),
    /// Those of a tenant, and those without a tag, which get its tag.
    Of(&'a Tenant, Option<&'a DdocKey>),
}

impl<'a> Wanted<'a> {
    /// Returns the tag of the process that is going to serve the request.
    pub(crate) const fn tenant(self) -> Option<&'a Tenant> {
        match self {
            Self::Of(tenant, _) => Some(tenant),
            Self::Shared(_) | Self::Untagged(_) => None,
        }
    }

    /// Returns whose tagged processes can serve the request.
    pub(crate) const fn tag(self) -> Option<&'a Tenant> {
        match self {
            Self::Shared(tenant) | Self::Of(tenant, _) => Some(tenant),
            Self::Untagged(_) => None,
        }
    }
}

impl PoolSettings {
    /// Returns which processes can serve a request: the one place where reuse is decided.
    pub(crate) const fn wanted<'r>(&self, request: &'r RequestRow) -> Wanted<'r> {
        match (&request.ddoc, &request.tenant) {
            (ddoc, tenant) if self.keeps_apart() => Wanted::Of(tenant, ddoc.as_ref()),
            (None, tenant) => Wanted::Shared(tenant),
            (ddoc, tenant @ Tenant::Database(_)) => Wanted::Of(tenant, ddoc.as_ref()),
            (Some(ddoc), _) => Wanted::Untagged(ddoc),
        }
    }
}

/// An idle process, and what it needs before the client can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The process.
    pub(super) number: u64,
    /// How well it fits.
    pub(super) fit: Fit,
}

/// What a chosen process still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Nothing.
    Ready,
    /// It must learn the design document.
    Teach,
    /// It becomes tagged, and must learn the design document if there is one: another untagged
    /// process is opened in its place if there is a slot.
    Tag,
    /// It must forget another tenant, which has taught it no design document.
    Forget,
}

impl Pool {
    /// Chooses the idle process for a request that is next.
    pub(crate) fn choose(&self, request: &RequestRow) -> Option<Choice> {
        self.choose_own(request).or_else(|| {
            let number = self.lends_any_to(request).then(|| self.idle.last_resort());
            let fit = Fit::Ready;
            number.flatten().map(|number| Choice { number, fit })
        })
    }

    /// Whether any process can serve a request, if it is next.
    pub(super) fn lends_any_to(&self, request: &RequestRow) -> bool {
        let settings = &self.settings;
        settings.lends_taught && !settings.keeps_apart() && request.ddoc.is_none()
    }

    /// Chooses the idle process for a request from those without a tag and of its own. One that loses no design
    /// document forgets its tenant rather than that another process is opened.
    pub(crate) fn choose_own(&self, request: &RequestRow) -> Option<Choice> {
        let found = choose(&self.idle, self.settings.wanted(request));
        let is_apart =
            |choice: &Choice| choice.fit == Fit::Tag && self.offenders.is_apart(&request.tenant);
        found.filter(|choice| !is_apart(choice)).or_else(|| {
            let can_forget = self.settings.can_forget;
            let number = can_forget.then(|| self.idle.oldest_untaught()).flatten()?;
            let fit = Fit::Forget;
            Some(Choice { number, fit })
        })
    }
}

/// Returns the idle process for a client, or `None` when no idle process can serve it.
///
/// * shared: an untagged one; one of the tag;
/// * of a tenant: one of the tag that knows the design document; one of the tag; an untagged one;
/// * untagged (`db_tag = none`): one that knows the design document; another one, which stays
///   untagged.
fn choose(idle: &IdleIndex, wanted: Wanted<'_>) -> Option<Choice> {
    let ready = |number| Choice {
        number,
        fit: Fit::Ready,
    };
    let teach = |number| Choice {
        number,
        fit: Fit::Teach,
    };
    match wanted {
        Wanted::Shared(tenant) => {
            let tagged = || idle.newest_tagged(tenant, None).map(|(number, _)| number);
            idle.newest_untagged().or_else(tagged).map(ready)
        }
        Wanted::Untagged(ddoc) => idle
            .newest_untagged_knowing(ddoc)
            .map(ready)
            .or_else(|| idle.newest_untagged().map(teach)),
        Wanted::Of(tenant, ddoc) => match idle.newest_tagged(tenant, ddoc) {
            Some((number, true)) => Some(ready(number)),
            Some((number, false)) => Some(teach(number)),
            None => idle.newest_untagged().map(|number| Choice {
                number,
                fit: Fit::Tag,
            }),
        },
    }
}
