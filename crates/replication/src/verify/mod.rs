//! Verifies that a target has everything that a replication should have written.
//!
//! SUMMARY   [`Verifier::run`] reads the source's feed as the replication does, queries the target for missing leaf
//!           revisions, and compares the attachments of the others ([`attachments`]). Missing revisions are checked
//!           again at the end ([`again`]) before they are reported.
//! PROMISES  Writes nothing. Memory is bounded by [`BATCHES`] batches and [`SUSPECTS_MAX`] revisions, whatever the
//!           size of the databases. Reports are not retracted.
//! LIMITS    Additional data at the target is not a difference. Equal revisions count as equal documents: bodies are
//!           not compared.

mod again;
mod attachments;
mod difference;
mod reading;

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use slog::Logger;

use crate::changes::feed::{Change, Row};
use crate::changes::query::FeedQuery;
use crate::changes::queue::{Consumer, QueueLimits, bounded};
use crate::changes::reader::ChangesReader;
use crate::counters::RunCounters;
use crate::crash::Crash;
use crate::endpoint::Endpoint;
use crate::filter::FilterHere;
use crate::refused::RefusedDoc;
use crate::seq::Seq;
use crate::spec::Options;
use crate::worker::missing::{Wanted, by_document, revisions, revs_diff};
pub use difference::Difference;
use reading::{Reader, chunks};

/// Number of batches of the feed that are compared concurrently.
const BATCHES: usize = 4;

/// Once this many missing revisions await a later check, all of them are rechecked.
const SUSPECTS_MAX: usize = 10_000;

/// A leaf revision of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Leaf {
    pub id: String,
    pub rev: String,
}

pub struct Verifier {
    pub source: Endpoint,
    pub target: Endpoint,
    /// The replication's options, which select documents and tune requests.
    pub options: Options,
    /// The filter, if the source does not run it.
    pub filter: Option<FilterHere>,
    /// Documents with longer ids, in bytes, are not replicated.
    pub id_max: Option<usize>,
    /// Whether the bytes of attachments are compared.
    pub deep: bool,
    /// The sequence to start at in the source's feed.
    pub since: Seq,
    /// Missing revisions from before `since` that still have to be checked again.
    pub suspects: Vec<Leaf>,
    /// Documents that the target is known to refuse.
    pub refused: Vec<RefusedDoc>,
    pub log: Logger,
}

/// Counts since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Leaf revisions of the feed.
    pub revisions: u64,
    /// Of these, missing at the target but rejected by the filter that Settee runs.
    pub filtered: u64,
    /// Of these, replaced or purged during the comparison.
    pub changed: u64,
    /// Attachments whose names and lengths were compared.
    pub attachments: u64,
    /// Bytes of attachments read from each side.
    pub bytes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.revisions += more.revisions;
        self.filtered += more.filtered;
        self.changed += more.changed;
        self.attachments += more.attachments;
        self.bytes += more.bytes;
    }
}

/// The result of one step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    /// The sequence up to which everything was compared; `None` if this step rechecked the suspects so far.
    pub through: Option<Seq>,
    pub counts: Counts,
    pub differences: Vec<Difference>,
    /// Missing revisions that will be checked again.
    pub suspects: Vec<Leaf>,
}

/// A comparison under way.
struct Comparison {
    source: Reader,
    target: Reader,
    filter: Option<FilterHere>,
    retries: u32,
    deep: bool,
    refused: FxHashMap<(String, Option<String>), RefusedDoc>,
}

impl Verifier {
    /// Compares everything. `tell` is called with each step, in the order of the source's feed, and may end the run.
    ///
    /// # Errors
    /// A database does not answer, or answers wrongly; earlier reports remain valid.
    pub async fn run(self, mut tell: impl FnMut(Step) -> ControlFlow<()>) -> Result<(), Crash> {
        let options = Options {
            continuous: false,
            ..self.options
        };
        let (workers, batch) = (BATCHES, options.tuning.worker_batch_size.max(1) as usize);
        let (producer, consumer) = bounded(QueueLimits::of(workers, batch));
        let skipped: Rc<RefCell<Vec<Difference>>> = Rc::default();
        let listener = Rc::clone(&skipped);
        let changes = ChangesReader {
            source: self.source.clone(),
            query: FeedQuery::new(&options),
            since: self.since,
            skipped: false,
            retries: options.tuning.retries_per_request,
            id_max: self.id_max,
            run_counters: Rc::new(RunCounters::default()),
            refused: Rc::new(move |doc| listener.borrow_mut().push(Difference::Refused(doc))),
            subscription: None,
            log: self.log,
        };
        let key = |doc: &RefusedDoc| (doc.id.clone(), doc.rev.clone());
        let comparison = Comparison {
            source: Reader::new(self.source, options.tuning.use_bulk_get),
            target: Reader::new(self.target, options.tuning.use_bulk_get),
            filter: self.filter,
            retries: options.tuning.retries_per_request,
            deep: self.deep,
            refused: self
                .refused
                .into_iter()
                .map(|doc| (key(&doc), doc))
                .collect(),
        };
        let told = |mut step: Step| {
            step.differences.append(&mut skipped.borrow_mut());
            tell(step)
        };
        let comparing = comparison.compare(&consumer, batch, self.suspects, told);
        let reading = changes.run(producer);
        let mut comparing = std::pin::pin!(comparing);
        tokio::select! {
            read = reading => read?,
            compared = &mut comparing => return compared,
        }
        comparing.await
    }
}

