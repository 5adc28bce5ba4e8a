//! Documents that no URL can name: with an id like `..`, or an attachment with such a name.
//!
//! SUMMARY   [`Worker::read_inline`] reads them with `_bulk_get`, including inline attachments, and puts them in the
//!           batch: ids are then only in bodies, never in paths.
//! PROMISES  A document that cannot be read like this is reported as refused, and the work continues. A source that
//!           fails, or announces a revision without delivering it, ends the job as with other documents.
//! LIMITS    An answer has at most 64 MiB; a document that needs a longer one is refused.

use slog::warn;
use tokio::time::{Instant, sleep};

use super::Worker;
use super::bulk_docs::WriteBatch;
use super::bulk_get::{OpenDocs, RevRequest, ask};
use super::document::DocMeta;
use super::missing::Wanted;
use crate::crash::Crash;
use crate::endpoint::{Cause, Reply, StatusCode, encode, encode_doc_id, is_path};
use crate::refused::RefusedDoc;

/// Whether a path can contain a document's id.
pub(crate) fn has_path(id: &str) -> bool {
    is_path(&encode_doc_id(id))
}

/// Whether a path can contain an attachment's name.
pub(crate) fn attachment_has_path(name: &str) -> bool {
    is_path(&format!("x/{}", encode(name)))
}

const TOO_LONG: &str =
    "it is too long to be read with its attachments in one piece, and no URL can name it";
const NO_BYTES: &str = "the source sends its attachments by URLs alone, which cannot name them";

/// Why a revision cannot be read like this: the error's name and the reason.
type Unreadable = (&'static str, String);

impl Worker {
    /// See the module's documentation.
    pub(super) async fn read_inline(
        &self,
        wanted: Vec<Wanted>,
        batch: &mut WriteBatch,
    ) -> Result<(), Crash> {
        for wanted in wanted {
            let mut open = OpenDocs::of(std::slice::from_ref(&wanted));
            for rev in &wanted.revs {
                if !open.is_open(&wanted.id, rev) {
                    continue;
                }
                let read = self.inline(&wanted.id, rev, &mut open, batch).await?;
                if let Some((error, reason)) = read {
                    open.close(&wanted.id, rev);
                    self.refuse(RefusedDoc {
                        id: wanted.id.clone(),
                        rev: Some(rev.clone()),
                        error: error.to_owned(),
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    async fn inline(
        &self,
        id: &str,
        rev: &str,
        open: &mut OpenDocs,
        batch: &mut WriteBatch,
    ) -> Result<Option<Unreadable>, Crash> {
        let asked = [RevRequest {
            id,
            rev,
            atts_since: &[],
        }];
        let mut retries = self.source.retries(self.retries);
        loop {
            let reply = match ask(&self.source, &asked, true).await {
                Ok(reply) => reply,
                Err(failed) => {
                    return match failed.cause {
                        Cause::TooLong(_) => Ok(Some(("too_large", TOO_LONG.to_owned()))),
                        Cause::Status { status, .. } if status == StatusCode::NOT_IMPLEMENTED => {
                            Ok(Some(cannot(&failed.to_string())))
                        }
                        _ => Err(failed.into()),
                    };
                }
            };
            match reply.status {
                StatusCode::OK => {}
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(Crash::undelivered(id, reply.told(), None));
                }
                _ => return Ok(Some(cannot(&reply.told()))),
            }
            if !self.take_inline(&reply, open, batch).await? {
                return Ok(Some(("no_url", NO_BYTES.to_owned())));
            }
            if !open.is_open(id, rev) {
                return Ok(None);
            }
            let Some(wait) = retries.next(Instant::now()) else {
                return Err(Crash::undelivered(id, reply.told(), None));
            };
            warn!(self.log, "a document is read again"; "document" => id, "rev" => rev);
            sleep(wait).await;
        }
    }

    /// Puts the wanted documents of an answer that pass the filter in the batch. Returns `false` if one of them lacks
    /// the bytes of an attachment.
    async fn take_inline(
        &self,
        reply: &Reply,
        open: &mut OpenDocs,
        batch: &mut WriteBatch,
    ) -> Result<bool, Crash> {
        let body = &reply.body;
        for found in open.find(body).unwrap_or_default() {
            let document = found.text(body);
            let passes = self.passes(&found.id, document).await?;
            if passes && !is_whole(document) {
                return Ok(false);
            }
            if open.close_all(&found) && passes {
                self.count_read();
                self.add(batch, document.to_owned()).await?;
            }
        }
        Ok(true)
    }
}

/// Whether the text contains the bytes of all attachments.
fn is_whole(document: &str) -> bool {
    let Some(meta) = DocMeta::read(document.as_bytes()) else {
        return true;
    };
    meta.parse_attachments()
        .is_some_and(|all| all.iter().all(|(_, one)| one.data.is_some()))
}

fn cannot(why: &str) -> Unreadable {
    (
        "no_url",
        format!(
            "no URL can name the document, and the source does not deliver it otherwise: {why}"
        ),
    )
}
