//! Reads the answer to a request for revisions of one document.
//!
//! SUMMARY   An answer has parts, or is a JSON array. Design documents and what has attachments are written while it is
//!           still coming; the texts of others are put beside.
//! PROMISES  Of attachments only pieces are in memory. What cannot be read is asked for again, or refused by name.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::attached::{Body, Fetched, Parts, following};
use super::document::{self, DOCUMENT_MAX, Look};
use super::failed::Failed;
use super::inline::attachment_has_path;
use super::single::Single;
use crate::endpoint::{BodyStream, StreamedReply, encode_doc_id, shown};
use crate::multipart::reader::{Multipart, collect};
use crate::refused::RefusedDoc;

/// The most of a part that tells an error, in bytes.
const ERROR_PART_MAX: usize = 64 * 1024;

/// A result in an answer of plain JSON.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    ok: Option<&'a RawValue>,
    #[serde(borrow, default)]
    missing: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Missing {
    missing: String,
}

impl Single<'_> {
    /// Takes what an answer has of the revisions asked for.
    pub(super) async fn read_answer(
        &mut self,
        reply: StreamedReply,
        asked: &[String],
    ) -> Result<(), Failed> {
        let content_type = reply.headers.get(reqwest::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        match content_type {
            Some(kind)
                if kind
                    .trim_start()
                    .to_ascii_lowercase()
                    .starts_with("multipart/") =>
            {
                let body = Multipart::new(kind, Body(reply.body))?;
                self.read_parts(body, asked).await
            }
            _ => self.read_array(reply.body).await,
        }
    }

    /// An answer in parts: documents, documents with attachments, what is missing.
    async fn read_parts(
        &mut self,
        mut body: Multipart<Body>,
        asked: &[String],
    ) -> Result<(), Failed> {
        while let Some(headers) = body.next_part().await? {
            let value = headers.get("content-type").unwrap_or_default();
            let kind = headers.content_type();
            let is = |essence| kind.is_some_and(|kind| kind.is(essence));
            if is("multipart/related") {
                let parts = Multipart::new(value, &mut body)?;
                self.read_related(parts, asked).await?;
            } else if kind.and_then(|kind| kind.parameter("error")) == Some("true") {
                let text = collect(&mut body, ERROR_PART_MAX)
                    .await?
                    .unwrap_or_default();
                let Ok(Missing { missing }) = serde_json::from_slice(&text) else {
                    return Err(Failed::Retry(format!(
                        "a revision failed: {}",
                        shown(&text)
                    )));
                };
                self.missing.insert(missing);
            } else if is("application/json") {
                match collect(&mut body, DOCUMENT_MAX).await? {
                    Some(text) => self.document(utf8(&text)?).await?,
                    None => self.too_large(asked)?,
                }
            } else {
                return Err(Failed::Retry(format!("a part of type '{value}'")));
            }
        }
        body.finish().await
    }

    /// A document and its attachments.
    async fn read_related(
        &mut self,
        mut parts: Multipart<&mut Multipart<Body>>,
        asked: &[String],
    ) -> Result<(), Failed> {
        if parts.next_part().await?.is_none() {
            return Err(Failed::Retry("a document has no part".to_owned()));
        }
        let Some(text) = collect(&mut parts, DOCUMENT_MAX).await? else {
            return self.too_large(asked);
        };
        let text = utf8(&text)?;
        let look = self.look(text)?;
        let following = following(&look, |attachment| attachment.follows)?;
        if following.is_empty() {
            return self.document(text).await;
        }
        if self.begins(&look, text).await? {
            let worker = self.worker;
            let parts = Parts(parts, &following);
            worker.put_with(text, &look, &following, parts).await?;
            self.close();
        }
        Ok(())
    }

    /// An answer of plain JSON, in which attachments are mere stubs.
    async fn read_array(&mut self, body: BodyStream) -> Result<(), Failed> {
        let body = body.read_to_end(DOCUMENT_MAX).await;
        let body = body.map_err(|failed| Failed::Retry(failed.to_string()))?;
        let Ok(entries) = serde_json::from_slice::<Vec<Entry<'_>>>(&body) else {
            return Err(Failed::Retry(format!("no revisions: {}", shown(&body))));
        };
        for entry in entries {
            match entry {
                Entry { ok: Some(raw), .. } => self.stubbed(raw.get()).await?,
                Entry {
                    missing: Some(rev), ..
                } => {
                    self.missing.insert(rev.into_owned());
                }
                Entry { .. } => return Err(Failed::Retry("a revision failed".to_owned())),
            }
        }
        Ok(())
    }

    /// A document whose attachments are to be read one by one.
    async fn stubbed(&mut self, text: &str) -> Result<(), Failed> {
        let look = self.look(text)?;
        let following = following(&look, |attachment| attachment.stub)?;
        if following.is_empty() {
            return self.document(text).await;
        }
        if following.iter().any(|one| !attachment_has_path(&one.name)) {
            return Err(Failed::Unnameable);
        }
        if self.begins(&look, text).await? {
            let nonsense = || Failed::Retry("attachments that are none".to_owned());
            let text = document::with_following(text, &look).ok_or_else(nonsense)?;
            let worker = self.worker;
            let fetched = Fetched {
                worker,
                path: encode_doc_id(&self.id),
                rev: look.rev().to_owned(),
                body: None,
            };
            worker.put_with(&text, &look, &following, fetched).await?;
            self.close();
        }
        Ok(())
    }

    /// A document that comes alone.
    async fn document(&mut self, text: &str) -> Result<(), Failed> {
        let look = self.look(text)?;
        if !self.begins(&look, text).await? {
            return Ok(());
        }
        if look.has_attachments() || self.id.starts_with("_design/") {
            self.worker.put(text, &look).await?;
        } else {
            self.texts.push(text.to_owned());
        }
        self.close();
        Ok(())
    }

    fn look<'t>(&self, text: &'t str) -> Result<Look<'t>, Failed> {
        let look = Look::at(text.as_bytes()).filter(|look| look.id == self.id);
        let beginning = || shown(text.as_bytes());
        look.ok_or_else(|| Failed::Retry(format!("not the document asked for: {}", beginning())))
    }

    /// Counts a document and returns `true`, unless nobody waits for it, or it does not pass the filter.
    async fn begins(&mut self, look: &Look<'_>, text: &str) -> Result<bool, Failed> {
        self.answers = self.open.answered_by(look);
        if self.answers.is_empty() {
            return Ok(false);
        }
        if self.worker.filter.is_some() && !self.passes(text).await? {
            self.close();
            return Ok(false);
        }
        if self.counted.insert(look.rev().to_owned()) {
            self.worker.count_read();
        }
        Ok(true)
    }

    /// The document at hand is where it should be.
    fn close(&mut self) {
        for rev in std::mem::take(&mut self.answers) {
            self.open.close(&rev);
        }
    }

    async fn passes(&self, text: &str) -> Result<bool, Failed> {
        let wrong = |error: serde_json::Error| Failed::Retry(error.to_string());
        let document: &RawValue = serde_json::from_str(text).map_err(wrong)?;
        let passing = self.worker.passing(&[(&self.id, document)]).await;
        Ok(passing.map_err(Failed::Crash)?.contains(&true))
    }

    /// Refuses a document of which nothing is known but that it was asked for.
    fn too_large(&mut self, asked: &[String]) -> Result<(), Failed> {
        let [rev] = asked else {
            return Err(Failed::AskSingly);
        };
        if self.open.close(rev) {
            self.worker.refuse(RefusedDoc {
                id: self.id.clone(),
                rev: Some(rev.clone()),
                error: "too_large".to_owned(),
                reason: format!("it has more than {DOCUMENT_MAX} bytes without its attachments"),
            });
        }
        Ok(())
    }
}

fn utf8(text: &[u8]) -> Result<&str, Failed> {
    std::str::from_utf8(text).map_err(|_| Failed::Retry("a document is no UTF-8".to_owned()))
}
