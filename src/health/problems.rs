//! Problems: troubles that have lasted, and when they began.
//!
//! SUMMARY   Each check adds its findings. [`Problems`] reports those that have lasted.
//! PROMISES  A trouble is reported once it has lasted the delay of its [`Kind`], with the time at which it was first
//!           found, until it has not been found for [`OVER_AFTER`]: nothing flaps. Losses end when they are
//!           acknowledged. The worst come first.
//! LIMITS    At most [`PROBLEMS_MAX`]: beyond that the least severe are omitted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use settee_client::Problem;

use super::findings::Kind;
use policy::time::Timestamp;

/// How long a trouble must be absent before it is over.
const OVER_AFTER: Duration = Duration::from_secs(6);

/// Maximum number of reported problems.
const PROBLEMS_MAX: usize = 1000;

/// Everything found recently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    seen: BTreeMap<(Kind, String), Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    found: Problem,
    first: Timestamp,
    last: Timestamp,
}

impl Problems {
    /// Adds the findings of a check; a finding replaces the earlier one of the same kind and subject.
    pub fn look(&mut self, now: Timestamp, problems: Vec<Problem>) {
        for found in problems {
            let Ok(kind) = found.kind.parse() else {
                continue;
            };
            let key = (kind, found.subject.clone());
            let first = self.seen.get(&key).map_or(now, |seen| seen.first);
            let seen = Seen {
                found,
                first,
                last: now,
            };
            self.seen.insert(key, seen);
        }
        // An acknowledged loss is over at once.
        self.seen.retain(|(kind, _), seen| {
            seen.last == now || !kind.is_loss() && now.since(seen.last) < OVER_AFTER
        });
    }

    /// Returns the problems with the time at which each was first found, worst first: critical ones, then those with
    /// the highest count, then the oldest.
    pub fn list(&self) -> Vec<(Problem, Timestamp)> {
        let lasted = |((kind, _), seen): &(&(Kind, String), &Seen)| {
            seen.last.since(seen.first) >= kind.delay()
        };
        let mut list: Vec<&Seen> = self
            .seen
            .iter()
            .filter(lasted)
            .map(|(_, seen)| seen)
            .collect();
        list.sort_by_key(|seen| (&seen.found.severity, Reverse(seen.found.count), seen.first));
        list.truncate(PROBLEMS_MAX);
        list.into_iter()
            .map(|seen| (seen.found.clone(), seen.first))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::findings::{CRITICAL, WARNING};

    fn finding(kind: Kind, severity: &str, subject: &str) -> Problem {
        Problem {
            severity: severity.to_owned(),
            ..kind.found(subject, 1, "", "")
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn told(problems: &Problems) -> Vec<(String, u64)> {
        let list = problems.list().into_iter();
        list.map(|(problem, since)| (problem.subject, since.since(Timestamp::ZERO).as_secs()))
            .collect()
    }

    #[test]
    fn a_trouble_is_reported_after_the_delay_of_its_kind_with_the_time_it_began() {
        let mut problems = Problems::default();
        let delay = Kind::PoolCrowded.delay().as_secs();
        for second in 0..=delay {
            assert_eq!(told(&problems), []);
            problems.look(
                at(10 + second),
                vec![finding(Kind::PoolCrowded, WARNING, "js")],
            );
        }
        assert_eq!(told(&problems), [("js".to_owned(), 10)]);
    }

    #[test]
    fn a_trouble_that_comes_and_goes_is_one_problem_until_it_stays_away() {
        let mut problems = Problems::default();
        for second in (0..60).step_by(4) {
            problems.look(at(second), vec![finding(Kind::PoolFailing, CRITICAL, "js")]);
            problems.look(at(second + 2), Vec::new());
            assert_eq!(told(&problems), [("js".to_owned(), 0)], "{second}");
        }
        problems.look(at(56) + OVER_AFTER, Vec::new());
        assert_eq!(told(&problems), []);
        problems.look(at(100), vec![finding(Kind::PoolFailing, CRITICAL, "js")]);
        assert_eq!(told(&problems), [("js".to_owned(), 100)]);
    }

    #[test]
    fn problems_are_ordered_by_severity_then_count_then_age() {
        let mut problems = Problems::default();
        let warning = finding(Kind::CellIncomplete, WARNING, "old");
        problems.look(at(1), vec![warning.clone()]);
        let bad = |subject| finding(Kind::ReplicationsFailing, CRITICAL, subject);
        problems.look(at(2), vec![warning.clone(), bad("first")]);
        let mut outage = bad("outage");
        outage.count = 12;
        problems.look(at(3), vec![warning, bad("second"), bad("first"), outage]);
        let subjects: Vec<_> = told(&problems)
            .into_iter()
            .map(|(subject, _)| subject)
            .collect();
        assert_eq!(subjects, ["outage", "first", "second", "old"]);
    }

    #[test]
    fn a_problem_has_the_count_and_the_severity_of_the_latest_check() {
        let mut problems = Problems::default();
        let mut jobs = finding(Kind::ReplicationsFailing, WARNING, "database missing");
        problems.look(at(1), vec![jobs.clone()]);
        (jobs.count, jobs.severity) = (200, CRITICAL.to_owned());
        problems.look(at(3), vec![jobs.clone()]);
        assert_eq!(problems.list(), [(jobs, at(1))]);
    }
}
