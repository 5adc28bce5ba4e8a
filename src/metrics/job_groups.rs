//! The lag and failures of replication jobs by group, which is the mark `managed_by` of their documents.
//!
//! SUMMARY   A job has a [`GroupMember`] while it exists, and reports changes through it; dropping it reverts them.
//!           [`JobGroups::all`] reads the groups that have jobs.
//! PROMISES  Reading takes no time per job, except for those retried after a crash.
//! LIMITS    Groups beyond a maximum share one row: see [`Names`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::names::{Absorb, Names};
use crate::lock;
use policy::schedule::{Failing, WallTime};

/// The group of jobs without a mark, which always exists.
const NONE: &str = "_none";

/// Maximum length of a group's mark, in bytes: as for pools.
const MARK_BYTES_MAX: usize = 100;

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct JobGroups {
    none: Arc<JobGroup>,
    named: Names<JobGroup>,
}

/// The state of a group's jobs.
#[derive(Debug, Default)]
pub(super) struct JobGroup {
    lag: AtomicU64,
    failing: Mutex<FailingJobs>,
}

/// The failing jobs of a group, by time.
#[derive(Debug, Default)]
struct FailingJobs {
    /// Start of the failure -> number of waiting jobs.
    waiting: BTreeMap<WallTime, u64>,
    /// The number of waiting jobs.
    waiting_count: u64,
    /// (When the run will count as a success, start of the failure) -> number of jobs being retried.
    retried: BTreeMap<(WallTime, WallTime), u64>,
}

/// A job in its group.
#[derive(Debug)]
pub(crate) struct GroupMember {
    group: Arc<JobGroup>,
    lag: u64,
    failing: Option<Failing>,
}

/// Returns whether a mark is valid as a group: it appears in labels and in paths of `_stats`. A leading underscore is
/// reserved for our own groups.
fn is_group(mark: &str) -> bool {
    let unfit = |c: char| c.is_control() || c == '/';
    !mark.is_empty()
        && mark.len() <= MARK_BYTES_MAX
        && !mark.starts_with('_')
        && !mark.contains(unfit)
}

impl JobGroups {
    /// Counts a job in the group of its document's mark.
    pub fn join(&self, mark: Option<&str>) -> GroupMember {
        let group = match mark {
            None => Arc::clone(&self.none),
            Some(mark) if is_group(mark) => self.named.find(mark),
            Some(_) => self.named.rest(),
        };
        GroupMember {
            group,
            lag: 0,
            failing: None,
        }
    }

    /// Returns the groups that have jobs, ordered by name, and the one without a mark.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<JobGroup>)> {
        self.named.forget_unused();
        let mut all = self.named.all();
        all.push((NONE.into(), Arc::clone(&self.none)));
        all
    }
}

/// A group is absorbed only when it has no jobs, so it has nothing to add.
impl Absorb for JobGroup {
    fn absorb(&self, _: &Self) {}
}

