//! Reads one document by itself: the revisions that are wanted of it, as one stream.
//!
//! SUMMARY   [`Worker::single`] reads until everything wanted was had. Design documents and what
//!           has attachments are written while the answer is still coming; the texts of others are
//!           returned.
//! PROMISES  Each revision comes, itself or a descendant in its place, or is said to be missing; if
//!           neither, it is asked for again, and then the job ends. After a failure only what has not
//!           come yet is asked for. A request's line stays below [`LINE_MAX`] bytes, or what the source
//!           takes.
//! SOURCE    `couch_replicator_worker:fetch_doc`, `couch_replicator_api_wrap:open_doc_revs`: waits,
//!           tries, and `atts_since`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashSet;
use serde::Deserialize;
use serde_json::value::RawValue;
use slog::{info, warn};
use tokio::time::sleep;

use super::Worker;
use super::attached::{Body, Fetched, Parts, following};
use super::document::{self, DOCUMENT_MAX, Look};
use super::failed::Failed;
use super::inline::attachment_has_path;
use super::missing::Wanted;
use super::open_revs::OpenRevs;
use crate::crash::Crash;
use crate::endpoint::{
    BodyStream, HeaderValue, Request, StatusCode, StreamedReply, encode_doc_id, shown,
};
use crate::multipart::reader::{Multipart, collect};
use crate::refused::RefusedDoc;

/// The longest line of a request, in bytes; halved when a source finds it too long.
pub const LINE_MAX: usize = 7000;
/// A source that takes no line of this length takes none.
const LINE_MIN: usize = 200;
/// What waits are computed from; the first is four times as long.
const WAIT_START: Duration = Duration::from_millis(250);
/// No wait is more than twice as long.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// How often a document is read again at once because the target does not know us any more.
const RENEWALS_MAX: u32 = 3;
/// The most of an error's body that is read.
const ERROR_BODY_MAX: usize = 64 * 1024;

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

/// What was read of a document.
#[derive(Debug)]
pub(super) struct Read {
    /// Texts that are still to be written.
    pub(super) texts: Vec<String>,
    /// What has to be read with the attachments in the text.
    pub(super) inline: Option<Wanted>,
}

impl Worker {
    /// Reads the wanted revisions.
    pub(super) async fn single(&self, wanted: Wanted) -> Result<Read, Crash> {
        let mut single = Single {
            worker: self,
            open: OpenRevs::of(&wanted.revs),
            queue: wanted.revs.into(),
            id: wanted.id,
            ancestors: wanted.ancestors,
            line_max: LINE_MAX,
            singly: false,
            answers: Vec::new(),
            counted: FxHashSet::default(),
            missing: FxHashSet::default(),
            texts: Vec::new(),
        };
        let inline = single.run().await?;
        let texts = single.texts;
        Ok(Read { texts, inline })
    }
}

/// A document that is being read.
struct Single<'a> {
    worker: &'a Worker,
    id: String,
    /// Revisions that are to be asked for. Those that have come in place of others are passed over.
    queue: VecDeque<String>,
    /// Revisions that have not come yet.
    open: OpenRevs,
    ancestors: Vec<String>,
    line_max: usize,
    /// One revision is asked for at a time.
    singly: bool,
    /// What the document at hand answers for, once it is written.
    answers: Vec<String>,
    /// Revisions that were counted as read.
    counted: FxHashSet<String>,
    /// Revisions that the source says it has not.
    missing: FxHashSet<String>,
    texts: Vec<String>,
}

