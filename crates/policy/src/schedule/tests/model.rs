//! A naive model of the scheduler: it scans everything each time.
//!
//! SUMMARY   What [`Scheduler`] must do, without indexes, counters or lazy sums.
//! LIMITS    Slow. Shares the functions of histories and coefficients, which have table-driven tests.

use std::cmp::Reverse;

use super::*;

#[derive(Clone, Debug)]
pub(super) struct ModelJob {
    pub(super) id: JobId,
    key: std::sync::Arc<str>,
    continuous: bool,
    transient: bool,
    pub(super) level: Level,
    pub(super) history: History,
    not_before: WallTime,
    last_started: WallTime,
    pub(super) penalty: u64,
    eased: bool,
    backing_off: bool,
    pub(super) paused: Option<Pause>,
    /// Its incarnation.
    pub(super) run: Option<Run>,
    /// Whether the incarnation is stopping.
    pub(super) stopping: bool,
    /// Whether the incarnation is a predecessor's.
    foreign: bool,
    /// Whether the job was removed, and only its incarnation is left.
    pub(super) leaving: bool,
}

impl ModelJob {
    fn is_ready(&self) -> bool {
        self.run.is_none() && self.paused.is_none() && !self.backing_off
    }

    fn is_running(&self) -> bool {
        self.run.is_some() && !self.stopping
    }

    fn turn(&self) -> (Reverse<Level>, u64, WallTime, JobId) {
        (
            Reverse(self.level),
            self.penalty,
            self.last_started,
            self.id.clone(),
        )
    }

    fn stop_turn(&self) -> (Level, Reverse<bool>, Reverse<u64>, WallTime, JobId) {
        (
            self.level,
            Reverse(self.continuous),
            Reverse(self.penalty),
            self.last_started,
            self.id.clone(),
        )
    }
}

#[derive(Clone, Debug, Default)]
struct Account {
    usage: u64,
    charges: u64,
}

pub(super) struct Model {
    pub(super) settings: Settings,
    pub(super) jobs: Vec<ModelJob>,
    accounts: BTreeMap<std::sync::Arc<str>, Account>,
    next_run: u64,
    shutting_down: bool,
    now: WallTime,
    out: Vec<ScheduleAction>,
}

