//! Options: names, types, bounds, defaults.
//!
//! SOURCE    couch_replicator_parse, convert_options, check_options.
//! DIFFERS   Numbers have bounds. Ids in `doc_ids` are percent-decoded, but pluses are kept: CouchDB turns them into
//!           spaces, and so never finds a document with a plus in its id. `null` counts as missing for `filter` and
//!           `since_seq`.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Defaults, Members, Options, SpecError, Tuning};
use crate::filter::{Filter, FilterAt};
use crate::seq::Seq;

/// The allowed number of workers of a replication.
const WORKERS: RangeInclusive<u32> = 1..=1_000;
/// The allowed number of changes in a batch.
const BATCH: RangeInclusive<u32> = 1..=100_000;
/// The allowed number of connections of a replication to one side.
const CONNECTIONS: RangeInclusive<u32> = 1..=10_000;
/// The allowed number of retries of a request.
const RETRIES: RangeInclusive<u32> = 0..=1_000;
/// The allowed times, in milliseconds: at most 30 days.
const TIME: RangeInclusive<u32> = 1..=30 * 24 * 3600 * 1000;

/// An option lowered because a server limits the rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    pub name: &'static str,
    /// Its previous value, times in milliseconds.
    pub from: u32,
    /// Its new value.
    pub to: u32,
}

/// The members of a document that define its replication, except those in [`TUNING`].
const ASKED: [&str; 16] = [
    "source",
    "target",
    "continuous",
    "create_target",
    "create_target_params",
    "doc_ids",
    "selector",
    "filter",
    "query_params",
    "filter_at",
    "winning_revs_only",
    "since_seq",
    "proxy",
    "source_proxy",
    "target_proxy",
    "user_ctx",
];

/// The members of a document that tune its replication: the fields of [`Tuning`], whose defaults are configured.
pub const TUNING: [&str; 9] = [
    "use_checkpoints",
    "use_bulk_get",
    "worker_processes",
    "worker_batch_size",
    "http_connections",
    "connection_timeout",
    "retries_per_request",
    "checkpoint_interval",
    "feed",
];

/// Returns the names of all members of a document that define or tune its replication.
pub fn members() -> impl Iterator<Item = &'static str> {
    ASKED.into_iter().chain(TUNING)
}

