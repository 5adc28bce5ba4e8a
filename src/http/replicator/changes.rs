//! `_changes` of the replicator database: normal, long-poll, continuous and eventsource feeds.
//!
//! SUMMARY   A feed reads the store in batches and writes them as it reads; when there is nothing new it waits for
//!           the store's next update.
//! PROMISES  A feed ends when the service is stopped, the client disconnects or its user's rights change. A selector
//!           matches only what the reader sees of a document: it cannot be used to guess passwords.
//! SOURCE    chttpd_db: handle_changes_req/2; fabric_view_changes; couch_changes: configure_filter/4.
//! DIFFERS   No filters of design documents and no views: no code runs for a feed.

use std::time::Duration;

use actix_web::http::header::HeaderName;
use actix_web::web::Payload;
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use strum::EnumString;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::access::WhileAllowed;
use super::super::answer::{Answer, HttpResult, Piece, Pieces, Refusal, streamed};
use super::super::params::Params;
use super::super::request::text;
use super::Call;
use crate::replicator::document::{Person, shown};
use crate::replicator::members::DocMembers;
use mango::Selector;
use store::{Changes, Document, Store, StoreError};

/// How long a feed without heartbeats waits for news, and the interval of heartbeats, by default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest timeout, and the longest heartbeat interval, that a request may set.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Documents read at a time.
const BATCH: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
enum Kind {
    Normal,
    Longpoll,
    Continuous,
    EventSource,
}

/// How a feed continues.
enum Phase {
    Head,
    Rows,
    Wait,
    End,
    Over,
}

struct Feed {
    store: Store,
    mark: String,
    person: Person,
    kind: Kind,
    since: u64,
    limit: usize,
    include_docs: bool,
    filter: Filter,
    heartbeat: Option<Duration>,
    until: Instant,
    timeout: Duration,
    updates: watch::Receiver<Option<u64>>,
    stopping: watch::Receiver<bool>,
    is_first: bool,
    phase: Phase,
}

/// `GET` and `POST /_replicator/_changes`.
pub(crate) async fn changes(call: Call, payload: Payload) -> Answer {
    let params = call.all_params(payload).await?;
    if params.boolean("descending", false)? {
        return descending(&call, &params).await;
    }
    let feed = feed(&call, &params).await?;
    streamed(
        match feed.kind {
            Kind::EventSource => "text/event-stream",
            _ => "application/json",
        },
        WhileAllowed::new(feed, &call.visitor, call.shared),
    )
    .await
}

async fn feed(call: &Call, params: &Params) -> HttpResult<Feed> {
    let kind = params.get("feed").unwrap_or("normal");
    let kind: Kind = kind.parse().map_err(|_| {
        let known = "normal, longpoll, continuous or eventsource";
        Refusal::bad_request(format!("no feed {kind:?} here: {known}"))
    })?;
    let store = call.database().store.clone();
    // The position alone: no documents are read.
    let now = store.changes(0, 0).await?;
    let timeout = time(params, "timeout")?;
    Ok(Feed {
        since: since(call, params, &now)?,
        limit: params.limit()?,
        include_docs: params.boolean("include_docs", false)?,
        filter: Filter::of(params)?,
        heartbeat: heartbeat(params)?,
        until: Instant::now() + timeout,
        timeout,
        updates: store.updates(),
        stopping: call.shared.stopping.subscribe(),
        person: call.person.clone(),
        is_first: true,
        phase: match kind {
            Kind::Continuous | Kind::EventSource => Phase::Rows,
            Kind::Normal | Kind::Longpoll => Phase::Head,
        },
        kind,
        mark: now.mark,
        store,
    })
}

fn since(call: &Call, params: &Params, now: &Changes) -> HttpResult<u64> {
    // A browser that was disconnected sends its position.
    let last = text(
        call.request.head(),
        HeaderName::from_static("last-event-id"),
    );
    let text = match last.or_else(|| params.get("since")) {
        None => return Ok(0),
        Some("now") => return Ok(now.update_seq),
        Some(text) => text.trim_matches('"'),
    };
    let (number, mark) = text.split_once('-').unwrap_or((text, ""));
    let number: u64 = number
        .parse()
        .map_err(|_| Refusal::bad_request("Malformed sequence supplied in 'since' parameter."))?;
    // Numbers of other stores are meaningless here, and so are those of updates that a failover of the database lost:
    // the feed starts from 0.
    let is_ours = (mark.is_empty() || mark == now.mark) && number <= now.update_seq;
    Ok(if is_ours { number } else { 0 })
}

