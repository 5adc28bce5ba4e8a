//! couch_replicator_scheduler as a pure state machine: which of many jobs run, and when.
//!
//! SUMMARY   [`Scheduler`] takes what happened ([`Event`]) and when, and returns what to do
//!           ([`ScheduleAction`]). It holds no clock, no actor and no replication.
//! PROMISES  At most `max_jobs` jobs have an incarnation, those that are still stopping included,
//!           unless `max_jobs` was lowered. Every event about one job costs at most a logarithm of
//!           what is in the tables, times the number of jobs that it starts. A cycle costs one
//!           multiplication for each job, and more only for those that run or have a penalty.
//! CALLED    By the ReplicationScheduler actor; directly by tests and benches.
//! SOURCE    couch_replicator_scheduler 004 and HEAD; couch_replicator_share HEAD.
//!
//! # Whose turn it is
//!
//! The job with the higher priority ([`Level`]), then the one with the smaller penalty
//! ([`FairShare`]), then the one that was started longest ago, then the one with the smaller id.
//! Jobs are stopped in the opposite order of priority and penalty, but again the one first that was
//! started longest ago. Only continuous jobs are stopped to let others run; one-shot jobs are
//! stopped when more run than may.
//!
//! # Where it differs from the reference on purpose
//!
//! * **Jobs that stop count as running** until they are gone. The reference waits for each, up to
//!   five seconds, and does nothing else meanwhile.
//! * **Ends name an incarnation** ([`Run`]): a late one changes nothing.
//! * **A free slot is filled at once** ([`RuleSet::Current`]), also when a back-off ends. The
//!   reference waits for its next cycle, because finding a job costs it a walk over all of them.
//!   Adding is as there: a job is started at once only while there are fewer jobs than `max_jobs`.
//! * **Only jobs that could run** are a reason to stop others.
//! * **The latest start is never forgotten**, however short histories are.
//! * **Nothing is retried in a tight loop**, whatever is configured ([`RESTART_MIN`]).
//! * **A server that is back** is noticed ([`ScheduleAction::Probe`]), and the jobs that could not reach it are tried
//!   early, a few milliseconds after one another. Other crashes keep their back-off.
//! * **A job may have a past** ([`Earlier`]) when it is added: its crashes are counted on.
//! * **Per job**: pause and resume, a priority, restart, and a reason for not running.

mod cycle;
mod event;
mod fair_share;
mod history;
mod outage;
mod scheduler;
mod settings;
mod table;
mod view;
mod wall_time;

#[cfg(test)]
mod tests;

pub use event::{
    Earlier, End, Event, JobId, Level, NewJob, Pause, Run, ScheduleAction, Server, StopReason,
};
pub use history::{History, HistoryEntry, HistoryEvent, Reason};
pub use outage::UNREACHABLE_AFTER;
pub use scheduler::{Scheduler, Totals};
pub use settings::{Backoff, Coefficient, RuleSet, Settings, Shares};
pub use table::Census;
pub use view::{Failing, JobState, JobView, ShownJob, Summary, WhyNot};
pub use wall_time::WallTime;