impl Comparison {
    async fn compare(
        &self,
        changes: &Consumer,
        batch: usize,
        mut suspects: Vec<Leaf>,
        mut tell: impl FnMut(Step) -> ControlFlow<()>,
    ) -> Result<(), Crash> {
        let count = Cell::new(suspects.len());
        loop {
            let batches = stream::unfold((), |()| async {
                if count.get() >= SUSPECTS_MAX {
                    return None;
                }
                let rows = next_batch(changes, batch).await;
                (!rows.is_empty()).then_some((rows, ()))
            });
            let steps = batches.map(|rows| self.step(rows)).buffered(BATCHES);
            let mut steps = std::pin::pin!(steps);
            while let Some(step) = steps.try_next().await? {
                suspects.extend(step.suspects.iter().cloned());
                count.set(suspects.len());
                if tell(step).is_break() {
                    return Ok(());
                }
            }
            // No step is under way, so none holds a connection that the recheck needs. Even without suspects, it
            // reports what the feed's reader skipped last.
            let is_last = count.replace(0) < SUSPECTS_MAX;
            let recheck = self.look_again(std::mem::take(&mut suspects)).await?;
            if tell(recheck).is_break() || is_last {
                return Ok(());
            }
        }
    }

    /// Compares the revisions in some rows of the feed.
    async fn step(&self, rows: Vec<Row>) -> Result<Step, Crash> {
        let mut step = Step {
            through: rows.last().map(|row| row.seq.clone()),
            ..Step::default()
        };
        let asked = by_document(rows);
        step.counts.revisions = revisions(&asked) as u64;
        if asked.is_empty() {
            return Ok(step);
        }
        let (missing, _) = revs_diff(&self.target.database, asked.clone()).await?;
        let present = without(asked, &missing);
        self.attachments(present, &mut step).await?;
        step.suspects = match &self.filter {
            None => missing.into_iter().flat_map(leaves).collect(),
            Some(filter) => self.passing(filter, missing, &mut step.counts).await?,
        };
        Ok(step)
    }

    /// Returns the missing revisions that pass the filter.
    async fn passing(
        &self,
        filter: &FilterHere,
        missing: Vec<Wanted>,
        counts: &mut Counts,
    ) -> Result<Vec<Leaf>, Crash> {
        let mut passing = Vec::new();
        for chunk in chunks(missing) {
            let asked = revisions(&chunk) as u64;
            let mut seen = self.source.read(chunk, true).await?;
            seen.retain(|leaf, seen| seen.rev == leaf.rev);
            counts.changed += asked - seen.len() as u64;
            let with_text = seen.iter().map(|(leaf, seen)| (&*leaf.id, &*seen.text));
            let verdicts = filter.passing(&with_text.collect::<Vec<_>>()).await?;
            let before = passing.len();
            let passes = seen.keys().zip(verdicts).filter(|(_, passes)| *passes);
            passing.extend(passes.map(|(leaf, _)| leaf.clone()));
            counts.filtered += (seen.len() + before - passing.len()) as u64;
        }
        passing.sort_unstable();
        Ok(passing)
    }
}

/// Waits for a whole batch of rows. The last batch may be shorter; after it, batches are empty.
async fn next_batch(changes: &Consumer, size: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    while rows.len() < size {
        let more = changes.take(size - rows.len()).await;
        if more.is_empty() {
            break;
        }
        rows.extend(more.into_iter().filter_map(Change::into_row));
    }
    rows
}

/// Returns the queried revisions that are not missing; both lists have the same order of documents.
fn without(mut asked: Vec<Wanted>, missing: &[Wanted]) -> Vec<Wanted> {
    let mut missing = missing.iter().peekable();
    asked.retain_mut(|wanted| {
        if let Some(missing) = missing.next_if(|missing| missing.id == wanted.id) {
            let revs: FxHashSet<&String> = missing.revs.iter().collect();
            wanted.revs.retain(|rev| !revs.contains(rev));
        }
        !wanted.revs.is_empty()
    });
    asked
}

fn leaves(Wanted { id, revs, .. }: Wanted) -> impl Iterator<Item = Leaf> {
    revs.into_iter().map(move |rev| Leaf {
        id: id.clone(),
        rev,
    })
}

#[cfg(test)]
mod tests;