/// Returns a time given in milliseconds: by default [`TIMEOUT`], at most [`TIME_MAX`].
fn time(params: &Params, name: &str) -> HttpResult<Duration> {
    let given = params.count(name)?;
    let time = given.map_or(TIMEOUT, |time| Duration::from_millis(time as u64));
    Ok(time.min(TIME_MAX))
}

fn heartbeat(params: &Params) -> HttpResult<Option<Duration>> {
    match params.get("heartbeat") {
        None | Some("false") => Ok(None),
        Some("true") => Ok(Some(TIMEOUT)),
        Some(_) => {
            let time = time(params, "heartbeat")?;
            if time.is_zero() {
                Err(Refusal::bad_request(
                    "The heartbeat value should be a positive integer.",
                ))
            } else {
                Ok(Some(time))
            }
        }
    }
}

impl Pieces for Feed {
    async fn next(&mut self) -> Piece {
        // Documents that the filter skips do not delay the heartbeat.
        let beat_at = self.heartbeat.map(|every| Instant::now() + every);
        loop {
            match self.phase {
                Phase::Rows | Phase::Wait if beat_at.is_some_and(|at| at <= Instant::now()) => {
                    return Ok(Some(match self.kind {
                        Kind::EventSource => Bytes::from_static(b"event: heartbeat\ndata: \n\n"),
                        _ => Bytes::from_static(b"\n"),
                    }));
                }
                Phase::Head => {
                    self.phase = Phase::Rows;
                    return Ok(Some(Bytes::from_static(b"{\"results\":[\n")));
                }
                Phase::Rows => {
                    if let Some(rows) = self.rows().await? {
                        return Ok(Some(rows));
                    }
                }
                Phase::Wait => self.wait(beat_at).await,
                Phase::End => {
                    self.phase = Phase::Over;
                    return Ok(Some(self.end().await?));
                }
                Phase::Over => return Ok(None),
            }
        }
    }
}

impl Feed {
    /// Reads a batch, and decides how to continue. Returns its rows, if there are any.
    async fn rows(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.updates.mark_unchanged();
        let changes = self.store.changes(self.since, BATCH).await?;
        if changes.mark != self.mark {
            // Numbering has changed: the client reconnects, and gets everything.
            self.phase = Phase::End;
            return Ok(None);
        }
        let is_last = changes.documents.len() < BATCH;
        let mut text = String::new();
        for document in &changes.documents {
            if self.limit == 0 {
                break;
            }
            self.since = document.seq;
            let whole = shown(document, &self.person);
            if !self.filter.wants(&document.id, &whole) {
                continue;
            }
            self.limit -= 1;
            self.until = Instant::now() + self.timeout;
            let row = row(document, whole, &self.mark, self.include_docs);
            match self.kind {
                Kind::Continuous => text.push_str(&format!("{row}\n")),
                Kind::EventSource => {
                    let seq = row.raw("seq").map_or("", RawValue::get);
                    text.push_str(&format!("data: {row}\nid: {seq}\n\n"));
                }
                Kind::Normal | Kind::Longpoll if self.is_first => text.push_str(&row.to_string()),
                Kind::Normal | Kind::Longpoll => text.push_str(&format!(",\n{row}")),
            }
            self.is_first = false;
        }
        let waits = match self.kind {
            Kind::Normal => false,
            Kind::Longpoll => self.is_first,
            Kind::Continuous | Kind::EventSource => true,
        };
        self.phase = match (self.limit, is_last, waits) {
            (0, ..) | (_, true, false) => Phase::End,
            (_, true, true) => Phase::Wait,
            (_, false, _) => Phase::Rows,
        };
        Ok((!text.is_empty()).then(|| text.into()))
    }

    /// Waits for news, or until a heartbeat is due. A client that gets heartbeats does not need a timeout.
    async fn wait(&mut self, beat_at: Option<Instant>) {
        tokio::select! {
            changed = self.updates.changed() => {
                self.phase = if changed.is_ok() { Phase::Rows } else { Phase::End };
            }
            () = tokio::time::sleep_until(beat_at.unwrap_or(self.until)) => {
                if beat_at.is_none() {
                    self.phase = Phase::End;
                }
            }
            _ = self.stopping.wait_for(|stopping| *stopping) => self.phase = Phase::End,
        }
    }

