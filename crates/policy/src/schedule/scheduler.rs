//! The entry point of the decision core: each event and its effects.
//!
//! SUMMARY   Wakes the jobs whose wait has ended, then handles the event.
//! PROMISES  Total: an event about anything unknown or gone has no effect. Deterministic: the same events at the same
//!           times give the same actions.
//! CALLED    By the ReplicationScheduler actor.
//! SOURCE    couch_replicator_scheduler 004 and HEAD: the gen_server's calls, casts and infos.

use std::sync::Arc;

use super::fair_share::FairShare;
use super::outage::Outages;
use super::table::{Job, Jobs, Phase, Slot, Then};
use super::{
    End, Event, History, HistoryEvent, JobId, NewJob, Pause, Reason, RuleSet, Run, ScheduleAction,
    Settings, StopReason, WallTime,
};

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
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    pub(super) settings: Settings,
    pub(super) jobs: Jobs,
    pub(super) fair_share: FairShare,
    pub(super) totals: Totals,
    pub(super) outages: Outages,
    last_run: u64,
    pub(super) shutting_down: bool,
    /// The time of the event that is being handled, and its actions.
    pub(super) now: WallTime,
    pub(super) out: Vec<ScheduleAction>,
}

impl Scheduler {
    /// Returns a scheduler without jobs.
    pub fn new(settings: Settings) -> Self {
        let mut jobs = Jobs::default();
        jobs.set_state_rules(&settings);
        Self {
            settings,
            jobs,
            ..Self::default()
        }
    }

