//! couch_replicator_scheduler as a pure state machine: which of many jobs run, and when.
//!
//! SUMMARY   [`Scheduler`] takes an event ([`Event`]) and its time, and returns actions ([`ScheduleAction`]). It has
//!           no clock, actors or replications.
//! PROMISES  At most `max_jobs` jobs have an incarnation, including stopping ones, unless `max_jobs` was lowered. An
//!           event about one job takes time logarithmic in the size of the tables, times the number of jobs that it
//!           starts. A cycle takes one multiplication for each job, and more only for running jobs and those with a
//!           penalty.
//! CALLED    By the ReplicationScheduler actor; directly by tests and benches.
//! SOURCE    couch_replicator_scheduler 004 and HEAD; couch_replicator_share HEAD.
//!
//! # Order of turns
//!
//! The job with the higher priority ([`Level`]), then the smaller penalty ([`FairShare`]), then the oldest start,
//! then the smaller id. Jobs are stopped in the opposite order of priority and penalty; among equals, also the one
//! with the oldest start first. Only continuous jobs are stopped to let others run; one-shot jobs are stopped if too
//! many run.
//!
//! # Intended differences from the reference
//!
//! * **Stopping jobs count as running** until they have ended. The reference waits for each, up to five seconds, and
//!   does nothing else meanwhile.
//! * **Ends name an incarnation** ([`Run`]): late ones change nothing.
//! * **A free slot is filled at once** ([`RuleSet::Current`]), including when a back-off ends. The reference waits
//!   for its next cycle, because finding a job there walks over all jobs. Adding a job works as in the reference: it
//!   is started at once only while there are fewer jobs than `max_jobs`.
//! * **Only runnable jobs** make others stop.
//! * **The latest start is never forgotten**, however short histories are.
//! * **Nothing is retried in a tight loop**, regardless of configuration ([`RESTART_MIN`]).
//! * **A server's return** is noticed ([`ScheduleAction::Probe`]), and the jobs that could not reach it are retried
//!   early, a few milliseconds apart. Other crashes keep their back-off.
//! * **An added job may have a past** ([`Earlier`]): its crashes continue to count.
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

pub use event::*;
pub use history::*;
pub use outage::UNREACHABLE_AFTER;
pub use scheduler::{Scheduler, Totals};
pub use settings::*;
pub use table::Census;
pub use view::*;
pub use wall_time::WallTime;
