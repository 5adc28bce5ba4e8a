//! The events and actions of the scheduler's decision core.
//!
//! SUMMARY   The vocabulary between [`super::Scheduler`] and the ReplicationScheduler actor.
//! SOURCE    couch_replicator_scheduler 004: the calls, casts and infos of its gen_server, as data.
//! DIFFERS   A job's incarnations are numbered, so the end of a replaced one is not mistaken for the end of its
//!           successor.

use std::sync::Arc;

use super::{History, HistoryEvent, Reason, Settings, WallTime};

/// A replication id, base and extension: `c0ebe9256695ff083347cbf95f93e280+continuous`.
pub type JobId = Arc<str>;

/// A server that jobs connect to, such as `http://db.example:5984`.
pub type Server = Arc<str>;

/// One incarnation of a job, from its start to its end; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run(pub u64);

/// A job as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub id: JobId,
    /// The key of its fair share: its replicator database, or its user if it has no database.
    pub key: Arc<str>,
    /// Whether it never ends on its own. Only such jobs are rotated.
    pub continuous: bool,
    /// Whether it has no document: then its first failure ends it.
    pub transient: bool,
    /// Its priority, which precedes every other criterion for the order of turns.
    pub level: Level,
    /// The pause, if it is paused.
    pub paused: Option<Pause>,
    /// Its past in another scheduler.
    pub earlier: Earlier,
}

/// A job's past in another scheduler. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Its events; consecutive crashes continue to count. Future times count as now.
    pub history: History,
    /// It is not started before this time, unless restarted.
    pub not_before: WallTime,
}

impl Earlier {
    /// Ends a back-off that another scheduler imposed. Consecutive crashes still count.
    #[must_use]
    pub fn tried_at_once(mut self) -> Self {
        self.not_before = WallTime::ZERO;
        let newest = self.history.newest().map(|newest| newest.at);
        if let (Some(at), Some(_)) = (newest, self.history.fresh_crash()) {
            self.history.push(at, HistoryEvent::Stopped, usize::MAX);
        }
        self
    }
}

/// Priority: higher numbers run first. 0 is normal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub i8);

/// A job's pause: by whom, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The name of a user or component.
    pub by: Arc<str>,
    pub since: WallTime,
}

/// How a job's incarnation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It has completed.
    Normal,
    /// It stopped as ordered. Without an order, that is a crash.
    Stopped,
    /// It failed in any way, or could not be started.
    Crashed(Arc<Reason>),
    /// It crashed because one of these servers was unreachable.
    Unreachable(Arc<Reason>, [Server; 2]),
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// Run a job (`add_job`). An existing job with the same id is stopped and replaced.
    Add(NewJob),
    /// Remove a job (`remove_job`).
    Remove {
        /// Unknown ids are ignored.
        id: JobId,
    },
    /// Another daemon owns the job now: it ends at once without a checkpoint, even if it was stopping because it was
    /// removed or replaced.
    Lose {
        /// Unknown ids are ignored.
        id: JobId,
    },
    /// Restart a job and clear its past (`restart_job`).
    Restart { id: JobId },
    /// Keep a job from running until it is resumed.
    Pause {
        id: JobId,
        /// The user who paused it.
        by: Arc<str>,
    },
    /// Let a paused job run.
    Resume { id: JobId },
    /// Change a job's priority.
    SetLevel {
        id: JobId,
        /// The new priority.
        level: Level,
    },
    /// An incarnation has ended (`DOWN`).
    Exited {
        /// Unknown ones are ignored.
        run: Run,
        end: End,
    },
    /// A cycle is due, or was requested (`reschedule`).
    Cycle,
    /// The time returned by [`super::Scheduler::next_wake`] was reached.
    Tick,
    /// The result of a [`ScheduleAction::Probe`].
    Probed {
        server: Server,
        /// Whether the server answered at all.
        answers: bool,
    },
    /// A run has opened its databases on these servers. Optional while [no server is reported as
    /// unreachable](super::Scheduler::has_unreachable).
    Reached([Server; 2]),
    /// Settings changed.
    Configure(Box<Settings>),
    /// The service is shutting down: stop everything, start nothing.
    Shutdown,
}

/// An action, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleAction {
    /// Start an incarnation; report its `Exited` exactly once, even if it cannot be started.
    Start {
        id: JobId,
        run: Run,
        /// Whether the job gave up because of a rate limit, and makes fewer requests from now on
        /// (`maybe_optimize_job_for_rate_limiting`).
        eased: bool,
    },
    /// Stop an incarnation, with a checkpoint unless it is lost; report its `Exited` once it is gone. May be repeated
    /// for a stopping one that is now lost.
    Stop {
        id: JobId,
        run: Run,
        why: StopReason,
    },
    /// A job stopped as ordered, and remains known.
    Stopped { id: JobId },
    /// A permanent job crashed and will be retried.
    Crashed {
        id: JobId,
        reason: Arc<Reason>,
        /// The earliest retry.
        until: WallTime,
    },
    /// Check whether a server answers; report [`Event::Probed`] exactly once.
    Probe {
        server: Server,
        /// A job that connects to it.
        id: JobId,
    },
    /// A server does not answer; `jobs` are waiting for it so far.
    ServerLost { server: Server, jobs: usize },
    /// A server has not answered for [`super::UNREACHABLE_AFTER`] or longer. Reported repeatedly.
    ServerUnreachable { server: Server },
    /// A server answers again; this many jobs that waited for it are retried early.
    ServerBack { server: Server, jobs: usize },
    /// A job is no longer known: it completed, failed without a document, was removed, or belongs to another daemon.
    /// In the last two cases its run may not have ended yet.
    Left { id: JobId, how: End },
}

/// Why a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// More jobs than the maximum are running.
    Excess,
    /// Others take their turn.
    Rotated,
    /// It was paused.
    Paused,
    /// It was removed.
    Removed,
    /// Another daemon owns it.
    Lost,
    /// It is replaced or restarted.
    Replaced,
    /// The service ends.
    Shutdown,
}

impl StopReason {
    /// Returns the reason for "it is stopped because ..".
    pub const fn because(self) -> &'static str {
        match self {
            Self::Excess => "more jobs run than max_jobs allows",
            Self::Rotated => "others have their turn",
            Self::Paused => "it was paused",
            Self::Removed => "it was removed",
            Self::Lost => "this daemon no longer owns it",
            Self::Replaced => "it is restarted",
            Self::Shutdown => "the service ends",
        }
    }
}
