//! Writes many documents with one request.
//!
//! SUMMARY   A [`WriteBatch`] collects texts of documents; it is written when the next one no longer
//!           fits [`BATCH_BYTES_MAX`], and at the end.
//! PROMISES  A batch that is too large for the target, or that one document spoils, is halved down to
//!           that one document, which is refused. Each refusal is reported with id and reason. Documents of
//!           which the answer says neither are written again, as often as requests are tried; then the job
//!           ends. An error whose meaning is not known refuses a document on evidence: the target takes a
//!           neighbour, and says the same of the document again when it is written by itself.
//! SOURCE    `couch_replicator_worker:flush_docs`, `couch_replicator_api_wrap:update_docs`.
//! DIFFERS   There, a batch is written when it has become longer than the limit, and each error of a
//!           document refuses it at once.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use slog::warn;
use tokio::time::{Instant, sleep};

use super::Worker;
use super::document::DocMeta;
use super::entries;
use super::verdict::{self, Outcome, Verdict};
use crate::counters::Counter;
use crate::crash::{Answered, Crash};
use crate::endpoint::{Reply, Request, StatusCode};
use crate::refused::RefusedDoc;

/// The most bytes of documents in a request, unless one document alone has more.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

const EXPECTATION_FAILED: StatusCode = StatusCode::EXPECTATION_FAILED;

/// The texts of documents that are to be written together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteBatch {
    documents: Vec<String>,
    /// The bytes of all of them, each with a comma.
    bytes: usize,
}

impl WriteBatch {
    fn push(&mut self, document: String) {
        self.bytes += document.len() + 1;
        self.documents.push(document);
    }

    fn fits(&self, document: &str) -> bool {
        self.documents.is_empty() || self.bytes + document.len() <= BATCH_BYTES_MAX
    }
}

/// Returns the body of a request that writes these documents.
fn body(documents: &[String]) -> String {
    [
        "{\"new_edits\":false,\"docs\":[",
        &documents.join(","),
        "]}",
    ]
    .concat()
}

/// Documents of which an answer does not say what became of them, and the last such answer.
#[derive(Default)]
struct Unclear {
    documents: Vec<String>,
    why: Option<Answered>,
}

/// What is known of the documents of a batch while it is written.
struct Evidence {
    /// The target has written a neighbour: another document of the batch; of a lone document, an earlier one of the
    /// same replication.
    neighbour: bool,
    /// What the target last said of documents that it refuses if it says it again.
    said: FxHashMap<String, Outcome>,
}

impl Evidence {
    /// Returns the parts of a batch, the last one to be written first: once a neighbour was written, documents
    /// that the target may refuse are written one by one.
    fn parts(&self, documents: Vec<String>) -> Vec<Vec<String>> {
        let (alone, together): (Vec<String>, Vec<String>) = documents
            .into_iter()
            .partition(|document| self.neighbour && self.said.contains_key(document));
        let alone = alone.into_iter().map(|document| vec![document]);
        let parts = alone.chain([together]);
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Returns whether the target has refused the document, now that it says this of it. `is_alone` if it said so
    /// of nothing else.
    fn is_refused(&mut self, document: &str, said: &Outcome, is_alone: bool) -> bool {
        match said.verdict {
            Verdict::Refused => true,
            Verdict::RefusedIfRepeated => {
                let before = self.said.insert(document.to_owned(), said.clone());
                is_alone && self.neighbour && before.as_ref() == Some(said)
            }
            _ => {
                self.said.remove(document);
                false
            }
        }
    }
}

impl Worker {
    /// Puts a document in the batch, which is written first if it is full.
    pub(super) async fn add(&self, batch: &mut WriteBatch, document: String) -> Result<(), Crash> {
        if !batch.fits(&document) {
            self.flush(batch).await?;
        }
        batch.push(document);
        Ok(())
    }

    /// Writes the batch, and empties it.
    pub(super) async fn flush(&self, batch: &mut WriteBatch) -> Result<(), Crash> {
        let mut retries = self.target.retries(self.retries);
        let mut documents = std::mem::take(batch).documents;
        let mut evidence = Evidence {
            neighbour: documents.len() == 1 && self.has_written(),
            said: FxHashMap::default(),
        };
        while !documents.is_empty() {
            let unclear = self.write(documents, &mut evidence).await?;
            documents = unclear.documents;
            if let Some(why) = unclear.why {
                let Some(wait) = retries.next(Instant::now()) else {
                    return Err(Crash::BulkDocsFailed(why));
                };
                warn!(self.log, "documents are written again";
                    "count" => documents.len(), "error" => %why);
                sleep(wait).await;
            }
        }
        Ok(())
    }

