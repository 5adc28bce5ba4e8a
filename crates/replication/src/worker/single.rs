//! Reads the wanted revisions of one document.
//!
//! SUMMARY   [`Worker::single`] sends requests until everything wanted has arrived; [`super::single_answer`] parses
//!           the answers.
//! PROMISES  Each revision or a descendant of it arrives, or the job ends: a revision reported as missing is requested
//!           once more, an omitted one as often as [`Worker::retries`] allows. After a failure only revisions that have
//!           not arrived are requested. A document that the target may refuse is deferred until others were written;
//!           the target's second answer decides. A request line stays below [`LINE_MAX`] bytes, or below what the
//!           source accepts.
//! SOURCE    `couch_replicator_worker:fetch_doc`, `couch_replicator_api_wrap:open_doc_revs`: `atts_since`.
//! DIFFERS   Retries are bounded in number and time like those of requests. CouchDB waits 1, 4, 16, 64 s, so that a
//!           failing job may look healthy.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;
use slog::{info, warn};
use tokio::time::{Instant, sleep};

use super::Worker;
use super::failed::DocFailed;
use super::missing::Wanted;
use super::open_revs::OpenRevs;
use crate::crash::Crash;
use crate::endpoint::{HeaderValue, RENEWALS_MAX, Request, StatusCode, encode_doc_id};
use crate::open::db_info;
use crate::refused::RefusedDoc;

/// The longest line of a request, in bytes; halved if a source refuses it as too long.
pub(crate) const LINE_MAX: usize = 7000;
/// The lowest limit tried.
const LINE_MIN: usize = 200;

/// The result of reading a document.
pub(super) struct Read<'a> {
    /// Texts still to be written.
    pub texts: Vec<String>,
    /// Revisions to read with attachments in the text.
    pub inline: Option<Wanted>,
    /// Revisions that the target may refuse; to be read again after others were written.
    pub put_off: Option<Box<Single<'a>>>,
}

impl Worker {
    /// Prepares to read the wanted revisions.
    pub(super) fn single(&self, wanted: Wanted) -> Box<Single<'_>> {
        Box::new(Single {
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
            said: None,
        })
    }
}

/// A document being read.
pub(super) struct Single<'a> {
    pub worker: &'a Worker,
    pub id: String,
    /// Revisions to request. Those that have already arrived are skipped.
    queue: VecDeque<String>,
    /// Revisions that have not arrived yet.
    pub open: OpenRevs,
    ancestors: Vec<String>,
    line_max: usize,
    /// Whether one revision is requested at a time.
    singly: bool,
    /// The revisions that are done once the current document is written.
    pub answers: Vec<String>,
    /// Revisions counted as read.
    pub counted: FxHashSet<String>,
    /// Revisions that the source reports as missing.
    pub missing: FxHashSet<String>,
    pub texts: Vec<String>,
    /// The refusal by the target that deferred the current document.
    said: Option<RefusedDoc>,
}

impl<'a> Single<'a> {
    /// Reads until everything has arrived, or a document must be deferred.
    pub async fn run(mut self: Box<Self>) -> Result<Read<'a>, Crash> {
        let inline = self.read_all().await?;
        let texts = std::mem::take(&mut self.texts);
        Ok(Read {
            texts,
            inline,
            put_off: self.said.is_some().then_some(self),
        })
    }
}

