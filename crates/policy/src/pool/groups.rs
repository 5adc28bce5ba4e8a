//! Several pools at a time: choosing one for a request or to take over a waiter; adding, changing and removing pools.
//!
//! SUMMARY   The methods of [`Pools`] that involve more than one pool.
//! PROMISES  A request that several pools may serve never waits in one while another has a slot, an untagged process,
//!           or a spare process that can forget its tenant (PM-19). Removing a pool leaves no request unanswered.
//! CALLED    By [`Pools::handle`].
//! SOURCE    pidq (add_pool, remove_pool, groups); pooler (reconfiguration). Neither moves waiters between the pools of
//!           a group.
//! LIMITS    With `fairness = "per_db"` a pool that has something to lend scans all tenants that wait for its group.

use super::fairness::{Kept, lane_place};
use super::route::{choose_pool, next_try, targets};
use super::{
    Lane, Pool, PoolAction, PoolId, PoolSettings, Pools, Refusal, RemoveMode, RequestId,
    RequestPlace, RequestRow, Target, Tenant,
};

/// Maximum waiters of one kind checked to find one that a pool can serve.
const LOOKS_MAX: usize = 8;

impl Pools {
    /// Adds a pool. Ids are 0, 1, 2 and so on; those of pools that are gone are reused first.
    /// [`super::Event::StartPool`] starts it.
    pub fn add_pool(&mut self, settings: PoolSettings) -> PoolId {
        let row = Pool::new(settings);
        let id = match self.vacant.pop() {
            Some(id) => {
                self.pools[id.0 as usize] = row;
                id
            }
            None => {
                self.pools.push(row);
                PoolId(self.pools.len() as u32 - 1)
            }
        };
        self.members.join(id, &settings);
        id
    }

