//! A replication's view of the pool, which runs filter functions that the source does not run.
//!
//! SUMMARY   [`FilterPool::open`] makes a [`FilterRun`] for a [`FilterFunction`]; the run filters documents.
//!           Replications run on their own thread; the pool may be on another.

use std::fmt;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use serde_json::value::RawValue;

/// A function in a design document of the source.
#[derive(Clone, Debug)]
pub struct FilterFunction {
    /// The source database, as the pool names it.
    pub db: Arc<str>,
    /// The design document's text.
    pub ddoc: String,
    pub kind: FilterKind,
}

/// The kind of a filter function.
#[derive(Clone, Debug)]
pub enum FilterKind {
    /// A function in the design document's `filters`.
    Filter {
        name: String,
        /// The request passed to it.
        req: Box<RawValue>,
    },
    /// The map function of a view: a document passes if anything is emitted.
    View { name: String },
}

/// Resolves to whether each document passes, or to a message that says why there is no answer.
pub type Answer = LocalBoxFuture<'static, Result<Vec<bool>, String>>;

/// A prepared filter function, on the replication's thread. Dropping its [`Answer`] cancels the call.
pub type FilterRun = Box<dyn Fn(Vec<Box<RawValue>>) -> Answer>;

type Open = dyn Fn(FilterFunction) -> Result<FilterRun, String> + Send + Sync;

/// Runs filter functions. Cheap to clone.
#[derive(Clone)]
pub struct FilterPool(Arc<Open>);

impl FilterPool {
    /// Returns a pool that prepares functions with `open`, which is called on the replication's thread.
    pub fn new(
        open: impl Fn(FilterFunction) -> Result<FilterRun, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    /// Returns a pool without query servers: nothing can be opened.
    pub fn none() -> Self {
        Self::new(|_| Err("there are no query servers that could run the filter".to_owned()))
    }

    /// Prepares a function.
    ///
    /// # Errors
    /// A message: the design document is invalid, or there are no query servers.
    pub fn open(&self, function: FilterFunction) -> Result<FilterRun, String> {
        (self.0)(function)
    }
}

impl fmt::Debug for FilterPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FilterPool")
    }
}
