//! The revision tree of one document: its branches, which of them wins, what may be added.
//!
//! SUMMARY   A [`Tree`] is the leaves of its branches, each with its body and the revisions before it
//!           ([`History`]). Bodies of earlier revisions are not kept. Pure: the tables are elsewhere.
//! PROMISES  Which leaf wins depends on the leaves alone, so that two databases with the same leaves
//!           show the same one. What is merged twice, or in another order, makes the same leaves.
//! SOURCE    couch_key_tree: merge/2, stem/2; couch_doc: to_doc_info/1 for the winner; couch_db:
//!           update_docs/4 for who may write.
//! LIMITS    [`REVISIONS_MAX`] revisions of a branch are remembered, and [`LEAVES_MAX`] branches.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::revision::{InvalidRevision, RevHash, Revision};

/// Revisions of a branch that are remembered: CouchDB's `_revs_limit`.
pub const REVISIONS_MAX: usize = 1000;

/// How many branches a document may have, deleted ones too: each write of it reads and writes all.
pub const LEAVES_MAX: usize = 1000;

/// A revision, and those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    number: u64,
    /// Newest first; never empty, never longer than `number`.
    hashes: Vec<RevHash>,
}

impl History {
    /// Makes a history of a number and hashes, newest first, as in `_revisions`.
    ///
    /// # Errors
    /// There are no hashes, or more than the number says.
    pub fn new(number: u64, mut hashes: Vec<RevHash>) -> Result<Self, InvalidRevision> {
        let fits = u64::try_from(hashes.len()).is_ok_and(|length| length <= number);
        if hashes.is_empty() || !fits {
            return Err(InvalidRevision);
        }
        hashes.truncate(REVISIONS_MAX);
        Ok(Self { number, hashes })
    }

    /// Returns the history of a revision of which nothing more is known.
    pub fn of(revision: Revision) -> Self {
        Self {
            number: revision.number,
            hashes: vec![revision.hash],
        }
    }

    /// Returns the newest revision.
    pub fn revision(&self) -> Revision {
        Revision {
            number: self.number,
            hash: self.hashes[0],
        }
    }

    /// Returns the revisions, newest first.
    pub fn revisions(&self) -> impl Iterator<Item = Revision> + '_ {
        let numbers = (0..=self.number).rev();
        let both = numbers.zip(&self.hashes);
        both.map(|(number, &hash)| Revision { number, hash })
    }

    /// Returns the hashes before the newest one, newest first.
    pub fn ancestors(&self) -> &[RevHash] {
        &self.hashes[1..]
    }

    /// Returns whether a revision is in it.
    pub fn contains(&self, revision: Revision) -> bool {
        self.place(revision).is_some()
    }

    fn place(&self, revision: Revision) -> Option<usize> {
        let back = self.number.checked_sub(revision.number)?;
        let place = usize::try_from(back).ok()?;
        (self.hashes.get(place) == Some(&revision.hash)).then_some(place)
    }

    /// Puts a newer revision in front.
    fn push(&mut self, revision: Revision) {
        self.number = revision.number;
        self.hashes.insert(0, revision.hash);
        self.hashes.truncate(REVISIONS_MAX);
    }

    /// Takes over what another history of the same document knows of the time before this one.
    /// Returns whether that was anything.
    fn learn(&mut self, other: &Self) -> bool {
        let length = self.hashes.len();
        let oldest = Revision {
            number: self.number + 1 - length as u64,
            hash: self.hashes[length - 1],
        };
        let place = other.place(oldest).unwrap_or(usize::MAX);
        let before = other.hashes.get(place.saturating_add(1)..);
        self.hashes.extend_from_slice(before.unwrap_or_default());
        self.hashes.truncate(REVISIONS_MAX);
        self.hashes.len() > length
    }
}

/// The end of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its revision, and those before it.
    pub history: History,
    /// Whether it is a deletion.
    pub deleted: bool,
    /// JSON text of an object without `_id`, `_rev` and `_deleted`.
    pub body: String,
}

impl Leaf {
    /// Returns its revision.
    pub fn revision(&self) -> Revision {
        self.history.revision()
    }
}

/// The writer does not know a last revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Document update conflict.")]
pub struct Conflict;

/// A document has as many branches as it may have. Its writer is at fault, and not for now: a branch
/// that is deleted stays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The document has {LEAVES_MAX} branches, as many as there may be; write it under another id."
)]
pub struct TooManyBranches;

/// What another database misses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Revisions that are not here.
    pub missing: Vec<Revision>,
    /// Leaves that may come before them.
    pub possible_ancestors: Vec<Revision>,
}

/// The branches of a document; the winner first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    leaves: Vec<Leaf>,
}

impl Tree {
    /// Makes a tree of leaves in any order.
    pub fn of(leaves: Vec<Leaf>) -> Self {
        let mut tree = Self { leaves };
        tree.order();
        tree
    }

    /// A branch that lives wins, then the longer one, then the greater hash.
    fn order(&mut self) {
        self.leaves
            .sort_by_key(|leaf| (leaf.deleted, Reverse(leaf.revision())));
    }

    /// Returns the leaves, the winner first.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// Returns the leaf that stands for the document; none where nothing was written yet.
    pub fn winner(&self) -> Option<&Leaf> {
        self.leaves.first()
    }

