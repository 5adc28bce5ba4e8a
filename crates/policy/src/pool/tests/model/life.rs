//! How processes start, become idle and end.

use super::*;

impl Model {
    pub(super) fn opened(&mut self, proc: ProcId) -> Option<ModelOpening> {
        let opening = &mut self.pools.get_mut(proc.pool.0 as usize)?.opening;
        let at = opening.iter().position(|row| row.id == proc)?;
        Some(opening.remove(at))
    }

    pub(super) fn spawned(&mut self, id: ProcId) {
        let Some(opening) = self.opened(id) else {
            return;
        };
        let born = ModelProc {
            id,
            state: State::Resetting,
            tag: None,
            ddocs: Vec::new(),
            parked: Vec::new(),
            isolates_max: opening.isolates_max,
            is_apart: false,
            last_use: self.now,
            left_by: None,
        };
        self.pools[id.pool.0 as usize].procs.push(born);
        match opening.ask {
            _ if self.shutting_down => self.stop(id, StopReason::Shutdown),
            None => self.rest(id),
            Some(ask) => self.hand_over(id, ask),
        }
    }

    pub(super) fn not_spawned(&mut self, id: ProcId) {
        if let Some(ask) = self.opened(id).and_then(|opening| opening.ask) {
            self.refuse(ask.id, Refusal::SpawnFailed);
        }
    }

    pub(super) fn helped(&mut self, proc: ProcId, ok: bool) {
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        let row = &mut self.pools[at].procs[index];
        match (std::mem::replace(&mut row.state, State::Resetting), ok) {
            (State::Teaching(ask, ddoc), true) => {
                row.ddocs.retain(|known| known.id != ddoc.id);
                row.ddocs.push(ddoc);
                match ask {
                    Some(ask) => self.assign(proc, &ask),
                    None => self.rest(proc),
                }
            }
            (State::Teaching(ask, _), false) => {
                if let Some(ask) = ask {
                    self.refuse(ask.id, Refusal::TeachFailed);
                }
                self.stop(proc, StopReason::TeachFailed);
            }
            (State::Resetting, true) => {
                row.left_by = None;
                self.rest(proc);
            }
            (State::Resetting, false) => self.stop(proc, StopReason::ResetFailed),
            (State::Forgetting(None), true) => self.rest(proc),
            (State::Forgetting(Some(ask)), true) => self.hand_over(proc, ask),
            (State::Forgetting(ask), false) => {
                if let Some(ask) = ask {
                    self.wait_again(at, ask);
                }
                self.stop(proc, StopReason::ForgetFailed);
            }
            (other, _) => row.state = other,
        }
    }

    pub(super) fn ended(&mut self, proc: ProcId) {
        if let Some(pool) = self.pools.get_mut(proc.pool.0 as usize) {
            pool.stopping.retain(|other| *other != proc);
        }
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        self.note_end(proc, true);
        match self.pools[at].procs.remove(index).state {
            State::Teaching(Some(ask), _) => self.refuse(ask.id, Refusal::TeachFailed),
            State::Forgetting(Some(ask)) => self.wait_again(at, ask),
            _ => {}
        }
    }

    pub(super) fn returned(&mut self, proc: ProcId, condition: Condition) {
        let can_forget = self.pools[proc.pool.0 as usize].can_forget;
        let is_unusable = match condition {
            Condition::Broken => true,
            Condition::NeedsForgetting => !can_forget && self.row(proc).isolates_max == 0,
            Condition::Clean | Condition::NeedsReset => false,
        };
        if !is_unusable {
            self.note_end(proc, false);
            self.row(proc).state = State::Resetting;
        }
        match (condition, self.fate(proc)) {
            (Condition::Broken, _) => self.stop(proc, StopReason::Broken),
            (Condition::NeedsForgetting, _) if self.row(proc).isolates_max > 0 => {
                self.row(proc).ddocs.clear();
                self.rest(proc);
            }
            (Condition::NeedsForgetting, _) if !self.pools[proc.pool.0 as usize].can_forget => {
                self.stop(proc, StopReason::Broken);
            }
            (Condition::NeedsForgetting, None) => self.forget(proc, None),
            (Condition::NeedsReset, None) => {
                self.row(proc).state = State::Resetting;
                self.out.push(PoolAction::Reset { proc });
            }
            (_, _) => self.rest(proc),
        }
    }

    /// Makes a process idle, or stops it.
    pub(super) fn rest(&mut self, proc: ProcId) {
        let now = self.now;
        match self.fate(proc) {
            Some(StopReason::TenantGone) if self.pools[proc.pool.0 as usize].can_forget => {
                self.forget(proc, None);
            }
            Some(why) => self.stop(proc, why),
            None => {
                self.row(proc).state = State::Idle;
                self.row(proc).last_use = now;
            }
        }
    }

    pub(super) fn fate(&self, proc: ProcId) -> Option<StopReason> {
        let pool = &self.pools[proc.pool.0 as usize];
        if proc.number < self.threshold.max(pool.renewed) {
            Some(StopReason::Stale)
        } else if self.is_orphan(proc) {
            Some(StopReason::TenantGone)
        } else {
            (pool.count() > pool.limit()).then_some(StopReason::OverLimit)
        }
    }

