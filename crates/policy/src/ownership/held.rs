//! One daemon's documents, and the progress of their release.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::{Claim, DocId, Request};

/// The state of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is owned.
    Owned,
    /// It is owned, and its job is stopping.
    Stopping,
    /// It is claimed without a job, and has to be released.
    Unused,
}

/// A document claimed by this daemon, as far as it knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub claim: Claim,
    /// The answer to every renewal sent after this request lists the claim.
    pub known: Request,
    pub hold: Hold,
    /// Whether it does not count toward the share.
    pub is_extra: bool,
}

impl Held {
    pub const fn is_owned(&self) -> bool {
        matches!(self.hold, Hold::Owned | Hold::Stopping)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct HeldDocs {
    pub rows: FxHashMap<DocId, Held>,
    /// Documents to release.
    pub unused: BTreeSet<DocId>,
    /// Number of [`Hold::Owned`] documents.
    pub owned: usize,
    /// Number of extra documents, and of [`Hold::Owned`] ones among these.
    extra: usize,
    pub extra_owned: usize,
}

impl HeldDocs {
    /// Returns the number of documents of the share, in any state.
    pub fn shared(&self) -> usize {
        self.rows.len() - self.extra
    }

    /// Whether a document is owned and not stopping.
    pub fn is_running(&self, doc: &str) -> bool {
        self.rows
            .get(doc)
            .is_some_and(|held| held.hold == Hold::Owned)
    }

    /// Returns the owned documents that are not stopping.
    pub fn running(&self) -> impl Iterator<Item = (&DocId, &Held)> {
        self.rows
            .iter()
            .filter(|(_, held)| held.hold == Hold::Owned)
    }

    /// Returns at most `count` documents to release.
    pub fn unused(&self, count: usize) -> Vec<(DocId, Claim)> {
        let docs = self.unused.iter().take(count);
        docs.map(|doc| (doc.clone(), self.rows[doc].claim))
            .collect()
    }

    /// Adds a document, replacing an existing one.
    pub fn insert(&mut self, doc: DocId, held: Held) {
        self.remove(&doc);
        self.extra += usize::from(held.is_extra);
        match held.hold {
            Hold::Owned => {
                self.owned += 1;
                self.extra_owned += usize::from(held.is_extra);
            }
            Hold::Stopping => {}
            Hold::Unused => drop(self.unused.insert(doc.clone())),
        }
        self.rows.insert(doc, held);
    }

    pub fn remove(&mut self, doc: &str) -> Option<Held> {
        let held = self.rows.remove(doc)?;
        self.unused.remove(doc);
        let is_owned = held.hold == Hold::Owned;
        self.owned -= usize::from(is_owned);
        self.extra -= usize::from(held.is_extra);
        self.extra_owned -= usize::from(held.is_extra && is_owned);
        Some(held)
    }

    /// Changes a document's state.
    pub fn set(&mut self, doc: &DocId, hold: Hold) {
        if let Some(held) = self.rows.get(doc).copied() {
            self.insert(doc.clone(), Held { hold, ..held });
        }
    }

    /// Sets whether a document is extra.
    pub fn set_extra(&mut self, doc: &DocId, is_extra: bool) {
        let held = self.rows.get(doc).copied();
        if let Some(held) = held.filter(|held| held.is_extra != is_extra) {
            self.insert(doc.clone(), Held { is_extra, ..held });
        }
    }
}
