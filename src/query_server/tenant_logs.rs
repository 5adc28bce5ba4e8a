//! The latest lines that each tenant's functions have logged, and their errors.
//!
//! SUMMARY   [`TenantLogs::note`] adds a line of a database, [`TenantLogs::page`] returns lines after a number, and
//!           [`TenantLogs::news`] notifies of more.
//! PROMISES  Memory is bounded: lines and bytes of a tenant, and bytes of all, have limits; the tenant that wrote
//!           least recently loses its lines first. A tenant's lines have numbers that rise by one and are never
//!           reused, so that a reader learns how many were lost.
//! CALLED    By processes and ended calls, on the pool's arbiter; read by HTTP on its own threads.
//! LIMITS    Lines are only in memory. At most [`TENANTS_MAX`] tenants have any; those with names longer than
//!           [`NAME_BYTES_MAX`] have none.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::request_id::RequestId;
use crate::lock;
use crate::logging::timestamp;
use crate::otp::system_time;

/// Maximum number of lines of a tenant.
pub(crate) const LINES_MAX: usize = 1_000;

/// Maximum number of bytes of a tenant's lines.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// Maximum number of bytes of all tenants' lines.
const TOTAL_BYTES_MAX: usize = 64 << 20;

/// Maximum number of tenants with lines.
pub(crate) const TENANTS_MAX: usize = 10_000;

/// Maximum length of the name of a tenant with lines, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Maximum length of a message or a name in a line, in bytes; the rest is cut off.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// The overhead of a line, in bytes; its text is extra.
const LINE_BYTES: usize = 64;

/// Maximum number of lines of a page.
pub(crate) const PAGE_LINES_MAX: usize = 100;

/// Waiting readers are woken in this many groups, by the hash of their tenant.
const GROUPS: usize = 64;

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineKind {
    /// Logged by a function, or by its query server.
    Log,
    /// An error of a function.
    Error,
}

/// A line to be written.
#[derive(Debug, Serialize)]
pub(crate) struct TenantLine<'a> {
    pub(crate) kind: LineKind,
    pub(crate) request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ddoc: Option<&'a str>,
    pub(crate) function: &'a str,
    /// The index of the function in the call's list, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    /// The id of the function's document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) doc: Option<&'a str>,
    /// The name of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<&'a str>,
    pub(crate) message: &'a str,
    /// The position in the source, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
}