impl Single<'_> {
    /// Reads until everything has come. Returns what cannot be read like this.
    async fn run(&mut self) -> Result<Option<Wanted>, Crash> {
        let (mut tries, mut wait) = (self.worker.retries, WAIT_START);
        let (mut waited_for_missing, mut waited_for_stub) = (false, false);
        let mut renewals = RENEWALS_MAX;
        while !self.open.is_empty() {
            let pause = match self.read_some().await {
                Ok(()) if self.missing.is_empty() => continue,
                Ok(()) if waited_for_missing => return Err(self.missing_doc()),
                Ok(()) => {
                    info!(self.worker.log, "the source misses revisions that it told of";
                        "document" => &self.id, "rev" => self.missing_revs());
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
                Err(Failed::AskSingly) => {
                    self.singly = true;
                    continue;
                }
                Err(Failed::Unnameable) => return Ok(Some(self.left())),
                Err(Failed::LockedOut(_)) if renewals > 0 => {
                    renewals -= 1;
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
                        return Err(self.failed(failed));
                    }
                    warn!(self.worker.log, "a document is read again";
                        "document" => &self.id, "error" => %failed);
                    wait = 2 * (2 * wait).min(WAIT_MAX);
                    wait
                }
            };
            sleep(pause).await;
        }
        Ok(None)
    }

    fn missing_doc(&self) -> Crash {
        Crash::MissingDoc {
            id: self.id.clone(),
            revs: self.missing_revs(),
        }
    }

    /// Some of them: there may be thousands.
    fn missing_revs(&self) -> String {
        let revs: Vec<&str> = self.missing.iter().take(10).map(String::as_str).collect();
        match self.missing.len() - revs.len() {
            0 => revs.join(" "),
            more => format!("{} and {more} more", revs.join(" ")),
        }
    }

    fn failed(&self, failed: Failed) -> Crash {
        match failed {
            Failed::RetryThen(crash) | Failed::LockedOut(crash) => *crash,
            failed => Crash::OpenDocRevsFailed {
                id: self.id.clone(),
                why: failed.to_string(),
            },
        }
    }

    fn left(&mut self) -> Wanted {
        let queue = std::mem::take(&mut self.queue).into_iter();
        Wanted {
            id: self.id.clone(),
            revs: queue.filter(|rev| self.open.is_open(rev)).collect(),
            ancestors: Vec::new(),
        }
    }

    /// Takes as many of the open revisions as fit a request's line.
    fn next_revs(&mut self) -> Vec<String> {
        let mut length = self.line_length(&[]);
        let mut revs = Vec::new();
        while let Some(rev) = self.queue.pop_front() {
            if !self.open.is_open(&rev) {
                continue;
            }
            length += encoded_length(&rev);
            if !revs.is_empty() && (self.singly || length > self.line_max) {
                self.queue.push_front(rev);
                break;
            }
            revs.push(rev);
        }
        revs
    }

    fn line_length(&self, revs: &[String]) -> usize {
        let base = self.worker.source.url().len() + 3 * self.id.len() + 64;
        base + revs.iter().map(|rev| encoded_length(rev)).sum::<usize>()
    }

    fn request(&self, revs: &[String]) -> Request {
        let mut request = Request::get(encode_doc_id(&self.id))
            .query("revs", "true")
            .query("open_revs", json(revs))
            .query("latest", "true")
            .header(
                reqwest::header::ACCEPT,
                HeaderValue::from_static("multipart/mixed"),
            );
        let mut length = self.line_length(revs);
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

    /// Reads some of the open revisions.
    async fn read_some(&mut self) -> Result<(), Failed> {
        let asked = self.next_revs();
        let read = self.read(&asked).await;
        for rev in asked.into_iter().rev() {
            if self.open.is_open(&rev) {
                self.queue.push_front(rev);
            }
        }
        read
    }

    async fn read(&mut self, asked: &[String]) -> Result<(), Failed> {
        self.missing.clear();
        let source = &self.worker.source;
        let reply = source.stream(self.request(asked)).await;
        let reply = reply.map_err(Failed::of_request)?;
        let request = reply.asked.clone();
        match reply.status {
            StatusCode::OK => self.read_answer(reply, asked).await?,
            StatusCode::URI_TOO_LONG => return Err(Failed::UriTooLong),
            StatusCode::NOT_FOUND => self.missing.extend(asked.iter().cloned()),
            status => {
                let body = reply
                    .body
                    .read_to_end(ERROR_BODY_MAX)
                    .await
                    .unwrap_or_default();
                let said = request.said(&body);
                return Err(Failed::Retry(format!("{request}: {status}: {said}")));
            }
        }
        // Each revision comes, itself or something newer in its place, or is said to be missing.
        let open = &self.open;
        self.missing.retain(|rev| open.is_open(rev));
        let is_silent = |rev: &&String| open.is_open(rev) && !self.missing.contains(*rev);
        let mut silent = asked.iter().filter(is_silent);
        match silent.next() {
            None => Ok(()),
            Some(first) => {
                let count = 1 + silent.count();
                Err(Failed::Retry(format!(
                    "{request}: the answer says nothing of {count} of the {} revisions, of {first} for one",
                    asked.len()
                )))
            }
        }
    }

    async fn read_answer(&mut self, reply: StreamedReply, asked: &[String]) -> Result<(), Failed> {
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
                let text = collect(&mut body, ERROR_BODY_MAX)
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

fn json(revs: &[String]) -> String {
    serde_json::to_string(revs).expect("texts are JSON")
}

/// What a revision takes in a request's line: quotes and comma are percent-encoded.
fn encoded_length(rev: &str) -> usize {
    rev.len() + 9
}
