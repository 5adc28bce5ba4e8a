//! What concerns several pools at a time: who serves a request, who takes over a waiter, how a pool
//! comes, changes and goes.
//!
//! SUMMARY   The parts of [`Pools`] that look beyond one pool.
//! PROMISES  A request that several pools may serve never waits in one while another has a slot or an
//!           untagged process to spare (PM-19). A pool that is removed leaves nobody without an
//!           answer.
//! CALLED    By [`Pools::handle`].
//! SOURCE    pidq (add_pool, remove_pool, groups); pooler (reconfiguration). Moving waiters between
//!           the pools of a group is ours: there they wait where they are.

use super::action::{Action, Refusal, StopReason};
use super::event::{Event, RemoveMode};
use super::id::{Lane, PoolId, RequestId, Target};
use super::ledger::{Place, Request};
use super::pools::Pools;
use super::reconfigure::{Change, reconfigure};
use super::route::{choose_pool, next_try, targets};
use super::settings::{PoolSettings, SettingsError};
use super::tables::Pool;

/// How many waiters of one kind are looked at for one that a pool can serve.
const LOOKS_MAX: usize = 8;

impl Pools {
    /// Adds a pool. Identities are 0, 1, 2 and so on, in order, and that of a pool that is gone
    /// before a new one. [`super::Event::StartPool`] starts it.
    pub fn add_pool(&mut self, settings: impl Into<PoolSettings>) -> PoolId {
        let settings = settings.into();
        let id = match self.vacant.pop() {
            Some(id) => {
                self.pools[id.0 as usize] = Pool::new(settings);
                id
            }
            None => {
                self.pools.push(Pool::new(settings));
                PoolId(self.pools.len() as u32 - 1)
            }
        };
        self.members.join(id, &settings);
        id
    }

    /// Returns what these settings would change in a pool; that is what
    /// [`super::Event::Reconfigure`] carries out. Nothing for a pool that does not exist.
    ///
    /// # Errors
    /// Settings that are wrong, or that cannot change; nothing is changed then.
    pub fn plan(&self, pool: PoolId, new: &PoolSettings) -> Result<Vec<Change>, SettingsError> {
        let Some(row) = self.pool(pool) else {
            return Ok(Vec::new());
        };
        let mut changes = reconfigure(&row.settings, new)?;
        let settings = Box::new(*new);
        let actions = self.trial(Event::Reconfigure { pool, settings });
        let stop_idle = count(
            &actions,
            |action| matches!(action, Action::Stop { proc, why: StopReason::OverLimit } if proc.pool == pool),
        );
        let left = row.count - stop_idle;
        let stop_returned = left.saturating_sub(new.limits.hard_limit);
        let work = [
            (stop_idle, Change::StopIdle(stop_idle)),
            (stop_returned, Change::StopReturned(stop_returned)),
            (refused(&actions), Change::ShrinkQueue(refused(&actions))),
            (
                started(&actions, pool),
                Change::Start(started(&actions, pool)),
            ),
        ];
        let work = work.into_iter().filter(|(count, _)| *count > 0);
        changes.extend(work.map(|(_, change)| change));
        Ok(changes)
    }

    /// Returns how many processes a pool of these settings would open if it were added now: for its
    /// sizes, and for those of its group who wait.
    pub fn plan_add(&self, settings: &PoolSettings) -> u32 {
        let mut copy = self.clone();
        let pool = copy.add_pool(*settings);
        started(&copy.trial(Event::StartPool { pool }), pool)
    }

    /// Returns how many requests would be refused if a pool were removed now; the others of its
    /// queue are taken over by pools of its group.
    pub fn plan_removal(&self, pool: PoolId, mode: RemoveMode) -> u32 {
        refused(&self.trial(Event::RemovePool { pool, mode }))
    }

    /// Returns what would be done about an event, and does nothing. Costs a copy of all tables.
    fn trial(&self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.clone().handle(event, self.ledger.now, &mut actions);
        actions
    }

    /// Chooses the pool that serves a request.
    pub(super) fn route(&mut self, request: &Request) -> Result<PoolId, Refusal> {
        match request.target {
            Target::Pool(pool) if self.is_open(pool) => Ok(pool),
            Target::Pool(_) => Err(Refusal::PoolRemoved),
            target => {
                let members = self.members.of(target);
                if members.is_empty() {
                    return Err(Refusal::NoPool);
                }
                choose_pool(members, &self.pools, &mut self.ledger, request).ok_or_else(|| {
                    match next_try(members, &self.pools) {
                        Some(until) => Refusal::Throttled { until },
                        None => Refusal::NoPool,
                    }
                })
            }
        }
    }

    /// Lets a pool that has something to give take over those who wait elsewhere and may be served
    /// by it (PM-19).
    pub(super) fn take_over(&mut self, pool: PoolId, out: &mut Vec<Action>) {
        while let Some(id) = self.adoptable(pool) {
            let Some(mut row) = self.ledger.request(id).cloned() else {
                break;
            };
            let before = std::mem::replace(&mut row.pool, pool);
            if let Some(mut turn) = self.turn(before, out) {
                turn.withdraw(id);
                turn.flush();
            }
            if let Some(mut turn) = self.turn(pool, out) {
                turn.get_proc(id, row);
                turn.flush();
            }
        }
    }

