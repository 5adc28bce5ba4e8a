//! The users' view of jobs: states, summaries, and why a job does not run.
//!
//! SOURCE    couch_replicator_scheduler 004 and HEAD: job_summary, job_ejson; the states of
//!           `_scheduler/docs`.
//! DIFFERS   A job that does not run reports the reason.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::table::{Job, Phase};
use super::{Census, History, JobId, Level, Pause, Reason, Run, Scheduler, WallTime};
use crate::counted::{Class, Classes, Section};

/// A job's state, as in `_scheduler/docs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum JobState {
    /// It runs.
    Running,
    /// It waits for its turn.
    Pending,
    /// It waits because it crashed.
    Crashing,
    /// It does not run until resumed. In lists only: [`Summary::state`] has its underlying state.
    Paused,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Running, Self::Pending, Self::Crashing, Self::Paused];

    /// Returns its name in APIs.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The part of a job's `job_summary` that the scheduler knows; the replication adds the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub state: JobState,
    /// Why it crashed, if its state is [`JobState::Crashing`].
    pub error: Option<Arc<Reason>>,
    /// Number of consecutive crashes.
    pub error_count: u32,
    /// Time of its latest event.
    pub last_updated: WallTime,
}

/// A job whose last run failed, and that has not recovered since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Time of the first of its consecutive crashes.
    pub since: WallTime,
    /// When its current run counts as a success; `None` without a run.
    pub healthy_at: Option<WallTime>,
}

/// A job's current state.
#[derive(Clone, Debug)]
pub struct JobView<'a> {
    /// The penalty for its key's usage: smaller ones run sooner.
    pub penalty: u64,
    pub history: &'a History,
    /// The job is not started before this time, regardless of its history; usually in the past.
    pub not_before: WallTime,
    /// Its shown state.
    pub shown: ShownJob,
}

/// A job's state for users and other daemons, besides its history.
#[derive(Clone, Debug)]
pub struct ShownJob {
    /// The incarnation that is running, or has not ended yet.
    pub run: Option<Run>,
    pub level: Level,
    /// When it was last started; `None` if never.
    pub last_started: Option<WallTime>,
    /// The job's pause; already set while the job is still stopping.
    pub paused: Option<Pause>,
    /// Its state in lists.
    pub listed: JobState,
    /// When it entered that state; for a crashing job, the time of the first of its consecutive crashes.
    pub since: WallTime,
    /// Why it does not run; `None` if it does.
    pub why_not: Option<WhyNot>,
    pub summary: Summary,
}

impl JobView<'_> {
    /// Returns whether a run belongs to the job rather than to one that it replaced.
    pub fn owns(&self, run: Run) -> bool {
        self.shown.run == Some(run) && self.shown.summary.state == JobState::Running
    }
}

/// Why a job does not run. Displayed as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// All slots are taken.
    NoSlot {
        /// The number of slots: `max_jobs`.
        max_jobs: usize,
    },
    /// There is a free slot, to be filled in the next cycle.
    NextCycle,
    /// It crashed.
    BackingOff {
        /// When it may run again.
        until: WallTime,
        /// Number of consecutive crashes; 0 if it was healthy before it crashed.
        crashes: u32,
        /// Whether it runs sooner once an unreachable server answers.
        awaits_server: bool,
        /// The latest reason.
        reason: Arc<Reason>,
    },
    /// It must not start before a given time.
    NotBefore {
        /// When it may run.
        until: WallTime,
    },
    /// It is paused.
    Paused(Pause),
    /// It is stopping, and writes its checkpoint.
    Stopping,
    /// It waits until the job that it replaces has ended.
    Replacing,
    /// The service is shutting down.
    ShuttingDown,
}

impl WhyNot {
    /// Returns the short form for lists: one line, equal for equal causes.
    pub fn short(&self) -> String {
        match self {
            Self::BackingOff { reason, .. } => reason.short.to_string(),
            Self::NotBefore { .. } => "not to start yet".to_owned(),
            Self::Paused(pause) => format!("paused by {}", pause.by),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot { max_jobs: 0 } => {
                f.write_str("no job may run: max_jobs is 0, or the daemon is drained")
            }
            Self::NoSlot { max_jobs } => {
                write!(
                    f,
                    "waiting for a slot: max_jobs is {max_jobs}, and none is free"
                )
            }
            Self::NextCycle => f.write_str("waiting for the next cycle of the scheduler"),
            Self::BackingOff {
                until,
                crashes,
                awaits_server,
                reason,
            } => {
                write!(f, "backing off until {until}, ")?;
                if *awaits_server {
                    f.write_str("or until the server answers again, ")?;
                }
                f.write_str("after ")?;
                match crashes {
                    0 => f.write_str("a crash")?,
                    1 => f.write_str("1 crash")?,
                    crashes => write!(f, "{crashes} crashes")?,
                }
                write!(f, ": {}", reason.text)
            }
            Self::NotBefore { until } => write!(f, "not to start before {until}"),
            Self::Paused(pause) => write!(f, "paused by {} since {}", pause.by, pause.since),
            Self::Stopping => f.write_str("stopping"),
            Self::Replacing => f.write_str("waiting for the end of its predecessor"),
            Self::ShuttingDown => f.write_str("the service is shutting down"),
        }
    }
}

