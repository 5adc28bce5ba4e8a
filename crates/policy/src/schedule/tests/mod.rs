//! Tests of the decision core, and the world that runs it.
//!
//! SUMMARY   A [`World`] of jobs whose incarnations exit as soon as they are stopped, as in the reference, unless a
//!           test holds them.

mod cases;
mod earlier;
mod edges;
mod histories;
mod model;
mod outages;
mod priorities;
mod properties;
mod shares;
mod summaries;

use std::collections::BTreeMap;
use std::time::Duration;

use super::fair_share::{Account, FairShare};
use super::table::{Job, Phase};
use super::*;

impl Scheduler {
    /// Returns all jobs in arbitrary order.
    fn jobs(&self) -> impl Iterator<Item = &Job> {
        let rows = self.jobs.slots().map(|slot| self.jobs.get(slot));
        rows.filter(|job| !job.phase.is_leaving())
    }

    /// Returns a job's penalty for its key's usage.
    fn penalty(&self, id: &str) -> Option<u64> {
        self.job(id).map(|job| job.penalty)
    }
}

/// The start time of the worlds: later than any event of a given history.
const NOW: WallTime = WallTime::from_micros(1_500_000_000_000_000);

/// A time in seconds since the epoch, as in the tests' histories.
const fn at(seconds: u64) -> WallTime {
    WallTime::from_micros(seconds * 1_000_000)
}

fn added(seconds: u64) -> HistoryEntry {
    let what = HistoryEvent::Added;
    HistoryEntry {
        at: at(seconds),
        what,
    }
}

fn started(seconds: u64) -> HistoryEntry {
    let what = HistoryEvent::Started;
    HistoryEntry {
        at: at(seconds),
        what,
    }
}

fn stopped(seconds: u64) -> HistoryEntry {
    let what = HistoryEvent::Stopped;
    HistoryEntry {
        at: at(seconds),
        what,
    }
}

fn crashed(seconds: u64) -> HistoryEntry {
    let what = HistoryEvent::Crashed(reason("some_reason"));
    HistoryEntry {
        at: at(seconds),
        what,
    }
}

fn reason(text: &str) -> std::sync::Arc<Reason> {
    Reason::new(text, false).into()
}

fn crash(text: &str) -> End {
    End::Crashed(reason(text))
}

/// A job put into the world directly, not by events.
#[derive(Clone)]
struct Given {
    id: String,
    continuous: bool,
    transient: bool,
    running: bool,
    history: History,
}

fn given(n: u64, continuous: bool, running: bool) -> Given {
    let history = if running {
        History::of([started(n)])
    } else {
        History::of([stopped(n + 1), started(n)])
    };
    Given {
        id: n.to_string(),
        continuous,
        transient: false,
        running,
        history,
    }
}

/// A continuous job that was started at this time and stopped.
fn c(n: u64) -> Given {
    given(n, true, false)
}

/// A continuous job that has run since this time.
fn cr(n: u64) -> Given {
    given(n, true, true)
}

/// A one-shot job that was started at this time and stopped.
fn o(n: u64) -> Given {
    given(n, false, false)
}

/// A one-shot job that has run since this time.
fn or(n: u64) -> Given {
    given(n, false, true)
}

fn pending(world: &World, count: usize) -> Vec<String> {
    let jobs = &world.scheduler.jobs;
    let next = jobs.next_few(count).into_iter();
    next.map(|slot| jobs.get(slot).id.to_string()).collect()
}

/// Returns a number from a key's account; `None` if it is 0 or there is no account.
fn of(fair: &FairShare, key: &str, number: fn(&Account) -> u64) -> Option<u64> {
    fair.0.get(key).map(number).filter(|number| *number > 0)
}

fn jobs_of(fair: &FairShare, key: &str) -> Option<u64> {
    of(fair, key, |account| account.jobs)
}

fn charges_of(fair: &FairShare, key: &str) -> Option<u64> {
    of(fair, key, |account| account.charges)
}

fn usage_of(fair: &FairShare, key: &str) -> Option<u64> {
    of(fair, key, |account| account.usage)
}

/// A job to add.
fn new_job(id: &str) -> NewJob {
    NewJob {
        id: id.into(),
        key: "_replicator".into(),
        continuous: true,
        transient: false,
        level: Level::default(),
        paused: None,
        earlier: Earlier::default(),
    }
}

/// The jobs, a clock, and the latest actions.
struct World {
    scheduler: Scheduler,
    now: WallTime,
    /// Started incarnations that have not exited.
    alive: BTreeMap<Run, JobId>,
    /// Whether stopping incarnations wait for [`World::let_go`].
    holds: bool,
    /// The incarnations that wait for it.
    held: Vec<Run>,
    /// The actions of the latest event and of the exits that followed.
    last: Vec<ScheduleAction>,
}

impl World {
    fn with(settings: Settings, jobs: impl IntoIterator<Item = Given>) -> Self {
        let mut world = Self {
            scheduler: Scheduler::new(settings),
            now: NOW,
            alive: BTreeMap::new(),
            holds: false,
            held: Vec::new(),
            last: Vec::new(),
        };
        jobs.into_iter().for_each(|job| world.put(job));
        world
    }

