//! Writes many documents with one request.
//!
//! SUMMARY   A [`WriteBatch`] collects texts of documents; it is written when the next one does not
//!           fit [`BATCH_BYTES_MAX`] any more, and at the end.
//! PROMISES  A batch that is too large for the target, or that one document spoils, is halved until it is
//!           not, or is one document, which is refused. What the target refuses is told with id and
//!           reason. What it did not say to be written or refused is written again, as often as requests
//!           are tried, and then ends the job.
//! SOURCE    `couch_replicator_worker:flush_docs`, `couch_replicator_api_wrap:update_docs`.
//! DIFFERS   There, a batch is written when it has become longer than the limit, and each error of a
//!           document refuses it.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use slog::warn;
use tokio::time::{Instant, sleep};

use super::Worker;
use super::document::DocMeta;
use super::entries;
use super::verdict::{self, Verdict};
use crate::crash::{Answered, Crash};
use crate::endpoint::{Reply, Request, StatusCode};
use crate::refused::RefusedDoc;

/// The most bytes of documents in a request, unless one document alone has more.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

const OPEN: &[u8] = b"{\"new_edits\":false,\"docs\":[";
const CLOSE: &[u8] = b"]}";
const EXPECTATION_FAILED: StatusCode = StatusCode::EXPECTATION_FAILED;

/// Documents that are to be written together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteBatch {
    /// The documents with commas between.
    text: Vec<u8>,
    /// Where each is in it.
    places: Vec<Range<usize>>,
}

impl WriteBatch {
    fn push(&mut self, document: &[u8]) {
        if !self.places.is_empty() {
            self.text.push(b',');
        }
        let start = self.text.len();
        self.text.extend_from_slice(document);
        self.places.push(start..self.text.len());
    }

    fn fits(&self, document: &[u8]) -> bool {
        self.places.is_empty() || self.text.len() + 1 + document.len() <= BATCH_BYTES_MAX
    }

    /// The body of the request for some of the documents.
    fn body(&self, documents: &[usize]) -> Bytes {
        let length = documents
            .iter()
            .map(|index| self.places[*index].len() + 1)
            .sum::<usize>();
        let mut body = Vec::with_capacity(OPEN.len() + length + CLOSE.len());
        body.extend_from_slice(OPEN);
        for (nth, index) in documents.iter().enumerate() {
            if nth > 0 {
                body.push(b',');
            }
            body.extend_from_slice(self.document(*index));
        }
        body.extend_from_slice(CLOSE);
        body.into()
    }

    fn document(&self, index: usize) -> &[u8] {
        &self.text[self.places[index].clone()]
    }
}

/// Documents of which the target did not say what became of them, and what it said last.
#[derive(Default)]
struct Unclear {
    documents: Vec<usize>,
    why: Option<Answered>,
}

impl Worker {
    /// Puts a document in the batch, which is written first if it is full.
    pub(super) async fn add(&self, batch: &mut WriteBatch, document: &str) -> Result<(), Crash> {
        if !batch.fits(document.as_bytes()) {
            self.flush(batch).await?;
        }
        batch.push(document.as_bytes());
        Ok(())
    }

    /// Writes the batch, and empties it.
    pub(super) async fn flush(&self, batch: &mut WriteBatch) -> Result<(), Crash> {
        let mut retries = self.target.retries(self.retries);
        let mut documents: Vec<usize> = (0..batch.places.len()).collect();
        while !documents.is_empty() {
            let Unclear {
                documents: left,
                why,
            } = self.write(batch, documents).await?;
            documents = left;
            if let Some(why) = why.filter(|_| !documents.is_empty()) {
                let Some(wait) = retries.next(Instant::now()) else {
                    return Err(Crash::BulkDocsFailed(why));
                };
                warn!(self.log, "documents are written again";
                    "count" => documents.len(), "error" => %why);
                sleep(wait).await;
            }
        }
        batch.text.clear();
        batch.places.clear();
        Ok(())
    }

