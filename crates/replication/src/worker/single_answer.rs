//! Reads the answer to a request for revisions of one document.
//!
//! SUMMARY   An answer is multipart or a JSON array. Design documents and documents with attachments are written
//!           while it arrives; the texts of others are collected.
//! PROMISES  Attachments are streamed, never held whole. Unreadable documents are requested again or reported
//!           as refused.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::attached::{Fetched, Parts, following};
use super::document::{self, DOCUMENT_MAX, DocMeta};
use super::failed::DocFailed;
use super::inline::attachment_has_path;
use super::single::Single;
use crate::endpoint::{BodyStream, StreamedReply, collect};
use crate::multipart::parser::ContentType;
use crate::multipart::reader::Multipart;
use crate::refused::RefusedDoc;

/// Maximum length of a part with an error, in bytes.
const ERROR_PART_MAX: usize = 64 * 1024;

/// A result in a plain JSON answer.
#[derive(Deserialize)]
struct OpenRevsEntry<'a> {
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
    #[serde(borrow)]
    missing: Option<Cow<'a, str>>,
}

impl Single<'_> {
    /// Reads the requested revisions from an answer.
    pub(super) async fn read_answer(
        &mut self,
        reply: StreamedReply,
        asked: &[String],
    ) -> Result<(), DocFailed> {
        let content_type = reply
            .headers
            .get(reqwest::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        match content_type {
            Some(kind) if ContentType::parse(kind).is_multipart() => {
                self.read_parts(Multipart::new(kind, reply.body)?, asked)
                    .await
            }
            _ => self.read_array(reply.body).await,
        }
    }

    /// Reads a multipart answer: documents, documents with attachments, missing revisions.
    async fn read_parts(
        &mut self,
        mut body: Multipart<BodyStream>,
        asked: &[String],
    ) -> Result<(), DocFailed> {
        while let Some(headers) = body.next_part().await? {
            let value = headers.get("content-type").unwrap_or_default();
            let kind = ContentType::parse(value);
            if kind.is("multipart/related") {
                self.read_related(Multipart::new(value, &mut body)?, asked)
                    .await?;
            } else if kind.parameter("error") == Some("true") {
                let text = collect(&mut body, 0, ERROR_PART_MAX)
                    .await?
                    .unwrap_or_default();
                let Ok(OpenRevsEntry {
                    missing: Some(missing),
                    ..
                }) = serde_json::from_slice(&text)
                else {
                    return Err(DocFailed::Retry(format!(
                        "a revision failed: {}",
                        self.worker.source.excerpt(&text)
                    )));
                };
                self.missing.insert(missing.into_owned());
            } else if kind.is("application/json") {
                match collect(&mut body, 0, DOCUMENT_MAX).await? {
                    Some(text) => self.document(utf8(&text)?).await?,
                    None => self.too_large(asked)?,
                }
            } else {
                return Err(DocFailed::Retry(format!("a part of type '{value}'")));
            }
        }
        Ok(body.finish().await?)
    }

    /// Reads a document and its attachments.
    async fn read_related(
        &mut self,
        mut parts: Multipart<&mut Multipart<BodyStream>>,
        asked: &[String],
    ) -> Result<(), DocFailed> {
        if parts.next_part().await?.is_none() {
            return Err(DocFailed::Retry("a document has no part".to_owned()));
        }
        let Some(text) = collect(&mut parts, 0, DOCUMENT_MAX).await? else {
            return self.too_large(asked);
        };
        let text = utf8(&text)?;
        let meta = self.meta(text)?;
        let following = following(&meta, |attachment| attachment.follows)?;
        if following.is_empty() {
            return self.document(text).await;
        }
        if self.accept(&meta, text).await? {
            let worker = self.worker;
            let parts = Parts(parts, &following);
            worker.put_with(text, &meta, &following, parts).await?;
            self.close();
        }
        Ok(())
    }

    /// Reads a plain JSON answer, with attachments as stubs.
    async fn read_array(&mut self, body: BodyStream) -> Result<(), DocFailed> {
        let body = body.read_whole(0, DOCUMENT_MAX).await?;
        let Ok(entries) = serde_json::from_slice::<Vec<OpenRevsEntry<'_>>>(&body) else {
            let beginning = self.worker.source.excerpt(&body);
            return Err(DocFailed::Retry(format!("no revisions: {beginning}")));
        };
        for entry in entries {
            match entry {
                OpenRevsEntry { ok: Some(raw), .. } => self.stubbed(raw.get()).await?,
                OpenRevsEntry {
                    missing: Some(rev), ..
                } => {
                    self.missing.insert(rev.into_owned());
                }
                OpenRevsEntry { .. } => {
                    return Err(DocFailed::Retry("a revision failed".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Handles a document whose attachments have to be read individually.
    async fn stubbed(&mut self, text: &str) -> Result<(), DocFailed> {
        let meta = self.meta(text)?;
        let following = following(&meta, |attachment| attachment.stub)?;
        if following.is_empty() {
            return self.document(text).await;
        }
        if following.iter().any(|one| !attachment_has_path(&one.name)) {
            return Err(DocFailed::Unnameable);
        }
        if self.accept(&meta, text).await? {
            let nonsense = || DocFailed::Retry("invalid attachments".to_owned());
            let text = document::with_following(text, &meta).ok_or_else(nonsense)?;
            let worker = self.worker;
            let fetched = Fetched {
                worker,
                id: &self.id,
                rev: meta.rev.to_string(),
            };
            worker.put_with(&text, &meta, &following, fetched).await?;
            self.close();
        }
        Ok(())
    }

    /// Handles a document without attachments that have to be read separately.
    async fn document(&mut self, text: &str) -> Result<(), DocFailed> {
        let meta = self.meta(text)?;
        if !self.accept(&meta, text).await? {
            return Ok(());
        }
        if meta.attachments.is_some() || self.id.starts_with("_design/") {
            self.worker.put(text, &meta).await?;
        } else {
            self.texts.push(text.to_owned());
        }
        self.close();
        Ok(())
    }

    fn meta<'t>(&self, text: &'t str) -> Result<DocMeta<'t>, DocFailed> {
        DocMeta::read(text.as_bytes())
            .filter(|meta| meta.id == self.id)
            .ok_or_else(|| {
                let beginning = self.worker.source.excerpt(text);
                DocFailed::Retry(format!("not the document asked for: {beginning}"))
            })
    }

    /// Counts a document and returns `true`, unless it is unwanted or rejected by the filter.
    async fn accept(&mut self, meta: &DocMeta<'_>, text: &str) -> Result<bool, DocFailed> {
        self.answers = self.open.answered_by(meta);
        if self.answers.is_empty() {
            return Ok(false);
        }
        let passes = self.worker.passes(&self.id, text).await;
        if !passes.map_err(DocFailed::Crash)? {
            self.close();
            return Ok(false);
        }
        if self.counted.insert(meta.rev.to_string()) {
            self.worker.count_read();
        }
        Ok(true)
    }

    /// Marks the revisions of the current document as done: written, refused or filtered out.
    pub(super) fn close(&mut self) {
        for rev in std::mem::take(&mut self.answers) {
            self.open.close(&rev);
        }
    }

    /// Refuses a requested revision whose text is too long to read. Fails if several were requested, since it may be
    /// any of them.
    fn too_large(&mut self, asked: &[String]) -> Result<(), DocFailed> {
        let [rev] = asked else {
            return Err(DocFailed::AskSingly);
        };
        if self.open.close(rev) {
            self.worker.refuse(RefusedDoc {
                id: self.id.clone(),
                rev: Some(rev.clone()),
                error: "too_large".to_owned(),
                reason: format!(
                    "the document has more than {DOCUMENT_MAX} bytes without its attachments"
                ),
            });
        }
        Ok(())
    }
}

fn utf8(text: &[u8]) -> Result<&str, DocFailed> {
    str::from_utf8(text).map_err(|_| DocFailed::Retry("a document is not UTF-8".to_owned()))
}
