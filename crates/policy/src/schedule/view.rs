//! What users see of jobs: states, summaries, and why a job does not run.
//!
//! SOURCE    couch_replicator_scheduler 004 and HEAD: job_summary, job_ejson; the states of
//!           `_scheduler/docs`.
//! DIFFERS   A job that does not run says why, in words.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::event::{JobId, Level, Pause, Run};
use super::history::{History, Reason};
use super::scheduler::Scheduler;
use super::table::{Census, Job, Phase, Slot};
use super::wall_time::WallTime;
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
    /// It is not to run until it is resumed. In lists only: [`Summary::state`] says what it is beside
    /// that.
    Paused,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Running, Self::Pending, Self::Crashing, Self::Paused];

    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What `job_summary` says of a job; the replication itself knows the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub state: JobState,
    /// Why it crashed, if its state is [`JobState::Crashing`].
    pub error: Option<Arc<Reason>>,
    /// How often it crashed in a row.
    pub error_count: u32,
    /// When its latest event was.
    pub last_updated: WallTime,
}

/// A job that failed last and has not done well since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// When the first of its crashes in a row was.
    pub since: WallTime,
    /// When the run that it has now has gone well for long enough to count as a success; none while it has none.
    pub healthy_at: Option<WallTime>,
}

/// A job as it is now.
#[derive(Clone, Debug)]
pub struct JobView<'a> {
    pub id: &'a Arc<str>,
    /// Whether it never ends on its own.
    pub continuous: bool,
    /// Whether it belongs to no document.
    pub transient: bool,
    /// What its key used weighs on it: the smaller, the sooner its turn.
    pub penalty: u64,
    /// Whether it backs off because a server rate-limits it.
    pub eased: bool,
    /// What happened to it.
    pub history: &'a History,
    /// It is not started before, whatever its history says; in the past as a rule.
    pub not_before: WallTime,
    /// What is shown of it.
    pub shown: ShownJob,
}

/// What users and other daemons see of a job, besides its history.
#[derive(Clone, Debug)]
pub struct ShownJob {
    /// The incarnation that runs, or that is not gone yet.
    pub run: Option<Run>,
    /// Its priority.
    pub level: Level,
    /// When it was started last; none if never.
    pub last_started: Option<WallTime>,
    /// Who paused it, if it is, or will be once it has stopped.
    pub paused: Option<Pause>,
    /// What it is in lists.
    pub listed: JobState,
    /// Since when it is that: a crashing job since the first of its crashes in a row.
    pub since: WallTime,
    /// Why it does not run, if it does not.
    pub why_not: Option<WhyNot>,
    /// What `job_summary` says.
    pub summary: Summary,
}

impl JobView<'_> {
    /// Returns whether a run is the job's own, and not one of a job that it replaced.
    pub fn owns(&self, run: Run) -> bool {
        self.shown.run == Some(run) && self.shown.summary.state == JobState::Running
    }
}

/// Why a job does not run, or never will again. Shown in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// All slots are taken.
    NoSlot {
        /// How many there are: `max_jobs`.
        max_jobs: usize,
    },
    /// There is a slot, which is filled in the next cycle.
    NextCycle,
    /// It crashed.
    BackingOff {
        /// When it may run again.
        until: WallTime,
        /// How often it crashed in a row; 0 when it had run in good health before it crashed.
        crashes: u32,
        /// Whether it runs again sooner when a server that it could not reach answers.
        awaits_server: bool,
        /// The latest reason.
        reason: Arc<Reason>,
    },
    /// It is not to start before a time that came with it.
    NotBefore {
        /// When it may run.
        until: WallTime,
    },
    /// It is paused.
    Paused(Pause),
    /// It was told to stop, and writes its checkpoint.
    Stopping,
    /// It waits for the end of what it replaces.
    Replacing,
    /// The service ends.
    ShuttingDown,
}

impl WhyNot {
    /// Returns it for lists: one line, equal for equal causes.
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
                    "waiting for a slot: max_jobs is {max_jobs}, and as many run"
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
    /// Returns a job.
    pub fn job(&self, id: &str) -> Option<JobView<'_>> {
        self.find(id).map(|slot| self.view(slot))
    }

    /// Returns the run that has a job's slot, also one of a job that was removed.
    pub fn run_of(&self, id: &str) -> Option<Run> {
        self.jobs.get(self.jobs.find(id)?).phase.run()
    }

    /// Returns all jobs, in no order that means anything.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        let slots = self.jobs.slots();
        let known = slots.filter(|slot| !self.jobs.get(*slot).phase.is_leaving());
        known.map(|slot| self.view(slot))
    }

    /// Returns what `job_summary` says of a job; none once it is gone.
    pub fn summary(&self, id: &str) -> Option<Summary> {
        let slot = self.find(id)?;
        Some(self.summary_of(self.jobs.get(slot)))
    }

    /// Returns the state of a job; none once it is gone.
    pub fn state(&self, id: &str) -> Option<JobState> {
        let slot = self.find(id)?;
        Some(self.jobs.state_rules.state(self.jobs.get(slot)))
    }

    /// Returns since when a job fails; none of one that is paused, or that ended well or was stopped last.
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

    /// Returns how many jobs are in some states, as in lists.
    pub fn count(&self, states: &[JobState]) -> usize {
        self.jobs.states.count(classes(states), Section::ALL)
    }

    /// Returns the ids of jobs in some states, as in lists, in order: at most `limit` of those after `after`, but
    /// for the first `skip` of them. Costs what it returns.
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

    /// Returns the jobs whose states are others than at the last call; some more than once.
    pub fn take_changed(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.jobs.changed)
    }

    /// Returns how many jobs are in which state. Costs nothing.
    pub const fn census(&self) -> &Census {
        &self.jobs.census
    }

    fn view(&self, slot: Slot) -> JobView<'_> {
        let job = self.jobs.get(slot);
        JobView {
            id: &job.id,
            continuous: job.continuous,
            transient: job.transient,
            penalty: self.jobs.penalty(slot),
            eased: job.eased,
            history: &job.history,
            not_before: job.not_before,
            shown: self.shown(job),
        }
    }

    fn shown(&self, job: &Job) -> ShownJob {
        ShownJob {
            run: job.phase.run(),
            level: job.level,
            last_started: Some(job.last_started).filter(|at| *at > WallTime::ZERO),
            paused: job.phase.pause().cloned(),
            listed: self.jobs.state_rules.listed(job),
            since: self.since(job),
            why_not: self.why_not(job),
            summary: self.summary_of(job),
        }
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

    fn summary_of(&self, job: &Job) -> Summary {
        let history = &job.history;
        let threshold = self.settings.health_threshold;
        let error_count = history.consecutive_crashes(threshold);
        let state = self.jobs.state_rules.state(job);
        let is_crashing = state == JobState::Crashing;
        Summary {
            state,
            error: history
                .latest_crash_reason()
                .filter(|_| is_crashing)
                .cloned(),
            error_count,
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
                    awaits_server: job.awaits_server,
                    reason: reason.clone(),
                },
                None => WhyNot::NotBefore { until: *until },
            },
            Phase::Ready if self.jobs.occupied() >= max_jobs => WhyNot::NoSlot { max_jobs },
            Phase::Ready => WhyNot::NextCycle,
        })
    }
}