    /// Chooses the pool that serves a request.
    pub(super) fn route(&mut self, request: &RequestRow) -> Result<PoolId, Refusal> {
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

    /// Lets a pool take over other pools' waiters that it can serve (PM-19). A pool that loses a waiter may then
    /// serve others that this waiter blocked.
    pub(super) fn take_over(&mut self, mut pool: PoolId) {
        let mut left = Vec::new();
        loop {
            while let Some(id) = self.waiter_to_take_over(pool) {
                let Some(mut row) = self.withdraw(id) else {
                    break;
                };
                let before = std::mem::replace(&mut row.pool, pool);
                left.push(before);
                if let Some(mut turn) = self.turn(before) {
                    turn.flush();
                }
                if let Some(mut turn) = self.turn(pool) {
                    turn.get_proc(id, row);
                    turn.flush();
                }
            }
            match left.pop() {
                Some(before) => pool = before,
                None => return self.place_displaced(),
            }
        }
    }

    /// Lets another pool take over a requeued request, if it can serve it (PM-19).
    pub(super) fn offer(&mut self, id: RequestId) {
        let Some(request) = self.ledger.request(id) else {
            return;
        };
        for pool in self.members.of(request.target).to_vec() {
            self.take_over(pool);
        }
    }

    /// Returns the request in another pool's queue that this pool can serve at once, and would serve first if it were
    /// in its own queue.
    pub(crate) fn waiter_to_take_over(&self, pool: PoolId) -> Option<RequestId> {
        let row = self.pool(pool)?;
        let now = self.ledger.now;
        let may_open = row.may_open(now) && self.ledger.ceiling.may_open(pool);
        if row.life.removing.is_some() || (row.idle.len() == 0 && !may_open) {
            return None;
        }
        let fits = |id: RequestId| {
            let request = self.ledger.request(id);
            request.is_some_and(|request| {
                request.pool != pool
                    && (row.can_lend(request, now)
                        || (may_open && row.can_open_for(request, now))
                        || row.can_forget_for(request))
            })
        };
        let kinds = targets(&row.settings)
            .flat_map(|target| [Lane::Interactive, Lane::Bulk].map(|lane| (target, lane)));
        let firsts = kinds.filter_map(|(target, lane)| {
            let mut looks = self.first_waiters(pool, target, lane).into_iter();
            let (account, id) = looks.find(|(_, id)| fits(*id))?;
            Some((lane_place(&row.settings, lane), account, id))
        });
        firsts.min().map(|(.., id)| id)
    }

    /// Returns the first waiters of a kind, in the order in which this pool would serve them. A few suffice, because a
    /// pool with a slot or an untagged process can serve the first.
    fn first_waiters(&self, pool: PoolId, target: Target, lane: Lane) -> Vec<(Kept, RequestId)> {
        let ledger = &self.ledger;
        let is_held_back = |tenant: &Tenant| ledger.tenants.is_held_back(tenant);
        let own = &self.pools[pool.0 as usize];
        if !own.keeps_accounts() {
            let serves = |tenant: &Tenant| !is_held_back(tenant);
            let oldest = (ledger.roaming).oldest((target, lane), LOOKS_MAX, serves);
            return oldest.into_iter().map(|id| (Kept::default(), id)).collect();
        }
        let firsts = ledger.roaming.firsts(target, lane);
        // A tenant whose first request is in this pool's queue is skipped: a pool that cannot serve that one can serve
        // none after it.
        let others = firsts.filter(|(tenant, id)| {
            let row = ledger.request(*id);
            row.is_some_and(|row| row.pool != pool) && !is_held_back(tenant)
        });
        let mut firsts: Vec<_> = others
            .map(|(tenant, id)| (own.accounts.account(tenant), id))
            .collect();
        firsts.sort_unstable();
        firsts.truncate(LOOKS_MAX);
        firsts
    }

    /// Changes settings; ignored if the new ones are of another kind or language.
    pub(super) fn reconfigure(&mut self, pool: PoolId, new: PoolSettings) {
        let Some(row) = self.pool(pool) else {
            return;
        };
        if (new.kind, new.language) != (row.settings.kind, row.settings.language) {
            return;
        }
        if row.life.removing.is_none() {
            let old = row.settings;
            self.members.leave(pool, &old);
            self.members.join(pool, &new);
        }
        self.on_pool(pool, |turn| turn.reconfigure(new));
        self.shorten_queue(pool);
    }

    /// Moves the newest waiters to pools of their group while the queue is too long, and refuses those that no other
    /// pool can queue. Waiters that can be served were served before.
    fn shorten_queue(&mut self, pool: PoolId) {
        while let Some(row) = self.pool(pool)
            && let Some(most) = row.settings.queue_max
            && row.waiters.counted > most as usize
            && let Some(newest) = row.waiters.newest()
        {
            self.displace(newest, Refusal::PoolBusy);
        }
        // With fairness the newest may have been next: the timer is set for the one that is next now.
        self.on_pool(pool, |_| ());
    }

    /// Removes a pool: it opens and lends nothing from now on. Its waiters move to pools of their group, or are
    /// refused.
    pub(super) fn remove_pool(&mut self, pool: PoolId, mode: RemoveMode) {
        let Some(turn) = self.turn(pool) else {
            return;
        };
        let removing = &mut turn.pool.life.removing;
        if *removing >= Some(mode) {
            return;
        }
        *removing = Some(mode);
        let settings = turn.pool.settings;
        self.members.leave(pool, &settings);
        let rows = self.ledger.requests.iter();
        let own = rows.filter(|(_, row)| row.pool == pool);
        let mut oldest_first: Vec<RequestId> = own.map(|(id, _)| *id).collect();
        oldest_first.sort_unstable();
        for id in oldest_first {
            self.displace(id, Refusal::PoolRemoved);
        }
        self.on_pool(pool, |turn| turn.stop_for_removal(mode));
    }

    /// Removes a request from a pool that cannot keep it, and refuses it if no other pool can.
    fn displace(&mut self, id: RequestId, why: Refusal) {
        if let Some(row) = self.withdraw(id) {
            self.ledger.displaced.push((id, row, why));
            self.place_displaced();
        }
    }

    /// Passes displaced requests to other pools, or refuses them.
    pub(super) fn place_displaced(&mut self) {
        for (id, mut row, why) in std::mem::take(&mut self.ledger.displaced) {
            row.place = RequestPlace::Queue;
            match self.route(&row) {
                Ok(pool) => {
                    row.pool = pool;
                    self.on_pool(pool, |turn| turn.get_proc(id, row));
                }
                Err(_) => self.out.push(PoolAction::Refuse { request: id, why }),
            }
        }
    }

    /// Removes a request from its pool, without an answer.
    pub(super) fn withdraw(&mut self, id: RequestId) -> Option<RequestRow> {
        let pool = self.ledger.request(id)?.pool;
        self.turn(pool)?.withdraw(id)
    }

    /// Forgets a pool that is empty.
    pub(super) fn remove(&mut self, pool: PoolId) {
        if let Some(mut turn) = self.turn(pool) {
            turn.set_timer(None);
            turn.pool.life.gone = true;
            turn.ledger.ceiling.forget(pool);
            self.vacant.push(pool);
            self.out.push(PoolAction::PoolGone { pool });
        }
    }
}