impl TenantLine<'_> {
    /// Returns the rest of the JSON object: the members after its number, and the closing brace.
    fn rest(mut self) -> String {
        self.function = cut(self.function);
        self.message = cut(self.message);
        self.ddoc = self.ddoc.map(cut);
        self.doc = self.doc.map(cut);
        self.name = self.name.map(cut);
        // Strings and numbers always serialize.
        let mut text = serde_json::to_string(&self).unwrap_or_default();
        text.replace_range(
            ..1,
            &format!(",\"time\":\"{}\",", timestamp(SystemTime::now())),
        );
        text
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// The last lines of all tenants.
#[derive(Debug)]
pub(crate) struct TenantLogs {
    rows: Mutex<Rows>,
    groups: [Notify; GROUPS],
    hasher: RandomState,
}

/// The lines kept, oldest first.
#[derive(Debug, Default)]
struct Rows {
    rows: FxHashMap<Arc<str>, Row>,
    /// The tenants with lines, by their latest write.
    order: BTreeMap<u64, Arc<str>>,
    /// The number of writes.
    writes: u64,
    bytes: usize,
}

/// The lines of one tenant.
#[derive(Debug)]
struct Row {
    /// The number of its first line ever.
    begun: u64,
    /// The number of the first line kept.
    first: u64,
    /// The lines kept, each without its number.
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// Its key in [`Rows::order`].
    written: u64,
}

impl Row {
    /// Starts a numbering at the current time in microseconds. That exceeds every number of an earlier, evicted
    /// numbering, because no tenant writes more than one line per microsecond.
    fn new() -> Self {
        let begun = system_time().as_micros();
        Self {
            begun,
            first: begun,
            lines: VecDeque::new(),
            bytes: 0,
            written: 0,
        }
    }

    /// Returns the number of the next line.
    fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// Drops the oldest line; returns its size.
    fn lose_first(&mut self) -> usize {
        let bytes = self.lines.pop_front().map_or(0, |line| taken(&line));
        self.first += 1;
        self.bytes -= bytes;
        bytes
    }

    /// Drops all lines, but continues the numbers; returns their size.
    fn lose_all(&mut self) -> usize {
        self.first = self.next();
        self.lines = VecDeque::new();
        std::mem::take(&mut self.bytes)
    }
}

fn taken(line: &Bytes) -> usize {
    line.len() + LINE_BYTES
}

impl Rows {
    fn add(&mut self, db: &Arc<str>, line: Bytes) {
        if !self.rows.contains_key(db) {
            self.make_room();
        }
        let row = self.rows.entry(Arc::clone(db)).or_insert_with(Row::new);
        self.order.remove(&row.written);
        self.writes += 1;
        row.written = self.writes;
        self.order.insert(row.written, Arc::clone(db));
        row.bytes += taken(&line);
        self.bytes += taken(&line);
        row.lines.push_back(line);
        while row.lines.len() > LINES_MAX || row.bytes > BYTES_MAX {
            self.bytes -= row.lose_first();
        }
        while self.bytes > TOTAL_BYTES_MAX
            && let Some((_, db)) = self.order.pop_first()
            && let Some(row) = self.rows.get_mut(&db)
        {
            self.bytes -= row.lose_all();
        }
    }

    /// Makes room for another tenant: removes tenants without lines, or if all have some, the one that wrote least
    /// recently.
    fn make_room(&mut self) {
        if self.rows.len() < TENANTS_MAX {
            return;
        }
        if self.order.len() < self.rows.len() {
            self.rows.retain(|_, row| !row.lines.is_empty());
        } else if let Some((_, db)) = self.order.pop_first() {
            let bytes = self.rows.remove(&db).map_or(0, |row| row.bytes);
            self.bytes -= bytes;
        }
    }
}

/// Lines of a tenant.
#[derive(Debug, Default)]
pub(crate) struct LogPage {
    /// The number of lines lost before these; `None` if none were, `Some(None)` if the number is unknown.
    pub(crate) lost: Option<Option<u64>>,
    /// The number to continue after: that of the last line, if there are any.
    pub(crate) last: u64,
    lines: Vec<Bytes>,
}

impl LogPage {
    /// Returns the lines, each a JSON object, preceded by one about lost lines if there are any.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        // The number of the last lost line too: a reader that gets no other line continues after it.
        let before = self.last - self.lines.len() as u64;
        let lost = self.lost.map(|lines| {
            let lines = serde_json::json!(lines);
            format!("{{\"seq\":{before},\"kind\":\"lost\",\"lines\":{lines}}}")
        });
        let first = before.saturating_add(1);
        let numbered = (first..).zip(&self.lines).map(|(number, line)| {
            // Lines are made from strings, so they are UTF-8.
            let rest = String::from_utf8_lossy(line);
            format!("{{\"seq\":{number}{rest}")
        });
        lost.into_iter().chain(numbered)
    }
}

/// `{"lines": [LINE, ..], "last": N}`.
impl Serialize for LogPage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Page {
            lines: Vec<Box<RawValue>>,
            last: u64,
        }
        let lines = self
            .texts()
            .map(RawValue::from_string)
            .collect::<Result<_, _>>()
            .map_err(S::Error::custom)?;
        let last = self.last;
        Page { lines, last }.serialize(to)
    }
}

