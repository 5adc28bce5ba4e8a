//! The tables of the scheduler: every job once, and the orders to search them by.
//!
//! SUMMARY   [`Jobs`] has the rows. [`Jobs::change`] removes a row from the orders while it changes, so that rows and
//!           orders always agree.
//! PROMISES  Finding, adding, changing or removing a job takes at most time logarithmic in their number. Decay takes
//!           time in proportion to the jobs with a penalty, and one multiplication for each of the others.
//! DIFFERS   The reference has one table and scans it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{
    Coefficient, History, JobId, JobState, Level, Pause, RuleSet, Run, Settings, WallTime,
};
use crate::counted::{Class, CountedNames};

/// The position of a row; reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(u32);

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub id: JobId,
    pub key: Arc<str>,
    pub continuous: bool,
    pub transient: bool,
    pub level: Level,
    /// Whether it makes fewer requests because a server rate-limits it.
    pub eased: bool,
    /// The number of its servers that may be down: it is retried early when one answers again. 0 unless it backs off.
    pub awaited_servers: u8,
    /// Whether it is retried early because one has answered again. Only while it backs off.
    pub starts_early: bool,
    pub history: History,
    /// The earliest time of its next start.
    pub not_before: WallTime,
    /// The time of its latest start, even if its history has forgotten it.
    pub last_started: WallTime,
    /// The time of the first of its consecutive crashes, even if its history has forgotten it.
    pub failing_since: Option<WallTime>,
    pub phase: Phase,
}

/// The phase of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for its turn.
    Ready,
    /// It waits, because it crashed or must not start yet.
    BackingOff { until: WallTime },
    /// It must not run.
    Paused(Pause),
    /// It runs.
    Running(Run),
    /// It was stopped but has not ended yet: it still occupies a slot.
    Stopping {
        run: Run,
        /// Whether the incarnation belongs to a replaced row, so that its end is not an event of this one.
        foreign: bool,
        then: Then,
    },
}

/// The next phase of a job once its incarnation is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It waits for its turn.
    Pend,
    /// It is paused.
    Pause(Pause),
    /// It was removed: its key's account no longer counts it, and its row is removed too.
    Leave,
}

impl Phase {
    pub const fn run(&self) -> Option<Run> {
        match self {
            Self::Running(run) | Self::Stopping { run, .. } => Some(*run),
            _ => None,
        }
    }

    /// Returns a job's pause, even if the job is still stopping.
    pub const fn pause(&self) -> Option<&Pause> {
        match self {
            Self::Paused(pause)
            | Self::Stopping {
                then: Then::Pause(pause),
                ..
            } => Some(pause),
            _ => None,
        }
    }

    /// Whether the job was removed and only its incarnation remains.
    pub const fn is_leaving(&self) -> bool {
        matches!(
            self,
            Self::Stopping {
                then: Then::Leave,
                ..
            }
        )
    }
}

/// The order of turns: the smallest is next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TurnKey {
    level: Reverse<Level>,
    penalty: u64,
    last_started: WallTime,
    id: JobId,
    slot: Slot,
}

/// Jobs that could run, in the order of their turns.
///
/// Those without a penalty, usually almost all, are separate: decay does not change them.
#[derive(Clone, Debug, Default)]
struct Ready {
    clean: BTreeSet<TurnKey>,
    penalised: BTreeSet<TurnKey>,
}

impl Ready {
    fn insert(&mut self, turn: TurnKey) {
        let is_new = self.of(&turn).insert(turn);
        debug_assert!(is_new, "a job is in the order once");
    }

    fn remove(&mut self, turn: &TurnKey) {
        let was_there = self.of(turn).remove(turn);
        debug_assert!(was_there, "a job that could run is in the order");
    }

    fn of(&mut self, turn: &TurnKey) -> &mut BTreeSet<TurnKey> {
        if turn.penalty == 0 {
            &mut self.clean
        } else {
            &mut self.penalised
        }
    }

    fn first(&self) -> Option<&TurnKey> {
        let firsts = [self.clean.first(), self.penalised.first()];
        firsts.into_iter().flatten().min()
    }

