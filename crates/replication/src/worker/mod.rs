//! A worker replicates a batch of changes from the source to the target.
//!
//! SUMMARY   [`Worker::process`] queries the target for missing revisions ([`missing`]), reads them from the source -
//!           many at a time ([`bulk_get`]), the rest individually ([`single`]) - and writes them: many at a time
//!           ([`bulk_docs`]), design documents and documents with attachments individually ([`put`]). Documents that
//!           no URL can name are sent only in bodies ([`inline`]). A filter that the source does not run is applied in
//!           between.
//! PROMISES  After a success the target has every document of the batch or has refused it, and each refusal is
//!           reported. Documents that the target may refuse are written last. Memory holds at most one answer to
//!           `_bulk_get`, one batch to be written, and pieces of `http_connections` single documents; never a whole
//!           attachment.
//! SOURCE    `couch_replicator_worker`.
//! DIFFERS   CouchDB sends an empty `_bulk_get` for a batch of design documents. Sources that answer single reads
//!           with a JSON array (PouchDB's server) are supported, with their attachments read individually.

pub(crate) mod attached;
pub(crate) mod bulk_docs;
pub(crate) mod bulk_get;
pub(crate) mod document;
mod entries;
pub(crate) mod failed;
pub(crate) mod inline;
pub(crate) mod missing;
pub(crate) mod open_revs;
pub(crate) mod put;
mod single;
mod single_answer;
#[cfg(test)]
mod tests;
mod verdict;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use slog::Logger;
use tokio::sync::Mutex;

use super::average::FailureAverage;
use super::changes::feed::Row;
use super::counters::RunCounters;
use super::crash::Crash;
use super::endpoint::Endpoint;
use super::filter::FilterHere;
use super::refused::RefusalListener;
use bulk_docs::WriteBatch;
use missing::Wanted;
use single::{Read, Single};

/// State shared by the workers of a run.
pub struct Worker {
    pub source: Endpoint,
    pub target: Endpoint,
    /// Maximum concurrent single reads.
    pub reads: usize,
    /// Retries of a single read, or of the writes of a batch.
    pub retries: u32,
    /// Whether `_bulk_get` is used.
    pub use_bulk_get: bool,
    /// The filter, if the source does not run it.
    pub filter: Option<Rc<FilterHere>>,
    /// How long to wait for a revision that the source announced but does not deliver.
    pub missing_doc_retry: Duration,
    pub run_counters: Rc<RunCounters>,
    /// Documents counted as written by earlier runs, perhaps before the target was recreated.
    pub unproven_writes: u64,
    /// Notified of refused documents.
    pub refused: RefusalListener,
    /// Wasted fractions of `_revs_diff` and `_bulk_get`.
    pub averages: RefCell<Averages>,
    pub log: Logger,
}

/// See [`FailureAverage`].
#[derive(Debug)]
pub struct Averages {
    /// Of `_revs_diff`: revisions that turn out to be missing, without a known ancestor, count as wasted.
    pub(crate) revs_diff: FailureAverage,
    /// Of `_bulk_get`: documents that must be read separately anyway count as wasted.
    pub(crate) bulk_get: FailureAverage,
}

impl Default for Averages {
    fn default() -> Self {
        Self {
            revs_diff: FailureAverage::new(0.4, 0.95),
            bulk_get: FailureAverage::new(0.25, 0.5),
        }
    }
}

impl Worker {
    /// Replicates the documents of some changes.
    ///
    /// # Errors
    /// A crash, which ends the job; a later run completes the batch.
    pub async fn process(&self, rows: Vec<Row>) -> Result<(), Crash> {
        let wanted = self.missing(rows).await?;
        let (wanted, unnameable): (Vec<Wanted>, Vec<Wanted>) = wanted
            .into_iter()
            .partition(|wanted| inline::has_path(&wanted.id));
        let (design, plain): (Vec<Wanted>, Vec<Wanted>) = wanted
            .into_iter()
            .partition(|wanted| wanted.id.starts_with("_design/"));
        let mut batch = WriteBatch::default();
        self.read_inline(unnameable, &mut batch).await?;
        let mut put_off = self.read_single(self.singles(design), &mut batch).await?;
        let left = self.read_bulk(plain, &mut batch).await?;
        put_off.extend(self.read_single(self.singles(left), &mut batch).await?);
        self.flush(&mut batch).await?;
        while !put_off.is_empty() {
            put_off = self.read_single(put_off, &mut batch).await?;
            self.flush(&mut batch).await?;
        }
        Ok(())
    }

    fn singles(&self, wanted: Vec<Wanted>) -> Vec<Box<Single<'_>>> {
        wanted
            .into_iter()
            .map(|wanted| self.single(wanted))
            .collect()
    }

    /// Whether the target has accepted documents of this replication.
    fn has_written(&self) -> bool {
        self.run_counters.stats().docs_written > self.unproven_writes
    }

    /// Returns whether to replicate a document.
    async fn passes(&self, id: &str, document: &str) -> Result<bool, Crash> {
        let Some(filter) = &self.filter else {
            return Ok(true);
        };
        Ok(filter.passing(&[(id, document)]).await?.contains(&true))
    }

    /// Counts a revision that was read and passes the filter. With a filter, only these count as missing.
    fn count_read(&self) {
        self.run_counters.count(|stats| {
            stats.docs_read += 1;
            stats.missing_found += u64::from(self.filter.is_some());
        });
    }

    /// Reads documents individually, some concurrently. Documents not written immediately are put in the batch.
    /// Returns the documents to reread after others were written.
    async fn read_single<'a>(
        &self,
        singles: Vec<Box<Single<'a>>>,
        batch: &mut WriteBatch,
    ) -> Result<Vec<Box<Single<'a>>>, Crash> {
        let shared = Mutex::new(batch);
        let reads = singles
            .into_iter()
            .map(|single| self.read_one(single, &shared));
        let reads: Vec<Read<'a>> = stream::iter(reads)
            .buffer_unordered(self.reads.max(1))
            .try_collect()
            .await?;
        let (mut unnameable, mut put_off) = (Vec::new(), Vec::new());
        for read in reads {
            unnameable.extend(read.inline);
            put_off.extend(read.put_off);
        }
        self.read_inline(unnameable, shared.into_inner()).await?;
        Ok(put_off)
    }

    /// Reads a document. Other reads go on while a full batch is written, which may wait for a connection or a session
    /// that one of them holds.
    async fn read_one<'a>(
        &self,
        single: Box<Single<'a>>,
        batch: &Mutex<&mut WriteBatch>,
    ) -> Result<Read<'a>, Crash> {
        let mut read = single.run().await?;
        for document in std::mem::take(&mut read.texts) {
            self.add(&mut **batch.lock().await, document).await?;
        }
        Ok(read)
    }
}
