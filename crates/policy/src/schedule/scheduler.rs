//! The entry point of the decision core: each event and its effects.
//!
//! SUMMARY   Wakes the jobs whose wait has ended, then handles the event.
//! PROMISES  Total: an event about anything unknown or gone has no effect. Deterministic: the same events at the same
//!           times give the same actions.
//! CALLED    By the ReplicationScheduler actor.
//! SOURCE    couch_replicator_scheduler 004 and HEAD: the gen_server's calls, casts and infos.

use std::sync::Arc;

use super::event::{Earlier, End, Event, JobId, NewJob, Pause, Run, ScheduleAction, StopReason};
use super::fair_share::FairShare;
use super::history::{History, HistoryEvent, Reason};
use super::outage::Outages;
use super::settings::{RuleSet, Settings};
use super::table::{Job, Jobs, Phase, Slot, Then};
use super::wall_time::WallTime;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs that became known.
    pub adds: u64,
    /// Jobs that were removed, or replaced.
    pub removes: u64,
    /// Starts.
    pub starts: u64,
    /// Stops, except of removed jobs.
    pub stops: u64,
    /// Crashes of permanent jobs.
    pub crashes: u64,
    /// Transient jobs that failed.
    pub failures: u64,
    /// Completed jobs.
    pub completions: u64,
}

/// All jobs, and every decision about them.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(super) settings: Settings,
    pub(super) jobs: Jobs,
    pub(super) fair_share: FairShare,
    pub(super) totals: Totals,
    pub(super) outages: Outages,
    next_run: u64,
    pub(super) shutting_down: bool,
}

impl Scheduler {
    /// Returns a scheduler without jobs.
    pub fn new(settings: Settings) -> Self {
        let mut jobs = Jobs::default();
        jobs.set_state_rules(&settings);
        Self {
            fair_share: FairShare::default(),
            settings,
            jobs,
            totals: Totals::default(),
            outages: Outages::default(),
            next_run: 1,
            shutting_down: false,
        }
    }

    /// Handles an event, and appends the actions to `out`, in order.
    pub fn handle(&mut self, event: Event, now: WallTime, out: &mut Vec<ScheduleAction>) {
        self.wake(now);
        match event {
            Event::Add(job) => self.add(job, now, out),
            Event::Remove { id } => self.remove(&id, StopReason::Removed, now, out),
            Event::Lose { id } => self.lose(&id, now, out),
            Event::RemoveAll => {
                let all: Vec<_> = self.jobs.slots().map(|slot| self.id(slot)).collect();
                all.iter()
                    .for_each(|id| self.remove(id, StopReason::Removed, now, out));
            }
            Event::Restart { id } => self.restart(&id, now, out),
            Event::Pause { id, by } => self.pause(&id, by, now, out),
            Event::Resume { id } => self.resume(&id, now, out),
            Event::SetLevel { id, level } => {
                if let Some(slot) = self.find(&id) {
                    self.jobs.change(slot, |job, _| job.level = level);
                    self.start_or_fill(slot, now, out);
                }
            }
            Event::Exited { run, end } => self.exited(run, end, now, out),
            Event::Cycle if self.shutting_down => {}
            Event::Cycle => self.cycle(now, out),
            Event::Tick => self.refill(now, out),
            Event::Probed { server, answers } => {
                self.probed(&server, answers, now, out);
                self.wake(now);
                self.refill(now, out);
            }
            Event::Reached(servers) => self.reached(servers, out),
            Event::Configure(settings) => self.configure(*settings, now),
            Event::Shutdown => self.shut_down(out),
        }
        self.probe(now, out);
    }

    /// Returns when [`Event::Tick`] is due next: when the wait of a job ends while there is a free slot for it, or a
    /// server is due for a probe.
    pub fn next_wake(&self) -> Option<WallTime> {
        let fills = self.fills_at_once() && !self.shutting_down;
        let has_room = fills && self.jobs.occupied() < self.settings.max_jobs;
        let rested = self.jobs.next_rested().filter(|_| has_room);
        rested.into_iter().chain(self.next_probe()).min()
    }

    /// Returns the settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the counts since the start.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether a free slot is filled at once, not in the next cycle.
    fn fills_at_once(&self) -> bool {
        self.settings.rules == RuleSet::Current
    }

    fn id(&self, slot: Slot) -> JobId {
        self.jobs.get(slot).id.clone()
    }

    /// Finds a known job, except one that is only ending.
    pub(super) fn find(&self, id: &str) -> Option<Slot> {
        let slot = self.jobs.find(id)?;
        (!self.jobs.get(slot).phase.is_leaving()).then_some(slot)
    }

