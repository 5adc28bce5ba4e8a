//! Documents in the tables: reading, listing, writing, the order of updates.
//!
//! SUMMARY   A document's leaves are its [`Tree`]; the one that wins has a row of its own, so that what
//!           most readers want is read at once.
//! SOURCE    couch_db: update_docs/4; couch_db_updater.

use std::ops::Bound;

use redb::ReadableTable;

use super::records::{Records, Snapshot};
use super::revision::{RevHash, Revision};
use super::tree::{self, Conflict, History, Leaf, TooManyBranches, Tree};
use super::trees::OpenTrees;

/// Revision number, its hash, whether deleted, sequence number, body.
pub(super) type Row = (u64, &'static str, bool, u64, &'static str);

/// A document, as the leaf that wins has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its revision.
    pub revision: Revision,
    /// Whether it is deleted.
    pub deleted: bool,
    /// The sequence number of its last update.
    pub seq: u64,
    /// JSON text of an object without `_id`, `_rev` and `_deleted`.
    pub body: String,
}

/// A wish to write a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Which.
    pub id: String,
    /// The revision that the writer knows.
    pub expected: Option<Revision>,
    /// Whether to delete it.
    pub deleted: bool,
    /// As in [`Document`].
    pub body: String,
}

/// A revision that was written elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Of which document.
    pub id: String,
    /// The revision, with those before it.
    pub leaf: Leaf,
}

/// Documents in the order of their updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The documents.
    pub documents: Vec<Document>,
    /// The last sequence number.
    pub update_seq: u64,
}

/// Counts of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Documents that are not deleted.
    pub documents: u64,
    /// Deleted ones.
    pub deleted: u64,
    /// The last sequence number.
    pub update_seq: u64,
    /// The name of the store.
    pub uuid: String,
    /// What the bodies of documents take, in bytes; of each its winner's.
    pub bytes: u64,
}

/// A table of texts, in a transaction or out of it.
trait Texts: ReadableTable<&'static str, &'static str> {}
impl<T: ReadableTable<&'static str, &'static str>> Texts for T {}

/// What the tables hold cannot have been written by this program.
fn inconsistent(table: &str, id: &str) -> redb::Error {
    redb::Error::Corrupted(format!("the row of {id:?} in the table {table}"))
}

fn hash(id: &str, text: &str) -> Result<RevHash, redb::Error> {
    text.parse().map_err(|_| inconsistent("winners", id))
}

/// Makes a document of its row.
pub(super) fn document(
    id: &str,
    (number, hash_text, deleted, seq, body): (u64, &str, bool, u64, &str),
) -> Result<Document, redb::Error> {
    let hash = hash(id, hash_text)?;
    Ok(Document {
        id: id.to_owned(),
        revision: Revision { number, hash },
        deleted,
        seq,
        body: body.to_owned(),
    })
}

/// Reads all leaves of a document; a tree without leaves where there is none.
fn tree_of(
    id: &str,
    documents: &impl ReadableTable<&'static str, Row>,
    ancestors: &impl Texts,
    conflicts: &impl Texts,
) -> Result<Tree, redb::Error> {
    let Some(row) = documents.get(id)? else {
        return Ok(Tree::default());
    };
    let (number, hash_text, deleted, _, body) = row.value();
    let mut hashes = vec![hash(id, hash_text)?];
    if let Some(text) = ancestors.get(id)? {
        let before = tree::hashes_of(text.value());
        hashes.extend(before.ok_or_else(|| inconsistent("ancestors", id))?);
    }
    let mut leaves = match conflicts.get(id)? {
        None => Vec::new(),
        Some(text) => tree::leaves_of(text.value()).ok_or_else(|| inconsistent("conflicts", id))?,
    };
    leaves.push(Leaf {
        history: History::new(number, hashes).map_err(|_| inconsistent("ancestors", id))?,
        deleted,
        body: body.to_owned(),
    });
    Ok(Tree::of(leaves))
}

impl Snapshot {
    pub(super) fn document(&self, id: &str) -> Result<Option<Document>, redb::Error> {
        let row = self.documents.get(id)?;
        row.map(|row| document(id, row.value())).transpose()
    }

    pub(super) fn tree(&self, id: &str) -> Result<Tree, redb::Error> {
        tree_of(id, &self.documents, &self.ancestors, &self.conflicts)
    }

    pub(super) fn changes(&self, since: u64, limit: usize) -> Result<Changes, redb::Error> {
        let mut changes = Changes {
            update_seq: self.counter("last_update")?,
            ..Changes::default()
        };
        let updates = self
            .updates
            .range((Bound::Excluded(since), Bound::Unbounded))?;
        for entry in updates.take(limit) {
            let (_, id) = entry?;
            changes.documents.extend(self.document(id.value())?);
        }
        Ok(changes)
    }

    /// Counts the documents that were updated after `since`: a walk over them.
    pub(super) fn pending(&self, since: u64) -> Result<u64, redb::Error> {
        let updates = self
            .updates
            .range((Bound::Excluded(since), Bound::Unbounded))?;
        updates.map(|entry| Ok(entry.map(|_| 1)?)).sum()
    }

