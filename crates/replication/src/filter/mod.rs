//! The filter of a parsed replication, which selects its documents.
//!
//! SUMMARY   [`Filter`] is the filter of the options, [`FilterAt`] where it runs; [`fetch_code`] reads the code of a
//!           filter function, which is part of a replication's id. [`FilterHere`] runs a filter on the query servers
//!           of a [`FilterPool`] instead of the source.
//!
//! SOURCE    couch_replicator_filters; couch_changes, for the arguments of a filter.

mod code;
mod here;
mod pool;

use serde_json::Value;

pub use self::code::{FilterError, FilterErrorKind, fetch_code};
pub use self::here::FilterHere;
pub use self::pool::{FilterFunction, FilterKind, FilterPool, FilterRun};
use super::spec::Members;

/// Selects the documents of a replication.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// Documents with these ids: decoded, sorted, unique.
    DocIds(Vec<String>),
    /// Documents that match this selector.
    Selector(Members),
    /// `_view`, or another built-in filter of the source: its name starts with `_`.
    BuiltIn {
        /// The name, including the underscore.
        name: String,
        /// Parameters, in their original order.
        query_params: Members,
    },
    /// A function in a design document of the source.
    Function {
        /// The design document, without `_design/`.
        ddoc: String,
        /// The filter's name in it.
        name: String,
        /// Parameters, in their original order.
        query_params: Members,
    },
}

/// Where a filter runs: the option `filter_at`, which CouchDB does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum FilterAt {
    /// The source, as in CouchDB: documents that do not pass are never read.
    #[default]
    Source,
    /// Settee: all changes are read, and the pool filters the documents that the target lacks. For sources that
    /// lack the filter or run it slowly.
    Settee,
}

/// Returns a parameter as passed to a filter function: a string's text, anything else as JSON text.
///
/// SOURCE    couch_replicator_api_wrap: parse_filter/3.
pub(super) fn param_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