    pub(super) fn is_orphan(&self, proc: ProcId) -> bool {
        let Some((at, index)) = self.find(proc) else {
            return false;
        };
        let leaving = self.leaving.map(Tenant::Client);
        let proc = &self.pools[at].procs[index];
        leaving.is_some() && proc.tag == leaving && proc.isolates_max == 0
    }

    pub(super) fn stop(&mut self, proc: ProcId, why: StopReason) {
        self.note_end(proc, true);
        let (at, index) = self.find(proc).expect("the caller found it");
        self.pools[at].procs.remove(index);
        self.pools[at].stopping.push(proc);
        self.out.push(PoolAction::Stop { proc, why });
    }

    pub(super) fn stop_stale(&mut self) {
        for at in 0..self.pools.len() {
            self.stop_stale_of(at);
            self.flush(at);
        }
    }

    pub(super) fn stop_stale_of(&mut self, at: usize) {
        let pool = &self.pools[at];
        let threshold = self.threshold.max(pool.renewed);
        let idle = pool.procs.iter().filter(|proc| proc.is_idle());
        let stale = idle.filter(|proc| proc.id.number < threshold);
        let mut stale: Vec<ProcId> = stale.map(|proc| proc.id).collect();
        stale.sort_unstable();
        for proc in stale {
            self.stop(proc, StopReason::Stale);
        }
    }

    pub(super) fn idle_for_long(&mut self, proc: ProcId) {
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        let pool = &self.pools[at];
        let row = &pool.procs[index];
        let spare = pool.count() >= pool.limits.soft_limit as usize;
        let is_tied = row.tag.is_some() && !(pool.can_forget && row.is_untaught());
        if row.is_idle() && (spare || is_tied) {
            self.stop(proc, StopReason::Idle);
        }
    }

    pub(super) fn down(&mut self, client: ClientId, conditions: &[(ProcId, Condition)]) {
        self.leaving = Some(client);
        for proc in self.held_by(client) {
            let condition = conditions.iter().find(|(other, _)| *other == proc);
            self.returned(
                proc,
                condition.map_or(Condition::NeedsReset, |found| found.1),
            );
        }
        for pool in &mut self.pools {
            for ask in pool.asks().iter().filter(|ask| ask.client == client) {
                pool.pull(ask.id);
            }
        }
        let procs = self.pools.iter().flat_map(|pool| &pool.procs);
        let free = procs.filter(|proc| !matches!(proc.state, State::Assigned(..)));
        let mut free: Vec<ProcId> = free.map(|proc| proc.id).collect();
        free.sort_unstable();
        for proc in free {
            if !self.is_orphan(proc) {
                continue;
            }
            match self.row(proc).is_idle() {
                true => self.rest(proc),
                false => self.stop(proc, StopReason::TenantGone),
            }
        }
        self.leaving = None;
    }

    pub(super) fn configure(&mut self, at: usize, settings: &PoolSettings) {
        let Some(pool) = self.pools.get_mut(at) else {
            return;
        };
        pool.limits = settings.limits;
        let PoolSettings {
            reuse,
            can_forget,
            isolates_max,
            lends_taught,
            ..
        } = *settings;
        let new = (reuse, can_forget, isolates_max, lends_taught);
        if (
            pool.reuse,
            pool.can_forget,
            pool.isolates_max,
            pool.lends_taught,
        ) != new
        {
            (pool.reuse, pool.can_forget, pool.lends_taught) = (reuse, can_forget, lends_taught);
            pool.isolates_max = isolates_max;
            pool.renewed = self.numbers;
            for opening in &mut pool.opening {
                if let Some(ask) = &opening.ask {
                    opening.tag = ask.tag(settings.keeps_apart());
                }
            }
            self.stop_stale_of(at);
        }
        let pool = &self.pools[at];
        let idle = pool.procs.iter().filter(|proc| proc.is_idle());
        let mut idle: Vec<(bool, Timestamp, ProcId)> = idle
            .map(|proc| match proc.has_room() {
                false => (false, proc.oldest_use(), proc.id),
                true => (true, Timestamp::ZERO, proc.id),
            })
            .collect();
        idle.sort_unstable();
        let surplus = pool.count().saturating_sub(pool.limit());
        for (_, _, proc) in idle.into_iter().take(surplus) {
            self.stop(proc, StopReason::OverLimit);
        }
    }

    pub(super) fn shut_down(&mut self) {
        self.shutting_down = true;
        let mut asks: Vec<(RequestId, usize)> = Vec::new();
        for (at, pool) in self.pools.iter().enumerate() {
            asks.extend(pool.asks().iter().map(|ask| (ask.id, at)));
        }
        asks.sort_unstable();
        for (id, at) in asks {
            self.pools[at].pull(id);
            self.refuse(id, Refusal::ShuttingDown);
        }
        let procs = self.pools.iter().flat_map(|pool| &pool.procs);
        let mut procs: Vec<ProcId> = procs.map(|proc| proc.id).collect();
        procs.sort_unstable();
        for proc in procs {
            self.stop(proc, StopReason::Shutdown);
        }
    }
}
