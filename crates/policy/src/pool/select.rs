//! Which idle process a client gets.
//!
//! SUMMARY   The selection order of the pool, as one function over the idle indexes.
//! PROMISES  Never a process that is tagged for another database than a design-document client's
//!           (PM-8). Among equals the newest-created process.
//! SOURCE    couch_proc_manager 001, find_proc and pick_idle.

use super::id::Affinity;
use super::idle::IdleIndex;
use super::ledger::RequestRow;
use super::tables::Pool;

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
    /// It must learn the design document and becomes tagged by it: another untagged process is
    /// opened in its place if there is a slot.
    TeachAndReplenish,
}

impl Pool {
    /// Chooses the idle process for a request.
    pub(crate) fn choose(&self, request: &RequestRow) -> Option<Choice> {
        choose(&self.idle, request.affinity.as_ref())
    }
}

/// Returns the idle process for a client, or `None` when no idle process can serve it.
///
/// * no design document: an untagged one; else any at all, of the largest tag;
/// * design document and tag: one of the tag that knows it; one of the tag; an untagged one;
/// * design document without a tag (`db_tag = none`): an untagged one that knows it; an untagged
///   one, which stays untagged.
fn choose(idle: &IdleIndex, wanted: Option<&Affinity>) -> Option<Choice> {
    let ready = |number| Choice {
        number,
        fit: Fit::Ready,
    };
    let teach = |number| Choice {
        number,
        fit: Fit::Teach,
    };
    match wanted {
        None => idle
            .newest_untagged()
            .or_else(|| idle.last_resort())
            .map(ready),
        Some(Affinity { db: None, ddoc }) => idle
            .newest_untagged_knowing(ddoc)
            .map(ready)
            .or_else(|| idle.newest_untagged().map(teach)),
        Some(Affinity { db: Some(db), ddoc }) => match idle.newest_tagged(db, ddoc) {
            Some((number, true)) => Some(ready(number)),
            Some((number, false)) => Some(teach(number)),
            None => idle.newest_untagged().map(|number| Choice {
                number,
                fit: Fit::TeachAndReplenish,
            }),
        },
    }
}