    pub(super) fn info(&self) -> Result<Info, redb::Error> {
        use redb::ReadableTableMetadata;

        // What a walk over the table would tell is counted: this is asked often.
        let all = self.documents.len()?;
        let deleted = self.counter("deleted")?;
        Ok(Info {
            documents: all.saturating_sub(deleted),
            deleted,
            update_seq: self.counter("last_update")?,
            uuid: self.uuid()?,
            bytes: self.counter("bytes")?,
        })
    }

    pub(super) fn counter(&self, name: &str) -> Result<u64, redb::Error> {
        Ok(self.counters.get(name)?.map_or(0, |count| count.value()))
    }
}

impl Records<'_> {
    /// Gives a document that is there another body, if `change` has one for it.
    pub(super) fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&Document) -> Option<String>,
    ) -> Result<Option<Revision>, redb::Error> {
        let row = self.documents.get(id)?;
        let known = row.map(|row| document(id, row.value()));
        let Some(known) = known.transpose()? else {
            return Ok(None);
        };
        let Some(body) = change(&known).filter(|_| !known.deleted) else {
            return Ok(None);
        };
        let edit = Edit {
            id: known.id,
            expected: Some(known.revision),
            deleted: false,
            body,
        };
        let written = self.edit(vec![edit])?;
        Ok(written.into_iter().find_map(Result::ok))
    }

    /// Writes documents whose writers know their last revisions. An edit sees those before it.
    pub(super) fn edit(
        &mut self,
        edits: Vec<Edit>,
    ) -> Result<Vec<Result<Revision, Conflict>>, redb::Error> {
        let mut open = OpenTrees::default();
        let mut written = Vec::with_capacity(edits.len());
        for edit in edits {
            let tree = open.get(&edit.id, || self.tree(&edit.id))?;
            written.push(tree.change(|tree| {
                let written = tree.edit(edit.expected, edit.deleted, edit.body);
                (written.is_ok(), written)
            }));
        }
        self.save_all(open)?;
        Ok(written)
    }

    /// Takes in revisions that were written elsewhere. Returns whether they were news.
    pub(super) fn merge(
        &mut self,
        merges: Vec<Merge>,
    ) -> Result<Vec<Result<bool, TooManyBranches>>, redb::Error> {
        let mut open = OpenTrees::default();
        let mut merged = Vec::with_capacity(merges.len());
        for Merge { id, leaf } in merges {
            let tree = open.get(&id, || self.tree(&id))?;
            merged.push(tree.change(|tree| {
                let is_news = tree.merge(leaf);
                (is_news == Ok(true), is_news)
            }));
        }
        self.save_all(open)?;
        Ok(merged)
    }

    fn save_all(&mut self, open: OpenTrees) -> Result<(), redb::Error> {
        let mut changed = open.changed();
        changed.try_for_each(|(id, tree)| self.save(&id, &tree))
    }

    fn tree(&self, id: &str) -> Result<Tree, redb::Error> {
        tree_of(id, &self.documents, &self.ancestors, &self.conflicts)
    }

    /// Writes the leaves of a document, as its last update.
    fn save(&mut self, id: &str, tree: &Tree) -> Result<(), redb::Error> {
        let [winner, others @ ..] = tree.leaves() else {
            return Ok(());
        };
        let before = self
            .documents
            .get(id)?
            .map(|row| (row.value().2, row.value().3, row.value().4.len() as u64));
        let seq = self.update_seq()? + 1;
        if let Some((_, before, _)) = before {
            self.updates.remove(before)?;
            self.deaths.remove(before)?;
        }
        self.updates.insert(seq, id)?;
        if winner.deleted {
            self.deaths.insert(seq, self.now)?;
        }
        let class = (!winner.deleted).then(|| self.watcher.class(id, &winner.body));
        self.saved.push((id.to_owned(), class));
        self.counters.insert("last_update", seq)?;
        let was_deleted = before.is_some_and(|(deleted, ..)| deleted);
        self.count("deleted", u64::from(was_deleted), u64::from(winner.deleted))?;
        let bytes_before = before.map_or(0, |(.., bytes)| bytes);
        self.count("bytes", bytes_before, winner.body.len() as u64)?;
        let Revision { number, hash } = winner.revision();
        let row = (
            number,
            hash.as_str(),
            winner.deleted,
            seq,
            winner.body.as_str(),
        );
        self.documents.insert(id, row)?;
        let ancestors = tree::hashes_text(winner.history.ancestors());
        put(&mut self.ancestors, id, &ancestors)?;
        let conflicts = match others.is_empty() {
            true => String::new(),
            false => tree::leaves_text(others),
        };
        put(&mut self.conflicts, id, &conflicts)
    }

    /// Counts something of a document that was so much before and is so much now.
    pub(super) fn count(&mut self, name: &str, before: u64, now: u64) -> Result<(), redb::Error> {
        if before == now {
            return Ok(());
        }
        let count = self.counters.get(name)?.map_or(0, |count| count.value());
        let count = count.saturating_add(now).saturating_sub(before);
        self.counters.insert(name, count)?;
        Ok(())
    }
}

/// Puts a text into a table; an empty one is none.
fn put(
    table: &mut redb::Table<'_, &'static str, &'static str>,
    id: &str,
    text: &str,
) -> Result<(), redb::Error> {
    match text.is_empty() {
        false => table.insert(id, text)?.map(drop),
        true => table.remove(id)?.map(drop),
    };
    Ok(())
}
