//! Which documents a replication takes: the filter of a parsed replication.
//!
//! SUMMARY   [`Filter`] is what the options say, [`FilterAt`] who runs it; [`fetch_code`] reads the code of a
//!           filter function, which is part of a replication's id. [`FilterHere`] is a filter that runs on
//!           the query servers of a [`FilterPool`] instead of the source.
//!
//! SOURCE    couch_replicator_filters; couch_changes, for the arguments of a filter.

mod code;
mod here;
mod pool;

use serde_json::{Map, Value};

pub use self::code::{FilterError, FilterErrorKind, fetch_code};
pub use self::here::FilterHere;
pub use self::pool::{FilterFunction, FilterKind, FilterPool, FilterRun};

/// Which documents a replication takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// Those with these ids: decoded, sorted, each once.
    DocIds(Vec<String>),
    /// Those that match this selector.
    Selector(Map<String, Value>),
    /// `_view`, or another filter built into the source: its name starts with `_`.
    BuiltIn {
        /// The name, with the underscore.
        name: String,
        /// Parameters, in the order in which they were given.
        query_params: Map<String, Value>,
    },
    /// The function of a design document of the source.
    Function {
        /// The design document, without `_design/`.
        ddoc: String,
        /// The filter's name in it.
        name: String,
        /// Parameters, in the order in which they were given.
        query_params: Map<String, Value>,
    },
}

/// Who runs a filter: the option `filter_at`, which CouchDB does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum FilterAt {
    /// The source, as in CouchDB: documents that do not pass are never read.
    #[default]
    Source,
    /// Settee: all changes are read, and the pool filters the documents that the target lacks. For sources
    /// without such a filter, or with a slow one.
    Settee,
}

/// Returns a parameter as a filter function sees it: a text, JSON text if it was given as something else.
///
/// SOURCE    couch_replicator_api_wrap: parse_filter/3.
pub(super) fn param_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
