//! The groups of pools that stand in for each other, by name and by the number that the core knows them by.
//!
//! SUMMARY   A group is there while it has pools, and a little longer.
//! PROMISES  No two groups ever have one number: who waits for a group that is gone is not taken for one that waits
//!           for another, whose pools may speak another language.
//! CALLED    By the table of pools.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use policy::pool::{GroupId, PoolId};

/// The pools that stand in for each other.
pub(super) struct Group {
    /// What the core calls it.
    pub(super) number: GroupId,
    /// Its pools that are not going, in the order in which they came.
    pub(super) members: Vec<PoolId>,
}

/// All groups.
#[derive(Default)]
pub(super) struct Groups {
    by_name: FxHashMap<Arc<str>, Group>,
    /// The number of the next one.
    next: u32,
}

impl Groups {
    /// Finds a group, which may have no pools any more.
    pub(super) fn find(&self, name: &str) -> Option<&Group> {
        self.by_name.get(name)
    }

    /// Finds a group by its number, with its name.
    pub(super) fn by_number(&self, number: GroupId) -> Option<(&Arc<str>, &Group)> {
        let mut groups = self.by_name.iter();
        groups.find(|(_, group)| group.number == number)
    }

    /// Returns the number of a group. It is made if it is not there, in place of those that have no pools any more.
    pub(super) fn number(&mut self, name: &str) -> GroupId {
        self.find_or_make(name).number
    }

    /// Adds a pool to a group.
    pub(super) fn join(&mut self, name: &str, pool: PoolId) {
        self.find_or_make(name).members.push(pool);
    }

    /// Takes a pool out of a group.
    pub(super) fn leave(&mut self, name: &str, pool: PoolId) {
        if let Some(group) = self.by_name.get_mut(name) {
            group.members.retain(|member| *member != pool);
        }
    }

    fn find_or_make(&mut self, name: &str) -> &mut Group {
        if !self.by_name.contains_key(name) {
            self.by_name.retain(|_, group| !group.members.is_empty());
        }
        let next = &mut self.next;
        self.by_name.entry(Arc::from(name)).or_insert_with(|| {
            let number = GroupId(*next);
            *next = next
                .checked_add(1)
                .expect("PM-1: fewer groups than numbers");
            Group {
                number,
                members: Vec::new(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId(7);

    #[test]
    fn the_number_of_a_group_that_is_gone_is_not_given_to_another() {
        let mut groups = Groups::default();
        groups.join("fast", POOL);
        let first = groups.number("fast");
        groups.leave("fast", POOL);
        let second = groups.number("slow");
        assert_ne!(second, first);
        assert!(groups.by_number(first).is_none());
        let again = groups.number("fast");
        assert!(again != first && again != second, "{again:?}");
    }

    #[test]
    fn a_group_keeps_its_number_while_it_has_pools() {
        let mut groups = Groups::default();
        groups.join("fast", POOL);
        let number = groups.number("fast");
        groups.join("slow", PoolId(8));
        assert_eq!(groups.number("fast"), number);
        let (name, group) = groups.by_number(number).unwrap();
        assert_eq!((&**name, &*group.members), ("fast", &[POOL][..]));
    }
}