    /// Applies the decayed penalties. Decay does not change the order of different penalties, so sorting is cheap; but
    /// it may make them equal.
    fn renew(&mut self, penalties: &[u64]) {
        let renewed = std::mem::take(&mut self.penalised).into_iter().map(|turn| {
            let penalty = penalties[turn.slot.0 as usize];
            TurnKey { penalty, ..turn }
        });
        let (clean, penalised): (Vec<_>, Vec<_>) = renewed.partition(|turn| turn.penalty == 0);
        self.clean.extend(clean);
        self.penalised = penalised.into_iter().collect();
    }
}

/// The number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// All known jobs.
    pub total: usize,
    /// Running jobs, including stopping ones.
    pub running: usize,
    /// Stopping jobs, included in `running`.
    pub stopping: usize,
    /// Jobs that do not run, with a latest event other than a crash; includes paused ones.
    pub pending: usize,
    /// Jobs that do not run, with a crash as the latest event.
    pub crashed: usize,
    /// Paused jobs that do not run.
    pub paused: usize,
}

/// The settings that a job's state depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StateRules {
    rules: RuleSet,
    health_threshold: Duration,
}

impl StateRules {
    /// Returns the state of a job in lists.
    pub fn listed(&self, job: &Job) -> JobState {
        match job.phase.pause() {
            Some(_) => JobState::Paused,
            None => self.state(job),
        }
    }

    pub fn state(&self, job: &Job) -> JobState {
        let history = &job.history;
        match job.phase {
            Phase::Running(_) | Phase::Stopping { foreign: false, .. } => JobState::Running,
            _ if history.consecutive_crashes(self.health_threshold) > 0 => JobState::Crashing,
            // In the first version, a job with a crash that does not count is pending.
            _ if self.rules == RuleSet::Current && history.fresh_crash().is_some() => {
                JobState::Crashing
            }
            _ => JobState::Pending,
        }
    }
}

/// All jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    /// Slot -> row; unused rows are in `free`.
    rows: Vec<Option<Job>>,
    /// Slot -> the job's penalty, 0 if there is none. Separate from the rows: decay visits all.
    penalties: Vec<u64>,
    free: Vec<Slot>,
    by_id: FxHashMap<JobId, Slot>,
    pub by_run: FxHashMap<Run, Slot>,
    ready: Ready,
    /// When a job's wait ends, and its slot; the earliest first.
    backing_off: BTreeSet<(WallTime, Slot)>,
    running: BTreeSet<Slot>,
    /// Ids in order with their states, without leaving jobs.
    pub states: CountedNames,
    /// Jobs whose state has changed since this list was last taken.
    pub changed: Vec<JobId>,
    pub state_rules: StateRules,
    pub census: Census,
}

