//! Writes many documents with one request.
//!
//! SUMMARY   A [`WriteBatch`] collects texts of documents; it is written when the next one does not
//!           fit [`BATCH_BYTES_MAX`] any more, and at the end.
//! PROMISES  A batch that is too large for the target is halved until it is not, or is one
//!           document, which is refused. What the target refuses is told with id and reason.
//! SOURCE    `couch_replicator_worker:flush_docs`, `couch_replicator_api_wrap:update_docs`.
//! DIFFERS   There, a batch is written when it has become longer than the limit.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Worker;
use super::document::Look;
use crate::replication::crash::{Answered, Crash, shown};
use crate::replication::endpoint::{HeaderName, HeaderValue, Reply, Request, StatusCode};
use crate::replication::refused::RefusedDoc;

/// The most bytes of documents in a request, unless one document alone has more.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

const OPEN: &[u8] = b"{\"new_edits\":false,\"docs\":[";
const CLOSE: &[u8] = b"]}";
const EXPECTATION_FAILED: StatusCode = StatusCode::EXPECTATION_FAILED;

/// Documents that are to be written together.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
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
    fn body(&self, documents: Range<usize>) -> Bytes {
        let places = &self.places[documents];
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return [OPEN, CLOSE].concat().into();
        };
        let text = &self.text[first.start..last.end];
        [OPEN, text, CLOSE].concat().into()
    }

    fn document(&self, index: usize) -> &[u8] {
        &self.text[self.places[index].clone()]
    }
}

/// What the target says of a document.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    rev: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reason: Option<&'a RawValue>,
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
        // The first part that is to be written is last.
        let mut parts: Vec<Range<usize>> = std::iter::once(0..batch.places.len()).collect();
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let reply = self.bulk_docs(batch.body(part.clone())).await?;
            match reply.status {
                StatusCode::PAYLOAD_TOO_LARGE if part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                StatusCode::PAYLOAD_TOO_LARGE => self.too_large(batch.document(part.start)),
                StatusCode::OK
                | StatusCode::CREATED
                | StatusCode::ACCEPTED
                | EXPECTATION_FAILED => {
                    self.written(&reply, part.len())?;
                }
                _ => return Err(failed(&reply)),
            }
        }
        batch.text.clear();
        batch.places.clear();
        Ok(())
    }

    async fn bulk_docs(&self, body: Bytes) -> Result<Reply, Crash> {
        let bytes = body.len();
        let request = Request::post("_bulk_docs")
            .header(FULL_COMMIT, HeaderValue::from_static("false"))
            .json(body);
        let reply = self.target.request(request).await?;
        self.tally.count_bytes(bytes);
        Ok(reply)
    }

    /// Failures are listed; what is not is written.
    fn written(&self, reply: &Reply, count: usize) -> Result<(), Crash> {
        let entries: Vec<Written<'_>> =
            serde_json::from_slice(&reply.body).map_err(|_| failed(reply))?;
        let mut refused = 0;
        for entry in entries {
            let Some(error) = entry.error else {
                continue;
            };
            refused += 1;
            self.refuse(RefusedDoc {
                id: entry.id.into_owned(),
                rev: entry.rev.map(Cow::into_owned),
                error: text_of(Some(error)),
                reason: text_of(entry.reason),
            });
        }
        let written = count.saturating_sub(refused);
        self.tally
            .count(|stats| stats.docs_written += written as u64);
        Ok(())
    }

    fn too_large(&self, document: &[u8]) {
        let look = Look::at(document);
        self.refuse(RefusedDoc {
            id: look
                .as_ref()
                .map_or_else(String::new, |look| look.id.clone().into_owned()),
            rev: look.and_then(|look| look.rev).map(Cow::into_owned),
            error: "too_large".to_owned(),
            reason: "the target takes no document of this size".to_owned(),
        });
    }

    /// Counts a document that is passed over, and tells of it.
    pub(super) fn refuse(&self, doc: RefusedDoc) {
        self.tally.count(|stats| stats.doc_write_failures += 1);
        self.refused.tell(doc);
    }
}

/// Asks old servers not to wait for their disks with each request.
pub(super) const FULL_COMMIT: HeaderName = HeaderName::from_static("x-couch-full-commit");

fn failed(reply: &Reply) -> Crash {
    Crash::BulkDocsFailed(Answered::new(reply.status.as_u16(), &reply.body))
}

/// A text without its quotes, anything else as JSON.
fn text_of(raw: Option<&RawValue>) -> String {
    let Some(raw) = raw else {
        return String::new();
    };
    let text = serde_json::from_str(raw.get());
    text.unwrap_or_else(|_| shown(raw.get().as_bytes()))
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
        let body = |part| String::from_utf8(batch.body(part).to_vec()).unwrap();
        assert_eq!(
            body(0..3),
            "{\"new_edits\":false,\"docs\":[{\"a\":1},{\"b\":2},{\"c\":3}]}"
        );
        assert_eq!(
            body(1..3),
            "{\"new_edits\":false,\"docs\":[{\"b\":2},{\"c\":3}]}"
        );
        assert_eq!(body(1..2), "{\"new_edits\":false,\"docs\":[{\"b\":2}]}");
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
