//! A daemon's report of its problems to the other daemons of a fleet.
//!
//! SUMMARY   [`Report`] is written by one daemon and read by the others; [`of_fleet`] merges all reports.
//! PROMISES  A report changes only when the problems do: it has start times, and readers compute durations.
//! LIMITS    [`REPORT_BYTES_MAX`]: beyond it, the least severe problems are dropped and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use settee_client::{FleetHealth, Health};

use crate::otp::system_time;
use policy::schedule::WallTime;

/// Maximum length of a report's text, in bytes.
const REPORT_BYTES_MAX: usize = 64 * 1024;

/// The status of a daemon without a report so far.
const UNKNOWN: &str = "unknown";

/// A daemon's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// Its problems, as in `/_health`.
    pub health: Health,
    /// Digests of the settings that should agree on all daemons, by section or family of sections.
    pub settings: BTreeMap<String, String>,
}

impl Report {
    /// Returns its text, with as many problems as fit.
    pub fn text(mut self) -> String {
        let mut problems = std::mem::take(&mut self.health.problems);
        self.health.omitted = problems.len() as u64;
        let mut room = REPORT_BYTES_MAX.saturating_sub(text(&self).len());
        problems.iter_mut().for_each(|problem| problem.lasted_s = 0);
        let fitting = problems
            .iter()
            .take_while(|problem| {
                let left = room.checked_sub(text(problem).len() + ",".len());
                room = left.unwrap_or(0);
                left.is_some()
            })
            .count();
        self.health.omitted -= fitting as u64;
        problems.truncate(fitting);
        self.health.problems = problems;
        text(&self)
    }

    /// Parses a daemon's report; `None` if this version cannot.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the reported problems; `age` is the report's age.
    pub fn health(&self, age: Duration) -> Health {
        let mut health = lasting(self.health.clone());
        health.age_s = Some(age.as_secs());
        health
    }
}

/// Sets how long each problem has lasted.
pub(crate) fn lasting(mut health: Health) -> Health {
    let now = system_time();
    for problem in &mut health.problems {
        let since = WallTime::parse(&problem.since);
        problem.lasted_s = since.map_or(0, |since| now.since(since).as_secs());
    }
    health
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the health of a daemon without a report.
pub(crate) fn untold(daemon: &str, version: &str) -> Health {
    Health {
        status: UNKNOWN.to_owned(),
        daemon: daemon.to_owned(),
        version: version.to_owned(),
        ..Health::default()
    }
}

/// Returns the health of all daemons, this one first.
pub(crate) fn of_fleet(own: Health, others: Vec<Health>) -> FleetHealth {
    let daemons: Vec<Health> = [vec![own], others].concat();
    let rank = |health: &&Health| match health.status.as_str() {
        "critical" => 2,
        "ok" | UNKNOWN => 0,
        _ => 1,
    };
    let status = match daemons.iter().max_by_key(rank) {
        Some(worst) if rank(&worst) > 0 => worst.status.clone(),
        _ => "ok".to_owned(),
    };
    FleetHealth { status, daemons }
}

#[cfg(test)]
mod tests {
    use settee_client::Problem;

    use super::*;

    fn problem(n: usize, cause: String) -> Problem {
        Problem {
            kind: "pool_failing".to_owned(),
            severity: "critical".to_owned(),
            subject: n.to_string(),
            since: "2026-11-26T10:00:00Z".to_owned(),
            lasted_s: 7,
            cause,
            ..Problem::default()
        }
    }

    fn health(status: &str, problems: Vec<Problem>) -> Health {
        Health {
            status: status.to_owned(),
            daemon: "a:1".to_owned(),
            problems,
            ..Health::default()
        }
    }

    fn report(health: Health) -> Report {
        let settings = [("replicator".to_owned(), "1".to_owned())].into();
        Report { health, settings }
    }

    #[test]
    fn a_report_is_read_as_written_with_its_age_and_the_duration_of_its_problems() {
        let health = health("critical", vec![problem(1, "\0\u{1f525}".to_owned())]);
        let written = report(health).text();
        let told = Report::read(&written)
            .unwrap()
            .health(Duration::from_secs(3));
        assert_eq!((told.daemon.as_str(), told.age_s), ("a:1", Some(3)));
        assert_eq!(told.problems[0].cause, "\0\u{1f525}");
        assert!(told.problems[0].lasted_s < 7 || told.problems[0].lasted_s > 60);
        assert!(!written.contains("\"lasted_s\":7"), "{written}");
        assert_eq!(Report::read("{\"health\":7}"), None);
        assert_eq!(Report::read("{\"new\":{}}"), Some(Report::default()));
    }

    #[test]
    fn a_report_has_the_first_problems_that_fit_and_counts_the_others() {
        const PROBLEMS: usize = 1000;
        let problems = (0..PROBLEMS).map(|n| problem(n, "\"".repeat(n)));
        let health = health("critical", problems.collect());
        let written = report(health).text();
        assert!(written.len() <= REPORT_BYTES_MAX, "{}", written.len());
        assert!(
            written.len() > REPORT_BYTES_MAX * 9 / 10,
            "{}",
            written.len()
        );
        let told = Report::read(&written).unwrap().health;
        let subjects = told.problems.iter().map(|told| told.subject.clone());
        assert!(subjects.eq((0..told.problems.len()).map(|n| n.to_string())));
        assert_eq!(told.problems.len() + told.omitted as usize, PROBLEMS);
    }

    #[test]
    fn a_fleet_has_the_status_of_its_worst_daemon_ignoring_unknown_ones() {
        let status = |own, others: &[&str]| {
            let others = others.iter().map(|status| health(status, vec![]));
            of_fleet(health(own, vec![]), others.collect()).status
        };
        assert_eq!(status("ok", &[]), "ok");
        assert_eq!(status("ok", &["unknown", "ok"]), "ok");
        assert_eq!(status("ok", &["warning", "ok"]), "warning");
        assert_eq!(
            status("warning", &["ok", "critical", "unknown"]),
            "critical"
        );
        assert_eq!(status("critical", &["warning"]), "critical");
    }
}