impl Options {
    /// Returns whether two bodies request the same options, regardless of the configured defaults, which may have
    /// changed between parsing the one and the other.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        let with_its_defaults = Self {
            tuning: other.tuning.clone(),
            ..self.clone()
        };
        with_its_defaults == *other
    }

    /// Returns the values that [`Self::same_as`] compares, as text.
    pub(super) fn digested(&self) -> String {
        let Self {
            continuous,
            create_target,
            create_target_params,
            winning_revs_only,
            filter,
            filter_at,
            since_seq,
            tuning: _,
            given,
        } = self;
        format!(
            "{continuous} {create_target} {create_target_params:?} {winning_revs_only} \
             {filter:?} {filter_at:?} {since_seq:?} {given:?}"
        )
    }

    /// Parses the options of a body; ignores other members.
    pub(super) fn parse(body: &Members, defaults: &Defaults) -> Result<Self, SpecError> {
        let filter = filter(body)?;
        let given = body
            .iter()
            .filter(|(name, _)| TUNING.contains(&name.as_str()));
        // If a body has several errors, any one of them is reported.
        Ok(Self {
            continuous: boolean(body, "continuous", false)?,
            create_target: boolean(body, "create_target", false)?,
            create_target_params: object(body, "create_target_params", "a JSON object")?
                .unwrap_or_default(),
            winning_revs_only: boolean(body, "winning_revs_only", false)?,
            filter_at: filter_at(body, &filter)?,
            filter,
            since_seq: body
                .get("since_seq")
                .filter(|seq| !seq.is_null())
                .map(Seq::from_value),
            tuning: Tuning::parse(body, &defaults.tuning)?,
            given: given
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }
}

impl Tuning {
    fn parse(body: &Members, defaults: &Self) -> Result<Self, SpecError> {
        let flag = |name, default| boolean(body, name, default);
        let number = |name, default, range| {
            let number = integer(body, name, range);
            number.map(|number| number.unwrap_or(default))
        };
        let time = |name, default| {
            let number = integer(body, name, TIME);
            let milliseconds = |time: u32| Duration::from_millis(time.into());
            number.map(|number| number.map_or(default, milliseconds))
        };
        Ok(Self {
            use_checkpoints: flag("use_checkpoints", defaults.use_checkpoints)?,
            use_bulk_get: flag("use_bulk_get", defaults.use_bulk_get)?,
            worker_processes: number("worker_processes", defaults.worker_processes, WORKERS)?,
            worker_batch_size: number("worker_batch_size", defaults.worker_batch_size, BATCH)?,
            http_connections: number("http_connections", defaults.http_connections, CONNECTIONS)?,
            connection_timeout: time("connection_timeout", defaults.connection_timeout)?,
            retries_per_request: number(
                "retries_per_request",
                defaults.retries_per_request,
                RETRIES,
            )?,
            checkpoint_interval: time("checkpoint_interval", defaults.checkpoint_interval)?,
            // Has an effect only on a continuous replication.
            feed: word(body, "feed", "`continuous` or `db_updates`")?.unwrap_or(defaults.feed),
        })
    }

    /// Lowers the options that cause many requests, after a server's rate limit has ended a run. Returns the lowered
    /// ones.
    ///
    /// SOURCE couch_replicator_scheduler, maybe_optimize_job_for_rate_limiting.
    pub fn lower_for_rate_limit(&mut self) -> Vec<Lowered> {
        let mut lowered = Vec::new();
        let mut lower = |name, value: &mut u32, to: u32| {
            if *value > to {
                let from = std::mem::replace(value, to);
                lowered.push(Lowered { name, from, to });
            }
        };
        lower("worker_processes", &mut self.worker_processes, 2);
        lower("worker_batch_size", &mut self.worker_batch_size, 100);
        lower("http_connections", &mut self.http_connections, 5);
        let mut interval = u32::try_from(self.checkpoint_interval.as_millis()).unwrap_or(u32::MAX);
        lower("checkpoint_interval", &mut interval, 5_000);
        self.checkpoint_interval = Duration::from_millis(interval.into());
        lowered
    }
}

/// Reads a member, if there is one; `what` says in the error what it must be.
fn member<T>(
    body: &Members,
    name: &str,
    what: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, SpecError> {
    let Some(value) = body.get(name) else {
        return Ok(None);
    };
    let wrong = || SpecError::bad(format!("parameter `{name}` must be {what}"));
    read(value).map(Some).ok_or_else(wrong)
}

pub(super) fn boolean(body: &Members, name: &str, default: bool) -> Result<bool, SpecError> {
    member(body, name, "a boolean", Value::as_bool).map(|value| value.unwrap_or(default))
}

fn object(body: &Members, name: &str, what: &str) -> Result<Option<Members>, SpecError> {
    member(body, name, what, |value| value.as_object().cloned())
}

/// Parses an integer, or a string of digits.
fn integer(
    body: &Members,
    name: &str,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>, SpecError> {
    let (least, most) = (range.start(), range.end());
    let what = format!("an integer from {least} to {most}");
    member(body, name, &what, |value| {
        let number = match value {
            Value::Number(number) => number.as_i64()?,
            Value::String(digits) => digits.parse().ok()?,
            _ => return None,
        };
        let number = u32::try_from(number).ok()?;
        range.contains(&number).then_some(number)
    })
}

fn filter(body: &Members) -> Result<Filter, SpecError> {
    let query_params = object(body, "query_params", "an object")?.unwrap_or_default();
    let doc_ids = doc_ids(body)?;
    let selector = object(body, "selector", "a JSON object")?;
    let name = body.get("filter").filter(|name| !name.is_null());
    match (doc_ids, name, selector) {
        (None, None, None) => Ok(Filter::All),
        (Some(ids), None, None) => Ok(Filter::DocIds(ids)),
        (None, None, Some(selector)) => {
            mango::id_form(&selector)
                .map_err(|problem| SpecError::bad(format!("parameter `selector`: {problem}")))?;
            Ok(Filter::Selector(selector))
        }
        (None, Some(name), None) => named_filter(name, query_params),
        _ => Err(SpecError::bad(
            "`doc_ids`,`filter`,`selector` are mutually exclusive",
        )),
    }
}

/// Parses where the filter runs. Without a filter the option has no effect.
fn filter_at(body: &Members, filter: &Filter) -> Result<FilterAt, SpecError> {
    let at = word(body, "filter_at", "`source` or `settee`")?.unwrap_or_default();
    match (at, filter) {
        (FilterAt::Settee, Filter::BuiltIn { name, .. })
            if !matches!(name.as_str(), "_view" | "_design") =>
        {
            Err(SpecError::bad(format!(
                "the filter `{name}` is the source's own: `filter_at` must be `source`"
            )))
        }
        (_, Filter::All) => Ok(FilterAt::default()),
        _ => Ok(at),
    }
}

/// Parses a member whose value is one of a few words; `words` lists them for the error.
fn word<T: FromStr>(body: &Members, name: &str, words: &str) -> Result<Option<T>, SpecError> {
    let read = |value: &Value| match value {
        Value::Null => Some(None),
        value => value.as_str()?.parse().ok().map(Some),
    };
    Ok(member(body, name, words, read)?.flatten())
}

fn doc_ids(body: &Members) -> Result<Option<Vec<String>>, SpecError> {
    let ids = match body.get("doc_ids") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(ids)) => ids,
        Some(_) => return Err(SpecError::bad("parameter `doc_ids` must be an array")),
    };
    let decoded = |id: &Value| {
        let id = id.as_str()?;
        let decoded = percent_decode_str(id).decode_utf8();
        Some(decoded.map_or_else(|_| id.to_owned(), |id| id.into_owned()))
    };
    let Some(mut ids) = ids.iter().map(decoded).collect::<Option<Vec<_>>>() else {
        return Err(SpecError::bad(
            "parameter `doc_ids` must be an array of strings",
        ));
    };
    ids.sort_unstable();
    ids.dedup();
    Ok(Some(ids))
}

fn named_filter(name: &Value, query_params: Members) -> Result<Filter, SpecError> {
    let wrong = || SpecError::invalid("Invalid filter. Must match `ddocname/filtername`.");
    let name = name.as_str().ok_or_else(wrong)?;
    if name == "_view" {
        let view = query_params.get("view").and_then(Value::as_str);
        if view.is_none_or(|view| view.split('/').count() != 2) {
            return Err(SpecError::bad("Invalid `view` parameter."));
        }
    }
    if name.starts_with('_') {
        return Ok(Filter::BuiltIn {
            name: name.to_owned(),
            query_params,
        });
    }
    let (ddoc, name) = name.split_once('/').ok_or_else(wrong)?;
    Ok(Filter::Function {
        ddoc: ddoc.to_owned(),
        name: name.to_owned(),
        query_params,
    })
}
