//! An ordered set whose largest members change often.
//!
//! SUMMARY   The largest few are in a short list, the others in a tree. The largest process is lent, so lending and
//!           returning change only the end of the list.
//! PROMISES  Every query and change takes at most logarithmic time, plus a walk over the short list.

use std::collections::BTreeSet;

/// The rank of an idle process among its equals: its key, and its number.
pub(super) type Ranked = (u64, u64);

/// Maximum length of the short list: moving a few cache lines is cheaper than changing a tree.
const TOP_MAX: usize = 16;

/// Ranked processes, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    /// The largest in ascending order; all are larger than those in `rest`.
    top: Vec<Ranked>,
    /// The others.
    rest: BTreeSet<Ranked>,
}

impl Ranking {
    /// Adds a process that is not in the set.
    pub fn insert(&mut self, ranked: Ranked) {
        debug_assert!(self.iter().all(|other| *other != ranked), "PM-2: idle once");
        if self.rest.last().is_some_and(|last| ranked < *last) {
            self.rest.insert(ranked);
            return;
        }
        let smaller = self.top.iter().rev().skip_while(|other| **other > ranked);
        self.top.insert(smaller.count(), ranked);
        if self.top.len() > TOP_MAX {
            self.rest.extend(self.top.drain(..TOP_MAX / 2));
        }
    }

    /// Removes a process. Returns whether it was in the set.
    pub fn remove(&mut self, ranked: &Ranked) -> bool {
        match self.top.iter().rposition(|other| other == ranked) {
            Some(at) => {
                self.top.remove(at);
                true
            }
            None => self.rest.remove(ranked),
        }
    }

    /// Returns the smallest.
    pub fn first(&self) -> Option<&Ranked> {
        self.rest.first().or_else(|| self.top.first())
    }

    /// Returns the largest.
    pub fn last(&self) -> Option<&Ranked> {
        self.top.last().or_else(|| self.rest.last())
    }

    /// Returns the number of processes.
    pub fn len(&self) -> usize {
        self.top.len() + self.rest.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.top.is_empty() && self.rest.is_empty()
    }

    /// Returns all processes in ascending order.
    fn iter(&self) -> impl Iterator<Item = &Ranked> {
        self.rest.iter().chain(&self.top)
    }
}

/// Equal if they have the same members, wherever those are stored.
impl PartialEq for Ranking {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ranking {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A ranking behaves like an ordered set after any changes.
        #[test]
        fn a_ranking_is_an_ordered_set(changes in prop::collection::vec((any::<bool>(), 0..60_u64), 0..400)) {
            let (mut ranking, mut model) = (Ranking::default(), BTreeSet::new());
            for (adds, number) in changes {
                let ranked = (number / 7, number);
                if adds && model.insert(ranked) {
                    ranking.insert(ranked);
                } else if !adds {
                    prop_assert_eq!(ranking.remove(&ranked), model.remove(&ranked));
                }
                prop_assert!(ranking.iter().eq(model.iter()));
                prop_assert_eq!(ranking.first(), model.first());
                prop_assert_eq!(ranking.last(), model.last());
                prop_assert_eq!((ranking.len(), ranking.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(ranking.top.len() <= TOP_MAX);
            }
        }
    }
}