    /// Writes documents once, in as many parts as it takes. Returns those that are to be written again.
    async fn write(&self, batch: &WriteBatch, documents: Vec<usize>) -> Result<Unclear, Crash> {
        let mut unclear = Unclear::default();
        // The first part that is to be written is last.
        let mut parts = vec![documents];
        while let Some(mut part) = parts.pop() {
            let reply = self.bulk_docs(batch.body(&part)).await?;
            let spoiled = verdict::of_batch(&reply);
            let too_large = reply.status == StatusCode::PAYLOAD_TOO_LARGE;
            match reply.status {
                _ if (too_large || spoiled.is_some()) && part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                _ if too_large => {
                    let reason = "the target takes no document of this size";
                    self.refuse_text(batch.document(part[0]), "too_large", reason);
                }
                StatusCode::OK
                | StatusCode::CREATED
                | StatusCode::ACCEPTED
                | EXPECTATION_FAILED => self.written(&reply, batch, &part, &mut unclear),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
                    if !self.target.is_let_in(&reply).await? =>
                {
                    unclear.documents.append(&mut part);
                    unclear.why = Some(Answered::of(&reply));
                }
                _ => match spoiled {
                    Some((error, reason)) => {
                        self.refuse_text(batch.document(part[0]), &error, &reason);
                    }
                    None => return Err(Crash::BulkDocsFailed(Answered::of(&reply))),
                },
            }
        }
        Ok(unclear)
    }

    async fn bulk_docs(&self, body: Bytes) -> Result<Reply, Crash> {
        let bytes = body.len();
        let request = Request::post("_bulk_docs").no_full_commit().json(body);
        let reply = self.target.request(request).await?;
        self.run_counters.count_bytes(bytes);
        Ok(reply)
    }

    /// Sorts out what the target says of each document.
    fn written(&self, reply: &Reply, batch: &WriteBatch, part: &[usize], unclear: &mut Unclear) {
        let documents: Vec<&[u8]> = part.iter().map(|index| batch.document(*index)).collect();
        // With 417, what is not named was not written.
        let aborted = reply.status == EXPECTATION_FAILED;
        let Some(verdicts) = entries::verdicts(&reply.body, &documents, aborted) else {
            unclear.documents.extend_from_slice(part);
            unclear.why = Some(Answered::of(reply));
            return;
        };
        let mut written = 0;
        for ((index, document), entry) in part.iter().zip(documents).zip(verdicts) {
            let (error, reason) = (&*entry.error, &*entry.reason);
            match entry.verdict {
                Verdict::Written => written += 1,
                Verdict::Refused => self.refuse_text(document, error, reason),
                _ => {
                    unclear.documents.push(*index);
                    let id = DocMeta::read(document).map(|meta| meta.id.into_owned());
                    let said = format!("document '{}': {error}: {reason}", id.unwrap_or_default());
                    let code = reply.status.as_u16();
                    unclear.why = Some(Answered::new(&reply.asked, code, said.as_bytes()));
                }
            }
        }
        self.run_counters
            .count(|stats| stats.docs_written += written);
    }

    fn refuse_text(&self, document: &[u8], error: &str, reason: &str) {
        let meta = DocMeta::read(document);
        let id = meta.as_ref().map(|meta| meta.id.clone().into_owned());
        self.refuse(RefusedDoc {
            id: id.unwrap_or_default(),
            rev: meta.and_then(|meta| meta.rev).map(Cow::into_owned),
            error: error.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Counts a document that is passed over, and tells of it.
    pub(super) fn refuse(&self, mut doc: RefusedDoc) {
        // In the target's words, which may repeat what it was sent.
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

    fn batch(documents: &[&str]) -> WriteBatch {
        let mut batch = WriteBatch::default();
        for document in documents {
            assert!(batch.fits(document.as_bytes()));
            batch.push(document.as_bytes());
        }
        batch
    }

    #[test]
    fn a_batch_is_written_whole_or_in_parts() {
        let batch = batch(&["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        let body = |part: &[usize]| String::from_utf8(batch.body(part).to_vec()).unwrap();
        assert_eq!(
            body(&[0, 1, 2]),
            "{\"new_edits\":false,\"docs\":[{\"a\":1},{\"b\":2},{\"c\":3}]}"
        );
        assert_eq!(
            body(&[1, 2]),
            "{\"new_edits\":false,\"docs\":[{\"b\":2},{\"c\":3}]}"
        );
        assert_eq!(body(&[1]), "{\"new_edits\":false,\"docs\":[{\"b\":2}]}");
        assert_eq!(batch.document(2), b"{\"c\":3}");
    }

    #[test]
    fn a_batch_never_grows_beyond_its_limit() {
        let half = vec![b'x'; BATCH_BYTES_MAX / 2];
        let mut batch = WriteBatch::default();
        batch.push(&half);
        assert!(!batch.fits(&half), "the comma is one byte too many");
        assert!(batch.fits(&half[1..]));
        assert!(WriteBatch::default().fits(&vec![b'x'; BATCH_BYTES_MAX * 2]));
    }
}
