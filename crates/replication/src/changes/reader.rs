//! Reads the changes feed of the source, in as many requests as needed.
//!
//! SUMMARY   [`ChangesReader::run`] queues every change until a normal feed ends; a continuous one never does. With a
//!           [`Subscription`], normal feeds are read repeatedly, when there is something to read.
//! PROMISES  After a failure it resumes after the last change it read: none is lost, none read
//!           twice. It holds at most the current chunk and an incomplete row.
//! SOURCE    `couch_replicator_changes_reader`: which failures count, and for how long.
//! DIFFERS   In CouchDB, a broken connection is reopened at once, without limit. Here there is a delay in between, and
//!           a feed that closes before its first byte counts as a failure.

use std::rc::Rc;
use std::time::Duration;

use slog::{Logger, info, warn};
use tokio::time::{Instant, sleep};

use super::feed::{Change, FeedError, FeedParser, Framing, Row, line};
use super::query::FeedQuery;
use super::queue::Producer;
use crate::counters::{Counter, RunCounters};
use crate::crash::{Answered, Crash};
use crate::db_updates::{Subscription, Turn};
use crate::endpoint::{
    Backoff, BodyFailed, BodyStream, Chunks, Endpoint, HeaderMap, RequestFailed, SentRequest,
    StatusCode, WAIT_MIN,
};
use crate::offload::offload;
use crate::open::db_info;
use crate::refused::{RefusalListener, RefusedDoc};
use crate::seq::Seq;

/// The delay before a new request: doubles each time until there is progress.
const BACKOFF: Backoff = Backoff::new(WAIT_MIN, 2, Duration::MAX);
/// Maximum delay after a broken connection.
const CLOSED_WAIT_MAX: Duration = Duration::from_secs(5);

/// The remedy if a source fails because it does not support selectors; express-pouchdb 4.2 even exits.
const SELECTORS: &str = " (if the source does not know selectors, match them here: --filter-at settee, in a document \"filter_at\": \"settee\")";

/// See the module's documentation.
pub struct ChangesReader {
    pub source: Endpoint,
    /// The requested feed.
    pub query: FeedQuery,
    /// The start sequence.
    pub since: Seq,
    /// Whether the last row was not queued: then a marker has to move the checkpoint. Begins as `false`.
    pub skipped: bool,
    /// Maximum failures in total.
    pub retries: u32,
    /// Documents with longer ids, in bytes, are skipped.
    pub id_max: Option<usize>,
    pub run_counters: Rc<RunCounters>,
    /// Notified of skipped documents.
    pub refused: RefusalListener,
    /// Triggers the reads of a continuous replication without its own feed.
    pub subscription: Option<Subscription>,
    pub log: Logger,
}

/// Why a request for the feed ended early.
enum Interrupted {
    /// Ends the job.
    Fatal(Crash),
    /// Counts against the retries.
    Failure(Answered),
    /// The connection broke.
    Closed(String),
}

/// How a request for the feed ended successfully.
enum FeedEnd {
    /// A normal feed is complete.
    Complete,
    /// The source ended a continuous feed, as it regularly does, or needs another request.
    Pause,
}

impl From<RequestFailed> for Interrupted {
    fn from(failed: RequestFailed) -> Self {
        if failed.is_max_backoff() || failed.is_refused() {
            Self::Fatal(failed.into())
        } else {
            Self::Failure(failed.into())
        }
    }
}

impl From<FeedError> for Interrupted {
    fn from(error: FeedError) -> Self {
        Self::Failure(Answered::none(error.to_string()))
    }
}

impl ChangesReader {
    /// Reads until the feed ends.
    ///
    /// # Errors
    /// [`Crash::ChangesReqFailed`] after more failures than `retries`, or why the database cannot be opened if the last
    /// one was a 404; [`Crash::DbNotFound`] once a subscription reports that the database was deleted;
    /// [`Crash::MaxBackoff`]; [`Crash::ReplicationAuthError`].
    pub async fn run(mut self, queue: Producer) -> Result<(), Crash> {
        let mut left = self.retries;
        let mut backoff = BACKOFF;
        loop {
            self.turn().await?;
            let (before, began) = (self.since.clone(), Instant::now());
            let ended = self.read_feed(&queue).await;
            if ended.is_err() {
                self.source.count(Counter::ChangesReadFailures);
            }
            let progress = self.since != before;
            if progress {
                backoff = BACKOFF;
            }
            let longest = match ended {
                Ok(FeedEnd::Complete) => match &mut self.subscription {
                    Some(subscription) => {
                        subscription.complete();
                        continue;
                    }
                    None => {
                        queue.close();
                        return Ok(());
                    }
                },
                // The usual end of an idle feed; a delay slows down one that always ends at once.
                Ok(FeedEnd::Pause) if progress || began.elapsed() >= WAIT_MIN => continue,
                Ok(FeedEnd::Pause) => WAIT_MIN,
                Err(Interrupted::Fatal(crash)) => return Err(crash),
                Err(Interrupted::Failure(answered)) if left == 0 => {
                    return Err(self.failed(answered).await);
                }
                Err(Interrupted::Failure(answered)) => {
                    warn!(self.log, "the changes feed failed, and is asked for again";
                        "error" => %answered, "retries_left" => left);
                    left -= 1;
                    if progress {
                        continue;
                    }
                    Duration::MAX
                }
                Err(Interrupted::Closed(why)) => {
                    info!(self.log, "the changes feed broke off, and is asked for again";
                        "error" => why);
                    CLOSED_WAIT_MAX
                }
            };
            sleep(backoff.wait().min(longest)).await;
        }
    }

