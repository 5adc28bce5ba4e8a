//! Which client holds which processes.
//!
//! Nearly every client holds one process at a time, and takes and returns it at the pool's full
//! speed: so its row is one entry of a hash table, without a list of its own.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::id::{ClientId, ProcId};

/// What one client holds; never empty.
#[derive(Clone, Debug)]
enum Held {
    One(ProcId),
    /// Two or more, unordered.
    Several(Vec<ProcId>),
}

/// client -> the processes that it holds; unordered: always asked for one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings(FxHashMap<ClientId, Held>);

impl Holdings {
    /// Notes that a client holds a process, which nobody held before.
    pub(super) fn insert(&mut self, client: ClientId, proc: ProcId) {
        use std::collections::hash_map::Entry;
        match self.0.entry(client) {
            Entry::Vacant(row) => {
                row.insert(Held::One(proc));
            }
            Entry::Occupied(mut row) => match row.get_mut() {
                Held::One(first) => {
                    let both = vec![*first, proc];
                    row.insert(Held::Several(both));
                }
                Held::Several(procs) => procs.push(proc),
            },
        }
    }

    /// Notes that a client does not hold a process any more; whether it did.
    pub(super) fn remove(&mut self, client: ClientId, proc: ProcId) -> bool {
        match self.0.get_mut(&client) {
            Some(Held::One(only)) if *only == proc => {
                self.0.remove(&client);
                true
            }
            Some(Held::Several(procs)) => {
                let Some(at) = procs.iter().position(|held| *held == proc) else {
                    return false;
                };
                procs.swap_remove(at);
                if let [last] = procs[..] {
                    self.0.insert(client, Held::One(last));
                }
                true
            }
            _ => false,
        }
    }

    /// The processes that a client holds, in order of pool and number.
    pub(super) fn of(&self, client: ClientId) -> Vec<ProcId> {
        let mut procs = match self.0.get(&client) {
            None => Vec::new(),
            Some(Held::One(proc)) => vec![*proc],
            Some(Held::Several(procs)) => procs.clone(),
        };
        procs.sort_unstable();
        procs
    }

    /// All of it, as pairs in order.
    pub(crate) fn pairs(&self) -> BTreeSet<(ClientId, ProcId)> {
        let clients = self.0.keys();
        clients
            .flat_map(|client| self.of(*client).into_iter().map(|proc| (*client, proc)))
            .collect()
    }

    /// Forgets everything.
    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