impl Single<'_> {
    /// Reads until everything has arrived, or a document must be deferred. Returns the revisions that cannot be read in
    /// this way.
    async fn read_all(&mut self) -> Result<Option<Wanted>, Crash> {
        let mut said_before = self.said.take();
        let mut retries = self.worker.source.retries(self.worker.retries);
        let (mut waited_for_missing, mut waited_for_stub) = (false, false);
        let mut renewals = RENEWALS_MAX;
        while !self.open.is_empty() {
            let pause = match self.read_some().await {
                Ok(()) if self.missing.is_empty() => continue,
                Ok(()) if waited_for_missing => {
                    let (id, revs) = (self.id.clone(), self.missing_revs());
                    return Err(self.or_closed(Crash::MissingDoc { id, revs }).await);
                }
                Ok(()) => {
                    info!(self.worker.log, "the source lacks revisions that it reported";
                        "document" => &self.id, "rev" => self.missing_revs());
                    waited_for_missing = true;
                    self.ancestors.clear();
                    self.worker.missing_doc_retry
                }
                Err(DocFailed::UriTooLong) => {
                    self.line_max /= 2;
                    if self.line_max < LINE_MIN {
                        return Err(Crash::RequestUriTooLong {
                            id: self.id.clone(),
                        });
                    }
                    continue;
                }
                Err(DocFailed::AskSingly) => {
                    self.singly = true;
                    continue;
                }
                Err(DocFailed::Unnameable) => return Ok(Some(self.left())),
                Err(DocFailed::LockedOut(_)) if renewals > 0 => {
                    renewals -= 1;
                    continue;
                }
                Err(DocFailed::MissingStub) if !waited_for_stub => {
                    waited_for_stub = true;
                    self.ancestors.clear();
                    self.worker.missing_doc_retry
                }
                Err(DocFailed::RefusedIfRepeated { doc, crash }) => match said_before.take() {
                    None => {
                        self.said = Some(*doc);
                        return Ok(None);
                    }
                    Some(said) if said == *doc && self.worker.has_written() => {
                        self.worker.refuse(*doc);
                        self.close();
                        continue;
                    }
                    Some(_) => return Err(*crash),
                },
                Err(DocFailed::Crash(crash)) => return Err(crash),
                Err(failed) => {
                    let wait = retries.next(Instant::now());
                    let Some(wait) = wait.filter(|_| failed != DocFailed::MissingStub) else {
                        return Err(self.failed(failed).await);
                    };
                    warn!(self.worker.log, "a document is read again";
                        "document" => &self.id, "error" => %failed);
                    wait
                }
            };
            sleep(pause).await;
        }
        Ok(None)
    }

    /// Returns why the source cannot be opened, or `crash` if it can be: then the document is at fault.
    async fn or_closed(&self, crash: Crash) -> Crash {
        db_info(&self.worker.source).await.err().unwrap_or(crash)
    }

    /// Lists at most ten of the missing revisions: there may be thousands.
    fn missing_revs(&self) -> String {
        let revs: Vec<&str> = self.missing.iter().take(10).map(String::as_str).collect();
        match self.missing.len() - revs.len() {
            0 => revs.join(" "),
            more => format!("{} and {more} more", revs.join(" ")),
        }
    }

    async fn failed(&self, failed: DocFailed) -> Crash {
        let why = failed.to_string();
        match failed {
            DocFailed::RetryThen(crash) | DocFailed::LockedOut(crash) => *crash,
            DocFailed::Request(failed) => Crash::undelivered(&self.id, why, Some(failed)),
            _ => {
                self.or_closed(Crash::undelivered(&self.id, why, None))
                    .await
            }
        }
    }

    fn left(&mut self) -> Wanted {
        let queue = std::mem::take(&mut self.queue).into_iter();
        let revs = queue.filter(|rev| self.open.is_open(rev)).collect();
        Wanted::new(&*self.id, revs)
    }

    /// Removes open revisions from the queue and returns them: as many as fit a request's line, at least one if any.
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
    async fn read_some(&mut self) -> Result<(), DocFailed> {
        let asked = self.next_revs();
        let read = self.read(&asked).await;
        for rev in asked.into_iter().rev() {
            if self.open.is_open(&rev) {
                self.queue.push_front(rev);
            }
        }
        read
    }

    async fn read(&mut self, asked: &[String]) -> Result<(), DocFailed> {
        self.missing.clear();
        let reply = self.worker.source.stream(self.request(asked)).await?;
        let request = reply.asked.clone();
        match reply.status {
            StatusCode::OK => self.read_answer(reply, asked).await?,
            StatusCode::URI_TOO_LONG => return Err(DocFailed::UriTooLong),
            StatusCode::NOT_FOUND => self.missing.extend(asked.iter().cloned()),
            _ => return Err(DocFailed::Retry(reply.told().await)),
        }
        // Each revision arrives, itself or as a newer one, or is reported as missing.
        let open = &self.open;
        self.missing.retain(|rev| open.is_open(rev));
        let is_silent = |rev: &&String| open.is_open(rev) && !self.missing.contains(*rev);
        let mut silent = asked.iter().filter(is_silent);
        match silent.next() {
            None => Ok(()),
            Some(first) => {
                let count = 1 + silent.count();
                Err(DocFailed::Retry(format!(
                    "{request}: the answer omits {count} of the {} revisions, such as {first}",
                    asked.len()
                )))
            }
        }
    }
}

fn json(revs: &[String]) -> String {
    serde_json::to_string(revs).expect("strings serialize to JSON")
}

/// The length of a revision in a request's line: quotes and comma are percent-encoded.
fn encoded_length(rev: &str) -> usize {
    rev.len() + 9
}