    /// With a subscription, waits until there is something to read, and sets the kind of feed to read it with.
    ///
    /// # Errors
    /// The database was deleted.
    async fn turn(&mut self) -> Result<(), Crash> {
        let Some(subscription) = &mut self.subscription else {
            return Ok(());
        };
        match subscription.turn().await {
            Turn::Short => self.query.options.continuous = false,
            Turn::OwnFeed => self.query.options.continuous = true,
            Turn::Deleted => return Err(Crash::DbNotFound(self.source.url().to_owned())),
        }
        Ok(())
    }

    /// Returns why there is no feed: the filter or the database may be missing.
    async fn failed(&self, mut answered: Answered) -> Crash {
        if self.query.selects() {
            answered.body += SELECTORS;
        }
        let closed = match answered.code {
            Some(404) => db_info(&self.source).await.err(),
            _ => None,
        };
        closed.unwrap_or(Crash::ChangesReqFailed(answered))
    }

    async fn read_feed(&mut self, queue: &Producer) -> Result<FeedEnd, Interrupted> {
        let mut reply = self.source.stream(self.query.request(&self.since)).await?;
        // Headers keep their read buffer, which would only cost an idle feed memory.
        reply.headers = HeaderMap::new();
        match reply.status {
            StatusCode::OK => self.read_body(reply.asked, reply.body, queue).await,
            StatusCode::METHOD_NOT_ALLOWED if self.query.filter_here() => {
                info!(
                    self.log,
                    "the source does not filter by document id; ids are filtered here"
                );
                Ok(FeedEnd::Pause)
            }
            status => {
                let asked = Some(reply.asked.to_string());
                Err(Interrupted::Failure(Answered {
                    asked,
                    code: Some(status.as_u16()),
                    ..Answered::none(reply.excerpt().await)
                }))
            }
        }
    }

