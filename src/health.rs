//! Health: problems, when they began, and their remedies.
//!
//! SUMMARY   [`findings`] finds problems in the states of pools, services, replications and the fleet; [`problems`]
//!           reports those that persist. [`HealthBoard`] holds the latest list for all readers; [`losses`] keeps losses
//!           across restarts; [`report`] is exchanged by the daemons of a fleet.
//! CALLED    By the HealthWatcher, every few seconds; by HTTP and metrics.

pub(crate) mod findings;
pub(crate) mod losses;
pub(crate) mod problems;
pub(crate) mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use settee_client::{Health, Problem};

use crate::lock;
use crate::otp::system_time;
use crate::query_server::call::micros;
use findings::Kind;
use losses::OpenLosses;
use policy::schedule::WallTime;
use policy::time::Timestamp;

/// Current problems and acknowledged losses. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthBoard(Arc<Mutex<Board>>);

#[derive(Debug, Default)]
struct Board {
    health: Health,
    /// Losses of earlier runs minus acknowledged losses, by kind and subject; added to the losses since the start.
    besides: BTreeMap<(String, String), i64>,
    /// The losses in the store, once read.
    kept: Option<OpenLosses>,
}

impl HealthBoard {
    /// Sets the problems of a daemon, worst first, with the time at which each was first found.
    pub fn show(&self, daemon: &str, now: Timestamp, problems: Vec<(Problem, Timestamp)>) {
        let today = system_time();
        let problems = problems.into_iter().map(|(mut problem, since)| {
            let since =
                WallTime::from_micros(today.as_micros().saturating_sub(micros(now.since(since))));
            problem.since = since.to_string();
            problem
        });
        let shown = &mut lock(&self.0).health;
        daemon.clone_into(&mut shown.daemon);
        shown.problems = problems.collect();
    }

    /// Acknowledges losses of a kind, for one subject or all: removes them until more is lost. Returns them.
    pub fn acknowledge(&self, kind: Kind, subject: Option<&str>) -> Vec<Problem> {
        let kind: &str = kind.into();
        let mut board = lock(&self.0);
        let Board {
            health, besides, ..
        } = &mut *board;
        let is_meant = |problem: &mut Problem| {
            problem.kind == kind && subject.is_none_or(|subject| problem.subject == subject)
        };
        let taken: Vec<Problem> = health.problems.extract_if(.., is_meant).collect();
        for Problem { subject, count, .. } in &taken {
            *besides
                .entry((kind.to_owned(), subject.clone()))
                .or_default() -= count.cast_signed();
        }
        taken
    }

    /// Returns the unacknowledged part of a loss; `count` was lost since the start.
    pub fn open(&self, kind: Kind, subject: &str, count: u64) -> u64 {
        let kind: &str = kind.into();
        let besides = &lock(&self.0).besides;
        count.saturating_add_signed(
            besides
                .get(&(kind.to_owned(), subject.to_owned()))
                .copied()
                .unwrap_or(0),
        )
    }

    /// Adds the subjects with losses of this kind in earlier runs to `counts`, with 0 losses since the start.
    pub fn with_earlier(&self, kind: Kind, counts: &mut BTreeMap<String, u64>) {
        let kind: &str = kind.into();
        let board = lock(&self.0);
        for (_, subject) in board.besides.keys().filter(|(of, _)| of == kind) {
            counts.entry(subject.clone()).or_default();
        }
    }

    /// Loads the losses of earlier runs from the store.
    pub fn restore(&self, losses: OpenLosses) {
        let mut board = lock(&self.0);
        for (kind, of_kind) in &losses {
            for (subject, count) in of_kind {
                *board
                    .besides
                    .entry((kind.clone(), subject.clone()))
                    .or_default() += count.cast_signed();
            }
        }
        board.kept = Some(losses);
    }

    /// Returns the losses in the store; `None` before they were read.
    pub fn kept(&self) -> Option<OpenLosses> {
        lock(&self.0).kept.clone()
    }

    /// Records that these losses are in the store now.
    pub fn keep(&self, losses: OpenLosses) {
        lock(&self.0).kept = Some(losses);
    }

    /// Returns the number of problems by kind and severity.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        let mut counts = BTreeMap::new();
        for Problem { kind, severity, .. } in &lock(&self.0).health.problems {
            *counts.entry((kind.clone(), severity.clone())).or_default() += 1;
        }
        counts
    }

    /// Returns the kinds of problems that disable the daemon; `calls_alone`: only those that prevent function calls.
    pub fn disabling(&self, calls_alone: bool) -> Vec<String> {
        let board = lock(&self.0);
        board
            .health
            .problems
            .iter()
            .map(|problem| &problem.kind)
            .filter(|kind| match kind.parse() {
                Ok(Kind::NoPoolWorks) => true,
                Ok(Kind::StoreAway) => !calls_alone,
                _ => false,
            })
            .cloned()
            .collect()
    }

    /// Returns the current health.
    pub fn told(&self) -> Health {
        let mut health = lock(&self.0).health.clone();
        let worst = health.problems.first();
        health.status = worst.map_or("ok", |worst| &worst.severity).to_owned();
        env!("CARGO_PKG_VERSION").clone_into(&mut health.version);
        report::lasting(health)
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn every_kind_of_problem_is_in_the_page_and_in_the_alerts() {
        let page = include_str!("../docs/operations.md");
        let alerts = include_str!("../monitoring/alerts.yml");
        for kind in Kind::VARIANTS {
            let name: &str = kind.into();
            assert_eq!(
                page.matches(&format!("\n| `{name}` |")).count(),
                1,
                "{name}"
            );
            let words = format!("eq $labels.kind \"{name}\" }}}}");
            assert!(alerts.contains(&words), "{name}");
        }
    }
}
