//! Deliberate mistakes: each violates an invariant.

use super::daemon::Daemon;
use super::database::{Mistakes, Ms};
use super::histories::history;
use super::*;

/// A daemon's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    None,
    /// The lease never ends on the daemon's own clock.
    NeverGivesUp,
    /// A refused renewal counts as granted.
    TakesRefusalForRenewal,
    /// Documents missing from a renewal's list are kept.
    KeepsUnlisted,
    /// Unknown documents in a renewal's list are not released.
    ForgetsListed,
    /// Documents are released before their jobs have stopped.
    ReleasesRunning,
    /// Unexpected ends of jobs are ignored.
    IgnoresEnds,
    /// Documents are released only while a server is unreachable.
    KeepsSurplus,
    /// A checkpoint is bounded by the lease's remaining time when it began.
    ChecksLeaseOnce,
    /// Unreachable servers are not reported.
    ReportsNoServers,
}

impl Sabotage {
    /// Changes the core's events.
    pub(super) fn event(self, event: Event, daemon: &Daemon) -> Option<Event> {
        let held = || daemon.core.docs.rows.iter();
        Some(match (self, event) {
            (Self::TakesRefusalForRenewal, Event::NotRenewed { request }) => Event::Renewed {
                request,
                docs: held()
                    .map(|(doc, held)| ListedDoc {
                        doc: doc.clone(),
                        claim: held.claim,
                        wanted: true,
                        standing: Standing::Shared,
                    })
                    .collect(),
                counts: Counts {
                    wanted: 12,
                    live: 1,
                },
            },
            (
                Self::KeepsUnlisted,
                Event::Renewed {
                    request,
                    mut docs,
                    counts,
                },
            ) => {
                let known: Vec<_> = held().filter(|(_, held)| held.is_owned()).collect();
                let is_known = |row: &ListedDoc| known.iter().any(|(doc, _)| **doc == row.doc);
                let (listed, others): (Vec<_>, Vec<_>) = docs.into_iter().partition(is_known);
                docs = others;
                docs.extend(known.iter().map(|(doc, held)| {
                    let row = listed.iter().find(|row| row.doc == **doc);
                    ListedDoc {
                        doc: DocId::clone(doc),
                        claim: held.claim,
                        wanted: true,
                        standing: row.map_or(Standing::Shared, |row| row.standing.clone()),
                    }
                }));
                Event::Renewed {
                    request,
                    docs,
                    counts,
                }
            }
            (
                Self::ForgetsListed,
                Event::Renewed {
                    request,
                    mut docs,
                    counts,
                },
            ) => {
                docs.retain(|row| daemon.core.docs.rows.contains_key(&row.doc));
                Event::Renewed {
                    request,
                    docs,
                    counts,
                }
            }
            (Self::IgnoresEnds, Event::Stopped { doc, .. })
                if daemon.core.docs.is_running(&doc) =>
            {
                return None;
            }
            (Self::ReleasesRunning, Event::Released { .. })
            | (Self::ReportsNoServers, Event::ServerReach { .. }) => return None,
            (_, event) => event,
        })
    }

    /// Changes the remaining lease that a running checkpoint sees.
    pub(super) fn left(self, left: Option<Ms>) -> Option<Ms> {
        left.filter(|_| self != Self::ChecksLeaseOnce)
    }

    /// Corrupts the core before it handles an event.
    pub(super) fn before(self, core: &mut Ownership, now: Duration) {
        if let (Self::NeverGivesUp, Some(lease)) = (self, &mut core.lease) {
            lease.sent = now;
        }
    }

    /// Changes the core's actions.
    pub(super) fn action(self, action: OwnerAction, core: &mut Ownership) -> Option<OwnerAction> {
        match (self, &action) {
            (Self::ReleasesRunning, OwnerAction::GiveBack { doc, .. }) => {
                core.docs.unused.insert(doc.clone());
            }
            (Self::KeepsSurplus, OwnerAction::GiveBack { .. })
                if core.servers.unreached.is_empty() =>
            {
                return None;
            }
            _ => {}
        }
        Some(action)
    }
}

/// Maximum number of histories until a mistake is found.
const HISTORIES_MAX: u64 = 2_000;

