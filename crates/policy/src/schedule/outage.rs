//! Unreachable servers: when they are probed again, and which jobs are retried once they return.
//!
//! SUMMARY   A job that crashed because a server was unreachable backs off like any other, up to hours. Meanwhile its
//!           servers are probed every [`PROBE_INTERVAL`]. When a silent server answers again, the jobs waiting for it
//!           are retried early, spread over at most [`SPREAD_MAX`].
//! PROMISES  One probe of a server at a time, [`PROBES_MAX`] in total. A server that answers its first probe was not
//!           down: its jobs keep their back-off. A job that was started, paused, restarted or removed meanwhile is
//!           not affected. Nothing is stored about a server without waiting jobs, except that it was reported as
//!           unreachable: a run that opens its databases there withdraws the report.
//! CALLED    By [`super::Scheduler`].
//! DIFFERS   The reference does not track servers: each job waits for its own back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::table::{Phase, Slot};
use super::{JobId, RESTART_MIN, RuleSet, ScheduleAction, Scheduler, Server, WallTime};
use crate::ownership::AVOID_MAX;

/// The time between two probes of a server.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum concurrent probes; other servers wait.
pub(crate) const PROBES_MAX: usize = 16;

/// A server silent for this long is reported at each probe. Daemons that reach it get its jobs.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(30);

/// Maximum time over which the jobs of a returned server are started.
pub(crate) const SPREAD_MAX: Duration = Duration::from_secs(10);

/// Time between two of these starts; less if more jobs wait than fit into [`SPREAD_MAX`].
pub(crate) const SPREAD_EACH: Duration = Duration::from_millis(2);

/// The state of a server.
#[derive(Clone, Debug, Default)]
struct Outage {
    /// When it first did not answer a probe, if it has not answered since.
    down_since: Option<WallTime>,
    /// When it is probed next; `None` during a probe.
    due: Option<WallTime>,
    jobs: BTreeSet<JobId>,
}

/// The servers with waiting jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages {
    servers: BTreeMap<Server, Outage>,
    /// Times of the next probes, earliest first.
    due: BTreeSet<(WallTime, Server)>,
    /// The number of running probes.
    asked: usize,
    /// Servers reported as unreachable, with the time of the last report.
    unreachable: BTreeMap<Server, WallTime>,
}

impl Scheduler {
    /// Handles a crash because one of these servers was unreachable.
    pub(super) fn await_servers(&mut self, slot: Slot, servers: [Server; 2]) {
        if self.settings.rules == RuleSet::First {
            return;
        }
        let id = self.jobs.change(slot, |job, _| {
            job.awaited_servers = 1 + u8::from(servers[0] != servers[1]);
            job.id.clone()
        });
        for server in servers {
            let outages = &mut self.outages;
            let outage = outages.servers.entry(server.clone()).or_insert_with(|| {
                outages.due.insert((self.now, server));
                Outage {
                    due: Some(self.now),
                    ..Outage::default()
                }
            });
            outage.jobs.insert(id.clone());
        }
    }

    /// Starts due probes.
    pub(super) fn probe(&mut self) {
        while let Some(due) = self.next_probe()
            && due <= self.now
            && let Some((_, server)) = self.outages.due.pop_first()
        {
            let Some(outage) = self.outages.servers.get_mut(&server) else {
                continue;
            };
            outage.due = None;
            let jobs = &self.jobs;
            outage.jobs.retain(|id| jobs.awaits_server(id).is_some());
            let Some(id) = outage.jobs.first().cloned() else {
                self.outages.servers.remove(&server);
                continue;
            };
            self.outages.asked += 1;
            self.out.push(ScheduleAction::Probe { server, id });
        }
    }

    /// Returns when the next probe is due; `None` while [`PROBES_MAX`] probes run, and after shutdown.
    pub(super) fn next_probe(&self) -> Option<WallTime> {
        let (due, _) = self.outages.due.first()?;
        let may_start = self.outages.asked < PROBES_MAX && !self.shutting_down;
        may_start.then_some(*due)
    }

    /// Handles the result of a probe.
    pub(super) fn probed(&mut self, server: &Server, answers: bool) {
        let Some(outage) = self.outages.servers.get_mut(server) else {
            return;
        };
        if outage.due.is_some() {
            return;
        }
        self.outages.asked -= 1;
        if !answers {
            let due = self.now + PROBE_INTERVAL;
            match outage.down_since {
                None => {
                    outage.down_since = Some(self.now);
                    let (server, jobs) = (server.clone(), outage.jobs.len());
                    self.out.push(ScheduleAction::ServerLost { server, jobs });
                }
                Some(since) if self.now.since(since) >= UNREACHABLE_AFTER => {
                    let (server, told) = (server.clone(), &mut self.outages.unreachable);
                    told.retain(|_, told| self.now.since(*told) < AVOID_MAX);
                    told.insert(server.clone(), self.now);
                    self.out.push(ScheduleAction::ServerUnreachable { server });
                }
                Some(_) => {}
            }
            outage.due = Some(due);
            self.outages.due.insert((due, server.clone()));
            return;
        }
        let Some(outage) = self.outages.servers.remove(server) else {
            return;
        };
        if outage.down_since.is_some() {
            self.outages.unreachable.remove(server);
            let (server, jobs) = (server.clone(), self.wake_early(&outage.jobs));
            self.out.push(ScheduleAction::ServerBack { server, jobs });
            return;
        }
        for id in &outage.jobs {
            if let Some(slot) = self.jobs.awaits_server(id) {
                self.jobs.change(slot, |job, _| job.awaited_servers -= 1);
            }
        }
    }

    /// Whether any server is reported as unreachable.
    pub fn has_unreachable(&self) -> bool {
        !self.outages.unreachable.is_empty()
    }

    /// A run has opened its databases on these servers.
    pub(super) fn reached(&mut self, servers: [Server; 2]) {
        for server in servers {
            if self.outages.unreachable.remove(&server).is_some() {
                self.out
                    .push(ScheduleAction::ServerBack { server, jobs: 0 });
            }
        }
    }

    /// Spreads the starts of jobs that still wait, and returns their number.
    fn wake_early(&mut self, ids: &BTreeSet<JobId>) -> usize {
        let waiting = ids.iter().filter_map(|id| self.jobs.awaits_server(id));
        let slots: Vec<_> = waiting.collect();
        let jobs = slots.len();
        let number = u32::try_from(jobs).unwrap_or(u32::MAX).max(1);
        let each = SPREAD_EACH.min(SPREAD_MAX / number);
        for (slot, nth) in slots.into_iter().zip(0..) {
            self.jobs.change(slot, |job, _| {
                (job.awaited_servers, job.starts_early) = (0, true);
                let rested = (job.history.latest_crash() + RESTART_MIN).max(job.not_before);
                let early = rested.max(self.now + each * nth);
                if let Phase::BackingOff { until } = &mut job.phase {
                    *until = early.min(*until);
                }
            });
        }
        jobs
    }
}