    async fn read_body(
        &mut self,
        asked: SentRequest,
        mut body: BodyStream,
        queue: &Producer,
    ) -> Result<FeedEnd, Interrupted> {
        let framing = if self.query.options.continuous {
            Framing::Continuous
        } else {
            Framing::Normal
        };
        let mut parser = FeedParser::new(framing);
        let mut any_byte = false;
        while let Some(piece) = body
            .chunk()
            .await
            .map_err(|failed| interrupted(&asked, failed, any_byte))?
        {
            any_byte = true;
            parser.push(&piece);
            while let Some(text) = parser.next_text()? {
                let line = offload(text.len(), move || line(&text)).await?;
                self.take(line, queue).await;
            }
        }
        match (parser.finish(), framing) {
            (Ok(last), Framing::Normal) => {
                // For a filtered feed, the next read need not begin at the last row.
                if let (Some(last), Some(_)) = (last, &self.subscription) {
                    self.take(Change::LastSeq(last), queue).await;
                }
                Ok(FeedEnd::Complete)
            }
            (Ok(_), Framing::Continuous) => Ok(FeedEnd::Pause),
            (Err(FeedError::Truncated), _) => Err(interrupted(
                &asked,
                BodyFailed::Broken("the feed ended in the middle".to_owned()),
                any_byte,
            )),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Queues a row or marker, and skips a document that must not be replicated.
    async fn take(&mut self, line: Change, queue: &Producer) {
        match &line {
            Change::LastSeq(seq) if *seq == self.since && !self.skipped => return,
            // A `last_seq` among the rows of a normal feed is ignored.
            Change::LastSeq(_) if !self.query.options.continuous && self.subscription.is_none() => {
                return;
            }
            Change::LastSeq(_) => self.skipped = false,
            Change::Row(row) => {
                if let Some(subscription) = &mut self.subscription {
                    subscription.release();
                }
                self.skipped = !self.takes(row);
            }
        }
        self.since = line.seq().clone();
        if !self.skipped {
            queue.put(line).await;
        }
    }

    /// Returns whether to replicate a document, and reports one that must not be.
    fn takes(&self, row: &Row) -> bool {
        let (error, reason) = if !self.query.takes(&row.id) {
            return false;
        } else if row.revs.is_empty() {
            // There is nothing to replicate or to refuse.
            return true;
        } else if self.id_max.is_some_and(|max| row.id.len() > max) {
            let reason = "the id has more bytes than max_document_id_length allows";
            ("id_too_long", reason)
        } else if !is_of_a_document(&row.id) {
            let reason = "this is not a document id: it is empty, or begins with `_` and is not `_design/NAME`";
            ("illegal_docid", reason)
        } else {
            return true;
        };
        warn!(self.log, "document skipped"; "document" => &row.id, "error" => reason);
        self.run_counters
            .count(|stats| stats.doc_write_failures += 1);
        (self.refused)(RefusedDoc {
            id: row.id.clone(),
            rev: row.revs.first().cloned(),
            error: error.to_owned(),
            reason: reason.to_owned(),
        });
        false
    }
}

/// Whether a document may have this id. Other ids name other parts of a database, such as `_security`, which a source
/// must not be able to write.
fn is_of_a_document(id: &str) -> bool {
    match id.strip_prefix("_design/") {
        Some(name) => !name.is_empty(),
        None => !id.is_empty() && !id.starts_with('_'),
    }
}

/// Silence counts as a failure, and so does a connection that breaks before the first byte.
fn interrupted(asked: &SentRequest, failed: BodyFailed, any_byte: bool) -> Interrupted {
    match failed {
        BodyFailed::Broken(why) if any_byte => Interrupted::Closed(why),
        failed => Interrupted::Failure(asked.without_answer(failed.into()).into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::changes::queue::{QueueLimits, bounded};
    use crate::testing::{Answer, Server, logger, replication};

    fn reader(source: &Server, body: &Value) -> ChangesReader {
        ChangesReader {
            source: source.endpoint(),
            query: FeedQuery::new(&replication(body).options),
            since: Seq::zero(),
            skipped: false,
            retries: 0,
            id_max: None,
            run_counters: Rc::default(),
            refused: Rc::new(|_| {}),
            subscription: None,
            log: logger(),
        }
    }

    #[tokio::test]
    async fn documents_that_settee_filters_out_still_advance_the_checkpoint() {
        let feed = "{\"seq\":1,\"id\":\"b\",\"changes\":[{\"rev\":\"1-b\"}]}\n{\"last_seq\":1}\n";
        let source = Server::start(move |_| Answer::new(200, feed)).await;
        let body = json!({"source": source.url(""), "target": "http://t/", "continuous": true,
            "doc_ids": ["a"], "filter_at": "settee"});
        let reader = reader(&source, &body);
        let (producer, consumer) = bounded(QueueLimits::of(1, 1));
        let taken = tokio::select! {
            ended = reader.run(producer) => panic!("{ended:?}"),
            taken = timeout(Duration::from_secs(60), consumer.take(1)) => taken,
        };
        let marker = Change::LastSeq(Seq::from_value(&1.into()));
        assert_eq!(taken.expect("a marker is queued"), [marker]);
    }

    #[tokio::test]
    async fn users_and_channels_in_the_feed_of_sync_gateway_are_no_errors() {
        let feed = r#"{"results":[{"seq":1,"id":"_user/a","changes":[]},
            {"seq":2,"id":"d","changes":[{"rev":"2-x"}],"removed":["ch"]}],"last_seq":2}"#;
        let source = Server::start(move |_| Answer::new(200, feed)).await;
        let body = json!({"source": source.url(""), "target": "http://t/"});
        let reader = reader(&source, &body);
        let run_counters = Rc::clone(&reader.run_counters);
        let (producer, consumer) = bounded(QueueLimits::of(1, 2));
        let read = timeout(Duration::from_secs(60), reader.run(producer)).await;
        read.expect("the feed ends").unwrap();
        let rows = consumer.take(2).await.into_iter();
        let revs = rows.filter_map(Change::into_row).map(|row| row.revs);
        assert_eq!(revs.collect::<Vec<_>>(), [vec![], vec!["2-x".to_owned()]]);
        assert_eq!(run_counters.stats().doc_write_failures, 0);
    }
}
