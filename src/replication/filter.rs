//! Which documents a replication takes: the filter of a parsed replication.
//!
//! SOURCE    couch_replicator_filters.

use serde_json::{Map, Value};

use super::endpoint::Endpoint;

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

/// The code of a filter function, read from the source when it is needed, and once.
#[derive(Debug)]
pub struct FetchCode<'a> {
    source: &'a Endpoint,
    filter: &'a Filter,
    code: Option<Option<String>>,
}

impl<'a> FetchCode<'a> {
    /// Makes one; nothing is read yet.
    #[must_use]
    pub fn new(source: &'a Endpoint, filter: &'a Filter) -> Self {
        Self {
            source,
            filter,
            code: None,
        }
    }

    /// Returns the code; `None` if the filter is none that has code.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub async fn get(&mut self) -> Result<Option<&str>, FilterError> {
        let code = match self.code.take() {
            Some(code) => code,
            None => fetch_code(self.source, self.filter).await?,
        };
        Ok(self.code.insert(code).as_deref())
    }
}

/// Why the code of a filter is not known. Temporary, as far as the replication is concerned: the source
/// may come back, and the design document may still be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(pub String);

/// Reads the code of a filter function from its design document at the source; `None` if the filter is none that has
/// code.
///
/// # Errors
/// The source cannot be opened, or there is no such function.
pub async fn fetch_code(source: &Endpoint, filter: &Filter) -> Result<Option<String>, FilterError> {
    let Filter::Function { .. } = filter else {
        return Ok(None);
    };
    Err(FilterError(format!(
        "Could not open source database `{}`: not yet",
        source.url()
    )))
}
