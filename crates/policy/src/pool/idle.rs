//! The indexes of idle processes: by database, by known design document, by last use.
//!
//! SUMMARY   Finds the newest idle process of a kind, and the least recently used tagged one. The pool defines the
//!           newest: the process created last, or the one returned last.
//! PROMISES  Each query and change takes logarithmic time; adding or removing a process takes one such change for
//!           each design document that it knows.
//! SOURCE    couch_proc_manager 001, tables idle_by_db and idle_access.
//! DIFFERS   The reference scans a database's idle_by_db for the design document; here it is indexed. A shelf lives
//!           as long as it has member processes, idle or not, so lending and returning neither allocate nor free
//!           anything.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::ranking::{Ranked, Ranking};
use super::{DdocKey, Proc, Tenant};
use crate::time::Timestamp;

/// The idle processes of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleIndex {
    /// Untagged processes, and those with isolates; the latter are idle here while they have room for another tenant.
    untagged: Shelf,
    /// tag -> its processes; unordered: looked up by tag.
    tagged: FxHashMap<Tenant, Shelf>,
    /// (last use, number) of the idle processes without room for another tenant; ordered: the first is reaped first,
    /// or forgets a tenant.
    access: BTreeSet<(Timestamp, u64)>,
    /// Those of `access`, by the process's own last use: isolates are left earlier.
    unused: BTreeSet<(Timestamp, u64)>,
    /// Those of `access` without a design document.
    untaught: BTreeSet<(Timestamp, u64)>,
}

/// The processes of one tag, or untagged ones. One with isolates belongs to each of its tenants' shelves and to the
/// untagged one, where it is idle while it has room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shelf {
    /// Number of members: idle ones, lent ones, and openings for this tag.
    members: u32,
    /// The idle ones; ordered: the last is lent first.
    idle: Ranking,
    /// design document -> processes that know it; unordered: looked up by document.
    by_ddoc: FxHashMap<DdocKey, Knowing>,
}

/// The processes of one shelf that know one design document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Knowing {
    /// Number of processes that know it, idle or not; the row is removed with the last.
    members: u32,
    /// The idle ones; ordered: the last is lent first.
    idle: Ranking,
}

impl Shelf {
    fn knows(&mut self, ddoc: &DdocKey) {
        if let Some(knowing) = self.by_ddoc.get_mut(ddoc) {
            knowing.members += 1;
        } else {
            let knowing = Knowing {
                members: 1,
                idle: Ranking::default(),
            };
            self.by_ddoc.insert(ddoc.clone(), knowing);
        }
    }

    fn forgets(&mut self, ddoc: &DdocKey) {
        let knowing = self
            .by_ddoc
            .get_mut(ddoc)
            .expect("PM-2: what a process knows is on its shelf");
        knowing.members -= 1;
        if knowing.members == 0 {
            debug_assert!(knowing.idle.is_empty(), "PM-2: nobody is left to be idle");
            self.by_ddoc.remove(ddoc);
        }
    }

    fn put(&mut self, ranked: Ranked, ddocs: &[DdocKey]) {
        self.idle.insert(ranked);
        for ddoc in ddocs {
            if let Some(knowing) = self.by_ddoc.get_mut(ddoc) {
                knowing.idle.insert(ranked);
            }
        }
    }

    fn take(&mut self, ranked: &Ranked, ddocs: &[DdocKey]) {
        let present = self.idle.remove(ranked);
        debug_assert!(present, "PM-2: an idle process is on its shelf");
        for ddoc in ddocs {
            if let Some(knowing) = self.by_ddoc.get_mut(ddoc) {
                knowing.idle.remove(ranked);
            }
        }
    }

    fn newest_knowing(&self, ddoc: &DdocKey) -> Option<u64> {
        number(self.by_ddoc.get(ddoc)?.idle.last())
    }
}

impl IdleIndex {
    /// Adds a member that knows `ddocs` and is not idle: a process, or an opening for `tenant`.
    pub fn join(&mut self, tenant: Option<&Tenant>, ddocs: &[DdocKey]) {
        let shelf = match tenant {
            None => &mut self.untagged,
            Some(tenant) => self.tagged.entry(tenant.clone()).or_default(),
        };
        shelf.members += 1;
        for ddoc in ddocs {
            shelf.knows(ddoc);
        }
    }

    /// Removes a member that is not idle.
    pub fn leave(&mut self, tenant: Option<&Tenant>, ddocs: &[DdocKey]) {
        let shelf = self.shelf_mut(tenant);
        for ddoc in ddocs {
            shelf.forgets(ddoc);
        }
        shelf.members -= 1;
        if let Some(tenant) = tenant
            && shelf.members == 0
        {
            debug_assert!(shelf.idle.is_empty() && shelf.by_ddoc.is_empty(), "PM-2");
            self.tagged.remove(tenant);
        }
    }