impl Jobs {
    /// Adds a row.
    pub fn insert(&mut self, job: Job, penalty: u64) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.penalties.push(0);
            Slot(u32::try_from(self.rows.len() - 1).expect("there are fewer than 2^32 jobs"))
        });
        self.by_id.insert(job.id.clone(), slot);
        self.penalties[slot.0 as usize] = penalty;
        self.rows[slot.0 as usize] = Some(job);
        self.enter(slot);
        slot
    }

    /// Removes a row.
    pub fn remove(&mut self, slot: Slot) -> Job {
        self.leave(slot);
        let job = self.rows[slot.0 as usize]
            .take()
            .expect("a slot that is passed around has a row");
        self.by_id.remove(&job.id);
        self.states.remove(&job.id);
        self.penalties[slot.0 as usize] = 0;
        self.free.push(slot);
        job
    }

    /// Changes a row and its penalty.
    pub fn change<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Job, &mut u64) -> T) -> T {
        self.leave(slot);
        let job = self.rows[slot.0 as usize]
            .as_mut()
            .expect("a slot that is passed around has a row");
        let result = change(job, &mut self.penalties[slot.0 as usize]);
        if !matches!(job.phase, Phase::BackingOff { .. }) {
            (job.awaited_servers, job.starts_early) = (0, false);
        }
        self.enter(slot);
        result
    }

    pub fn get(&self, slot: Slot) -> &Job {
        row(&self.rows, slot)
    }

    pub fn penalty(&self, slot: Slot) -> u64 {
        self.penalties[slot.0 as usize]
    }

    /// Finds the row of an id, even a leaving one.
    pub fn find(&self, id: &str) -> Option<Slot> {
        self.by_id.get(id).copied()
    }

    /// Finds a job that is retried early when a server answers again.
    pub fn awaits_server(&self, id: &str) -> Option<Slot> {
        self.find(id)
            .filter(|slot| self.get(*slot).awaited_servers > 0)
    }

    /// Returns all rows, in arbitrary order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        let rows = (0..).map(Slot).zip(&self.rows);
        rows.filter(|(_, row)| row.is_some()).map(|(slot, _)| slot)
    }

    /// Returns the number of occupied slots.
    pub const fn occupied(&self) -> usize {
        self.census.running
    }

    /// Returns the running jobs that are not stopping.
    pub fn running(&self) -> impl ExactSizeIterator<Item = Slot> {
        self.running.iter().copied()
    }

    /// Returns the priorities of at most `count` jobs, highest first: of jobs that wait for their turn, and of stopping
    /// jobs that will wait again.
    pub fn waiting_levels(&self, count: usize) -> Vec<Level> {
        let ready = self.next_few(count).into_iter();
        let mut levels: Vec<Level> = ready.map(|slot| self.get(slot).level).collect();
        if self.census.stopping > 0 {
            let with_a_run = self.by_run.values().map(|slot| self.get(*slot));
            let returning = with_a_run.filter(|job| {
                matches!(
                    job.phase,
                    Phase::Stopping {
                        then: Then::Pend,
                        ..
                    }
                )
            });
            levels.extend(returning.map(|job| job.level));
            levels.sort_unstable_by_key(|level| Reverse(*level));
            levels.truncate(count);
        }
        levels
    }

    /// Returns the next job.
    pub fn next(&self) -> Option<Slot> {
        self.ready.first().map(|turn| turn.slot)
    }

    /// Returns the next jobs, in order. Takes time in proportion to `count`.
    pub fn next_few(&self, count: usize) -> Vec<Slot> {
        let (mut clean, mut penalised) = (
            self.ready.clean.iter().peekable(),
            self.ready.penalised.iter().peekable(),
        );
        let in_order = std::iter::from_fn(|| match (clean.peek(), penalised.peek()) {
            (Some(a), Some(b)) if a > b => penalised.next(),
            (None, _) => penalised.next(),
            _ => clean.next(),
        });
        in_order.take(count).map(|turn| turn.slot).collect()
    }

    /// Returns the next job whose wait has ended.
    pub fn rested(&self, now: WallTime) -> Option<Slot> {
        let (until, slot) = self.backing_off.first()?;
        (*until <= now).then_some(*slot)
    }

    /// Returns when the next wait ends.
    pub fn next_rested(&self) -> Option<WallTime> {
        self.backing_off.first().map(|(until, _)| *until)
    }

    /// Returns the jobs that are backing off.
    pub fn backing_off(&self) -> Vec<Slot> {
        self.backing_off.iter().map(|(_, slot)| *slot).collect()
    }

    /// Returns which running jobs of a kind are stopped first, at most `count`: lowest priority first, then continuous
    /// jobs before others, then those with the largest penalty, then those started longest ago.
    pub fn stop_order(&self, count: usize, is_of_kind: impl Fn(&Job) -> bool) -> Vec<Slot> {
        if count == 0 {
            return Vec::new();
        }
        let of_kind = self.running().filter(|slot| is_of_kind(self.get(*slot)));
        let mut order: Vec<_> = of_kind
            .map(|slot| {
                let job = self.get(slot);
                let kind = Reverse(job.continuous);
                let penalty = Reverse(self.penalty(slot));
                (job.level, kind, penalty, job.last_started, &job.id, slot)
            })
            .collect();
        if count < order.len() {
            order.select_nth_unstable(count);
            order.truncate(count);
        }
        order.sort_unstable();
        order.into_iter().map(|(.., slot)| slot).collect()
    }

    /// Decays all penalties.
    pub fn decay(&mut self, coefficient: Coefficient) {
        for penalty in &mut self.penalties {
            *penalty = coefficient.of(*penalty);
        }
        self.ready.renew(&self.penalties);
    }

    /// Raises the penalty of a running job, which is in no order that depends on it.
    pub fn raise(&mut self, slot: Slot, by: u64) {
        debug_assert!(self.running.contains(&slot), "only running jobs are raised");
        let penalty = &mut self.penalties[slot.0 as usize];
        *penalty = penalty.saturating_add(by);
    }

    fn turn(&self, slot: Slot) -> TurnKey {
        let job = self.get(slot);
        TurnKey {
            level: Reverse(job.level),
            penalty: self.penalty(slot),
            last_started: job.last_started,
            id: job.id.clone(),
            slot,
        }
    }

    /// Adds a row to the orders.
    fn enter(&mut self, slot: Slot) {
        match self.get(slot).phase {
            Phase::Ready => self.ready.insert(self.turn(slot)),
            Phase::BackingOff { until } => {
                self.backing_off.insert((until, slot));
            }
            Phase::Running(run) => {
                self.running.insert(slot);
                self.by_run.insert(run, slot);
            }
            Phase::Stopping { run, .. } => {
                self.by_run.insert(run, slot);
            }
            Phase::Paused(_) => {}
        }
        self.count(slot, |number| *number += 1);
        self.note_state(slot);
    }

    fn note_state(&mut self, slot: Slot) {
        let job = row(&self.rows, slot);
        if job.phase.is_leaving() {
            self.states.remove(&job.id);
            return;
        }
        let class = self.state_rules.listed(job) as Class;
        if self.states.set(&job.id, class) != Some(class) {
            self.changed.push(job.id.clone());
        }
    }

    /// Sets the rules of states.
    pub fn set_state_rules(&mut self, settings: &Settings) {
        let state_rules = StateRules {
            rules: settings.rules,
            health_threshold: settings.health_threshold,
        };
        if self.state_rules != state_rules {
            self.state_rules = state_rules;
            let slots: Vec<_> = self.slots().collect();
            slots.into_iter().for_each(|slot| self.note_state(slot));
        }
    }

    /// Removes a row from the orders.
    fn leave(&mut self, slot: Slot) {
        match self.get(slot).phase {
            Phase::Ready => self.ready.remove(&self.turn(slot)),
            Phase::BackingOff { until } => {
                self.backing_off.remove(&(until, slot));
            }
            Phase::Running(run) => {
                self.running.remove(&slot);
                self.by_run.remove(&run);
            }
            Phase::Stopping { run, .. } => {
                self.by_run.remove(&run);
            }
            Phase::Paused(_) => {}
        }
        self.count(slot, |number| *number -= 1);
    }

    /// Changes each count that a row contributes to.
    fn count(&mut self, slot: Slot, by: fn(&mut usize)) {
        let job = row(&self.rows, slot);
        let census = &mut self.census;
        if !job.phase.is_leaving() {
            by(&mut census.total);
        }
        match &job.phase {
            Phase::Running(_) => by(&mut census.running),
            Phase::Stopping { .. } => {
                by(&mut census.running);
                by(&mut census.stopping);
            }
            Phase::Paused(_) => by(&mut census.paused),
            Phase::BackingOff { .. } | Phase::Ready => {}
        }
        if job.phase.run().is_none() {
            if job.history.fresh_crash().is_some() {
                by(&mut census.crashed);
            } else {
                by(&mut census.pending);
            }
        }
    }
}

fn row(rows: &[Option<Job>], slot: Slot) -> &Job {
    let row = rows[slot.0 as usize].as_ref();
    row.expect("a slot that is passed around has a row")
}