impl JobGroup {
    /// Returns the number of changes that its jobs still have to replicate, as last known.
    pub fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }

    /// Returns the number of failing jobs, and how long the longest failure has lasted; zero if none fails.
    pub fn failing(&self, now: WallTime) -> (u64, Duration) {
        let failing = lock(&self.failing);
        let mut count = failing.waiting_count;
        let mut oldest = failing.waiting.keys().next().copied();
        for ((healthy_at, since), jobs) in failing.retried.iter().rev() {
            if *healthy_at <= now {
                break;
            }
            count += jobs;
            oldest = oldest.map_or(Some(*since), |oldest| Some(oldest.min(*since)));
        }
        (
            count,
            oldest.map_or(Duration::ZERO, |since| now.since(since)),
        )
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl GroupMember {
    /// Sets the number of changes that the job still has to replicate; an unknown number leaves the last one.
    pub fn set_lag(&mut self, lag: Option<u64>) {
        if let Some(lag) = lag {
            let before = std::mem::replace(&mut self.lag, lag);
            // Wraps if the lag has decreased.
            self.group
                .lag
                .fetch_add(lag.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Sets whether the job fails.
    pub fn set_failing(&mut self, failing: Option<Failing>) {
        let before = std::mem::replace(&mut self.failing, failing);
        if before == failing {
            return;
        }
        let mut jobs = lock(&self.group.failing);
        if let Some(Failing { since, healthy_at }) = before {
            match healthy_at {
                None => {
                    take_one(&mut jobs.waiting, &since);
                    jobs.waiting_count -= 1;
                }
                Some(at) => take_one(&mut jobs.retried, &(at, since)),
            }
        }
        if let Some(Failing { since, healthy_at }) = failing {
            match healthy_at {
                None => {
                    *jobs.waiting.entry(since).or_default() += 1;
                    jobs.waiting_count += 1;
                }
                Some(at) => *jobs.retried.entry((at, since)).or_default() += 1,
            }
        }
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.set_lag(Some(0));
        self.set_failing(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::names::{NAMES_MAX, REST};

    fn at(second: u64) -> WallTime {
        WallTime::from_micros(second * 1_000_000)
    }

    fn waits(since: u64) -> Option<Failing> {
        Some(Failing {
            since: at(since),
            healthy_at: None,
        })
    }

    fn is_retried(since: u64, healthy_at: u64) -> Option<Failing> {
        Some(Failing {
            since: at(since),
            healthy_at: Some(at(healthy_at)),
        })
    }

    fn names(groups: &JobGroups) -> Vec<String> {
        let all = groups.all();
        all.iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn the_lag_of_a_group_is_the_sum_of_the_last_known_lags_of_its_jobs() {
        let groups = JobGroups::default();
        let (mut one, mut other) = (groups.join(Some("a")), groups.join(Some("a")));
        one.set_lag(Some(10));
        other.set_lag(Some(5));
        other.set_lag(None);
        assert_eq!(one.group.lag(), 15);
        one.set_lag(Some(2));
        assert_eq!(one.group.lag(), 7);
        drop(other);
        assert_eq!(one.group.lag(), 2);
    }

    #[test]
    fn a_job_counts_as_failing_until_a_run_has_been_healthy_for_long_enough() {
        let groups = JobGroups::default();
        let mut jobs = [(); 3].map(|()| groups.join(None));
        jobs[0].set_failing(waits(20));
        jobs[1].set_failing(waits(20));
        jobs[2].set_failing(waits(10));
        let failing = |now| {
            let (count, oldest) = groups.none.failing(at(now));
            (count, oldest.as_secs())
        };
        assert_eq!(failing(30), (3, 20));
        jobs[2].set_failing(is_retried(10, 40));
        assert_eq!(failing(39), (3, 29));
        assert_eq!(failing(40), (2, 20));
        jobs[1].set_failing(is_retried(20, 50));
        jobs[0].set_failing(None);
        assert_eq!(failing(45), (1, 25));
        drop(jobs);
        assert_eq!(failing(45), (0, 0));
    }

    #[test]
    fn a_group_is_shown_for_as_long_as_it_has_jobs() {
        let groups = JobGroups::default();
        let (a, b) = (groups.join(Some("a")), groups.join(Some("b")));
        let rest = groups.join(Some("_a"));
        assert_eq!(names(&groups), ["a", "b", REST, NONE]);
        drop((a, rest));
        assert_eq!(names(&groups), ["b", NONE]);
        drop(b);
        assert_eq!(names(&groups), [NONE]);
    }

    #[test]
    fn invalid_marks_and_marks_beyond_the_maximum_share_one_group() {
        let groups = JobGroups::default();
        let long = "x".repeat(MARK_BYTES_MAX + 1);
        let unfit = ["", "_none", "a/b", "a\nb", &long].map(|mark| groups.join(Some(mark)));
        assert_eq!(names(&groups), [REST, NONE]);
        let fit = ["two words", "\u{e9}t\u{e9}", "\"a\\"].map(|mark| groups.join(Some(mark)));
        assert_eq!(groups.all().len(), 5);
        drop((unfit, fit));
        let jobs = (0..NAMES_MAX + 2).map(|n| groups.join(Some(&n.to_string())));
        let mut jobs: Vec<_> = jobs.collect();
        jobs.iter_mut().for_each(|job| job.set_lag(Some(1)));
        let all = groups.all();
        assert_eq!(all.len(), NAMES_MAX + 2);
        let rest = all.iter().find(|(name, _)| &**name == REST);
        assert_eq!(rest.map(|(_, group)| group.lag()), Some(2));
    }
}
