//! Writes one document individually, streaming its attachments.
//!
//! SUMMARY   [`Worker::put`] writes a document's text, [`Worker::put_with`] also its attachments, while they are
//!           still being read.
//! PROMISES  Only a few pieces of an attachment are in memory, regardless of its size. The request's length is sent
//!           first; if attachments turn out longer or shorter, the request is aborted, and nothing is stored.
//! DIFFERS   A success must be confirmed in its body, and a refusal must be about the document: CouchDB only checks
//!           the status.
//! SOURCE    `couch_replicator_api_wrap:update_doc` and `couch_replicator_worker`: which answers skip a document, and
//!           which end the job.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;

use super::Worker;
use super::document::DocMeta;
use super::failed::DocFailed;
use super::verdict::{self, Verdict};
use crate::counters::Counter;
use crate::crash::Crash;
use crate::endpoint::{
    BodyFailed, Chunks, HeaderValue, Reply, Request, RequestBody, StatusCode, encode_doc_id,
};
use crate::multipart::writer::{Following, Layout};
use crate::refused::RefusedDoc;

/// Maximum pieces of attachments waiting to be sent.
const PIECES_MAX: usize = 4;

/// Reads attachments, one after the other.
pub(super) trait Attachments {
    /// Advances to the next attachment, which must be `attachment`, and returns its bytes.
    async fn next(&mut self, attachment: &Following) -> Result<impl Chunks, DocFailed>;
}

impl Worker {
    /// Writes a document's text.
    pub(super) async fn put(&self, document: &str, meta: &DocMeta<'_>) -> Result<(), DocFailed> {
        let body = Bytes::copy_from_slice(document.as_bytes());
        self.run_counters.count_bytes(body.len());
        // A retry repeats the read as well, so the write is not retried on its own.
        let request = put_request(meta).retries(0).json(body);
        let reply = self.target.request(request).await?;
        self.judge(&reply, meta).await
    }

    /// Writes a document with its attachments.
    pub(super) async fn put_with(
        &self,
        document: &str,
        meta: &DocMeta<'_>,
        following: &[Following],
        source: impl Attachments,
    ) -> Result<(), DocFailed> {
        let boundary = boundary()?;
        let layout = Layout::new(&boundary, document, following);
        let (pieces, waiting) = mpsc::channel(PIECES_MAX);
        let body = stream::unfold(waiting, |mut waiting: mpsc::Receiver<_>| async move {
            waiting.recv().await.map(|piece| (piece, waiting))
        });
        let content_type = format!("multipart/related; boundary=\"{boundary}\"");
        let content_type = HeaderValue::from_str(&content_type)
            .map_err(|_| DocFailed::Retry("no content type".to_owned()))?;
        let request = put_request(meta)
            .header(reqwest::header::CONTENT_TYPE, content_type)
            .body(RequestBody::Stream {
                length: layout.length,
                stream: body.boxed(),
            });
        let mut sending = std::pin::pin!(self.target.request(request));
        let mut reading = std::pin::pin!(async {
            let passed = self.pass_on(&layout, following, source, &pieces).await;
            if let Err(failed) = &passed {
                // The target must not mistake the data sent so far for the whole document.
                let why = BodyFailed::Broken(failed.to_string());
                drop(pieces.send(Err(why)).await);
            }
            drop(pieces);
            passed
        });
        let (read, reply) = tokio::select! {
            biased;
            read = &mut reading => (read, sending.await),
            reply = &mut sending => {
                // After an early answer, the target may not read the rest.
                let read = if reply.is_ok() { Ok(()) } else { reading.await };
                (read, reply)
            }
        };
        // If the source failed, the target's answer does not matter.
        read?;
        self.judge(&reply?, meta).await
    }

    /// Sends the attachments of `source` to the body of the request.
    async fn pass_on(
        &self,
        layout: &Layout,
        following: &[Following],
        mut source: impl Attachments,
        pieces: &mpsc::Sender<Result<Bytes, BodyFailed>>,
    ) -> Result<(), DocFailed> {
        for (attachment, before) in following.iter().zip(&layout.before) {
            self.run_counters.count_bytes(before.len());
            if pieces.send(Ok(before.clone())).await.is_err() {
                // The target has already answered; its answer has the reason.
                return Ok(());
            }
            let mut bytes = source.next(attachment).await?;
            let mut left = attachment.length;
            while let Some(piece) = bytes.chunk().await? {
                left = left
                    .checked_sub(piece.len() as u64)
                    .ok_or_else(|| DocFailed::wrong_length(attachment))?;
                self.run_counters.count_bytes(piece.len());
                if pieces.send(Ok(piece)).await.is_err() {
                    return Ok(());
                }
            }
            if left > 0 {
                return Err(DocFailed::wrong_length(attachment));
            }
        }
        drop(pieces.send(Ok(layout.end.clone())).await);
        Ok(())
    }

    /// Interprets the answer to a write: counts the document as written or refused, or returns why it is neither.
    async fn judge(&self, reply: &Reply, meta: &DocMeta<'_>) -> Result<(), DocFailed> {
        let verdict = verdict::of_put(reply);
        if verdict == Verdict::Written {
            self.run_counters.count(|stats| stats.docs_written += 1);
            self.target.count(Counter::DocsWritten);
            return Ok(());
        }
        let (error, reason) = verdict::error_and_reason(reply);
        let doc = RefusedDoc {
            id: meta.id.clone().into_owned(),
            rev: Some(meta.rev.to_string()),
            error,
            reason,
        };
        let crash = |doc: &RefusedDoc| {
            Box::new(Crash::DocWriteFailed {
                asked: reply.asked.to_string(),
                code: reply.status.as_u16(),
                id: doc.id.clone(),
                error: doc.error.clone(),
                reason: doc.reason.clone(),
            })
        };
        let is_denied = matches!(
            reply.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        );
        if is_denied && !self.target.is_let_in(reply).await? {
            return Err(DocFailed::LockedOut(crash(&doc)));
        }
        match verdict {
            Verdict::MissingStub => return Err(DocFailed::MissingStub),
            Verdict::RefusedIfRepeated => {
                return Err(DocFailed::RefusedIfRepeated {
                    crash: crash(&doc),
                    doc: Box::new(doc),
                });
            }
            Verdict::Unclear => return Err(DocFailed::RetryThen(crash(&doc))),
            Verdict::Wrong => return Err(DocFailed::Crash(*crash(&doc))),
            Verdict::Refused | Verdict::Written => {}
        }
        self.refuse(doc);
        Ok(())
    }
}

fn put_request(meta: &DocMeta<'_>) -> Request {
    Request::put(encode_doc_id(&meta.id))
        .query("new_edits", "false")
        .no_full_commit()
}

/// Returns a boundary of random digits, which occurs in no document.
fn boundary() -> Result<String, DocFailed> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| DocFailed::Retry(error.to_string()))?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}
