//! Isolates: the state of several tenants' functions in one process, separate from each other.
//!
//! SUMMARY   One isolate is selected, and all commands except `tenant` run in it. The others are idle: they keep
//!           design documents with their engines, content types and settings, but no views.
//! PROMISES  Engines, realms and accounts belong to one isolate for their lifetime. The selected one may use the
//!           whole limit, regardless of the idle ones, which together hold at most as much. An isolate ends in
//!           [`Isolates::select`], which returns the names of evicted ones, or is emptied by `forget`.
//! LIMITS    An isolate that runs out of memory ends the process with all of them: the engine's reference counts may
//!           be wrong when memory is exhausted, so that it may free an object in use.

use std::collections::HashMap;
use std::mem;
use std::rc::Rc;

use super::ddocs::DesignDocs;
use super::process::Process;
use super::realm::Shared;
use super::reduce_limit::ReduceLimit;
use super::views::Views;

/// Overhead of an idle isolate beyond its counted memory, in bytes.
const ISOLATE_BYTES: usize = 16 << 10;

/// Enables isolates: their maximum number, and the secret for `tenant`.
pub struct Tenancy {
    /// Includes the selected one.
    pub isolates_max: usize,
    /// Known only to the parent: clients whose lines it passes on cannot select an isolate.
    pub nonce: String,
}

/// The state that functions of one tenant can see or change.
pub(super) struct Isolate {
    /// The functions added since the last `reset`; created when needed.
    pub views: Option<Views>,
    pub ddocs: DesignDocs,
    pub limit: ReduceLimit,
    pub shared: Rc<Shared>,
}

impl Isolate {
    pub fn new(process: &Rc<Process>) -> Self {
        let shared = Shared::new(process);
        Isolate {
            views: None,
            ddocs: DesignDocs::new(&shared),
            limit: ReduceLimit::default(),
            shared,
        }
    }

    fn idle_bytes(&self) -> usize {
        self.shared.held() + ISOLATE_BYTES
    }
}

struct Idle {
    isolate: Isolate,
    /// The lowest was used least recently.
    turn: u64,
}

/// The isolates of the process, except the selected one.
pub(super) struct Isolates {
    pub tenancy: Tenancy,
    idle: HashMap<String, Idle>,
    /// The name of the selected one; `None` before the first selection.
    pub selected: Option<String>,
    /// The number of selections.
    turn: u64,
    process: Rc<Process>,
}

impl Isolates {
    pub fn new(tenancy: Tenancy, process: &Rc<Process>) -> Self {
        Isolates {
            tenancy,
            idle: HashMap::new(),
            selected: None,
            turn: 0,
            process: Rc::clone(process),
        }
    }

    /// Replaces the current isolate with the one of this name, or with a new one if there is none or if `afresh`.
    /// Returns the names of evicted ones, and the views of the replaced one unless they are large.
    pub fn select(
        &mut self,
        current: &mut Isolate,
        name: String,
        afresh: bool,
    ) -> (Vec<String>, Option<Views>) {
        if !afresh && self.selected.as_ref() == Some(&name) {
            return (Vec::new(), None);
        }
        let has_grown = self.process.peak.has_grown();
        // Freed before the process's memory is judged: it is not that of the idle ones.
        drop(current.views.take_if(|views| views.is_large()));
        let kept = self.idle.remove(&name).filter(|_| !afresh);
        let next = kept.map_or_else(|| Isolate::new(&self.process), |kept| kept.isolate);
        let mut left = mem::replace(current, next);
        let views = left.views.take();
        let left_name = self.selected.replace(name.clone());
        if let Some(left_name) = left_name.filter(|left_name| *left_name != name) {
            if has_grown {
                left.ddocs.measure();
            } else {
                left.ddocs.measure_at_times();
            }
            self.turn += 1;
            let (isolate, turn) = (left, self.turn);
            self.idle.insert(left_name, Idle { isolate, turn });
        } else {
            drop(left);
        }
        let evicted = self.evict(current.shared.held());
        self.process.peak.begin_turn(self.idle_bytes());
        (evicted, views)
    }

    fn idle_bytes(&self) -> usize {
        self.idle
            .values()
            .map(|idle| idle.isolate.idle_bytes())
            .sum()
    }

    /// Evicts idle isolates while there are too many, they hold too much, or the process's memory is too fragmented.
    fn evict(&mut self, selected_bytes: usize) -> Vec<String> {
        let mut evicted = Vec::new();
        let budget_bytes = self.process.options.memory_bytes;
        let is_over = |isolates: &Self| {
            let idle_bytes = isolates.idle_bytes();
            isolates.idle.len() >= isolates.tenancy.isolates_max
                || idle_bytes > budget_bytes
                || isolates
                    .process
                    .peak
                    .is_scattered(idle_bytes + selected_bytes)
        };
        while let Some((oldest, _)) = self.idle.iter().min_by_key(|(_, idle)| idle.turn)
            && is_over(self)
        {
            let oldest = oldest.clone();
            self.idle.remove(&oldest);
            evicted.push(oldest);
        }
        if !evicted.is_empty() && self.idle.is_empty() {
            self.process.peak.accept_scattered(selected_bytes);
        }
        evicted
    }
}
