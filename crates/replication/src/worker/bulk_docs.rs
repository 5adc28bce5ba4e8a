//! Writes many documents with one request.
//!
//! SUMMARY   A [`WriteBatch`] collects documents; it is written when the next one would exceed [`BATCH_BYTES_MAX`], and
//!           at the end.
//! PROMISES  A batch that is too large for the target, or that is rejected because of one document, is split in
//!           halves down to that document, which is refused. Each refusal is reported with id and reason. Documents
//!           with an unclear result are rewritten as often as requests are retried; then the job ends. A document
//!           with an unknown error is refused only if the target accepts another document and repeats the error for
//!           this one alone.
//! SOURCE    `couch_replicator_worker:flush_docs`, `couch_replicator_api_wrap:update_docs`.
//! DIFFERS   In CouchDB, a batch is written once it has exceeded the limit, and a document with any error is refused
//!           at once.

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

/// Maximum bytes of documents in a request, unless a single document has more.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

const EXPECTATION_FAILED: StatusCode = StatusCode::EXPECTATION_FAILED;

/// Documents to write together, as JSON text.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteBatch {
    documents: Vec<String>,
    /// The total length with a comma for each, in bytes.
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

/// Returns the body of a request with these documents.
fn body(documents: &[String]) -> String {
    let documents = documents.join(",");
    format!(r#"{{"new_edits":false,"docs":[{documents}]}}"#)
}

/// Documents to write again, and the last answer that makes it necessary.
#[derive(Default)]
struct Unclear {
    documents: Vec<String>,
    why: Option<Answered>,
}

/// Facts about a batch's documents while it is being written.
struct Evidence {
    /// Whether the target has written a neighbour: another document of the batch; for a single document, an earlier
    /// one of the same replication.
    neighbour: bool,
    /// For each document that is refused if the target repeats its error: that error.
    said: FxHashMap<String, Outcome>,
}

impl Evidence {
    /// Returns the parts of a batch, the last to write first: once a neighbour has been written, documents that the
    /// target may refuse are written individually.
    fn parts(&self, documents: Vec<String>) -> Vec<Vec<String>> {
        let (alone, together): (Vec<String>, Vec<String>) = documents
            .into_iter()
            .partition(|document| self.neighbour && self.said.contains_key(document));
        alone
            .into_iter()
            .map(|document| vec![document])
            .chain([together])
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// Returns whether the document is refused because of this error. `is_alone`: the document was sent alone.
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
    /// Adds a document to the batch; writes a full batch first.
    pub(super) async fn add(&self, batch: &mut WriteBatch, document: String) -> Result<(), Crash> {
        if !batch.fits(&document) {
            self.flush(batch).await?;
        }
        batch.push(document);
        Ok(())
    }

    /// Writes and empties the batch.
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

    /// Writes documents once, in as many parts as needed. Returns those to rewrite.
    async fn write(
        &self,
        documents: Vec<String>,
        evidence: &mut Evidence,
    ) -> Result<Unclear, Crash> {
        let mut unclear = Unclear::default();
        // The next part to write is last.
        let mut parts = evidence.parts(documents);
        while let Some(mut part) = parts.pop() {
            let body = body(&part);
            let bytes = body.len();
            let request = Request::post("_bulk_docs").no_full_commit().json(body);
            let reply = self.target.request(request).await?;
            self.run_counters.count_bytes(bytes);
            let spoiled = verdict::of_batch(&reply);
            let too_large = reply.status == StatusCode::PAYLOAD_TOO_LARGE;
            match reply.status {
                _ if (too_large || spoiled.is_some()) && part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                _ if too_large => {
                    self.refuse_text(
                        &part[0],
                        "too_large",
                        "the target takes no document of this size",
                    );
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

    /// Handles the target's result for each document.
    fn written(
        &self,
        reply: &Reply,
        part: Vec<String>,
        evidence: &mut Evidence,
        unclear: &mut Unclear,
    ) {
        // With 417, unnamed documents were not written.
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
                let id = DocMeta::read(document.as_bytes())
                    .map(|meta| meta.id.into_owned())
                    .unwrap_or_default();
                let said = format!("document '{id}': {error}: {reason}");
                let code = reply.status.as_u16();
                unclear.why = Some(Answered {
                    is_full: entry.is_of_full_disk(),
                    doc: Some((id, self.target.excerpt(error))),
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
            rev: meta.map(|meta| meta.rev.into_owned()),
            error: error.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Counts and reports a skipped document.
    pub(super) fn refuse(&self, mut doc: RefusedDoc) {
        // The target's text may repeat parts of the request.
        doc.error = self.target.excerpt(&doc.error);
        doc.reason = self.target.excerpt(&doc.reason);
        self.run_counters
            .count(|stats| stats.doc_write_failures += 1);
        (self.refused)(doc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_request_lists_its_documents() {
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
    fn a_batch_exceeds_its_limit_only_with_a_single_document() {
        let half = "x".repeat(BATCH_BYTES_MAX / 2);
        let mut batch = WriteBatch::default();
        assert!(batch.fits(&half));
        batch.push(half.clone());
        assert!(!batch.fits(&half), "the comma is one byte too many");
        assert!(batch.fits(&half[1..]));
        assert!(WriteBatch::default().fits(&"x".repeat(BATCH_BYTES_MAX * 2)));
    }
}
