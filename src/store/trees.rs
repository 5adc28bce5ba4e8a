//! Trees of documents that one request changes: each is read once and written once, however many of its
//! branches the request has.

use rustc_hash::FxHashMap;

use super::tree::Tree;

/// A tree that was read.
#[derive(Debug, Default)]
pub(super) struct OpenTree {
    tree: Tree,
    is_changed: bool,
}

impl OpenTree {
    /// Works on the tree. `work` says whether it changed it, and what came of it.
    pub(super) fn change<T>(&mut self, work: impl FnOnce(&mut Tree) -> (bool, T)) -> T {
        let (is_changed, value) = work(&mut self.tree);
        self.is_changed |= is_changed;
        value
    }
}

/// Trees by the ids of their documents, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct OpenTrees {
    trees: Vec<(String, OpenTree)>,
    places: FxHashMap<String, usize>,
}

impl OpenTrees {
    /// Returns a tree, which is read the first time.
    pub(super) fn get(
        &mut self,
        id: &str,
        read: impl FnOnce() -> Result<Tree, redb::Error>,
    ) -> Result<&mut OpenTree, redb::Error> {
        let place = match self.places.get(id) {
            Some(place) => *place,
            None => {
                let tree = OpenTree {
                    tree: read()?,
                    is_changed: false,
                };
                self.places.insert(id.to_owned(), self.trees.len());
                self.trees.push((id.to_owned(), tree));
                self.trees.len() - 1
            }
        };
        Ok(&mut self.trees[place].1)
    }

    /// Returns what is to be written.
    pub(super) fn changed(self) -> impl Iterator<Item = (String, Tree)> {
        let changed = self.trees.into_iter().filter(|(_, open)| open.is_changed);
        changed.map(|(id, open)| (id, open.tree))
    }
}
