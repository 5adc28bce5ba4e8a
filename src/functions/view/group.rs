//! Reduces ordered rows with a function of the view's language, group by group.
//!
//! SUMMARY   Rows with equal keys, or with equal first elements of their keys, form a group, shown with the key of
//!           its first row. A group is reduced in pieces, whose results are rereduced.
//! SOURCE    couch_mrview_util and fabric_view: grouping; couch_query_servers: reduce/4, rereduce/4.
//! DIFFERS   CouchDB reduces along the nodes of its tree; here pieces have a fixed size. A function whose result
//!           depends on how rows are divided is wrong in CouchDB as well.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::ViewError;
use super::grouping::{Grouping, line};
use super::processes::{Process, ProcessError, ProcessErrorKind, Processes};
use super::rows::Rows;
use crate::functions::decode::{done_with, not_expected};
use crate::functions::reduce::{OVERFLOW, is_overflow};
use crate::query_server::prompt;
use json::collation::CachedCollation;

/// Size from which a piece, or a part of the results to rereduce, is complete, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Maximum number of groups reduced at once, and of unanswered prompts of each group.
const IN_FLIGHT_MAX: usize = 16;

/// Beyond this number of pieces, further processes are borrowed.
const SPREAD_PIECES: usize = 4;

/// How to reduce rows.
#[derive(Clone, Copy, Debug)]
pub struct ReducePlan<'a> {
    /// The source of the function.
    pub source: &'a str,
    /// The grouping of rows.
    pub grouping: Grouping,
    /// Maximum concurrent processes, if available.
    pub width: usize,
}

/// Reduces ordered rows. `write` gets each result in printed form, a JSON object and a line feed, in the order of the
/// keys; it returns false once the reader is gone.
///
/// Without rows there are no groups and no results, as in CouchDB.
///
/// # Errors
/// [`ViewError::Reduce`], [`ViewError::Process`], [`ViewError::Unwanted`].
pub async fn reduce(
    language: &str,
    processes: &Processes,
    rows: &Rows,
    plan: ReducePlan<'_>,
    write: impl AsyncFnMut(Vec<u8>) -> bool,
) -> Result<(), ViewError> {
    let function = Function {
        source: plan.source,
        processes: RefCell::new(vec![Rc::new(processes.open(language, None).await?)]),
        turn: Cell::new(0),
    };
    let is_much = rows.bytes() > SPREAD_PIECES * PIECE_BYTES;
    let width = if is_much { plan.width } else { 1 };
    // Further processes are borrowed while the first one works; if none is available, it works alone.
    let borrow = async {
        for _ in 1..width {
            let Ok(process) = processes.open(language, None).await else {
                break;
            };
            function.processes.borrow_mut().push(Rc::new(process));
        }
        std::future::pending::<Infallible>().await
    };
    let mut reduced = tokio::select! {
        reduced = function.reduce_groups(rows, plan.grouping, write) => reduced,
        never = borrow => match never {},
    };
    for process in function.processes.into_inner() {
        // Every prompt has ended or was cancelled.
        if let Ok(process) = Rc::try_unwrap(process) {
            if reduced.is_ok() {
                reduced = process.fence().await.map_err(ViewError::from);
            }
            process.close(reduced.is_ok()).await;
        }
    }
    reduced
}

/// Why a group has no value.
enum ReduceFailure {
    Process(ProcessError),
    Value(String),
}

/// Splits ordered rows into groups.
pub(super) struct Groups<'a> {
    rows: &'a Rows,
    grouping: Grouping,
    collation: CachedCollation,
    next: usize,
}

impl Iterator for Groups<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        if start == self.rows.len() {
            return None;
        }
        let mut end = self.rows.len();
        if self.grouping != Grouping::None {
            let text = self.grouping.key_of(self.rows.get(start).key);
            let sort_key = self.sort_key(&text);
            let mut group = Group { text, sort_key };
            end = (start + 1..end)
                .find(|row| !self.belongs(*row, &mut group))
                .unwrap_or(end);
        }
        self.next = end;
        Some(start..end)
    }
}

/// The common part of a group's keys.
struct Group<'a> {
    /// The group's key in the last compared row.
    text: Cow<'a, str>,
    sort_key: Vec<u8>,
}

impl<'a> Groups<'a> {
    pub fn of(rows: &'a Rows, grouping: Grouping) -> Self {
        Self {
            rows,
            grouping,
            collation: CachedCollation::default(),
            next: 0,
        }
    }

    /// Returns whether a row's key collates equal to a group's.
    fn belongs(&mut self, row: usize, group: &mut Group<'a>) -> bool {
        let text = self.grouping.key_of(self.rows.get(row).key);
        // Most keys of a group have the same text.
        if text == group.text {
            return true;
        }
        let belongs = self.sort_key(&text) == group.sort_key;
        if belongs {
            group.text = text;
        }
        belongs
    }

