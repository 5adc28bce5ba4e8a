//! Reads one document by itself: the revisions that are wanted of it, as one stream.
//!
//! SUMMARY   [`Worker::single`] reads until everything wanted was had. Design documents and what
//!           has attachments are written while the answer is still coming; the texts of others are
//!           returned.
//! PROMISES  After a failure only what is still missing is asked for again. A request's line stays
//!           below [`LINE_MAX`] bytes, or what the source takes.
//! SOURCE    `couch_replicator_worker:fetch_doc`, `couch_replicator_api_wrap:open_doc_revs`: waits,
//!           tries, and `atts_since`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use slog::{info, warn};
use tokio::time::sleep;

use super::Worker;
use super::document::{self, Attachment, DOCUMENT_MAX, Look};
use super::missing::Wanted;
use super::put::Attachments;
use crate::replication::crash::{Crash, shown};
use crate::replication::endpoint::{
    BodyStream, HeaderValue, Request, RequestFailed, StatusCode, StreamedReply, encode,
    encode_doc_id,
};
use crate::replication::multipart::parser::MultipartError;
use crate::replication::multipart::reader::{Chunks, Multipart, collect};
use crate::replication::multipart::writer::Following;
use crate::replication::refused::RefusedDoc;

/// The longest line of a request, in bytes; halved when a source finds it too long.
pub const LINE_MAX: usize = 7000;
/// A source that takes no line of this length takes none.
const LINE_MIN: usize = 200;
/// What waits are computed from; the first is four times as long.
const WAIT_START: Duration = Duration::from_millis(250);
/// No wait is more than twice as long.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// The most of an error's body that is read.
const ERROR_BODY_MAX: usize = 64 * 1024;

/// Why a read, or the write that hangs on it, brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failed {
    /// It is worth another try.
    #[error("{0}")]
    Retry(String),
    /// The request's line is too long for the source.
    #[error("the source takes no request of this length")]
    UriTooLong,
    /// The target has not the attachment that it was said to have.
    #[error("the target misses an attachment")]
    MissingStub,
    /// It is the job's end.
    #[error("{0}")]
    Crash(Crash),
}

impl Failed {
    pub(super) fn of_request(failed: RequestFailed) -> Self {
        match failed.is_max_backoff() {
            true => Self::Crash(Crash::MaxBackoff),
            false => Self::Retry(failed.to_string()),
        }
    }

    pub(super) fn wrong_length(attachment: &Following) -> Self {
        let Following { name, length, .. } = attachment;
        Self::Retry(format!("attachment '{name}' has not {length} bytes"))
    }
}

impl From<MultipartError> for Failed {
    fn from(error: MultipartError) -> Self {
        Self::Retry(error.to_string())
    }
}

/// The body of an answer, as what parts are read from.
struct Body(BodyStream);

impl Chunks for Body {
    type Error = Failed;

    async fn chunk(&mut self) -> Result<Option<Bytes>, Failed> {
        loop {
            match self.0.next().await.transpose() {
                Ok(Some(piece)) if piece.is_empty() => {}
                Ok(piece) => return Ok(piece),
                Err(failed) => return Err(Failed::Retry(failed.to_string())),
            }
        }
    }
}

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

impl Worker {
    /// Reads the wanted revisions. Returns the texts of those that are still to be written.
    pub(super) async fn single(&self, wanted: Wanted) -> Result<Vec<String>, Crash> {
        let mut single = Single {
            worker: self,
            left: wanted.revs,
            id: wanted.id,
            ancestors: wanted.ancestors,
            line_max: LINE_MAX,
            had: Vec::new(),
            missing: Vec::new(),
            texts: Vec::new(),
        };
        single.run().await?;
        Ok(single.texts)
    }
}

/// A document that is being read.
struct Single<'a> {
    worker: &'a Worker,
    id: String,
    /// Revisions that are still to be had.
    left: Vec<String>,
    ancestors: Vec<String>,
    line_max: usize,
    /// Revisions that were had, also such as came in place of others.
    had: Vec<String>,
    /// Revisions that the source says it has not.
    missing: Vec<String>,
    texts: Vec<String>,
}