    /// Makes the jobs whose wait has ended ready.
    fn wake(&mut self, now: WallTime) {
        while let Some(slot) = self.jobs.rested(now) {
            self.jobs.change(slot, |job, _| job.phase = Phase::Ready);
        }
    }

    fn add(&mut self, new: NewJob, now: WallTime, out: &mut Vec<ScheduleAction>) {
        if let Some(slot) = self.find(&new.id) {
            self.detach(slot, StopReason::Replaced, now, out);
        }
        self.totals.adds += 1;
        self.fair_share.job_added(&new.key);
        // A new job of a busy key starts with a penalty.
        let penalty = match self.settings.rules {
            RuleSet::Current => self.fair_share.raise(&new.key, &self.settings.shares),
            RuleSet::First => 0,
        };
        let then = new.paused.map_or(Then::Pend, Then::Pause);
        let Earlier {
            history,
            not_before,
        } = new.earlier;
        let history = history.resume(now, self.settings.max_history);
        let mut job = Job {
            id: new.id.clone(),
            key: Arc::clone(&new.key),
            continuous: new.continuous,
            transient: new.transient,
            level: new.level,
            eased: false,
            awaits_server: false,
            last_started: history.last_started(),
            failing_since: history.failing_since(self.settings.health_threshold),
            history,
            not_before,
            phase: Phase::Ready,
        };
        let Some(slot) = self.jobs.find(&new.id) else {
            job.phase = then.phase(&self.settings, &job, now);
            let slot = self.jobs.insert(job, penalty);
            return self.start_if_few(slot, now, out);
        };
        // The job's predecessor is still ending: the new job takes over its slot.
        self.jobs.change(slot, |row, row_penalty| {
            let run = row.phase.run().expect("a leaving job has an incarnation");
            *row_penalty = penalty;
            *row = job;
            row.phase = Phase::Stopping {
                run,
                foreign: true,
                then,
            };
        });
    }

    fn remove(&mut self, id: &str, why: StopReason, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let Some(slot) = self.find(id) else {
            return;
        };
        let id = self.id(slot);
        self.detach(slot, why, now, out);
        let how = End::Stopped;
        out.push(ScheduleAction::Left { id, how });
    }

    fn lose(&mut self, id: &JobId, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let slot = self.jobs.find(id);
        if let Some(Phase::Stopping { run, .. }) = slot.map(|slot| &self.jobs.get(slot).phase) {
            let (id, run, why) = (id.clone(), *run, StopReason::Lost);
            out.push(ScheduleAction::Stop { id, run, why });
        }
        self.remove(id, StopReason::Lost, now, out);
    }

    /// Removes a job; if it runs, a row stays until its incarnation has ended.
    fn detach(
        &mut self,
        slot: Slot,
        why: StopReason,
        now: WallTime,
        out: &mut Vec<ScheduleAction>,
    ) {
        self.totals.removes += 1;
        let key = Arc::clone(&self.jobs.get(slot).key);
        match self.jobs.get(slot).phase {
            Phase::Running(_) => {
                self.charge(slot, now);
                self.stop(slot, Then::Leave, why, out);
            }
            Phase::Stopping { .. } => self.then(slot, Then::Leave),
            Phase::Ready | Phase::BackingOff { .. } | Phase::Paused(_) => {
                self.jobs.remove(slot);
            }
        }
        self.fair_share.job_removed(&key);
    }

    /// Sets the next step of a stopping job.
    fn then(&mut self, slot: Slot, then: Then) {
        self.jobs.change(slot, |job, _| job.phase.set_then(then));
    }

    fn restart(&mut self, id: &str, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let Some(slot) = self.find(id) else {
            return;
        };
        if let Phase::Running(_) = self.jobs.get(slot).phase {
            self.charge(slot, now);
            self.stop(slot, Then::Pend, StopReason::Replaced, out);
        }
        self.jobs.change(slot, |job, _| {
            job.history = History::added(now);
            job.not_before = WallTime::ZERO;
            job.last_started = WallTime::ZERO;
            job.failing_since = None;
            job.eased = false;
            job.phase = match job.phase {
                Phase::Stopping { run, .. } => Phase::Stopping {
                    run,
                    foreign: true,
                    then: Then::Pend,
                },
                _ => Phase::Ready,
            };
        });
        self.start_or_fill(slot, now, out);
    }

    fn pause(&mut self, id: &str, by: Arc<str>, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let Some(slot) = self.find(id) else {
            return;
        };
        let pause = Pause { by, since: now };
        match self.jobs.get(slot).phase {
            Phase::Running(_) => {
                self.charge(slot, now);
                self.stop(slot, Then::Pause(pause), StopReason::Paused, out);
            }
            Phase::Stopping {
                then: Then::Pend, ..
            } => self.then(slot, Then::Pause(pause)),
            Phase::Ready | Phase::BackingOff { .. } => {
                self.jobs
                    .change(slot, |job, _| job.phase = Phase::Paused(pause));
            }
            // The first user to pause the job stays on record.
            Phase::Paused(_) | Phase::Stopping { .. } => {}
        }
    }