impl Model {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            jobs: Vec::new(),
            accounts: BTreeMap::new(),
            next_run: 1,
            shutting_down: false,
            now: WallTime::ZERO,
            out: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, event: Event, now: WallTime) -> Vec<ScheduleAction> {
        self.now = now;
        self.wake();
        let at_once = self.settings.rules == RuleSet::Current;
        match event {
            Event::Add(new) => self.add(new),
            Event::Remove { id } => self.remove(&id, StopReason::Removed),
            Event::Lose { id } => {
                let stopping = self.at(&id).filter(|at| self.jobs[*at].stopping);
                if stopping.is_some() {
                    self.stop(&id, StopReason::Lost);
                }
                self.remove(&id, StopReason::Lost);
            }
            Event::Restart { id } => self.restart(&id),
            Event::Pause { id, by } => self.pause(&id, by),
            Event::Resume { id } => self.resume(&id),
            Event::SetLevel { id, level } => {
                if let Some(at) = self.known(&id) {
                    self.jobs[at].level = level;
                    self.start_or_fill(&id);
                }
            }
            Event::Exited { run, end } => self.exited(run, end),
            Event::Cycle if self.shutting_down => {}
            Event::Cycle => self.cycle(),
            // In this model no job waits for a server.
            Event::Tick | Event::Probed { .. } if at_once => self.fill(usize::MAX),
            Event::Tick | Event::Probed { .. } | Event::Reached(_) => {}
            Event::Configure(settings) => {
                self.settings = *settings;
                self.wake();
            }
            Event::Shutdown => {
                self.shutting_down = true;
                let all: Vec<_> = self.jobs.iter().filter(|job| job.is_running()).collect();
                let ids: Vec<_> = all.into_iter().map(|job| job.id.clone()).collect();
                ids.iter()
                    .for_each(|id| self.stop(id, StopReason::Shutdown));
            }
        }
        std::mem::take(&mut self.out)
    }

    pub(super) fn occupied(&self) -> usize {
        self.jobs.iter().filter(|job| job.run.is_some()).count()
    }

    pub(super) fn total(&self) -> usize {
        self.jobs.iter().filter(|job| !job.leaving).count()
    }

    fn at(&self, id: &str) -> Option<usize> {
        self.jobs.iter().position(|job| &*job.id == id)
    }

    fn known(&self, id: &str) -> Option<usize> {
        self.at(id).filter(|at| !self.jobs[*at].leaving)
    }

    fn wake(&mut self) {
        for job in &mut self.jobs {
            let rested = self.settings.rested_at(&job.history);
            job.backing_off &= rested.max(job.not_before) > self.now;
        }
    }

    fn raise(&self, key: &str) -> u64 {
        let jobs = self
            .jobs
            .iter()
            .filter(|job| !job.leaving && &*job.key == key);
        let usage = self.accounts.get(key).map_or(0, |account| account.usage);
        let shares = u64::from(self.settings.shares.get(key));
        usage * jobs.count() as u64 / (shares * shares)
    }

    fn charge(&mut self, id: &str) {
        let job = &self.jobs[self.at(id).expect("it is known")];
        if self.settings.rules == RuleSet::Current {
            let time = self.now.since(job.last_started).min(self.settings.interval);
            let account = self.accounts.entry(job.key.clone()).or_default();
            account.charges += time.as_micros() as u64;
        }
    }

    fn add(&mut self, new: NewJob) {
        if self.known(&new.id).is_some() {
            self.detach(&new.id, StopReason::Replaced);
        }
        let old = self.at(&new.id).map(|at| self.jobs.remove(at));
        let id = new.id;
        let run = old.and_then(|old| old.run);
        let max = self.settings.max_history;
        let history = new.earlier.history.resume(self.now, max);
        self.jobs.push(ModelJob {
            id: id.clone(),
            key: new.key.clone(),
            continuous: new.continuous,
            transient: new.transient,
            level: new.level,
            last_started: history.last_started(),
            history,
            not_before: new.earlier.not_before,
            penalty: 0,
            eased: false,
            backing_off: run.is_none() && new.paused.is_none(),
            paused: new.paused,
            run,
            stopping: run.is_some(),
            foreign: run.is_some(),
            leaving: false,
        });
        if self.settings.rules == RuleSet::Current {
            let at = self.at(&id).expect("it was added");
            self.jobs[at].penalty = self.raise(&new.key);
        }
        self.wake();
        self.start_if_few(&id);
    }

    fn detach(&mut self, id: &str, why: StopReason) {
        let at = self.at(id).expect("it is known");
        if self.jobs[at].run.is_none() {
            self.jobs.remove(at);
            return;
        }
        if self.jobs[at].is_running() {
            self.charge(id);
            self.stop(id, why);
        }
        self.jobs[at].leaving = true;
    }

    fn remove(&mut self, id: &JobId, why: StopReason) {
        if self.known(id).is_some() {
            self.detach(id, why);
            let (id, how) = (id.clone(), End::Stopped);
            self.out.push(ScheduleAction::Left { id, how });
        }
    }

    fn restart(&mut self, id: &str) {
        let Some(at) = self.known(id) else { return };
        if self.jobs[at].is_running() {
            self.charge(id);
            self.stop(id, StopReason::Replaced);
        }
        let job = &mut self.jobs[at];
        job.history = History::added(self.now);
        job.not_before = WallTime::ZERO;
        job.last_started = WallTime::ZERO;
        job.eased = false;
        job.backing_off = false;
        job.paused = None;
        job.foreign = job.run.is_some();
        self.start_or_fill(id);
    }

    fn pause(&mut self, id: &str, by: std::sync::Arc<str>) {
        let Some(at) = self.known(id) else { return };
        if self.jobs[at].paused.is_some() {
            return;
        }
        if self.jobs[at].is_running() {
            self.charge(id);
            self.stop(id, StopReason::Paused);
        }
        let since = self.now;
        self.jobs[at].paused = Some(Pause { by, since });
        self.jobs[at].backing_off = false;
    }

    fn resume(&mut self, id: &str) {
        let Some(at) = self.known(id) else { return };
        if self.jobs[at].paused.take().is_none() {
            return;
        }
        self.jobs[at].backing_off = self.jobs[at].run.is_none();
        self.wake();
        self.start_or_fill(id);
    }

    fn stop(&mut self, id: &str, why: StopReason) {
        let at = self.at(id).expect("it is known");
        let job = &mut self.jobs[at];
        job.stopping = true;
        let (id, run) = (job.id.clone(), job.run.expect("it runs"));
        self.out.push(ScheduleAction::Stop { id, run, why });
    }

    fn exited(&mut self, run: Run, end: End) {
        let Some(at) = self.jobs.iter().position(|job| job.run == Some(run)) else {
            return;
        };
        let at_once = self.settings.rules == RuleSet::Current;
        let (now, max) = (self.now, self.settings.max_history);
        let id = self.jobs[at].id.clone();
        if !self.jobs[at].stopping {
            self.charge(&id);
        }
        let job = &mut self.jobs[at];
        let how = match &end {
            _ if job.leaving => Some(None),
            End::Normal if !job.foreign => Some(Some(End::Normal)),
            End::Crashed(reason) | End::Unreachable(reason, _)
                if !job.stopping && job.transient =>
            {
                Some(Some(End::Crashed(reason.clone())))
            }
            End::Stopped if !job.stopping && job.transient => {
                let text = "the job ended without being stopped";
                Some(Some(End::Crashed(reason(text))))
            }
            _ => None,
        };
        if let Some(how) = how {
            self.jobs.remove(at);
            self.out
                .extend(how.map(|how| ScheduleAction::Left { id, how }));
            return if at_once {
                self.fill(usize::MAX)
            };
        }
        job.run = None;
        if std::mem::take(&mut job.stopping) {
            let foreign = std::mem::take(&mut job.foreign);
            if !foreign {
                job.history.push(now, HistoryEvent::Stopped, max);
                let id = id.clone();
                self.out.push(ScheduleAction::Stopped { id });
            }
            self.jobs[at].backing_off = self.jobs[at].paused.is_none();
            self.wake();
            match (at_once, foreign) {
                (true, _) => self.fill(usize::MAX),
                (false, true) => self.start_if_few(&id),
                (false, false) => self.fill(1),
            }
            return;
        }
        let reason = match end {
            End::Crashed(reason) | End::Unreachable(reason, _) => reason,
            _ => reason("the job ended without being stopped"),
        };
        job.history
            .push(now, HistoryEvent::Crashed(reason.clone()), max);
        let rested = self.settings.rested_at(&job.history);
        let until = rested.max(job.not_before).max(now);
        job.backing_off = until > now;
        self.out.push(ScheduleAction::Crashed { id, reason, until });
        if at_once || self.total() < self.settings.max_jobs {
            self.fill(usize::MAX);
        }
    }

    fn start(&mut self, id: &str) {
        let run = Run(self.next_run);
        self.next_run += 1;
        let (now, max) = (self.now, self.settings.max_history);
        let at = self.at(id).expect("it is known");
        let job = &mut self.jobs[at];
        job.eased |= job
            .history
            .fresh_crash()
            .is_some_and(|crash| crash.rate_limited);
        job.history.push(now, HistoryEvent::Started, max);
        job.last_started = now;
        job.run = Some(run);
        let (id, eased) = (job.id.clone(), job.eased);
        self.out.push(ScheduleAction::Start { id, run, eased });
    }

    fn start_if_few(&mut self, id: &str) {
        let max = self.settings.max_jobs;
        let few = self.total() < max && self.occupied() < max && !self.shutting_down;
        if few && self.jobs[self.at(id).expect("it is known")].is_ready() {
            self.start(id);
        }
    }

    fn start_or_fill(&mut self, id: &str) {
        match self.settings.rules {
            RuleSet::Current => self.fill(usize::MAX),
            RuleSet::First => self.start_if_few(id),
        }
    }

    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            let ready = self.jobs.iter().filter(|job| job.is_ready());
            let Some(next) = ready.min_by_key(|job| job.turn()) else {
                return;
            };
            let id = next.id.clone();
            if self.occupied() >= self.settings.max_jobs || self.shutting_down {
                return;
            }
            self.start(&id);
        }
    }

    /// The priorities of waiting jobs, highest first.
    fn waiting(&self) -> Vec<Level> {
        let returns = |job: &&ModelJob| job.stopping && job.paused.is_none() && !job.leaving;
        let jobs = self.jobs.iter();
        let waiting = jobs.filter(|job| job.is_ready() || returns(job));
        let mut levels: Vec<_> = waiting.map(|job| job.level).collect();
        levels.sort_by_key(|level| Reverse(*level));
        levels
    }

    fn running(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_running()).count()
    }

    /// The running jobs, in the order in which they are stopped.
    fn to_stop(&self) -> Vec<ModelJob> {
        let running = self.jobs.iter().filter(|job| job.is_running());
        let mut order: Vec<_> = running.cloned().collect();
        order.sort_by_key(|job| job.stop_turn());
        order
    }

    /// Stops a continuous job for each job that waits without a slot and has at least the same priority.
    fn rotate(&mut self, churn: usize) {
        let free = self.settings.max_jobs - self.running();
        let order = self.to_stop().into_iter().filter(|job| job.continuous);
        let pairs = order.zip(self.waiting().into_iter().skip(free));
        let stopped = pairs.take_while(|(job, waiting)| job.level <= *waiting);
        let ids: Vec<_> = stopped.take(churn).map(|(job, _)| job.id).collect();
        ids.iter().for_each(|id| self.stop(id, StopReason::Rotated));
    }

    fn cycle(&mut self) {
        let Settings {
            rules,
            max_jobs,
            max_churn,
            ..
        } = self.settings;
        if rules == RuleSet::Current {
            self.update_shares();
        }
        let stopping = self.jobs.iter().filter(|job| job.stopping).count();
        let running = self.running();
        let excess = running.saturating_sub(max_jobs);
        for job in self.to_stop().iter().take(excess) {
            self.stop(&job.id, StopReason::Excess);
        }
        match rules {
            RuleSet::Current => {
                self.rotate(max_churn.saturating_sub(excess + stopping));
                self.fill(usize::MAX);
            }
            RuleSet::First if running < max_jobs => self.fill(usize::MAX),
            RuleSet::First if running == max_jobs => self.rotate(max_churn),
            RuleSet::First => {}
        }
    }

    fn update_shares(&mut self) {
        let running: Vec<_> = self.jobs.iter().filter(|job| job.is_running()).collect();
        let ids: Vec<_> = running.into_iter().map(|job| job.id.clone()).collect();
        ids.iter().for_each(|id| self.charge(id));
        for account in self.accounts.values_mut() {
            account.usage = self.settings.usage_coeff.of(account.usage);
            account.usage += std::mem::take(&mut account.charges);
        }
        for job in &mut self.jobs {
            job.penalty = self.settings.priority_coeff.of(job.penalty);
        }
        for id in ids {
            let at = self.at(&id).expect("it is known");
            self.jobs[at].penalty += self.raise(&self.jobs[at].key.clone());
        }
    }
}