    async fn end(&self) -> Result<Bytes, StoreError> {
        let pending = self.store.pending(self.since).await?;
        let last = seq(self.since, &self.mark);
        let text = match self.kind {
            Kind::Continuous => json!({"last_seq": last, "pending": pending}).to_string(),
            // The client reconnects on its own, and sends its position.
            Kind::EventSource => return Ok(Bytes::from_static(b"\n")),
            Kind::Normal | Kind::Longpoll => {
                format!("\n],\n\"last_seq\":\"{last}\",\"pending\":{pending}}}")
            }
        };
        Ok(format!("{text}\n").into())
    }
}

/// Answers with the latest updates first, and does not wait for more.
async fn descending(call: &Call, params: &Params) -> Answer {
    let store = &call.database().store;
    let mark = store.changes(0, 0).await?.mark;
    let include_docs = params.boolean("include_docs", false)?;
    let filter = Filter::of(params)?;
    let limit = params.limit()?;
    // All are read in one snapshot: with a filter it is unknown how many are needed.
    let read = match filter {
        Filter::All => limit,
        _ => usize::MAX,
    };
    let documents = store.last_changes(read).await?;
    let (mut rows, mut last) = (Vec::new(), 0);
    for document in &documents {
        if rows.len() >= limit {
            break;
        }
        let whole = shown(document, &call.person);
        if filter.wants(&document.id, &whole) {
            last = document.seq;
            rows.push(row(document, whole, &mark, include_docs));
        }
    }
    let answer = DocMembers::default()
        .with("results", rows)
        .with("last_seq", seq(last, &mark))
        .with("pending", 0);
    super::super::answer::ok(&answer)
}

/// Returns a sequence for clients: the number, and the mark of the numbering that it belongs to.
pub(super) fn seq(number: u64, mark: &str) -> String {
    format!("{number}-{mark}")
}

/// Returns a document's row; `whole` is the document as its reader sees it.
fn row(document: &Document, whole: DocMembers, mark: &str, include_docs: bool) -> DocMembers {
    let rev = whole.text("_rev").unwrap_or_default();
    let mut row = DocMembers::default()
        .with("seq", seq(document.seq, mark))
        .with("id", &document.id)
        .with("changes", [json!({"rev": rev})]);
    if document.deleted {
        row.set("deleted", true);
    }
    if include_docs {
        row.set("doc", whole);
    }
    row
}

/// Which documents a feed shows.
enum Filter {
    All,
    Ids(Vec<String>),
    /// Design documents.
    Design,
    Selector(Box<Selector>),
}

impl Filter {
    /// Reads a filter from the parameters.
    fn of(params: &Params) -> HttpResult<Self> {
        match params.get("filter") {
            None | Some("") => Ok(Self::All),
            Some("_design") => Ok(Self::Design),
            Some("_doc_ids") => {
                let ids = params.json(&["doc_ids"])?;
                let ids = ids
                    .as_ref()
                    .and_then(Value::as_array)
                    .ok_or_else(|| Refusal::bad_request("`doc_ids` must be an array."))?;
                Ok(Self::Ids(
                    ids.iter()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect(),
                ))
            }
            Some("_selector") => {
                let text = params.get("selector").ok_or_else(|| {
                    Refusal::bad_request("Selector must be specified in POST payload")
                })?;
                let selector = Selector::parse(text)
                    .map_err(|error| Refusal::bad_request(error.to_string()))?;
                Ok(Self::Selector(Box::new(selector)))
            }
            Some(other) => Err(Refusal::of(
                "not_implemented",
                format!(
                    "the filter {other:?} is not supported here, only _doc_ids, _selector and _design"
                ),
            )),
        }
    }

    /// Returns whether a document is shown. `whole` is the document as its reader sees it.
    fn wants(&self, id: &str, whole: &DocMembers) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.iter().any(|wanted| wanted == id),
            Self::Design => id.starts_with("_design/"),
            Self::Selector(selector) => selector.matches(&whole.to_string()).unwrap_or(false),
        }
    }
}