    fn sort_key(&mut self, key: &str) -> Vec<u8> {
        let mut sort_key = Vec::new();
        self.collation.write_key(key.as_bytes(), &mut sort_key);
        sort_key
    }
}

/// A reduce function in some processes.
struct Function<'a> {
    source: &'a str,
    /// Never empty; may grow during use.
    processes: RefCell<Vec<Rc<Process>>>,
    /// Index of the process for the next prompt; wraps around.
    turn: Cell<usize>,
}

impl Function<'_> {
    /// Reduces group by group.
    async fn reduce_groups(
        &self,
        rows: &Rows,
        grouping: Grouping,
        mut write: impl AsyncFnMut(Vec<u8>) -> bool,
    ) -> Result<(), ViewError> {
        let results = stream::iter(Groups::of(rows, grouping)).map(|group| async move {
            let key = grouping.key_of(rows.get(group.start).key);
            match self.reduce_group(rows, group).await {
                Ok(value) => Ok(line(&key, value.get())),
                Err(ReduceFailure::Process(error)) => Err(ViewError::Process(error)),
                Err(ReduceFailure::Value(reason)) => Err(ViewError::Reduce {
                    key: grouping.named(&key),
                    reason,
                }),
            }
        });
        let mut results = std::pin::pin!(results.buffered(IN_FLIGHT_MAX));
        while let Some(line) = results.try_next().await? {
            if !write(line).await {
                return Err(ViewError::Unwanted);
            }
        }
        Ok(())
    }

    async fn reduce_group(
        &self,
        rows: &Rows,
        group: Range<usize>,
    ) -> Result<Box<RawValue>, ReduceFailure> {
        let sizes = group.clone().map(|row| rows.text(row).len());
        let mut start = group.start;
        let pieces = part_lengths(sizes, 1).into_iter().map(|length| {
            let end = start + length;
            std::mem::replace(&mut start, end)..end
        });
        let pieces = stream::iter(pieces).map(|piece| {
            let arguments: Vec<_> = piece
                .map(|row| {
                    let row = rows.get(row);
                    ((raw(row.key), raw(row.id)), raw(row.value))
                })
                .collect();
            self.ask(prompt::line(&("reduce", [self.source], arguments, "")))
        });
        let mut values: Vec<Box<RawValue>> = pieces.buffered(IN_FLIGHT_MAX).try_collect().await?;
        // A tree, like CouchDB's: no prompt grows with the number of rows.
        while values.len() > 1 {
            if let Some(overflow) = values.iter().find(|value| is_overflow(value.get())) {
                return Ok(overflow.clone());
            }
            let lengths = part_lengths(values.iter().map(|value| value.get().len()), 2);
            let mut values_left = values.into_iter();
            let parts = lengths
                .into_iter()
                .map(|length| values_left.by_ref().take(length).collect::<Vec<_>>());
            let again = stream::iter(parts)
                .map(|part| self.ask(prompt::line(&("rereduce", [self.source], part, ""))));
            values = again.buffered(IN_FLIGHT_MAX).try_collect().await?;
        }
        Ok(values.pop().unwrap_or_else(|| RawValue::NULL.to_owned()))
    }

    async fn ask(&self, line: Bytes) -> Result<Box<RawValue>, ReduceFailure> {
        let process = {
            let processes = self.processes.borrow();
            let turn = self.turn.get() % processes.len();
            self.turn.set(turn + 1);
            Rc::clone(&processes[turn])
        };
        let answer = match process.prompt(line, None).await {
            Ok(answer) => answer,
            Err(error) if error.kind == ProcessErrorKind::Function(OVERFLOW.to_owned()) => {
                return to_raw_value(&json!({OVERFLOW: error.reason}))
                    .map_err(|error| ReduceFailure::Value(error.to_string()));
            }
            Err(error) => {
                return Err(match error.kind {
                    ProcessErrorKind::NoProcess { .. } | ProcessErrorKind::Unavailable => {
                        ReduceFailure::Process(error)
                    }
                    _ => ReduceFailure::Value(error.to_string()),
                });
            }
        };
        done_with(&answer, 1)
            .and_then(|mut results| results.pop())
            .ok_or_else(|| ReduceFailure::Value(not_expected(&answer, "one result")))
    }
}

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).expect("VW-3: a row is made of JSON texts")
}

/// Splits elements with these sizes in bytes into parts of at least [`PIECE_BYTES`] and `least` elements; the last
/// may be smaller. Returns the number of elements in each part.
fn part_lengths(sizes: impl Iterator<Item = usize>, least: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = Vec::new();
    let mut bytes = 0;
    for size in sizes {
        let last = lengths.last_mut();
        match last.filter(|length| **length < least || bytes < PIECE_BYTES) {
            Some(length) => {
                *length += 1;
                bytes += size;
            }
            None => {
                lengths.push(1);
                bytes = size;
            }
        }
    }
    lengths
}
