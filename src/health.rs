//! Health: what is wrong, since when, and what to do.
//!
//! SUMMARY   [`findings`] says what of the states of pools, services, replications and the fleet is a trouble;
//!           [`policy::problems`] which of these last. [`HealthBoard`] has the latest list for everybody who asks;
//!           [`report`] is what the daemons of a fleet tell each other of it.
//! CALLED    By the HealthWatcher, which looks every few seconds; by HTTP and metrics.

pub(crate) mod findings;
pub(crate) mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use settee_client::{Health, Problem as Told};

use crate::otp::wall_clock::system_time;
use policy::problems::{Kind, Problem, Severity};
use policy::schedule::WallTime;
use policy::time::Timestamp;

/// What is wrong now. Cheap to clone: all see the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthBoard(Arc<Mutex<Shown>>);

#[derive(Clone, Debug, Default)]
struct Shown {
    /// Who says so.
    daemon: String,
    /// Each with the time of day at which it began.
    problems: Vec<(Problem, WallTime)>,
}

impl HealthBoard {
    /// Shows these problems of a daemon from now on.
    pub fn show(&self, daemon: &str, now: Timestamp, problems: Vec<Problem>) {
        let today = system_time();
        let begun = |problem: &Problem| {
            let ago = u64::try_from(now.since(problem.since).as_micros()).unwrap_or(u64::MAX);
            WallTime::from_micros(today.as_micros().saturating_sub(ago))
        };
        let problems = problems.into_iter().map(|problem| {
            let since = begun(&problem);
            (problem, since)
        });
        *self.lock() = Shown {
            daemon: daemon.to_owned(),
            problems: problems.collect(),
        };
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many problems there are of each kind and severity that has any.
    pub fn counts(&self) -> BTreeMap<(Kind, Severity), u64> {
        let mut counts = BTreeMap::new();
        for (Problem { finding, .. }, _) in &self.lock().problems {
            *counts.entry((finding.kind, finding.severity)).or_default() += 1;
        }
        counts
    }

    /// Returns the kinds of problems for which the daemon cannot do what it is for: all of them, or those alone for
    /// which it cannot take calls of functions.
    pub fn disabling(&self, calls_alone: bool) -> Vec<&'static str> {
        let shown = self.lock();
        let kinds = shown
            .problems
            .iter()
            .map(|(problem, _)| problem.finding.kind);
        let disabling = kinds.filter(|kind| match kind {
            Kind::NoPoolWorks => true,
            Kind::StoreAway => !calls_alone,
            _ => false,
        });
        disabling.map(Kind::into).collect()
    }

    /// Returns what everybody is told.
    pub fn told(&self) -> Health {
        let now = system_time();
        let Shown { daemon, problems } = self.lock().clone();
        let worst = problems.iter().map(|(problem, _)| problem.finding.severity);
        let status = worst.min().map_or("ok", Severity::into);
        let told = problems.into_iter().map(|(problem, since)| {
            let finding = problem.finding;
            Told {
                kind: <&str>::from(finding.kind).to_owned(),
                severity: <&str>::from(finding.severity).to_owned(),
                subject: finding.subject,
                count: finding.count,
                since: since.to_string(),
                lasted_s: now.since(since).as_secs(),
                cause: finding.cause,
                remedy: finding.remedy,
            }
        });
        Health {
            status: status.to_owned(),
            daemon,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            problems: told.collect(),
            ..Health::default()
        }
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