/// Asserts that one of these invariants reveals the mistake in one of many histories.
fn is_found(by: &[&str], sabotage: Sabotage, mistakes: Mistakes) {
    is_found_from(1, by, sabotage, mistakes);
}

/// The same, for histories starting at a seed: some mistakes need a rare coincidence.
fn is_found_from(seed: u64, by: &[&str], sabotage: Sabotage, mistakes: Mistakes) {
    let seeds = seed..seed + HISTORIES_MAX;
    let found = seeds
        .into_iter()
        .find_map(|seed| history(seed, sabotage, mistakes, false).judge.violation);
    let found = found.unwrap_or_else(|| panic!("{sabotage:?} {mistakes:?} is not found"));
    let is_named = by.iter().any(|name| found.starts_with(name));
    assert!(is_named, "{sabotage:?} {mistakes:?}: {found}");
}

fn daemon_is_found(by: &[&str], sabotage: Sabotage) {
    is_found(by, sabotage, Mistakes::default());
}

fn database_is_found(by: &[&str], change: fn(&mut Mistakes)) {
    let mut mistakes = Mistakes::default();
    change(&mut mistakes);
    is_found(by, Sabotage::None, mistakes);
}

#[test]
fn a_daemon_that_outlives_its_lease_is_found() {
    daemon_is_found(&["FL-1", "FL-3"], Sabotage::NeverGivesUp);
}

#[test]
fn a_refusal_treated_as_a_renewal_is_found() {
    daemon_is_found(&["FL-1", "FL-2", "FL-3"], Sabotage::TakesRefusalForRenewal);
}

#[test]
fn a_claim_kept_after_a_failover_lost_it_is_found() {
    daemon_is_found(&["FL-1", "FL-2"], Sabotage::KeepsUnlisted);
}

#[test]
fn an_unreleased_claim_whose_answer_was_lost_is_found() {
    daemon_is_found(&["FL-2"], Sabotage::ForgetsListed);
}

#[test]
fn a_document_released_while_its_job_runs_is_found() {
    daemon_is_found(&["FL-1"], Sabotage::ReleasesRunning);
}

#[test]
fn a_document_kept_after_its_outcome_is_found() {
    daemon_is_found(&["FL-2", "FL-4"], Sabotage::IgnoresEnds);
}

#[test]
fn a_daemon_that_never_releases_surplus_documents_is_found() {
    // Some histories reveal the mistake by the share, others by unreachable servers.
    for by in ["FL-2", "FL-6"] {
        let is_found = |seed| {
            let world = history(seed, Sabotage::KeepsSurplus, Mistakes::default(), false);
            let violation = world.judge.violation;
            violation.is_some_and(|found| found.starts_with(by))
        };
        assert!((1..HISTORIES_MAX).any(is_found), "{by}");
    }
}

#[test]
fn a_checkpoint_abandoned_under_a_renewed_lease_is_found() {
    daemon_is_found(&["FL-5"], Sabotage::ChecksLeaseOnce);
}

#[test]
fn a_daemon_that_keeps_documents_of_unreachable_servers_is_found() {
    daemon_is_found(&["FL-6"], Sabotage::ReportsNoServers);
}

#[test]
fn a_claim_of_a_document_that_the_daemon_must_avoid_is_found() {
    database_is_found(&["FL-7"], |mistakes| {
        mistakes.claims_closed_documents = true
    });
}

#[test]
fn documents_that_no_daemon_may_claim_are_found() {
    database_is_found(&["FL-2"], |mistakes| mistakes.closes_to_all = true);
}

#[test]
fn a_release_that_ends_a_later_claim_is_found() {
    let mistakes = Mistakes {
        releases_any_claim: true,
        ..Mistakes::default()
    };
    is_found_from(11_150, &["FL-1"], Sabotage::None, mistakes);
}

#[test]
fn epochs_that_a_failover_repeats_are_found() {
    database_is_found(&["FL-1", "FL-4"], |mistakes| mistakes.counts_epochs = true);
}

#[test]
fn a_claim_of_a_leased_document_is_found() {
    database_is_found(&["FL-1"], |mistakes| mistakes.ignores_leases = true);
}