impl Single<'_> {
    async fn run(&mut self) -> Result<(), Crash> {
        let (mut tries, mut wait) = (self.worker.retries, WAIT_START);
        let (mut waited_for_missing, mut waited_for_stub) = (false, false);
        while !self.left.is_empty() {
            let asked = self.fitting_revs();
            let pause = match self.read(asked).await {
                Ok(()) if self.missing.is_empty() => continue,
                Ok(()) if waited_for_missing => return Err(self.missing_doc()),
                Ok(()) => {
                    info!(self.worker.log, "the source misses revisions that it told of";
                        "document" => &self.id, "rev" => self.missing.join(" "));
                    waited_for_missing = true;
                    self.ancestors.clear();
                    self.worker.missing_doc_retry
                }
                Err(Failed::UriTooLong) => {
                    self.line_max /= 2;
                    if self.line_max < LINE_MIN {
                        let id = self.id.clone();
                        return Err(Crash::RequestUriTooLong { id });
                    }
                    continue;
                }
                Err(Failed::MissingStub) if !waited_for_stub => {
                    waited_for_stub = true;
                    self.ancestors.clear();
                    self.worker.missing_doc_retry
                }
                Err(Failed::Crash(crash)) => return Err(crash),
                Err(failed) => {
                    tries = tries.saturating_sub(1);
                    if tries == 0 || failed == Failed::MissingStub {
                        return Err(self.failed(&failed));
                    }
                    warn!(self.worker.log, "a document is read again";
                        "document" => &self.id, "error" => %failed);
                    wait = 2 * (2 * wait).min(WAIT_MAX);
                    wait
                }
            };
            sleep(pause).await;
        }
        Ok(())
    }

    fn missing_doc(&self) -> Crash {
        Crash::MissingDoc {
            id: self.id.clone(),
            revs: self.missing.join(" "),
        }
    }

    fn failed(&self, failed: &Failed) -> Crash {
        Crash::OpenDocRevsFailed {
            id: self.id.clone(),
            why: failed.to_string(),
        }
    }

    /// How many of the revisions fit a request's line.
    fn fitting_revs(&self) -> usize {
        let mut length = self.worker.source.url().len() + 3 * self.id.len() + 64;
        let fitting = self.left.iter().take_while(|rev| {
            length += encoded_length(rev);
            length <= self.line_max
        });
        fitting.count().max(1)
    }

    fn request(&self, asked: usize) -> Request {
        let revs = &self.left[..asked];
        let mut request = Request::get(encode_doc_id(&self.id))
            .query("revs", "true")
            .query("open_revs", json(revs))
            .query("latest", "true")
            .header(
                reqwest::header::ACCEPT,
                HeaderValue::from_static("multipart/mixed"),
            );
        let mut length = self.worker.source.url().len() + 3 * self.id.len() + 64;
        length += revs.iter().map(|rev| encoded_length(rev)).sum::<usize>();
        let fitting = self.ancestors.iter().take_while(|rev| {
            length += encoded_length(rev);
            length <= self.line_max
        });
        let ancestors = fitting.count();
        if ancestors > 0 {
            request = request.query("atts_since", json(&self.ancestors[..ancestors]));
        }
        request
    }

    /// Reads so many of the revisions that are left.
    async fn read(&mut self, asked: usize) -> Result<(), Failed> {
        self.missing.clear();
        let source = &self.worker.source;
        let reply = source.stream(self.request(asked)).await;
        let reply = reply.map_err(Failed::of_request)?;
        match reply.status {
            StatusCode::OK => self.read_answer(reply).await?,
            StatusCode::URI_TOO_LONG => return Err(Failed::UriTooLong),
            StatusCode::NOT_FOUND => self.missing.extend_from_slice(&self.left[..asked]),
            status => {
                let body = reply
                    .body
                    .read_to_end(ERROR_BODY_MAX)
                    .await
                    .unwrap_or_default();
                return Err(Failed::Retry(format!("{status}: {}", shown(&body))));
            }
        }
        // Whatever was not said to be missing was had, itself or something newer in its place.
        let (missing, mut index) = (&self.missing, 0);
        self.left.retain(|rev| {
            index += 1;
            index > asked || missing.contains(rev)
        });
        Ok(())
    }

    async fn read_answer(&mut self, reply: StreamedReply) -> Result<(), Failed> {
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
                self.read_parts(body).await
            }
            _ => self.read_array(reply.body).await,
        }
    }

    /// An answer in parts: documents, documents with attachments, what is missing.
    async fn read_parts(&mut self, mut body: Multipart<Body>) -> Result<(), Failed> {
        while let Some(headers) = body.next_part().await? {
            let value = headers.get("content-type").unwrap_or_default();
            let kind = headers.content_type();
            let is = |essence| kind.is_some_and(|kind| kind.is(essence));
            if is("multipart/related") {
                self.read_related(Multipart::new(value, &mut body)?).await?;
            } else if kind.and_then(|kind| kind.parameter("error")) == Some("true") {
                let text = collect(&mut body, ERROR_BODY_MAX)
                    .await?
                    .unwrap_or_default();
                let Ok(Missing { missing }) = serde_json::from_slice(&text) else {
                    return Err(Failed::Retry(format!(
                        "a revision failed: {}",
                        shown(&text)
                    )));
                };
                self.missing.push(missing);
            } else if is("application/json") {
                match collect(&mut body, DOCUMENT_MAX).await? {
                    Some(text) => self.document(utf8(&text)?).await?,
                    None => self.too_large(),
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
    ) -> Result<(), Failed> {
        if parts.next_part().await?.is_none() {
            return Err(Failed::Retry("a document has no part".to_owned()));
        }
        let Some(text) = collect(&mut parts, DOCUMENT_MAX).await? else {
            self.too_large();
            return Ok(());
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
            self.had.push(look.rev().to_owned());
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
                } => self.missing.push(rev.into_owned()),
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
            self.had.push(look.rev().to_owned());
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
        self.had.push(look.rev().to_owned());
        Ok(())
    }

    fn look<'t>(&self, text: &'t str) -> Result<Look<'t>, Failed> {
        let look = Look::at(text.as_bytes()).filter(|look| look.id == self.id);
        let beginning = || shown(text.as_bytes());
        look.ok_or_else(|| Failed::Retry(format!("not the document asked for: {}", beginning())))
    }

    /// Counts a document and returns `true`, unless it was had before, or does not pass the filter.
    async fn begins(&mut self, look: &Look<'_>, text: &str) -> Result<bool, Failed> {
        if self.had.iter().any(|rev| rev == look.rev()) {
            return Ok(false);
        }
        if self.worker.filter.is_some() && !self.passes(text).await? {
            self.had.push(look.rev().to_owned());
            return Ok(false);
        }
        self.worker.count_read();
        Ok(true)
    }

    async fn passes(&self, text: &str) -> Result<bool, Failed> {
        let wrong = |error: serde_json::Error| Failed::Retry(error.to_string());
        let document: &RawValue = serde_json::from_str(text).map_err(wrong)?;
        let passing = self.worker.passing(&[(&self.id, document)]).await;
        Ok(passing.map_err(Failed::Crash)?.contains(&true))
    }

    fn too_large(&self) {
        self.worker.refuse(RefusedDoc {
            id: self.id.clone(),
            rev: None,
            error: "too_large".to_owned(),
            reason: format!("it has more than {DOCUMENT_MAX} bytes without its attachments"),
        });
    }
}

