//! What is wrong: which of the troubles that somebody sees at a look are problems, and since when.
//!
//! SUMMARY   Every look brings what it found, as [`Finding`]s. [`Problems`] tells those that have lasted.
//! PROMISES  A trouble is told once it has been there for the delay of its [`Kind`], with the time at which it was first
//!           found, and until it has not been found for [`OVER_AFTER`]: nothing flaps. The worst come first.
//! LIMITS    At most [`PROBLEMS_MAX`]: of more, the least are left out.

use std::collections::BTreeMap;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use crate::time::Timestamp;

/// For how long a trouble is not found any more before it is over.
pub const OVER_AFTER: Duration = Duration::from_secs(6);

/// How many problems are told.
pub const PROBLEMS_MAX: usize = 1000;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Something does not do what it is for.
    Critical,
    /// Something is out of the ordinary, and somebody should look at it.
    Warning,
}

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Processes of a pool cannot be started.
    PoolFailing,
    /// Processes of no pool can be started, and none is there.
    NoPoolWorks,
    /// Processes of a pool end by themselves again and again.
    PoolDying,
    /// Calls have waited long for a process of a pool.
    PoolCrowded,
    /// Most calls of a pool start a process in place of another database's.
    PoolExchanging,
    /// The cell of a pool cannot be made.
    CellBroken,
    /// The cell of a pool lacks layers.
    CellIncomplete,
    /// A service accepts no connections.
    ServiceClosed,
    /// Replications fail for one reason.
    ReplicationsFailing,
    /// Replications that run have more to do and do not come on.
    ReplicationsStalled,
    /// A server of replications takes long to answer.
    ServerSlow,
    /// Targets refuse documents.
    DocumentsRefused,
    /// The store of replications cannot be used.
    StoreAway,
    /// The store of replications refuses writes.
    StoreRefusing,
    /// The store of replications takes long to answer.
    StoreSlow,
    /// The store of replications grows.
    StoreGrowing,
    /// Replications are still being read from the store.
    StillLoading,
    /// A daemon of the fleet is gone.
    DaemonGone,
    /// A part of the daemon fails and is started again and again.
    ActorFailing,
    /// Records of the log are lost.
    RecordsDropped,
    /// The daemon is drained.
    Drained,
    /// The files of the configuration say something else than what is in force.
    SettingsDiffer,
    /// Daemons of a fleet have other versions, or settings that are meant to be the same.
    DaemonsDiffer,
}

impl Kind {
    /// How long a trouble of this kind lasts before it is a problem.
    pub const fn delay(self) -> Duration {
        match self {
            Self::PoolFailing
            | Self::NoPoolWorks
            | Self::PoolDying
            | Self::CellBroken
            | Self::CellIncomplete
            | Self::ReplicationsFailing
            | Self::ReplicationsStalled
            | Self::DocumentsRefused
            | Self::StoreAway
            | Self::StoreRefusing
            | Self::StoreGrowing
            | Self::ActorFailing
            | Self::RecordsDropped
            | Self::Drained => Duration::ZERO,
            Self::ServiceClosed | Self::PoolCrowded => Duration::from_secs(5),
            // One answer that is late is none.
            Self::StoreSlow => Duration::from_secs(10),
            // It may have had a burst to do.
            Self::ServerSlow => Duration::from_secs(30),
            // New databases start processes for a while.
            Self::PoolExchanging => Duration::from_secs(60),
            // One that was restarted is back by then.
            Self::DaemonGone => Duration::from_secs(60),
            Self::StillLoading => Duration::from_secs(60),
            // Somebody edits them, or upgrades daemon by daemon.
            Self::SettingsDiffer | Self::DaemonsDiffer => Duration::from_secs(10 * 60),
        }
    }
}

/// A trouble that a look has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind it is of.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// What it concerns, by name.
    pub subject: String,
    /// How many of those that the kind speaks of it concerns.
    pub count: u64,
    /// Why, in words.
    pub cause: String,
    /// What to do, as a command, a key or a page.
    pub remedy: String,
}

/// A trouble that has lasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What was found last.
    pub finding: Finding,
    /// When it was found first.
    pub since: Timestamp,
}