    /// Returns the leaf that is this revision.
    pub fn leaf(&self, revision: Revision) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.revision() == revision)
    }

    /// Returns the leaves that are this revision, or come after it.
    pub fn after(&self, revision: Revision) -> impl Iterator<Item = &Leaf> {
        let leaves = self.leaves.iter();
        leaves.filter(move |leaf| leaf.history.contains(revision))
    }

    /// Returns whether a revision is known, with or without its body.
    pub fn contains(&self, revision: Revision) -> bool {
        self.after(revision).next().is_some()
    }

    /// Returns which revisions are not here.
    pub fn missing(&self, revisions: &[Revision]) -> Missing {
        let mut unknown: FxHashSet<Revision> = revisions.iter().copied().collect();
        for leaf in &self.leaves {
            // Whichever is less: the revisions that are asked for, or those of the branch.
            if unknown.len() <= leaf.history.hashes.len() {
                unknown.retain(|one| !leaf.history.contains(*one));
            } else {
                for one in leaf.history.revisions() {
                    unknown.remove(&one);
                }
            }
        }
        let revisions = revisions.iter().copied();
        let missing: Vec<Revision> = revisions.filter(|one| unknown.contains(one)).collect();
        let newest = missing.iter().map(|one| one.number).max().unwrap_or(0);
        let leaves = self.leaves.iter().map(Leaf::revision);
        Missing {
            possible_ancestors: leaves.filter(|leaf| leaf.number < newest).collect(),
            missing,
        }
    }

    /// Writes a revision after the leaf that the writer knows. What is deleted can be made again
    /// without knowing it, and what is not there cannot be deleted.
    ///
    /// # Errors
    /// `expected` is no leaf, or there is a document that the writer does not know of.
    pub fn edit(
        &mut self,
        expected: Option<Revision>,
        deleted: bool,
        body: String,
    ) -> Result<Revision, Conflict> {
        let place = match expected {
            Some(expected) => {
                let mut leaves = self.leaves.iter();
                let place = leaves.position(|leaf| leaf.revision() == expected);
                Some(place.ok_or(Conflict)?)
            }
            None if deleted => return Err(Conflict),
            None => match self.winner() {
                None => None,
                Some(winner) if winner.deleted => Some(0),
                Some(_) => return Err(Conflict),
            },
        };
        let parent = place.map(|place| self.leaves[place].revision());
        let revision = Revision::after(parent, deleted, &body);
        let history = match place {
            None => History::of(revision),
            Some(place) => {
                let mut history = self.leaves.swap_remove(place).history;
                history.push(revision);
                history
            }
        };
        self.leaves.push(Leaf {
            history,
            deleted,
            body,
        });
        self.order();
        Ok(revision)
    }

    /// Takes in a revision that was written elsewhere, with those before it. Returns whether there
    /// was news in it.
    ///
    /// # Errors
    /// It would be one branch too many.
    pub fn merge(&mut self, mut leaf: Leaf) -> Result<bool, TooManyBranches> {
        let mut is_news = false;
        for known in &mut self.leaves {
            leaf.history.learn(&known.history);
            is_news |= known.history.learn(&leaf.history);
        }
        // Only its own history can tell of a leaf that it is none.
        let own = leaf.revision();
        self.leaves.retain(|known| {
            let known = known.revision();
            known == own || !leaf.history.contains(known)
        });
        if !self.contains(own) {
            if self.leaves.len() >= LEAVES_MAX {
                return Err(TooManyBranches);
            }
            is_news = true;
            self.leaves.push(leaf);
        }
        self.order();
        Ok(is_news)
    }
}

/// A leaf as it stands in the tables.
#[derive(Serialize, Deserialize)]
struct StoredLeaf {
    number: u64,
    hashes: String,
    deleted: bool,
    body: String,
}

/// Returns leaves as JSON text.
pub(super) fn leaves_text(leaves: &[Leaf]) -> String {
    let stored: Vec<StoredLeaf> = leaves
        .iter()
        .map(|leaf| StoredLeaf {
            number: leaf.history.number,
            hashes: hashes_text(&leaf.history.hashes),
            deleted: leaf.deleted,
            body: leaf.body.clone(),
        })
        .collect();
    serde_json::to_string(&stored).expect("tree: texts and numbers can always be written")
}

/// Reads leaves; none where the text is not what [`leaves_text`] writes.
pub(super) fn leaves_of(text: &str) -> Option<Vec<Leaf>> {
    let stored: Vec<StoredLeaf> = serde_json::from_str(text).ok()?;
    let leaf = |stored: StoredLeaf| {
        let hashes = hashes_of(&stored.hashes)?;
        Some(Leaf {
            history: History::new(stored.number, hashes).ok()?,
            deleted: stored.deleted,
            body: stored.body,
        })
    };
    stored.into_iter().map(leaf).collect()
}

/// Returns hashes with commas between them.
pub(super) fn hashes_text(hashes: &[RevHash]) -> String {
    let words: Vec<&str> = hashes.iter().map(RevHash::as_str).collect();
    words.join(",")
}

/// Reads what [`hashes_text`] writes.
pub(super) fn hashes_of(text: &str) -> Option<Vec<RevHash>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