impl TenantLogs {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: Mutex::default(),
            groups: std::array::from_fn(|_| Notify::new()),
            hasher: RandomState::new(),
        })
    }

    /// Returns a notifier of further lines of a tenant; it may fire without any. Start waiting before you request the
    /// page; otherwise a line added between an empty page and the wait is missed.
    pub(crate) fn news<'a>(&'a self, db: &str) -> &'a Notify {
        &self.groups[self.hasher.hash_one(db) as usize % GROUPS]
    }

    /// Adds a line of a tenant.
    pub(crate) fn note(&self, db: &Arc<str>, line: TenantLine<'_>) {
        if db.len() > NAME_BYTES_MAX {
            return;
        }
        let line = Bytes::from(line.rest());
        lock(&self.rows).add(db, line);
        self.news(db).notify_waiters();
    }

    /// Returns a tenant's first lines after the number `since`, at most [`PAGE_LINES_MAX`]. With 0 or an unknown
    /// number, starts with the oldest.
    pub(crate) fn page(&self, db: &str, since: u64) -> LogPage {
        let rows = lock(&self.rows);
        let Some(row) = rows.rows.get(db) else {
            return LogPage {
                last: since,
                ..LogPage::default()
            };
        };
        let is_known = (row.begun - 1..row.next()).contains(&since);
        let (from, lost) = match since {
            0 => (row.first, None),
            _ if !is_known => (row.first, Some(None)),
            _ if since + 1 < row.first => (row.first, Some(Some(row.first - since - 1))),
            _ => (since + 1, None),
        };
        let lines: Vec<Bytes> = row
            .lines
            .range((from - row.first) as usize..)
            .take(PAGE_LINES_MAX)
            .cloned()
            .collect();
        LogPage {
            lost,
            last: from + lines.len() as u64 - 1,
            lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    fn note(logs: &TenantLogs, db: &str, message: &str) {
        let line = TenantLine {
            kind: LineKind::Log,
            request_id: &RequestId::made(),
            pool: None,
            ddoc: None,
            function: "map_docs",
            index: None,
            doc: None,
            name: None,
            message,
            line: None,
        };
        logs.note(&db.into(), line);
    }

    /// Returns all lines after a number, and the number to continue with.
    fn read(logs: &TenantLogs, db: &str, mut since: u64) -> (Vec<Value>, u64) {
        let mut lines = Vec::new();
        loop {
            let page = logs.page(db, since);
            since = page.last;
            if page.lines.is_empty() && page.lost.is_none() {
                return (lines, since);
            }
            lines.extend(
                page.texts()
                    .map(|text| serde_json::from_str(&text).unwrap()),
            );
        }
    }

    #[test]
    fn a_reader_resumes_where_it_was_and_sees_only_its_tenant() {
        let logs = TenantLogs::new();
        assert_eq!(read(&logs, "shop", 0), (Vec::new(), 0));
        note(&logs, "other", "not yours");
        for number in 0..250 {
            note(&logs, "shop", &format!("line {number}"));
        }
        let (lines, last) = read(&logs, "shop", 0);
        assert_eq!(lines.len(), 250);
        for (number, line) in lines.iter().enumerate() {
            assert_eq!(line["message"], format!("line {number}"));
            assert_eq!(line["seq"], last - 249 + number as u64);
        }
        assert_eq!(read(&logs, "shop", last), (Vec::new(), last));
        note(&logs, "shop", "later");
        let (lines, now) = read(&logs, "shop", last);
        assert_eq!((lines.len(), now), (1, last + 1));
        assert_eq!(lines[0]["message"], "later");
    }

    #[test]
    fn a_tenant_keeps_its_last_lines_within_both_bounds_and_a_slow_reader_learns_how_many_it_lost()
    {
        let logs = TenantLogs::new();
        note(&logs, "shop", "the first");
        let (_, last) = read(&logs, "shop", 0);
        for number in 0..LINES_MAX + 7 {
            note(&logs, "shop", &number.to_string());
        }
        let (lines, last) = read(&logs, "shop", last);
        assert_eq!(lines[0]["lines"], 7);
        assert_eq!(lines.len(), LINES_MAX + 1);
        assert_eq!(lines[1]["message"], "7");
        for _ in 0..LINES_MAX {
            note(&logs, "shop", &"x".repeat(TEXT_BYTES_MAX + 5));
        }
        let (lines, _) = read(&logs, "shop", last);
        assert!(
            lines.len() > 200 && lines.len() < LINES_MAX,
            "{}",
            lines.len()
        );
        assert_eq!(lines[0]["lines"], LINES_MAX - (lines.len() - 1));
        assert_eq!(lines[1]["message"].as_str().unwrap().len(), TEXT_BYTES_MAX);
        assert!(lock(&logs.rows).rows["shop"].bytes <= BYTES_MAX);
    }

    #[test]
    fn the_tenants_that_wrote_least_recently_lose_their_lines_first_but_not_their_numbering() {
        let logs = TenantLogs::new();
        let fill = |db: &str| (0..300).for_each(|_| note(&logs, db, &"x".repeat(TEXT_BYTES_MAX)));
        fill("old");
        let (_, last) = read(&logs, "old", 0);
        fill("used");
        let full = lock(&logs.rows).rows["used"].bytes;
        let count = TOTAL_BYTES_MAX / full;
        for number in 2..count {
            fill(&format!("db{number}"));
        }
        note(&logs, "used", "again");
        assert!(!read(&logs, "old", 0).0.is_empty());
        fill("new");
        assert_eq!(read(&logs, "old", last), (Vec::new(), last));
        assert!(!read(&logs, "used", 0).0.is_empty());
        assert!(lock(&logs.rows).bytes <= TOTAL_BYTES_MAX);
        note(&logs, "old", "back");
        let (lines, _) = read(&logs, "old", last - 2);
        assert_eq!(lines[0], json!({"seq": last, "kind": "lost", "lines": 2}));
        assert_eq!(lines[1]["seq"], last + 1);
    }

    #[test]
    fn a_reader_of_nothing_but_a_loss_gets_the_number_to_continue_after() {
        let logs = TenantLogs::new();
        (0..2).for_each(|_| note(&logs, "shop", "x"));
        let (_, last) = read(&logs, "shop", 0);
        lock(&logs.rows).rows.get_mut("shop").unwrap().lose_all();
        let lost = json!({"seq": last, "kind": "lost", "lines": 1});
        assert_eq!(read(&logs, "shop", last - 1), (vec![lost], last));
    }

    #[test]
    fn tenants_beyond_the_bound_are_evicted_and_a_reader_learns_that_lines_are_lost() {
        let logs = TenantLogs::new();
        note(&logs, "first", "x");
        let (_, last) = read(&logs, "first", 0);
        for number in 0..TENANTS_MAX {
            note(&logs, &format!("db{number}"), "x");
        }
        assert_eq!(lock(&logs.rows).rows.len(), TENANTS_MAX);
        assert_eq!(read(&logs, "first", last), (Vec::new(), last));
        note(&logs, "first", "y");
        let (lines, now) = read(&logs, "first", last);
        let lost = json!({"seq": now - 1, "kind": "lost", "lines": null});
        assert_eq!(lines[0], lost);
        assert_eq!((&lines[1]["message"], now > last), (&"y".into(), true));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        note(&logs, &long, "x");
        assert_eq!(read(&logs, &long, 0), (Vec::new(), 0));
    }

    #[test]
    fn a_waiting_reader_is_woken_by_a_line_of_its_tenant() {
        let logs = TenantLogs::new();
        let mut news = pin!(logs.news("shop").notified());
        assert!(news.as_mut().now_or_never().is_none());
        note(&logs, "shop", "x");
        assert!(news.now_or_never().is_some());
    }
}