/// All that was found lately.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    seen: BTreeMap<(Kind, String), Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    finding: Finding,
    first: Timestamp,
    last: Timestamp,
}

impl Problems {
    /// Takes what a look has found: of two of one kind about the same the later one.
    pub fn look(&mut self, now: Timestamp, findings: Vec<Finding>) {
        for finding in findings {
            let key = (finding.kind, finding.subject.clone());
            let seen = self.seen.entry(key).or_insert_with(|| Seen {
                finding: finding.clone(),
                first: now,
                last: now,
            });
            (seen.finding, seen.last) = (finding, now);
        }
        self.seen
            .retain(|_, seen| now.since(seen.last) < OVER_AFTER);
    }

    /// Returns the problems, the worst first, of these those that have lasted the longest.
    pub fn list(&self) -> Vec<Problem> {
        let lasted = |seen: &&Seen| seen.last.since(seen.first) >= seen.finding.kind.delay();
        let lasting = self.seen.values().filter(lasted);
        let mut list: Vec<Problem> = lasting
            .map(|seen| Problem {
                finding: seen.finding.clone(),
                since: seen.first,
            })
            .collect();
        list.sort_by_key(|problem| (problem.finding.severity, problem.since));
        list.truncate(PROBLEMS_MAX);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: Kind, severity: Severity, subject: &str) -> Finding {
        Finding {
            kind,
            severity,
            subject: subject.to_owned(),
            count: 1,
            cause: String::new(),
            remedy: String::new(),
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn told(problems: &Problems) -> Vec<(String, u64)> {
        let list = problems.list().into_iter();
        list.map(|problem| {
            (
                problem.finding.subject,
                problem.since.since(Timestamp::ZERO).as_secs(),
            )
        })
        .collect()
    }

    #[test]
    fn a_trouble_is_told_after_the_delay_of_its_kind_with_the_time_of_its_beginning() {
        let mut problems = Problems::default();
        let delay = Kind::PoolCrowded.delay().as_secs();
        for second in 0..=delay {
            assert_eq!(told(&problems), []);
            problems.look(
                at(10 + second),
                vec![finding(Kind::PoolCrowded, Severity::Warning, "js")],
            );
        }
        assert_eq!(told(&problems), [("js".to_owned(), 10)]);
    }

    #[test]
    fn a_trouble_that_comes_and_goes_is_one_problem_until_it_stays_away() {
        let mut problems = Problems::default();
        for second in (0..60).step_by(4) {
            problems.look(
                at(second),
                vec![finding(Kind::PoolFailing, Severity::Critical, "js")],
            );
            problems.look(at(second + 2), Vec::new());
            assert_eq!(told(&problems), [("js".to_owned(), 0)], "{second}");
        }
        problems.look(at(56) + OVER_AFTER, Vec::new());
        assert_eq!(told(&problems), []);
        problems.look(
            at(100),
            vec![finding(Kind::PoolFailing, Severity::Critical, "js")],
        );
        assert_eq!(told(&problems), [("js".to_owned(), 100)]);
    }

    #[test]
    fn the_worst_come_first_and_of_these_the_oldest() {
        let mut problems = Problems::default();
        let warning = finding(Kind::CellIncomplete, Severity::Warning, "old");
        problems.look(at(1), vec![warning.clone()]);
        let bad = |subject| finding(Kind::ReplicationsFailing, Severity::Critical, subject);
        problems.look(at(2), vec![warning.clone(), bad("first")]);
        problems.look(at(3), vec![warning, bad("second"), bad("first")]);
        let subjects: Vec<_> = told(&problems)
            .into_iter()
            .map(|(subject, _)| subject)
            .collect();
        assert_eq!(subjects, ["first", "second", "old"]);
    }

    #[test]
    fn a_problem_has_the_count_and_the_words_of_the_last_look() {
        let mut problems = Problems::default();
        let mut jobs = finding(
            Kind::ReplicationsFailing,
            Severity::Warning,
            "database missing",
        );
        problems.look(at(1), vec![jobs.clone()]);
        (jobs.count, jobs.severity) = (200, Severity::Critical);
        problems.look(at(3), vec![jobs.clone()]);
        let since = at(1);
        assert_eq!(
            problems.list(),
            [Problem {
                finding: jobs,
                since
            }]
        );
    }
}