/// The attachments of a `multipart/related`, which come in the order of the document.
struct Parts<'a, 'b>(Multipart<&'a mut Multipart<Body>>, &'b [Following]);

impl Attachments for Parts<'_, '_> {
    async fn begin(&mut self, attachment: &Following) -> Result<(), Failed> {
        let Some(headers) = self.0.next_part().await? else {
            return Err(Failed::Retry(format!(
                "attachment '{}' is missing",
                attachment.name
            )));
        };
        // Who names the parts must name them in the document's order.
        let named = headers.get("content-disposition").and_then(|value| {
            let (_, name) = value.split_once("filename=\"")?;
            name.strip_suffix('"')
        });
        let is_another = |name| self.1.iter().any(|known| known.name == name);
        match named {
            Some(name) if name != attachment.name && is_another(name) => Err(Failed::Retry(
                format!("attachment '{name}' is out of order"),
            )),
            _ => Ok(()),
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Failed> {
        self.0.chunk().await
    }
}

/// Attachments that are read one by one.
struct Fetched<'a> {
    worker: &'a Worker,
    path: String,
    rev: String,
    body: Option<Body>,
}

impl Attachments for Fetched<'_> {
    async fn begin(&mut self, attachment: &Following) -> Result<(), Failed> {
        let path = format!("{}/{}", self.path, encode(&attachment.name));
        let request = Request::get(path).query("rev", &self.rev).header(
            reqwest::header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        let reply = self.worker.source.stream(request).await;
        let reply = reply.map_err(Failed::of_request)?;
        if reply.status != StatusCode::OK {
            let why = format!("attachment '{}': {}", attachment.name, reply.status);
            return Err(Failed::Retry(why));
        }
        self.body = Some(Body(reply.body));
        Ok(())
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Failed> {
        match &mut self.body {
            Some(body) => body.chunk().await,
            None => Ok(None),
        }
    }
}

/// The attachments of a document that are to be sent with it.
fn following(
    look: &Look<'_>,
    sends: impl Fn(&Attachment) -> bool,
) -> Result<Vec<Following>, Failed> {
    let Some(raw) = look.attachments.filter(|_| look.has_attachments()) else {
        return Ok(Vec::new());
    };
    let nonsense = || Failed::Retry("attachments that are none".to_owned());
    let all = document::attachments(raw).ok_or_else(nonsense)?;
    let sent = all.into_iter().filter(|(_, attachment)| sends(attachment));
    sent.map(|(name, attachment)| {
        let length = attachment.stored_length().ok_or_else(nonsense)?;
        Ok(Following {
            content_type: attachment.content_type().to_owned(),
            length,
            encoding: attachment.encoding,
            name,
        })
    })
    .collect()
}

fn utf8(text: &[u8]) -> Result<&str, Failed> {
    std::str::from_utf8(text).map_err(|_| Failed::Retry("a document is no UTF-8".to_owned()))
}

fn json(revs: &[String]) -> String {
    serde_json::to_string(revs).expect("texts are JSON")
}

/// What a revision takes in a request's line: quotes and comma are percent-encoded.
fn encoded_length(rev: &str) -> usize {
    rev.len() + 9
}
