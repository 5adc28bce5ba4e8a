//! The events of the scheduler's decision core, and its actions.
//!
//! SUMMARY   The vocabulary between [`super::Scheduler`] and the ReplicationScheduler actor.
//! SOURCE    couch_replicator_scheduler 004: the calls, casts and infos of its gen_server, as data.
//! DIFFERS   An incarnation of a job has a number, so that the end of one that was replaced is not
//!           taken for the end of its successor.

use std::sync::Arc;

use super::history::{History, HistoryEvent, Reason};
use super::settings::Settings;
use super::wall_time::WallTime;

/// A replication id: base and extension, as `c0ebe9256695ff083347cbf95f93e280+continuous`.
pub type JobId = Arc<str>;

/// A server that jobs speak to, as `http://db.example:5984`.
pub type Server = Arc<str>;

/// One incarnation of a job, from its start to its end; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run(pub u64);

/// What a job is to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub id: JobId,
    /// Whose share of the slots it uses: its replicator database, or the name of its user if it has
    /// no database.
    pub key: Arc<str>,
    /// Whether it never ends on its own. Others are not stopped to let jobs take turns.
    pub continuous: bool,
    /// Whether it belongs to no document: then its first failure is its end.
    pub transient: bool,
    /// Whose turn is first, whatever else there is.
    pub level: Level,
    /// Who paused it, if it is not to run.
    pub paused: Option<Pause>,
    /// What happened to it before it became known here.
    pub earlier: Earlier,
}

/// A job's past, as another scheduler knew it. The default is a job that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// What happened; the job's crashes in a row are counted on. Times later than now are taken for now.
    pub history: History,
    /// It is not started before, unless it is restarted.
    pub not_before: WallTime,
}

impl Earlier {
    /// Returns it without a wait for what is left of a back-off, which the job owes to where it was before. Its crashes in a
    /// row are still counted on.
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

/// Whose turn is first: the higher number's. 0 is ordinary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub i8);

/// Who paused a job, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The name of a user, or of what did it.
    pub by: Arc<str>,
    pub since: WallTime,
}

/// How an incarnation of a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It had done its work.
    Normal,
    /// It did what it was told to do. Unasked, that is a crash.
    Stopped,
    /// It failed, in whatever way, or could not be started.
    Crashed(Arc<Reason>),
    /// It crashed because a server could not be reached, one of these.
    Unreachable(Arc<Reason>, [Server; 2]),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A job is to be run (`add_job`). One with the same id is stopped and replaced.
    Add(NewJob),
    /// A job is no longer to be run (`remove_job`).
    Remove {
        /// Which; an unknown one is no mistake.
        id: JobId,
    },
    /// A job is another daemon's: it ends at once and leaves no checkpoint. So does a run that was told
    /// to stop before, also one of a job that was removed or replaced.
    Lose {
        /// Which; an unknown one is no mistake.
        id: JobId,
    },
    /// All jobs are removed (`stop_clear_all_jobs`).
    RemoveAll,
    /// A job is to be restarted, its past forgotten (`restart_job`).
    Restart { id: JobId },
    /// A job is not to run until it is resumed.
    Pause {
        id: JobId,
        /// Who says so.
        by: Arc<str>,
    },
    /// A paused job may run.
    Resume { id: JobId },
    /// A job gets another priority.
    SetLevel {
        id: JobId,
        /// Its priority from now on.
        level: Level,
    },
    /// An incarnation is gone (`DOWN`).
    Exited {
        /// Which; unknown ones are ignored.
        run: Run,
        end: End,
    },
    /// A cycle is due, or was asked for (`reschedule`).
    Cycle,
    /// Time passed: [`super::Scheduler::next_wake`] was reached.
    Tick,
    /// A server was asked, as [`ScheduleAction::Probe`] said.
    Probed {
        server: Server,
        /// Whether it answered at all.
        answers: bool,
    },
    /// A run has opened its databases on these servers. May be omitted while [none is reported as
    /// unreachable](super::Scheduler::has_unreachable).
    Reached([Server; 2]),
    /// Settings changed.
    Configure(Box<Settings>),
    /// The service ends: everything is stopped, nothing more is started.
    Shutdown,
}

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleAction {
    /// Start an incarnation; report its `Exited`, exactly once, also when it cannot be started.
    Start {
        id: JobId,
        run: Run,
        /// Whether it gave up on a server that limits its rate, and makes fewer requests from now
        /// on (`maybe_optimize_job_for_rate_limiting`).
        eased: bool,
    },
    /// Stop an incarnation, with a checkpoint unless it is lost; report its `Exited` once it is gone.
    /// One that was told to stop before may be told once more that it is lost.
    Stop {
        id: JobId,
        run: Run,
        /// Why, for the log.
        why: StopReason,
    },
    /// A job stopped as it was told to, and is still known.
    Stopped { id: JobId },
    /// A permanent job crashed and will be tried again.
    Crashed {
        id: JobId,
        reason: Arc<Reason>,
        /// When it is retried at the earliest.
        until: WallTime,
    },
    /// Ask a server whether it answers; report [`Event::Probed`], exactly once.
    Probe {
        server: Server,
        /// A job that speaks to it.
        id: JobId,
    },
    /// A server does not answer, and `jobs` wait for it so far.
    ServerLost { server: Server, jobs: usize },
    /// A server has not answered for [`super::UNREACHABLE_AFTER`] or longer, reported repeatedly.
    ServerUnreachable { server: Server },
    /// A server that did not answer does, and this many jobs that waited for it are tried early.
    ServerBack { server: Server, jobs: usize },
    /// A job is no longer known: it had done its work, failed and belongs to no document, or was stopped because nobody
    /// wants it, or another daemon has it. Then it may not be gone yet.
    Left { id: JobId, how: End },
}

/// Why a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// More run than may.
    Excess,
    /// It is the turn of others.
    Rotated,
    /// It was paused.
    Paused,
    /// It was removed.
    Removed,
    /// It is another daemon's.
    Lost,
    /// It is replaced, or restarted.
    Replaced,
    /// The service ends.
    Shutdown,
}

impl StopReason {
    /// Returns it in words: "it is stopped because ..".
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
