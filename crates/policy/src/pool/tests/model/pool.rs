//! One pool: its processes, and its requests.

use super::*;

pub(super) struct ModelPool {
    pub(super) limits: Limits,
    pub(super) reuse: Reuse,
    pub(super) can_forget: bool,
    pub(super) isolates_max: u32,
    pub(super) lends_taught: bool,
    /// Processes below this number were requested before the latest change of a setting that makes processes stale.
    pub(super) renewed: u64,
    pub(super) procs: Vec<ModelProc>,
    pub(super) opening: Vec<ModelOpening>,
    pub(super) stopping: Vec<ProcId>,
    pub(super) last_impatience: Timestamp,
    pub(super) queue: Vec<Ask>,
    /// Tenants under which processes with isolates have ended: each one's score, and whether it has separate processes.
    pub(super) offenders: BTreeMap<Tenant, (u32, bool)>,
}

/// An unanswered request.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) id: RequestId,
    pub(super) client: ClientId,
    pub(super) affinity: Option<Affinity>,
    pub(super) arrived: Timestamp,
    pub(super) deadline: Timestamp,
}

pub(super) struct ModelOpening {
    pub(super) id: ProcId,
    pub(super) ask: Option<Ask>,
    /// Its tenant.
    pub(super) tag: Option<Tenant>,
    pub(super) isolates_max: u32,
}

impl Ask {
    pub(super) fn tenant(&self) -> Tenant {
        let client = Tenant::Client(self.client);
        let affinity = self.affinity.as_ref();
        affinity.map_or(client, |affinity| affinity.tenant.clone())
    }

    pub(super) fn ddoc(&self) -> Option<&DdocKey> {
        self.affinity.as_ref()?.ddoc.as_ref()
    }

    /// Returns the tag that its process gets; `None` if the tag does not change. `apart`: whether a process serves only
    /// one tenant.
    pub(super) fn tag(&self, apart: bool) -> Option<Tenant> {
        let is_of_db = self.ddoc().is_some() && matches!(self.tenant(), Tenant::Database(_));
        (apart || is_of_db).then(|| self.tenant())
    }
}

impl ModelPool {
    pub(super) fn count(&self) -> usize {
        self.procs.len() + self.opening.len()
    }

    pub(super) fn apart(&self) -> bool {
        self.reuse == Reuse::Database || self.can_forget || self.isolates_max > 0
    }

    /// Whether the tenant of a request has separate processes.
    pub(super) fn sets_apart(&self, ask: &Ask) -> bool {
        self.offenders
            .get(&ask.tenant())
            .is_some_and(|(_, is_apart)| *is_apart)
    }

    pub(super) fn limit(&self) -> usize {
        self.limits.hard_limit as usize
    }

    pub(super) fn position(&self, id: ProcId) -> Option<usize> {
        self.procs.iter().position(|proc| proc.id == id)
    }

    /// Returns the best idle process: one with the client's own tag, preferably one that knows the document. If
    /// processes are shared, a client without a document prefers one without a tag. Among equals, the newest. If none
    /// fits, the least recently used one that can forget its tenant without losing a document.
    ///
    /// With isolates: one that knows tenant and document, else one that knows the tenant, else one with room for it.
    pub(super) fn pick_own(&self, ask: &Ask) -> Option<usize> {
        if self.isolates_max > 0 {
            let score = |proc: &ModelProc| match proc.knows(&ask.tenant()) {
                Some(known) => Some(ask.ddoc().is_none_or(|ddoc| known.contains(ddoc)).into()),
                None => (proc.has_room() && !self.sets_apart(ask)).then_some(-1),
            };
            let idle = self.procs.iter().enumerate().filter(|(_, p)| p.is_idle());
            let fits = idle.filter_map(|(at, proc)| Some((score(proc)?, proc.id, at)));
            return fits.max().map(|(_, _, at)| at);
        }
        let tag = ask.tag(self.apart());
        let takes_any = !self.apart() && ask.ddoc().is_none();
        let knows = |proc: &ModelProc| ask.ddoc().is_none_or(|ddoc| proc.ddocs.contains(ddoc));
        let score = |proc: &ModelProc| {
            let is_its_own = proc.tag.as_ref().is_none_or(|tag| *tag == ask.tenant());
            if takes_any {
                is_its_own.then_some((proc.tag.is_none(), false))
            } else if proc.tag == tag {
                Some((true, knows(proc)))
            } else {
                proc.tag.is_none().then_some((false, false))
            }
        };
        let idle = || self.procs.iter().enumerate().filter(|(_, p)| p.is_idle());
        let fits = idle().filter_map(|(at, proc)| score(proc).map(|score| (score, proc.id, at)));
        let best = fits.max().map(|(_, _, at)| at);
        let untaught = idle().filter(|(_, proc)| self.can_forget && proc.is_untaught());
        let oldest = untaught.min_by_key(|(_, proc)| (proc.last_use, proc.id));
        best.or(oldest.map(|(at, _)| at))
    }

    /// Like [`Self::pick_own`]; else, if taught processes are lent, the newest of those with the largest tag.
    pub(super) fn pick(&self, ask: &Ask) -> Option<usize> {
        let lends = self.lends_taught && !self.apart() && ask.ddoc().is_none();
        let idle = self
            .procs
            .iter()
            .enumerate()
            .filter(|(_, p)| lends && p.is_idle());
        let last = idle.max_by_key(|(_, proc)| (proc.tag.clone(), proc.id));
        self.pick_own(ask).or(last.map(|(at, _)| at))
    }

    /// Removes a request, wherever it is, and returns the phase that it was in.
    pub(super) fn pull(&mut self, id: RequestId) -> Option<(Ask, Phase)> {
        if let Some(at) = self.queue.iter().position(|ask| ask.id == id) {
            return Some((self.queue.remove(at), Phase::Queue));
        }
        for opening in &mut self.opening {
            if opening.ask.as_ref().is_some_and(|ask| ask.id == id) {
                return opening.ask.take().map(|ask| (ask, Phase::Open));
            }
        }
        for proc in &mut self.procs {
            let is_meant = |ask: &Option<Ask>| ask.as_ref().is_some_and(|ask| ask.id == id);
            match &mut proc.state {
                State::Teaching(ask, _) if is_meant(ask) => {
                    return ask.take().map(|ask| (ask, Phase::Teach));
                }
                State::Forgetting(ask) if is_meant(ask) => {
                    proc.tag = None;
                    return ask.take().map(|ask| (ask, Phase::Teach));
                }
                _ => {}
            }
        }
        None
    }

    pub(super) fn asks(&self) -> Vec<Ask> {
        let opening = self.opening.iter().filter_map(|row| row.ask.clone());
        let teaching = self.procs.iter().filter_map(|proc| match &proc.state {
            State::Teaching(ask, _) | State::Forgetting(ask) => ask.clone(),
            _ => None,
        });
        self.queue
            .iter()
            .cloned()
            .chain(opening)
            .chain(teaching)
            .collect()
    }
}
