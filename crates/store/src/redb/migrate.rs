//! Files of earlier formats, brought to today's when they are opened.
//!
//! SUMMARY   In format 1 and 2 documents stood as they do now; in format 2 a document could have more branches
//!           than the one that wins. That one stays. The others go to a file beside the store.
//! PROMISES  That file is on the disk before the store is changed, and the store is changed in one transaction: what
//!           is interrupted begins anew at the next opening. Only the owner can read it.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use serde::Deserialize;
use serde_json::json;

use super::records::{Records, meta};
use crate::error::OpenProblem;
use crate::place::StorePlace;
use crate::uuid_file::sync_folders;

/// Documents of format 1: revision number, hash, whether deleted, sequence number, body.
const DOCUMENTS_1: TableDefinition<&str, (u64, u128, bool, u64, &str)> =
    TableDefinition::new("documents");
/// Of format 2: id -> hashes of the revisions before the winner.
const ANCESTORS_2: TableDefinition<&str, &str> = TableDefinition::new("ancestors");
/// Of format 2: id -> the branches beside the winner, a JSON array of [`Branch`].
const CONFLICTS_2: TableDefinition<&str, &str> = TableDefinition::new("conflicts");

/// A branch of a document in format 2.
#[derive(Deserialize)]
struct Branch {
    number: u64,
    /// Newest first, with commas between them.
    hashes: String,
    deleted: bool,
    body: String,
}

impl Branch {
    /// Returns the branch as a document on one line.
    fn line(&self, id: &str) -> String {
        let hash = self.hashes.split(',').next().unwrap_or_default();
        let mut head = json!({"_id": id, "_rev": format!("{}-{hash}", self.number)});
        if self.deleted {
            head["_deleted"] = true.into();
        }
        let head = head.to_string();
        match self.body.strip_prefix('{') {
            Some(rest) if rest != "}" => format!("{},{rest}\n", &head[..head.len() - 1]),
            _ => format!("{head}\n"),
        }
    }
}

/// Branches that went to a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SetAside {
    pub(super) file: PathBuf,
    pub(super) count: usize,
}

/// Takes over the documents of format 1.
pub(super) fn from_format_1(
    transaction: &WriteTransaction,
    records: &mut Records<'_>,
) -> Result<(), redb::Error> {
    {
        let before = transaction.open_table(DOCUMENTS_1)?;
        for entry in before.iter()? {
            let (id, row) = entry?;
            let (number, hash, deleted, seq, body) = row.value();
            let hash = format!("{hash:032x}");
            let row = (number, hash.as_str(), deleted, seq, body);
            records.documents.insert(id.value(), row)?;
        }
    }
    transaction.delete_table(DOCUMENTS_1)?;
    Ok(())
}

/// Writes branches beside the winners of format 2 to a file, if there are any, and removes them.
pub(super) fn from_format_2(
    transaction: &WriteTransaction,
    records: &Records<'_>,
    place: &StorePlace,
) -> Result<Option<SetAside>, OpenProblem> {
    let set_aside = {
        let conflicts = transaction.open_table(CONFLICTS_2);
        let conflicts = conflicts.map_err(redb::Error::from)?;
        let is_empty = conflicts.is_empty().map_err(redb::Error::from)?;
        match place {
            StorePlace::File(store) if !is_empty => {
                let uuid = meta(transaction, "uuid")?.unwrap_or_default();
                let file = beside(store, &uuid, records.update_seq()?);
                let count = write(&file, &conflicts)?;
                Some(SetAside { file, count })
            }
            _ => None,
        }
    };
    for table in [ANCESTORS_2, CONFLICTS_2] {
        transaction.delete_table(table).map_err(redb::Error::from)?;
    }
    Ok(set_aside)
}

/// Returns where the branches of a store go. A store that is as it was gets the same file again; one that
/// stood in the same place before has another.
fn beside(store: &Path, uuid: &str, update_seq: u64) -> PathBuf {
    let mut path = store.to_owned().into_os_string();
    path.push(format!(".branches-{uuid}-{update_seq}.ndjson"));
    path.into()
}

/// Writes all branches. The file has its name once it is whole. Returns how many there are.
fn write(
    file: &Path,
    conflicts: &impl ReadableTable<&'static str, &'static str>,
) -> Result<usize, OpenProblem> {
    let part = file.with_extension("part");
    // What an interrupted attempt left.
    drop(fs::remove_file(&part));
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&part);
    let mut written = BufWriter::new(opened?);
    let mut count = 0;
    for entry in conflicts.iter().map_err(redb::Error::from)? {
        let (id, text) = entry.map_err(redb::Error::from)?;
        let branches: Vec<Branch> = serde_json::from_str(text.value()).map_err(|_| {
            let row = format!("the branches of the document {:?}", id.value());
            redb::Error::Corrupted(row)
        })?;
        for branch in &branches {
            let line = branch.line(id.value());
            written.write_all(line.as_bytes())?;
        }
        count += branches.len();
    }
    written.flush()?;
    written.get_ref().sync_all()?;
    fs::rename(&part, file)?;
    sync_folders(file)?;
    Ok(count)
}