    fn resume(&mut self, id: &str, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let Some(slot) = self.find(id) else {
            return;
        };
        match self.jobs.get(slot).phase {
            Phase::Paused(_) => self.rest(slot, now),
            Phase::Stopping {
                then: Then::Pause(_),
                ..
            } => self.then(slot, Then::Pend),
            Phase::Ready
            | Phase::BackingOff { .. }
            | Phase::Running(_)
            | Phase::Stopping { .. } => {
                return;
            }
        }
        self.start_or_fill(slot, now, out);
    }

    fn configure(&mut self, settings: Settings, now: WallTime) {
        self.jobs.set_state_rules(&settings);
        self.settings = settings;
        for slot in self.jobs.backing_off() {
            self.rest(slot, now);
        }
    }

    /// Makes a job that is not running ready, or lets it back off first if necessary.
    fn rest(&mut self, slot: Slot, now: WallTime) {
        let settings = &self.settings;
        self.jobs.change(slot, |job, _| {
            job.phase = Phase::after_wait(settings, job, now);
        });
    }

    fn shut_down(&mut self, out: &mut Vec<ScheduleAction>) {
        self.shutting_down = true;
        let running: Vec<_> = self.jobs.running().collect();
        for slot in running {
            self.stop(slot, Then::Pend, StopReason::Shutdown, out);
        }
    }

    fn exited(&mut self, run: Run, end: End, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let Some(slot) = self.jobs.find_run(run) else {
            return;
        };
        match &self.jobs.get(slot).phase {
            Phase::Stopping { foreign, then, .. } => {
                let (foreign, then) = (*foreign, then.clone());
                self.stopped(slot, foreign, then, &end, now, out);
            }
            _ => self.ended(slot, end, now, out),
        }
    }

    /// Handles the end of an incarnation that was stopped.
    fn stopped(
        &mut self,
        slot: Slot,
        foreign: bool,
        then: Then,
        end: &End,
        now: WallTime,
        out: &mut Vec<ScheduleAction>,
    ) {
        if then == Then::Leave {
            self.jobs.remove(slot);
            return self.refill(now, out);
        }
        if *end == End::Normal && !foreign {
            return self.completed(slot, now, out);
        }
        let settings = &self.settings;
        let id = self.jobs.change(slot, |job, _| {
            if !foreign {
                let max = settings.max_history;
                job.history.push(now, HistoryEvent::Stopped, max);
                // The job ran until it was stopped, which also ends its count of crashes.
                job.failing_since = None;
            }
            job.phase = then.phase(settings, job, now);
            job.id.clone()
        });
        if !foreign {
            self.totals.stops += 1;
            out.push(ScheduleAction::Stopped { id });
        }
        // The reference waits for a job's end; its cycle then starts the job that this one was stopped for.
        if self.fills_at_once() {
            self.fill(now, out);
        } else if foreign {
            self.start_if_few(slot, now, out);
        } else {
            self.start_next(now, out);
        }
    }

    /// Handles the unexpected end of an incarnation.
    fn ended(&mut self, slot: Slot, end: End, now: WallTime, out: &mut Vec<ScheduleAction>) {
        self.charge(slot, now);
        let (reason, servers) = match end {
            End::Normal => return self.completed(slot, now, out),
            End::Crashed(reason) => (reason, None),
            End::Unreachable(reason, servers) => (reason, Some(servers)),
            End::Stopped => {
                let reason = Reason::new("the job ended without being stopped", false);
                (Arc::new(reason), None)
            }
        };
        let job = self.jobs.get(slot);
        let id = job.id.clone();
        if job.transient {
            self.totals.failures += 1;
            let how = End::Crashed(reason);
            return self.departed(slot, how, now, out);
        }
        self.totals.crashes += 1;
        let settings = &self.settings;
        let until = self.jobs.change(slot, |job, _| {
            let was_healthy = now.since(job.last_started) > settings.health_threshold;
            if was_healthy || job.failing_since.is_none() {
                job.failing_since = Some(now);
            }
            // Consecutive crashes usually have equal reasons: these share one copy.
            let known = job.history.latest_crash_reason();
            let known = known.filter(|known| **known == reason);
            let shared = Arc::clone(known.unwrap_or(&reason));
            job.history
                .push(now, HistoryEvent::Crashed(shared), settings.max_history);
            job.phase = Phase::after_wait(settings, job, now);
            match job.phase {
                Phase::BackingOff { until } => until,
                _ => now,
            }
        });
        out.push(ScheduleAction::Crashed { id, reason, until });
        if let Some(servers) = servers {
            self.await_servers(slot, servers, now);
        }
        let few = self.jobs.census.total < self.settings.max_jobs;
        if few || self.fills_at_once() {
            self.fill(now, out);
        }
    }