    /// The oldest request in another pool's queue that this pool can serve at once, interactive
    /// ones first. Looks at a few of each kind: whoever has a slot or an untagged process can serve
    /// the first.
    pub(crate) fn adoptable(&self, pool: PoolId) -> Option<RequestId> {
        let row = self.pool(pool)?;
        let now = self.ledger.now;
        let may_open = row.may_open(now) && self.ledger.ceiling.may_open(pool);
        if row.life.removing.is_some() || (row.idle.len() == 0 && !may_open) {
            return None;
        }
        let fits = |request: &Request| {
            request.pool != pool
                && (row.can_lend(request, now) || (may_open && row.can_open_for(request, now)))
        };
        let oldest_of = |target: Target, lane: Lane| {
            let all = (target, lane, RequestId(0))..=(target, lane, RequestId(u64::MAX));
            let ids = self.ledger.roaming.range(all).map(|(.., id)| *id);
            ids.take(LOOKS_MAX)
                .find(|id| self.ledger.request(*id).is_some_and(fits))
        };
        [Lane::Interactive, Lane::Bulk]
            .into_iter()
            .find_map(|lane| {
                let kinds = targets(&row.settings);
                kinds.filter_map(|target| oldest_of(target, lane)).min()
            })
    }

    /// New settings: they are put in force whole, or not at all.
    pub(super) fn reconfigure(&mut self, pool: PoolId, new: PoolSettings, out: &mut Vec<Action>) {
        let Some(row) = self.pool(pool) else {
            return;
        };
        if reconfigure(&row.settings, &new).is_err() {
            return;
        }
        if row.life.removing.is_none() {
            let old = row.settings;
            self.members.leave(pool, &old);
            self.members.join(pool, &new);
        }
        self.on_pool(pool, out, |turn| turn.reconfigure(new));
        self.shorten_queue(pool, out);
    }

    /// Turns away those who came last while more wait than may, once everybody was served who can
    /// be; those whom another pool of their group has room for wait there.
    fn shorten_queue(&mut self, pool: PoolId, out: &mut Vec<Action>) {
        while let Some(row) = self.pool(pool)
            && let Some(most) = row.settings.queue_max
            && row.waiters.len() > most as usize
            && let Some(newest) = row.waiters.newest()
        {
            self.displace(newest, Refusal::PoolBusy, out);
        }
    }

    /// Removes a pool: nothing is opened or handed out from now on, whoever waits there is served
    /// by another pool if that may be, and refused otherwise.
    pub(super) fn remove_pool(&mut self, pool: PoolId, mode: RemoveMode, out: &mut Vec<Action>) {
        let Some(mut turn) = self.turn(pool, out) else {
            return;
        };
        if !turn.begin_removal(mode) {
            return;
        }
        let settings = turn.pool.settings;
        self.members.leave(pool, &settings);
        for id in self.ledger.requests_in(pool) {
            self.displace(id, Refusal::PoolRemoved, out);
        }
        self.on_pool(pool, out, |turn| turn.stop_for_removal(mode));
    }

    /// Takes a request out of a pool that cannot keep it, and refuses it if no other pool can.
    fn displace(&mut self, id: RequestId, why: Refusal, out: &mut Vec<Action>) {
        let Some(mut row) = self.ledger.request(id).cloned() else {
            return;
        };
        let Some(mut turn) = self.turn(row.pool, out) else {
            return;
        };
        turn.withdraw(id);
        row.place = Place::Queue;
        match self.route(&row) {
            Ok(pool) => {
                row.pool = pool;
                self.on_pool(pool, out, |turn| turn.get_proc(id, row));
            }
            Err(_) => {
                if let Some(turn) = self.turn(row.pool, out) {
                    turn.pool.tally().refused += 1;
                }
                out.push(Action::Refuse { request: id, why });
            }
        }
    }

    /// Forgets a pool of which nothing is left.
    pub(super) fn remove(&mut self, pool: PoolId, out: &mut Vec<Action>) {
        if let Some(mut turn) = self.turn(pool, out) {
            turn.sleep();
            turn.pool.life.gone = true;
            turn.ledger.ceiling.forget(pool);
            self.vacant.push(pool);
            out.push(Action::PoolGone { pool });
        }
    }
}

fn count(actions: &[Action], is_meant: impl Fn(&Action) -> bool) -> u32 {
    actions.iter().filter(|action| is_meant(action)).count() as u32
}

fn refused(actions: &[Action]) -> u32 {
    count(actions, |action| matches!(action, Action::Refuse { .. }))
}

fn started(actions: &[Action], pool: PoolId) -> u32 {
    count(
        actions,
        |action| matches!(action, Action::Open { proc, .. } if proc.pool == pool),
    )
}