    /// Handles an event, and appends the actions to `out`, in order.
    pub fn handle(&mut self, event: Event, now: WallTime, out: &mut Vec<ScheduleAction>) {
        self.now = now;
        self.out = std::mem::take(out);
        self.wake();
        match event {
            Event::Add(job) => self.add(job),
            Event::Remove { id } => self.remove(&id, StopReason::Removed),
            Event::Lose { id } => self.lose(&id),
            Event::Restart { id } => self.restart(&id),
            Event::Pause { id, by } => self.pause(&id, by),
            Event::Resume { id } => self.resume(&id),
            Event::SetLevel { id, level } => {
                if let Some(slot) = self.find(&id) {
                    self.jobs.change(slot, |job, _| job.level = level);
                    self.start_or_fill(slot);
                }
            }
            Event::Exited { run, end } => self.exited(run, end),
            Event::Cycle if self.shutting_down => {}
            Event::Cycle => match self.settings.rules {
                RuleSet::Current => self.cycle_current(),
                RuleSet::First => self.cycle_first(),
            },
            Event::Tick => self.refill(),
            Event::Probed { server, answers } => {
                self.probed(&server, answers);
                self.wake();
                self.refill();
            }
            Event::Reached(servers) => self.reached(servers),
            Event::Configure(settings) => self.configure(*settings),
            Event::Shutdown => self.shut_down(),
        }
        self.probe();
        *out = std::mem::take(&mut self.out);
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

    /// Finds a known job, except one that is only ending.
    pub(super) fn find(&self, id: &str) -> Option<Slot> {
        let slot = self.jobs.find(id)?;
        (!self.jobs.get(slot).phase.is_leaving()).then_some(slot)
    }

    /// Makes the jobs whose wait has ended ready.
    fn wake(&mut self) {
        while let Some(slot) = self.jobs.rested(self.now) {
            self.jobs.change(slot, |job, _| job.phase = Phase::Ready);
        }
    }

    fn add(&mut self, new: NewJob) {
        if let Some(slot) = self.find(&new.id) {
            self.detach(slot, StopReason::Replaced);
        }
        self.totals.adds += 1;
        self.fair_share.job_added(&new.key);
        // A new job of a busy key starts with a penalty.
        let penalty = match self.settings.rules {
            RuleSet::Current => self.fair_share.raise(&new.key, &self.settings.shares),
            RuleSet::First => 0,
        };
        let predecessor = self.jobs.find(&new.id);
        let then = new.paused.map_or(Then::Pend, Then::Pause);
        let history = new
            .earlier
            .history
            .resume(self.now, self.settings.max_history);
        let mut job = Job {
            id: new.id,
            key: new.key,
            continuous: new.continuous,
            transient: new.transient,
            level: new.level,
            eased: false,
            awaited_servers: 0,
            starts_early: false,
            last_started: history.last_started(),
            failing_since: history.failing_since(self.settings.health_threshold),
            history,
            not_before: new.earlier.not_before,
            phase: Phase::Ready,
        };
        let Some(slot) = predecessor else {
            job.phase = then.phase(&self.settings, &job, self.now);
            let slot = self.jobs.insert(job, penalty);
            return self.start_if_few(slot);
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

    fn remove(&mut self, id: &str, why: StopReason) {
        let Some(slot) = self.find(id) else {
            return;
        };
        let id = self.jobs.get(slot).id.clone();
        self.detach(slot, why);
        let how = End::Stopped;
        self.out.push(ScheduleAction::Left { id, how });
    }

    fn lose(&mut self, id: &JobId) {
        let slot = self.jobs.find(id);
        if let Some(Phase::Stopping { run, .. }) = slot.map(|slot| &self.jobs.get(slot).phase) {
            let (id, run, why) = (id.clone(), *run, StopReason::Lost);
            self.out.push(ScheduleAction::Stop { id, run, why });
        }
        self.remove(id, StopReason::Lost);
    }

    /// Removes a job; if it runs, a row stays until its incarnation has ended.
    fn detach(&mut self, slot: Slot, why: StopReason) {
        self.totals.removes += 1;
        let key = Arc::clone(&self.jobs.get(slot).key);
        match self.jobs.get(slot).phase {
            Phase::Running(_) => {
                self.charge(slot);
                self.stop(slot, Then::Leave, why);
            }
            Phase::Stopping { .. } => self.then(slot, Then::Leave),
            Phase::Ready | Phase::BackingOff { .. } | Phase::Paused(_) => {
                self.jobs.remove(slot);
            }
        }
        self.fair_share.job_removed(&key);
    }

    /// Sets the next step of a stopping job.
    fn then(&mut self, slot: Slot, next: Then) {
        self.jobs.change(slot, |job, _| {
            if let Phase::Stopping { then, .. } = &mut job.phase {
                *then = next;
            }
        });
    }

    fn restart(&mut self, id: &str) {
        let Some(slot) = self.find(id) else {
            return;
        };
        if let Phase::Running(_) = self.jobs.get(slot).phase {
            self.charge(slot);
            self.stop(slot, Then::Pend, StopReason::Replaced);
        }
        self.jobs.change(slot, |job, _| {
            job.history = History::added(self.now);
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
        self.start_or_fill(slot);
    }

    fn pause(&mut self, id: &str, by: Arc<str>) {
        let Some(slot) = self.find(id) else {
            return;
        };
        let pause = Pause {
            by,
            since: self.now,
        };
        match self.jobs.get(slot).phase {
            Phase::Running(_) => {
                self.charge(slot);
                self.stop(slot, Then::Pause(pause), StopReason::Paused);
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

    fn resume(&mut self, id: &str) {
        let Some(slot) = self.find(id) else {
            return;
        };
        match self.jobs.get(slot).phase {
            Phase::Paused(_) => self.rest(slot),
            Phase::Stopping {
                then: Then::Pause(_),
                ..
            } => self.then(slot, Then::Pend),
            _ => return,
        }
        self.start_or_fill(slot);
    }

    fn configure(&mut self, settings: Settings) {
        self.jobs.set_state_rules(&settings);
        self.settings = settings;
        for slot in self.jobs.backing_off() {
            // An early start after an outage is not derived from the settings.
            if !self.jobs.get(slot).starts_early {
                self.rest(slot);
            }
        }
    }

    /// Makes a job that is not running ready, or lets it back off first if necessary.
    fn rest(&mut self, slot: Slot) {
        let settings = &self.settings;
        self.jobs.change(slot, |job, _| {
            job.phase = Phase::after_wait(settings, job, self.now);
        });
    }

    fn shut_down(&mut self) {
        self.shutting_down = true;
        let running: Vec<_> = self.jobs.running().collect();
        for slot in running {
            self.stop(slot, Then::Pend, StopReason::Shutdown);
        }
    }

    fn exited(&mut self, run: Run, end: End) {
        let Some(&slot) = self.jobs.by_run.get(&run) else {
            return;
        };
        match &self.jobs.get(slot).phase {
            Phase::Stopping { foreign, then, .. } => {
                let (foreign, then) = (*foreign, then.clone());
                self.stopped(slot, foreign, then, &end);
            }
            _ => self.ended(slot, end),
        }
    }

    /// Handles the end of an incarnation that was stopped.
    fn stopped(&mut self, slot: Slot, foreign: bool, then: Then, end: &End) {
        if then == Then::Leave {
            self.jobs.remove(slot);
            return self.refill();
        }
        if *end == End::Normal && !foreign {
            return self.completed(slot);
        }
        let settings = &self.settings;
        let id = self.jobs.change(slot, |job, _| {
            if !foreign {
                let max = settings.max_history;
                job.history.push(self.now, HistoryEvent::Stopped, max);
                // The job ran until it was stopped, which also ends its count of crashes.
                job.failing_since = None;
            }
            job.phase = then.phase(settings, job, self.now);
            job.id.clone()
        });
        if !foreign {
            self.totals.stops += 1;
            self.out.push(ScheduleAction::Stopped { id });
        }
        // The reference waits for a job's end; its cycle then starts the job that this one was stopped for.
        if self.fills_at_once() {
            self.fill();
        } else if foreign {
            self.start_if_few(slot);
        } else {
            self.start_next();
        }
    }

    /// Handles the unexpected end of an incarnation.
    fn ended(&mut self, slot: Slot, end: End) {
        self.charge(slot);
        let (reason, servers) = match end {
            End::Normal => return self.completed(slot),
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
            return self.departed(slot, how);
        }
        self.totals.crashes += 1;
        let settings = &self.settings;
        let until = self.jobs.change(slot, |job, _| {
            let was_healthy = self.now.since(job.last_started) > settings.health_threshold;
            if was_healthy || job.failing_since.is_none() {
                job.failing_since = Some(self.now);
            }
            // Consecutive crashes usually have equal reasons: these share one copy.
            let known = job.history.latest_crash_reason();
            let known = known.filter(|known| **known == reason);
            let shared = Arc::clone(known.unwrap_or(&reason));
            job.history.push(
                self.now,
                HistoryEvent::Crashed(shared),
                settings.max_history,
            );
            job.phase = Phase::after_wait(settings, job, self.now);
            match job.phase {
                Phase::BackingOff { until } => until,
                _ => self.now,
            }
        });
        self.out.push(ScheduleAction::Crashed { id, reason, until });
        if let Some(servers) = servers {
            self.await_servers(slot, servers);
        }
        let few = self.jobs.census.total < self.settings.max_jobs;
        if few || self.fills_at_once() {
            self.fill();
        }
    }

    fn completed(&mut self, slot: Slot) {
        self.totals.completions += 1;
        self.departed(slot, End::Normal);
    }

    fn departed(&mut self, slot: Slot, how: End) {
        let Job { id, key, .. } = self.jobs.remove(slot);
        self.fair_share.job_removed(&key);
        self.out.push(ScheduleAction::Left { id, how });
        self.refill();
    }

    /// Charges a running job's key.
    pub(super) fn charge(&mut self, slot: Slot) {
        if self.settings.rules == RuleSet::Current {
            let job = self.jobs.get(slot);
            let time = self.now.since(job.last_started).min(self.settings.interval);
            self.fair_share.charge(&job.key, time);
        }
    }

    /// Stops a running job.
    pub(super) fn stop(&mut self, slot: Slot, then: Then, why: StopReason) {
        let (id, run) = self.jobs.change(slot, |job, _| {
            let run = job.phase.run().expect("only a running job is stopped");
            let foreign = false;
            job.phase = Phase::Stopping { run, foreign, then };
            (job.id.clone(), run)
        });
        self.out.push(ScheduleAction::Stop { id, run, why });
    }

    fn start(&mut self, slot: Slot) {
        self.last_run += 1;
        let run = Run(self.last_run);
        self.totals.starts += 1;
        let max = self.settings.max_history;
        let (id, eased) = self.jobs.change(slot, |job, _| {
            job.eased |= job
                .history
                .fresh_crash()
                .is_some_and(|crash| crash.rate_limited);
            job.history.push(self.now, HistoryEvent::Started, max);
            job.last_started = self.now;
            job.phase = Phase::Running(run);
            (job.id.clone(), job.eased)
        });
        self.out.push(ScheduleAction::Start { id, run, eased });
    }

    /// Starts the next job, if there is one and a slot is free.
    fn start_next(&mut self) -> bool {
        let free = self.jobs.occupied() < self.settings.max_jobs && !self.shutting_down;
        let next = self.jobs.next().filter(|_| free);
        if let Some(slot) = next {
            self.start(slot);
        }
        next.is_some()
    }

    /// Starts jobs while slots are free.
    pub(super) fn fill(&mut self) {
        while self.start_next() {}
    }

    /// Starts jobs if a slot may have become free, except under [`RuleSet::First`], which waits for the next cycle.
    fn refill(&mut self) {
        if self.fills_at_once() {
            self.fill();
        }
    }

    /// Starts a ready job if fewer than `max_jobs` jobs are known, including this one (`maybe_start_newly_added_job`).
    fn start_if_few(&mut self, slot: Slot) {
        let max = self.settings.max_jobs;
        let few = self.jobs.census.total < max && self.jobs.occupied() < max;
        if few && !self.shutting_down && self.jobs.get(slot).phase == Phase::Ready {
            self.start(slot);
        }
    }

    /// Starts jobs after one became able to run, or to run earlier than before.
    fn start_or_fill(&mut self, slot: Slot) {
        if self.fills_at_once() {
            self.fill();
        } else {
            self.start_if_few(slot);
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