    /// Writes documents once, in as many parts as it takes. Returns those that are to be written again.
    async fn write(
        &self,
        documents: Vec<String>,
        evidence: &mut Evidence,
    ) -> Result<Unclear, Crash> {
        let mut unclear = Unclear::default();
        // The first part that is to be written is last.
        let mut parts = evidence.parts(documents);
        while let Some(mut part) = parts.pop() {
            let reply = self.bulk_docs(body(&part)).await?;
            let spoiled = verdict::of_batch(&reply);
            let too_large = reply.status == StatusCode::PAYLOAD_TOO_LARGE;
            match reply.status {
                _ if (too_large || spoiled.is_some()) && part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                _ if too_large => {
                    let reason = "the target takes no document of this size";
                    self.refuse_text(&part[0], "too_large", reason);
                }
                StatusCode::OK
                | StatusCode::CREATED
                | StatusCode::ACCEPTED
                | EXPECTATION_FAILED => self.written(&reply, part, evidence, &mut unclear),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
                    if !self.target.is_let_in(&reply).await? =>
                {
                    unclear.documents.append(&mut part);
                    unclear.why = Some(Answered::of(&reply));
                }
                _ => match spoiled {
                    Some((error, reason)) => self.refuse_text(&part[0], &error, &reason),
                    None => return Err(Crash::BulkDocsFailed(Answered::of(&reply))),
                },
            }
        }
        Ok(unclear)
    }

    async fn bulk_docs(&self, body: String) -> Result<Reply, Crash> {
        let bytes = body.len();
        let request = Request::post("_bulk_docs").no_full_commit().json(body);
        let reply = self.target.request(request).await?;
        self.run_counters.count_bytes(bytes);
        Ok(reply)
    }

    /// Sorts out what the target says of each document.
    fn written(
        &self,
        reply: &Reply,
        part: Vec<String>,
        evidence: &mut Evidence,
        unclear: &mut Unclear,
    ) {
        // With 417, what is not named was not written.
        let aborted = reply.status == EXPECTATION_FAILED;
        let Some(verdicts) = entries::verdicts(&reply.body, &part, aborted) else {
            unclear.documents.extend(part);
            unclear.why = Some(Answered::of(reply));
            return;
        };
        let is_alone = part.len() == 1;
        let mut written = 0;
        for (document, entry) in part.into_iter().zip(verdicts) {
            let (error, reason) = (&*entry.error, &*entry.reason);
            if entry.verdict == Verdict::Written {
                written += 1;
            } else if evidence.is_refused(&document, &entry, is_alone) {
                self.refuse_text(&document, error, reason);
            } else {
                let meta = DocMeta::read(document.as_bytes());
                let id = meta.map(|meta| meta.id.into_owned()).unwrap_or_default();
                let said = format!("document '{id}': {error}: {reason}");
                let code = reply.status.as_u16();
                unclear.why = Some(Answered {
                    is_full: entry.is_of_full_disk(),
                    doc: Some((id, self.target.redacted(error))),
                    ..Answered::new(&reply.asked, code, said.as_bytes())
                });
                unclear.documents.push(document);
            }
        }
        evidence.neighbour |= written > 0;
        self.run_counters
            .count(|stats| stats.docs_written += written);
        self.target.add(Counter::DocsWritten, written);
    }

    fn refuse_text(&self, document: &str, error: &str, reason: &str) {
        let meta = DocMeta::read(document.as_bytes());
        let id = meta.as_ref().map(|meta| meta.id.clone().into_owned());
        self.refuse(RefusedDoc {
            id: id.unwrap_or_default(),
            rev: meta.and_then(|meta| meta.rev).map(Cow::into_owned),
            error: error.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Counts and reports a skipped document.
    pub(super) fn refuse(&self, mut doc: RefusedDoc) {
        // The target's text may repeat what it was sent.
        doc.error = self.target.redacted(&doc.error);
        doc.reason = self.target.redacted(&doc.reason);
        self.run_counters
            .count(|stats| stats.doc_write_failures += 1);
        (self.refused)(doc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_written_whole_or_in_parts() {
        let documents = ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"].map(str::to_owned);
        assert_eq!(
            body(&documents),
            "{\"new_edits\":false,\"docs\":[{\"a\":1},{\"b\":2},{\"c\":3}]}"
        );
        assert_eq!(
            body(&documents[1..]),
            "{\"new_edits\":false,\"docs\":[{\"b\":2},{\"c\":3}]}"
        );
        assert_eq!(
            body(&documents[1..2]),
            "{\"new_edits\":false,\"docs\":[{\"b\":2}]}"
        );
    }

    #[test]
    fn a_batch_never_grows_beyond_its_limit() {
        let half = "x".repeat(BATCH_BYTES_MAX / 2);
        let mut batch = WriteBatch::default();
        assert!(batch.fits(&half));
        batch.push(half.clone());
        assert!(!batch.fits(&half), "the comma is one byte too many");
        assert!(batch.fits(&half[1..]));
        assert!(WriteBatch::default().fits(&"x".repeat(BATCH_BYTES_MAX * 2)));
    }
}
