//! A store copied to another place, row by row: `settee store migrate`, `backup` and `restore`.
//!
//! SUMMARY   The target takes the uuid of the source and is marked as unfinished; rows are copied in the order of their
//!           ids; both sides are read again and compared; then the mark goes. A copy that was interrupted goes on after
//!           the last row.
//! PROMISES  Revisions, deletions, sequence numbers and texts stay as they are. No service opens an unfinished copy.
//!           A target that holds anything else is left as it is, and so is the source.
//! CALLED    By the command line, which has nothing else to do meanwhile: files are read on this thread. A
//!           [`CopySource`] may be the store of a running service, as it was at one moment.

#[cfg(feature = "postgres")]
mod database;
mod file;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::document_store::Watcher;
use super::error::{OpenProblem, StoreError};
use super::place::StorePlace;
use file::FileSide;

/// Rows that are copied at a time.
const ROWS_MAX: usize = 1000;

/// Why a service refuses a copy, and so does another copy.
pub(super) const UNFINISHED: &str =
    "a copy into it is unfinished: run settee store migrate or restore again to its end";

/// What stores have rows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Documents, deleted ones too.
    Documents,
    /// `_local/` documents.
    Locals,
    /// What is kept of jobs.
    Jobs,
}

const KINDS: [RowKind; 3] = [RowKind::Documents, RowKind::Locals, RowKind::Jobs];

/// A row of any kind; what its kind does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRow {
    /// The id of the document.
    pub id: String,
    /// The number of the revision.
    pub number: u64,
    /// The hash of the revision.
    pub hash: String,
    /// When it was deleted, in seconds since 1970.
    pub deleted_at: Option<u64>,
    /// The number of its last update.
    pub seq: u64,
    /// JSON text.
    pub body: String,
}

/// The store of a running service as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCopy {
    /// Which one, for [`copy_rows`](crate::DocumentStore::copy_rows).
    pub copy: u64,
    /// The uuid of the store.
    pub uuid: String,
    /// The last sequence number.
    pub seq: u64,
}

/// Where rows are copied from: they are the same as often as they are read.
pub trait CopySource {
    /// Why it cannot be read, or not be copied.
    type Error: From<CopyError>;

    /// Returns the next rows after an id, in the order of their ids.
    fn rows(
        &self,
        kind: RowKind,
        after: &str,
    ) -> impl Future<Output = Result<Vec<CopyRow>, Self::Error>>;
}

/// What is known of a store as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub uuid: String,
    /// The last sequence number.
    pub seq: u64,
    pub is_unfinished: bool,
    pub is_empty: bool,
}

/// What a copy has copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Documents, deleted ones too.
    pub documents: u64,
    /// Deleted ones.
    pub deleted: u64,
    /// `_local/` documents.
    pub locals: u64,
    /// Jobs of which something is kept.
    pub jobs: u64,
    /// Rows that an earlier run had copied.
    pub before: u64,
    /// The last sequence number.
    pub seq: u64,
    /// The uuid of both stores.
    pub uuid: String,
    /// SHA-256 over all rows in the order of their ids, the same on both sides, in hexadecimal digits.
    pub hash: String,
}

/// Why nothing, or not everything, was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyError {
    /// One of the stores fails.
    Store(StoreError),
    /// There is no source.
    NoSource(String),
    /// The target holds something else.
    Foreign(String),
    /// The two are not the same at the end.
    Differs(String),
}

/// One side of a copy.
enum Side {
    File(FileSide),
    #[cfg(feature = "postgres")]
    Database(Box<database::DatabaseSide>),
}

impl Side {
    async fn open(
        place: &StorePlace,
        #[cfg_attr(not(feature = "postgres"), expect(unused_variables))] watcher: &Arc<dyn Watcher>,
        is_source: bool,
    ) -> Result<Self, OpenProblem> {
        match place {
            #[cfg(feature = "postgres")]
            StorePlace::Postgres(url) => {
                let opened = database::DatabaseSide::open(url, watcher, is_source).await;
                opened.map(|side| Self::Database(Box::new(side)))
            }
            place => FileSide::open(place, is_source).map(Self::File),
        }
    }

    async fn head(&self) -> Result<Head, OpenProblem> {
        match self {
            Self::File(file) => file.head(),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.head().await,
        }
    }

    /// Returns the next rows after an id, in the order of their ids.
    async fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<CopyRow>, OpenProblem> {
        match self {
            Self::File(file) => file.rows(kind, after),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.rows(kind, after).await,
        }
    }

    /// Marks it as unfinished, and gives it a uuid.
    async fn begin(&self, uuid: &str) -> Result<(), OpenProblem> {
        match self {
            Self::File(file) => file.begin(uuid),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.begin(uuid).await,
        }
    }

    async fn put(&self, kind: RowKind, rows: &[CopyRow]) -> Result<(), OpenProblem> {
        match self {
            Self::File(file) => file.put(kind, rows),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.put(kind, rows).await,
        }
    }