fn classes(states: &[JobState]) -> Classes {
    states.iter().map(|state| *state as Class).collect()
}

impl Scheduler {
    pub fn job(&self, id: &str) -> Option<JobView<'_>> {
        let slot = self.find(id)?;
        let job = self.jobs.get(slot);
        Some(JobView {
            penalty: self.jobs.penalty(slot),
            history: &job.history,
            not_before: job.not_before,
            shown: ShownJob {
                run: job.phase.run(),
                level: job.level,
                last_started: Some(job.last_started).filter(|at| *at > WallTime::ZERO),
                paused: job.phase.pause().cloned(),
                listed: self.jobs.state_rules.listed(job),
                since: self.since(job),
                why_not: self.why_not(job),
                summary: self.summary(job),
            },
        })
    }

    /// Returns the run in a job's slot, even of a removed job.
    pub fn run_of(&self, id: &str) -> Option<Run> {
        self.jobs.get(self.jobs.find(id)?).phase.run()
    }

    /// Returns a job's state; `None` once it is gone.
    pub fn state(&self, id: &str) -> Option<JobState> {
        let slot = self.find(id)?;
        Some(self.jobs.state_rules.state(self.jobs.get(slot)))
    }

    /// Returns since when a job has been failing; `None` if it has been healthy or stopped since its latest crash, or
    /// is paused or gone.
    pub fn failing(&self, id: &str) -> Option<Failing> {
        let job = self.jobs.get(self.find(id)?);
        let since = job.failing_since?;
        let healthy_at = match self.jobs.state_rules.listed(job) {
            JobState::Crashing => None,
            JobState::Running => Some(job.last_started + self.settings.health_threshold),
            JobState::Pending | JobState::Paused => return None,
        };
        Some(Failing { since, healthy_at })
    }

    /// Returns the number of jobs in these states, as in lists.
    pub fn count(&self, states: &[JobState]) -> usize {
        self.jobs.states.count(classes(states), Section::ALL)
    }

    /// Returns the ids of jobs in these states, as in lists, in order: at most `limit` after `after`, skipping the
    /// first `skip`. Takes time proportional to its result.
    pub fn page(
        &self,
        states: &[JobState],
        after: Option<&str>,
        skip: usize,
        limit: usize,
    ) -> Vec<JobId> {
        let section = Section {
            lower: after.map_or(Bound::Unbounded, Bound::Excluded),
            upper: Bound::Unbounded,
        };
        let names = &self.jobs.states;
        names.page(classes(states), section, false, skip, limit)
    }

    /// Returns jobs whose states changed since the last call; possibly with duplicates.
    pub fn take_changed(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.jobs.changed)
    }

    /// Returns the number of jobs in each state, in constant time.
    pub const fn census(&self) -> &Census {
        &self.jobs.census
    }

    fn since(&self, job: &Job) -> WallTime {
        let newest = job
            .history
            .newest()
            .map_or(WallTime::ZERO, |entry| entry.at);
        match self.jobs.state_rules.listed(job) {
            JobState::Paused => job.phase.pause().map_or(newest, |pause| pause.since),
            JobState::Running => job.last_started,
            JobState::Crashing => job.failing_since.unwrap_or(newest),
            JobState::Pending => newest,
        }
    }

    fn summary(&self, job: &Job) -> Summary {
        let history = &job.history;
        let state = self.jobs.state_rules.state(job);
        let error = history.latest_crash_reason();
        Summary {
            state,
            error: error.filter(|_| state == JobState::Crashing).cloned(),
            error_count: history.consecutive_crashes(self.settings.health_threshold),
            last_updated: history.newest().map_or(WallTime::ZERO, |entry| entry.at),
        }
    }

    fn why_not(&self, job: &Job) -> Option<WhyNot> {
        let max_jobs = self.settings.max_jobs;
        Some(match &job.phase {
            Phase::Running(_) => return None,
            Phase::Stopping { foreign: true, .. } => WhyNot::Replacing,
            Phase::Stopping { .. } => WhyNot::Stopping,
            Phase::Paused(pause) => WhyNot::Paused(pause.clone()),
            _ if self.shutting_down => WhyNot::ShuttingDown,
            Phase::BackingOff { until } => match job.history.fresh_crash() {
                Some(reason) => WhyNot::BackingOff {
                    until: *until,
                    crashes: job
                        .history
                        .consecutive_crashes(self.settings.health_threshold),
                    awaits_server: job.awaited_servers > 0,
                    reason: reason.clone(),
                },
                None => WhyNot::NotBefore { until: *until },
            },
            Phase::Ready if self.jobs.occupied() >= max_jobs => WhyNot::NoSlot { max_jobs },
            Phase::Ready => WhyNot::NextCycle,
        })
    }
}