    /// Records that a member of `tenant` that is not idle now knows `new` instead of `old`.
    pub fn learn(&mut self, tenant: Option<&Tenant>, new: &DdocKey, old: Option<&DdocKey>) {
        let shelf = self.shelf_mut(tenant);
        shelf.knows(new);
        if let Some(old) = old {
            shelf.forgets(old);
        }
    }

    /// Makes a member idle.
    pub fn put(&mut self, number: u64, proc: &Proc) {
        let ranked = (proc.rank, number);
        let has_room = proc.has_room();
        for (tenant, ddocs) in proc.shelves() {
            if tenant.is_some() || has_room {
                self.shelf_mut(tenant).put(ranked, ddocs);
            }
        }
        if !has_room {
            self.access.insert((proc.oldest_use(), number));
            self.unused.insert((proc.last_use, number));
            if proc.ddocs.is_empty() {
                self.untaught.insert((proc.oldest_use(), number));
            }
        }
    }

    /// Makes a member not idle.
    pub fn take(&mut self, number: u64, proc: &Proc) {
        let ranked = (proc.rank, number);
        let has_room = proc.has_room();
        for (tenant, ddocs) in proc.shelves() {
            if tenant.is_some() || has_room {
                self.shelf_mut(tenant).take(&ranked, ddocs);
            }
        }
        if !has_room {
            let present = self.access.remove(&(proc.oldest_use(), number));
            debug_assert!(present, "PM-2: the access index holds those without room");
            self.unused.remove(&(proc.last_use, number));
            self.untaught.remove(&(proc.oldest_use(), number));
        }
    }

    /// The newest idle process of a tag, or untagged one, that knows `ddoc`, or else the newest of the same; and whether
    /// it needs no teaching.
    pub fn newest(&self, tenant: Option<&Tenant>, ddoc: Option<&DdocKey>) -> Option<(u64, bool)> {
        let shelf = match tenant {
            None => &self.untagged,
            Some(tenant) => self.tagged.get(tenant)?,
        };
        match ddoc.and_then(|ddoc| shelf.newest_knowing(ddoc)) {
            Some(number) => Some((number, true)),
            None => number(shelf.idle.last()).map(|number| (number, ddoc.is_none())),
        }
    }

    /// The newest idle process of the greatest tag that has an idle process. Checks every tag.
    pub fn last_resort(&self) -> Option<u64> {
        let stocked = self
            .tagged
            .iter()
            .filter(|(_, shelf)| !shelf.idle.is_empty());
        let largest = stocked.max_by_key(|(tenant, _)| *tenant);
        number(largest?.1.idle.last())
    }

    /// The least recently used idle tagged process.
    pub fn oldest_used(&self) -> Option<u64> {
        self.access.first().map(|(_, number)| *number)
    }

    /// The tagged process that has been idle for longest.
    pub fn unused_longest(&self) -> Option<u64> {
        self.unused.first().map(|(_, number)| *number)
    }

    /// As [`Self::oldest_used`], among those without a design document.
    pub fn oldest_untaught(&self) -> Option<u64> {
        self.untaught.first().map(|(_, number)| *number)
    }

    /// The idle untagged process that would be lent last.
    pub fn oldest_untagged(&self) -> Option<u64> {
        number(self.untagged.idle.first())
    }

    /// Number of idle processes.
    pub fn len(&self) -> usize {
        self.untagged.idle.len() + self.access.len()
    }

    /// Number of idle tagged processes.
    pub fn tagged_len(&self) -> usize {
        self.access.len()
    }

    /// Whether a process of this tag is idle.
    pub fn has_idle(&self, tenant: &Tenant) -> bool {
        self.tagged
            .get(tenant)
            .is_some_and(|shelf| !shelf.idle.is_empty())
    }

    /// Number of processes of this tag that are lent, learning, being reset, or being opened.
    pub fn in_use(&self, tenant: &Tenant) -> usize {
        let used = |shelf: &Shelf| shelf.members as usize - shelf.idle.len();
        self.tagged.get(tenant).map_or(0, used)
    }

    /// Whether there is an untagged process, or one of this tag, or an opening for it.
    pub fn has_member(&self, tenant: Option<&Tenant>) -> bool {
        let tagged = tenant.and_then(|tenant| self.tagged.get(tenant));
        self.untagged.members > 0 || tagged.is_some()
    }

    fn shelf_mut(&mut self, tenant: Option<&Tenant>) -> &mut Shelf {
        match tenant {
            None => &mut self.untagged,
            Some(tenant) => self
                .tagged
                .get_mut(tenant)
                .expect("PM-2: a tag has a shelf while a process bears it"),
        }
    }
}

fn number(ranked: Option<&Ranked>) -> Option<u64> {
    ranked.map(|(_, number)| *number)
}
