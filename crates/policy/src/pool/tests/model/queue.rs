//! Which request is served next, and by which process.

use super::*;

impl Model {
    pub(super) fn ask(&mut self, at: usize, ask: Ask) {
        if at >= self.pools.len() || self.newest >= Some(ask.id) {
            return;
        }
        self.newest = Some(ask.id);
        if self.shutting_down {
            self.refuse(ask.id, Refusal::ShuttingDown);
        } else if ask.deadline <= self.now {
            let phase = Phase::Queue;
            self.refuse(ask.id, Refusal::Timeout { phase });
        } else {
            let (id, tenant) = (ask.id, ask.tenant());
            self.pools[at].queue.push(ask);
            self.flush(at);
            let all = self.pools.iter().flat_map(|pool| &pool.queue);
            let waiting = all.filter(|ask| ask.tenant() == tenant).count();
            let queue_max = tenant
                .db()
                .and_then(|db| self.rules.bound(db, TenantBound::QueueMax));
            let waits = self.pools[at].queue.iter().any(|ask| ask.id == id);
            if waits && queue_max.is_some_and(|max| waiting > max as usize) {
                self.pools[at].pull(id);
                self.refuse(id, Refusal::TenantBusy);
            }
        }
    }

    /// Returns the position of the oldest waiter that is not held back.
    pub(super) fn head(&self, at: usize) -> Option<usize> {
        let mut queue = self.pools[at].queue.iter();
        queue.position(|ask| !self.is_held_back(ask))
    }

    pub(super) fn flush_all(&mut self) {
        for at in 0..self.pools.len() {
            self.flush(at);
        }
    }

    pub(super) fn flush(&mut self, at: usize) {
        while let Some(first) = self.head(at) {
            let pool = &self.pools[at];
            let head = pool.queue[first].clone();
            if pool.pick(&head).is_some() {
                self.serve(at, first);
            } else if pool.count() < pool.limit() {
                let ask = self.pools[at].queue.remove(first);
                self.open(at, Some(ask));
            } else if self.waits_for_its_own(at, &head) {
                let fits = |ask: &Ask| !self.is_held_back(ask) && pool.pick_own(ask).is_some();
                match pool.queue.iter().position(fits) {
                    Some(later) => self.serve(at, later),
                    None => return,
                }
            } else {
                let batch = pool.limits.reap_batch() as usize;
                let mut victims: Vec<(Timestamp, ProcId)> = pool
                    .procs
                    .iter()
                    .filter(|proc| proc.is_idle() && proc.tag.is_some())
                    .map(|proc| (proc.last_use, proc.id))
                    .collect();
                victims.sort_unstable();
                victims.truncate(batch.saturating_sub(pool.stopping.len()));
                let impatient = self.has_its_own_in_use(at, &head);
                if impatient {
                    victims.truncate(1);
                }
                if let Some(proc) = self.forgetful(at).or_else(|| self.taken_over(at, &head)) {
                    if impatient {
                        self.pools[at].last_impatience = self.now;
                    }
                    let ask = self.pools[at].queue.remove(first);
                    match self.pools[at].isolates_max {
                        0 => self.forget(proc, Some(ask)),
                        _ => self.hand_over(proc, ask),
                    }
                    continue;
                }
                if victims.is_empty() {
                    return;
                }
                if impatient {
                    self.pools[at].last_impatience = self.now;
                }
                for (_, victim) in victims {
                    self.stop(victim, StopReason::Reaped);
                }
            }
        }
    }

    pub(super) fn forgetful(&self, at: usize) -> Option<ProcId> {
        let pool = &self.pools[at];
        let can_forget = pool.can_forget || pool.isolates_max > 0;
        let procs = pool.procs.iter().filter(|_| can_forget);
        let full = procs.filter(|proc| proc.is_idle() && !proc.has_room());
        let oldest = full.min_by_key(|proc| (proc.oldest_use(), proc.id));
        oldest.map(|proc| proc.id)
    }

    pub(super) fn taken_over(&self, at: usize, head: &Ask) -> Option<ProcId> {
        let pool = &self.pools[at];
        let idle = pool.procs.iter().filter(|proc| proc.is_idle());
        idle.map(|proc| proc.id)
            .min()
            .filter(|_| pool.sets_apart(head))
    }

    pub(super) fn waits_for_its_own(&self, at: usize, head: &Ask) -> bool {
        let pool = &self.pools[at];
        let since = head.arrived.max(pool.last_impatience);
        self.has_its_own_in_use(at, head) && self.now < since + pool.limits.affinity_wait
    }