    /// Gives it its last sequence number, and takes the mark away.
    async fn finish(&self, seq: u64) -> Result<(), OpenProblem> {
        match self {
            Self::File(file) => file.finish(seq),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.finish(seq).await,
        }
    }
}

/// A side with its name, for errors.
struct OpenSide<'p> {
    side: Side,
    place: &'p StorePlace,
}

impl<'p> OpenSide<'p> {
    async fn open(
        place: &'p StorePlace,
        watcher: &Arc<dyn Watcher>,
        is_source: bool,
    ) -> Result<Self, CopyError> {
        let opened = Side::open(place, watcher, is_source).await;
        let side = opened.map_err(|problem| failed(place, problem))?;
        Ok(Self { side, place })
    }

    fn failed(&self, problem: OpenProblem) -> CopyError {
        failed(self.place, problem)
    }
}

impl CopySource for OpenSide<'_> {
    type Error = CopyError;

    async fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<CopyRow>, CopyError> {
        let rows = self.side.rows(kind, after).await;
        rows.map_err(|problem| self.failed(problem))
    }
}

fn failed(place: &StorePlace, problem: OpenProblem) -> CopyError {
    CopyError::Store(place.cannot_open(problem).into())
}

/// Counts of rows by kind, of deleted documents, and a hash over all.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    counts: [u64; 3],
    deleted: u64,
    hash: String,
}

async fn sum<S: CopySource>(side: &S) -> Result<Sum, S::Error> {
    let (mut sum, mut hash) = (Sum::default(), Sha256::new());
    for (at, kind) in KINDS.into_iter().enumerate() {
        let mut after = String::new();
        loop {
            let rows = side.rows(kind, &after).await?;
            let Some(last) = rows.last() else { break };
            after = last.id.clone();
            sum.counts[at] += rows.len() as u64;
            for row in rows {
                sum.deleted += u64::from(row.deleted_at.is_some());
                let deleted_at = row.deleted_at.map_or(0, |at| at + 1);
                for number in [at as u64, row.number, deleted_at, row.seq] {
                    hash.update(number.to_be_bytes());
                }
                for text in [&row.id, &row.hash, &row.body] {
                    hash.update((text.len() as u64).to_be_bytes());
                    hash.update(text);
                }
            }
        }
    }
    sum.hash = data_encoding::HEXLOWER.encode(&hash.finalize());
    Ok(sum)
}

/// Copies a store to an empty place, or goes on with that. `watcher` is only asked which documents ask for
/// replications.
///
/// # Errors
/// See [`CopyError`].
pub async fn copy(
    from: &StorePlace,
    to: &StorePlace,
    watcher: &Arc<dyn Watcher>,
) -> Result<Copied, CopyError> {
    if !from.exists() {
        return Err(CopyError::NoSource(from.to_string()));
    }
    let source = OpenSide::open(from, watcher, true).await?;
    let head = source.side.head().await.map_err(|p| source.failed(p))?;
    if head.is_unfinished {
        return Err(source.failed(OpenProblem::Refused(UNFINISHED.to_owned())));
    }
    copy_from(&source, (&head.uuid, head.seq), to, watcher).await
}

/// As [`copy`], from a store with this uuid and last sequence number.
///
/// # Errors
/// Those of the source; see [`CopyError`].
pub async fn copy_from<S: CopySource>(
    source: &S,
    (uuid, seq): (&str, u64),
    to: &StorePlace,
    watcher: &Arc<dyn Watcher>,
) -> Result<Copied, S::Error> {
    let opened = OpenSide::open(to, watcher, false).await?;
    let (target, of_target) = (&opened.side, |problem| opened.failed(problem));
    let known = target.head().await.map_err(of_target)?;
    let is_ours = known.uuid == uuid && (known.is_unfinished || known.seq == seq);
    if !is_ours && (known.is_unfinished || !known.is_empty) {
        return Err(CopyError::Foreign(to.to_string()).into());
    }
    let is_finished = is_ours && !known.is_unfinished && !known.is_empty;
    if !is_finished {
        target.begin(uuid).await.map_err(of_target)?;
    }
    let mut before = 0;
    for kind in KINDS {
        let mut after = String::new();
        loop {
            let rows = target.rows(kind, &after).await.map_err(of_target)?;
            let Some(last) = rows.last() else { break };
            after = last.id.clone();
            before += rows.len() as u64;
        }
        loop {
            let rows = source.rows(kind, &after).await?;
            let Some(last) = rows.last().filter(|_| !is_finished) else {
                break;
            };
            after = last.id.clone();
            target.put(kind, &rows).await.map_err(of_target)?;
        }
    }
    let copied = sum(source).await?;
    if sum(&opened).await? != copied {
        return Err(CopyError::Differs(to.to_string()).into());
    }
    if !is_finished {
        target.finish(seq).await.map_err(of_target)?;
    }
    let [documents, locals, jobs] = copied.counts;
    Ok(Copied {
        documents,
        deleted: copied.deleted,
        locals,
        jobs,
        before,
        seq,
        uuid: uuid.to_owned(),
        hash: copied.hash,
    })
}