    /// A world that charges no running time, which only the reference's cases of fair share need.
    fn new(rules: RuleSet, jobs: impl IntoIterator<Item = Given>) -> Self {
        let settings = Settings {
            rules,
            interval: Duration::ZERO,
            ..Settings::default()
        };
        Self::with(settings, jobs)
    }

    fn put(&mut self, given: Given) {
        let id: JobId = given.id.as_str().into();
        let key = "_replicator".into();
        self.scheduler.fair_share.job_added(&key);
        let phase = if given.running {
            // Distinct from those of the scheduler.
            let run = Run(1_000_000 + self.alive.len() as u64);
            self.alive.insert(run, id.clone());
            Phase::Running(run)
        } else {
            let until = self.scheduler.settings.rested_at(&given.history);
            if until > self.now {
                Phase::BackingOff { until }
            } else {
                Phase::Ready
            }
        };
        let job = Job {
            id,
            key,
            continuous: given.continuous,
            transient: given.transient,
            level: Level::default(),
            eased: false,
            awaited_servers: 0,
            starts_early: false,
            last_started: given.history.last_started(),
            history: given.history,
            not_before: WallTime::ZERO,
            failing_since: None,
            phase,
        };
        self.scheduler.jobs.insert(job, 0);
    }

    /// Handles an event, and the exits of the jobs that it stops.
    fn on(&mut self, event: Event) -> &[ScheduleAction] {
        self.last.clear();
        self.run_event(event);
        &self.last
    }

    fn run_event(&mut self, event: Event) {
        let from = self.last.len();
        self.scheduler.handle(event, self.now, &mut self.last);
        let mut stops = Vec::new();
        for action in &self.last[from..] {
            match action {
                ScheduleAction::Start { id, run, .. } => {
                    assert!(
                        self.alive.values().all(|alive| alive != id),
                        "{id} runs twice"
                    );
                    self.alive.insert(*run, id.clone());
                }
                ScheduleAction::Stop { run, .. } => stops.push(*run),
                ScheduleAction::Stopped { .. }
                | ScheduleAction::Crashed { .. }
                | ScheduleAction::Probe { .. }
                | ScheduleAction::ServerLost { .. }
                | ScheduleAction::ServerUnreachable { .. }
                | ScheduleAction::ServerBack { .. }
                | ScheduleAction::Left { .. } => {}
            }
        }
        assert_eq!(self.alive.len(), self.scheduler.census().running);
        if self.holds {
            return self.held.extend(stops);
        }
        stops
            .into_iter()
            .for_each(|run| self.exited(run, End::Stopped));
    }

    fn exited(&mut self, run: Run, end: End) {
        self.alive.remove(&run);
        self.run_event(Event::Exited { run, end });
    }

    /// Lets stopping incarnations exit.
    fn let_go(&mut self) -> &[ScheduleAction] {
        self.last.clear();
        for run in std::mem::take(&mut self.held) {
            self.exited(run, End::Stopped);
        }
        &self.last
    }

    /// Ends the incarnation of a job.
    fn end(&mut self, id: &str, end: End) -> &[ScheduleAction] {
        let run = self.run_of(id);
        self.last.clear();
        self.exited(run, end);
        &self.last
    }

    fn run_of(&self, id: &str) -> Run {
        let run = self.scheduler.job(id).and_then(|job| job.shown.run);
        run.unwrap_or_else(|| panic!("{id} does not run"))
    }

    fn advance(&mut self, by: Duration) -> &[ScheduleAction] {
        self.now = self.now + by;
        self.on(Event::Tick)
    }

    fn configure(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.scheduler.settings().clone();
        change(&mut settings);
        self.on(Event::Configure(settings.into()));
    }

    /// Runs a cycle with these limits.
    fn cycle(&mut self, max_jobs: usize, max_churn: usize) -> &mut Self {
        self.configure(|settings| {
            settings.max_jobs = max_jobs;
            settings.max_churn = max_churn;
        });
        self.now = self.now + Duration::from_micros(1);
        self.on(Event::Cycle);
        self
    }

    fn ids(&self, running: bool) -> Vec<String> {
        let jobs = self.scheduler.jobs();
        let mut ids: Vec<_> = jobs
            .filter(|job| job.phase.run().is_some() == running)
            .map(|job| job.id.to_string())
            .collect();
        ids.sort();
        ids
    }

    fn running(&self) -> Vec<String> {
        self.ids(true)
    }

    fn stopped(&self) -> Vec<String> {
        self.ids(false)
    }

    /// Returns the numbers of running and of other jobs.
    fn counts(&self) -> (usize, usize) {
        (self.running().len(), self.stopped().len())
    }

    /// Returns the numbers of running and of other one-shot jobs.
    fn one_shot_counts(&self) -> (usize, usize) {
        let one_shots = || self.scheduler.jobs().filter(|job| !job.continuous);
        let running = one_shots().filter(|job| job.phase.run().is_some()).count();
        (running, one_shots().count() - running)
    }

    fn starts(&self) -> u64 {
        self.scheduler.totals().starts
    }

    fn why_not(&self, id: &str) -> String {
        let job = self.scheduler.job(id);
        let why = job.and_then(|job| job.shown.why_not);
        why.map_or_else(String::new, |why| why.to_string())
    }

    fn types(&self, id: &str) -> Vec<&'static str> {
        let job = self.scheduler.job(id).expect("the job exists");
        job.history.iter().map(|entry| entry.what.name()).collect()
    }
}