    fn completed(&mut self, slot: Slot, now: WallTime, out: &mut Vec<ScheduleAction>) {
        self.totals.completions += 1;
        self.departed(slot, End::Normal, now, out);
    }

    fn departed(&mut self, slot: Slot, how: End, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let Job { id, key, .. } = self.jobs.remove(slot);
        self.fair_share.job_removed(&key);
        out.push(ScheduleAction::Left { id, how });
        self.refill(now, out);
    }

    /// Charges a running job's key.
    pub(super) fn charge(&mut self, slot: Slot, now: WallTime) {
        if self.settings.rules == RuleSet::Current {
            let job = self.jobs.get(slot);
            let time = now.since(job.last_started).min(self.settings.interval);
            self.fair_share.charge(&job.key, time);
        }
    }

    /// Stops a running job.
    pub(super) fn stop(
        &mut self,
        slot: Slot,
        then: Then,
        why: StopReason,
        out: &mut Vec<ScheduleAction>,
    ) {
        let (id, run) = self.jobs.change(slot, |job, _| {
            let run = job.phase.run().expect("only a running job is stopped");
            let foreign = false;
            job.phase = Phase::Stopping { run, foreign, then };
            (job.id.clone(), run)
        });
        out.push(ScheduleAction::Stop { id, run, why });
    }

    fn start(&mut self, slot: Slot, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let run = Run(self.next_run);
        self.next_run += 1;
        self.totals.starts += 1;
        let max = self.settings.max_history;
        let (id, eased) = self.jobs.change(slot, |job, _| {
            job.eased |= job
                .history
                .fresh_crash()
                .is_some_and(|crash| crash.rate_limited);
            job.history.push(now, HistoryEvent::Started, max);
            job.last_started = now;
            job.phase = Phase::Running(run);
            (job.id.clone(), job.eased)
        });
        out.push(ScheduleAction::Start { id, run, eased });
    }

    /// Starts the next job, if there is one and a slot is free.
    fn start_next(&mut self, now: WallTime, out: &mut Vec<ScheduleAction>) -> bool {
        let free = self.jobs.occupied() < self.settings.max_jobs && !self.shutting_down;
        let next = self.jobs.next().filter(|_| free);
        if let Some(slot) = next {
            self.start(slot, now, out);
        }
        next.is_some()
    }

    /// Starts jobs while slots are free.
    pub(super) fn fill(&mut self, now: WallTime, out: &mut Vec<ScheduleAction>) {
        while self.start_next(now, out) {}
    }

    /// Starts jobs if a slot may have become free, except under [`RuleSet::First`], which waits for the next cycle.
    fn refill(&mut self, now: WallTime, out: &mut Vec<ScheduleAction>) {
        if self.fills_at_once() {
            self.fill(now, out);
        }
    }

    /// Starts a ready job if fewer than `max_jobs` jobs are known, including this one (`maybe_start_newly_added_job`).
    fn start_if_few(&mut self, slot: Slot, now: WallTime, out: &mut Vec<ScheduleAction>) {
        let max = self.settings.max_jobs;
        let few = self.jobs.census.total < max && self.jobs.occupied() < max;
        if few && !self.shutting_down && self.jobs.get(slot).phase == Phase::Ready {
            self.start(slot, now, out);
        }
    }

    /// Starts jobs after one became able to run, or to run earlier than before.
    fn start_or_fill(&mut self, slot: Slot, now: WallTime, out: &mut Vec<ScheduleAction>) {
        if self.fills_at_once() {
            self.fill(now, out);
        } else {
            self.start_if_few(slot, now, out);
        }
    }
}

impl Phase {
    /// Returns the phase of a job that does not run: backing off, or ready.
    fn after_wait(settings: &Settings, job: &Job, now: WallTime) -> Self {
        let until = settings.rested_at(&job.history).max(job.not_before);
        if until <= now {
            Self::Ready
        } else {
            Self::BackingOff { until }
        }
    }
}

impl Then {
    /// Returns the phase of a job that has no incarnation.
    fn phase(self, settings: &Settings, job: &Job, now: WallTime) -> Phase {
        match self {
            Self::Pend => Phase::after_wait(settings, job, now),
            Self::Pause(pause) => Phase::Paused(pause),
            Self::Leave => unreachable!("the row of a job that is leaving is dropped"),
        }
    }
}