    pub(super) fn has_its_own_in_use(&self, at: usize, head: &Ask) -> bool {
        let pool = &self.pools[at];
        let tag = head.tag(pool.apart());
        if tag.is_none() {
            return false;
        }
        let mut procs = pool.procs.iter();
        let used = procs.any(|proc| !proc.is_idle() && proc.knows(&head.tenant()).is_some());
        let opening = pool.opening.iter().any(|row| row.tag == tag);
        (used || opening) && !pool.limits.affinity_wait.is_zero()
    }

    pub(super) fn serve(&mut self, at: usize, waiter: usize) {
        let ask = self.pools[at].queue.remove(waiter);
        let pool = &self.pools[at];
        let chosen = pool.pick(&ask).expect("the caller found a process");
        let proc = &pool.procs[chosen];
        let id = proc.id;
        if pool.isolates_max > 0 {
            let known = proc.knows(&ask.tenant()).unwrap_or_default();
            return match ask.ddoc().is_none_or(|ddoc| known.contains(ddoc)) {
                true => self.assign(id, &ask),
                false => self.teach(id, ask),
            };
        }
        let knows = ask.ddoc().is_none_or(|ddoc| proc.ddocs.contains(ddoc));
        let tag = ask.tag(pool.apart());
        if pool.apart() && proc.tag.is_some() && proc.tag != tag {
            return self.forget(id, Some(ask));
        }
        let retags = proc.tag.is_none() && tag.is_some();
        let keeps_it = ask.ddoc().is_some() || !pool.can_forget;
        if retags && keeps_it && pool.count() < pool.limit() {
            self.open(at, None);
        }
        match knows && !(retags && ask.ddoc().is_some()) {
            true => self.assign(id, &ask),
            false => self.teach(id, ask),
        }
    }

    /// Returns a request to its place in the queue.
    pub(super) fn wait_again(&mut self, at: usize, ask: Ask) {
        let queue = &mut self.pools[at].queue;
        queue.push(ask);
        queue.sort_by_key(|ask| ask.id);
    }

    /// Gives a ready process to a request, or teaches it first.
    pub(super) fn hand_over(&mut self, proc: ProcId, ask: Ask) {
        match ask.ddoc() {
            None => self.assign(proc, &ask),
            Some(_) => self.teach(proc, ask),
        }
    }

    pub(super) fn open(&mut self, at: usize, ask: Option<Ask>) {
        let id = ProcId {
            pool: PoolId(at as u32),
            number: self.numbers,
        };
        self.numbers += 1;
        let request = ask.as_ref().map(|ask| ask.id);
        let tag = ask.as_ref().and_then(|ask| ask.tag(self.pools[at].apart()));
        let isolates_max = self.pools[at].isolates_max;
        self.pools[at].opening.push(ModelOpening {
            id,
            ask,
            tag,
            isolates_max,
        });
        self.out.push(PoolAction::Open { proc: id, request });
    }

    pub(super) fn teach(&mut self, proc: ProcId, ask: Ask) {
        let pool = &self.pools[proc.pool.0 as usize];
        let (now, tag, is_apart) = (self.now, ask.tag(pool.apart()), pool.sets_apart(&ask));
        let row = self.row(proc);
        let ddoc = ask.ddoc().cloned().expect("only a document is taught");
        let select = match row.isolates_max {
            0 => {
                row.tag = row.tag.take().or(tag);
                None
            }
            _ => row.select(ask.tenant(), is_apart, now),
        };
        let request = ask.id;
        row.state = State::Teaching(Some(ask), ddoc);
        self.out.push(PoolAction::Teach {
            proc,
            request,
            select,
        });
    }

    pub(super) fn assign(&mut self, proc: ProcId, ask: &Ask) {
        let token = Token(self.tokens);
        self.tokens += 1;
        let pool = &self.pools[proc.pool.0 as usize];
        let (now, tag, is_apart) = (self.now, ask.tag(pool.apart()), pool.sets_apart(ask));
        let row = self.row(proc);
        let select = match row.isolates_max {
            0 => {
                row.tag = row.tag.take().or(tag);
                None
            }
            _ => row.select(ask.tenant(), is_apart, now),
        };
        row.state = State::Assigned(ask.client, token);
        let before = row.left_by.replace((ask.client, ask.tenant()));
        let reset = before.is_some() && before != row.left_by;
        let request = ask.id;
        self.out.push(PoolAction::Assign {
            request,
            proc,
            token,
            reset,
            select,
        });
    }

    pub(super) fn forget(&mut self, proc: ProcId, ask: Option<Ask>) {
        let apart = self.pools[proc.pool.0 as usize].apart();
        let row = self.row(proc);
        row.ddocs.clear();
        row.left_by = None;
        row.tag = ask.as_ref().and_then(|ask| ask.tag(apart));
        row.state = State::Forgetting(ask);
        self.out.push(PoolAction::Forget { proc });
    }
}
