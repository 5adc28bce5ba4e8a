//! The pool as a replication sees it: it runs filter functions that the source does not run.
//!
//! SUMMARY   [`FilterPool::open`] makes a [`FilterRun`] of a [`FilterFunction`]; the run is asked about
//!           documents. Replications run on a thread of their own, and the pool may be on another.

use std::fmt;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use serde_json::value::RawValue;

/// A function of a design document of the source.
#[derive(Clone, Debug)]
pub struct FilterFunction {
    /// The source, as the pool tells databases apart.
    pub db: Arc<str>,
    /// The design document's text.
    pub ddoc: String,
    /// Which function it is.
    pub kind: FilterKind,
}

/// What kind of function filters.
#[derive(Clone, Debug)]
pub enum FilterKind {
    /// One of `filters`.
    Filter {
        name: String,
        /// The request that it sees.
        req: Box<RawValue>,
    },
    /// The map function of a view: a document passes if anything is emitted.
    View {
        /// The view's name.
        name: String,
    },
}

/// For each document whether it passes, or in words why there is no answer.
pub type Answer = LocalBoxFuture<'static, Result<Vec<bool>, String>>;

/// A filter function that is ready to be asked, on the thread of the replication. To drop an answer is to give the
/// question up.
pub type FilterRun = Box<dyn Fn(Vec<Box<RawValue>>) -> Answer>;

type Open = dyn Fn(FilterFunction) -> Result<FilterRun, String> + Send + Sync;

/// Has filter functions run. Cheap to clone.
#[derive(Clone)]
pub struct FilterPool(Arc<Open>);

impl FilterPool {
    /// Makes runs with `open`, on the thread of the replication.
    pub fn new(
        open: impl Fn(FilterFunction) -> Result<FilterRun, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    /// Returns a pool without query servers: nothing can be opened.
    pub fn none() -> Self {
        Self::new(|_| Err("there are no query servers that could run it".to_owned()))
    }

    /// Makes a function ready to be asked.
    ///
    /// # Errors
    /// In words: the design document is not one.
    pub fn open(&self, function: FilterFunction) -> Result<FilterRun, String> {
        (self.0)(function)
    }
}

impl fmt::Debug for FilterPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FilterPool")
    }
}
