//! The pool as a replication sees it: who answers a filter's questions.
//!
//! SUMMARY   Replications run on a thread of their own, and the pool may be on another: [`FilterPool`] is the
//!           way there, whatever it is. A service has one, and so has `settee replicate`.

use std::fmt;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use crate::messages::function::{FilterDocs, FilterView};
use crate::query_server::client::{FunctionError, QueryServers};

/// A question about some documents.
#[derive(Clone, Debug)]
pub enum FilterCall {
    /// To a function of `filters`.
    Docs(FilterDocs),
    /// To the map function of a view.
    View(FilterView),
}

impl FilterCall {
    /// Has it answered: for each document whether it passes.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn perform(&self, servers: &QueryServers) -> Result<Vec<bool>, FunctionError> {
        match self {
            Self::Docs(call) => servers.filter_docs(call).await,
            Self::View(call) => servers.filter_view(call).await,
        }
    }
}

/// An answer, or in words why there is none.
type Answer = LocalBoxFuture<'static, Result<Vec<bool>, String>>;

/// Has filters run. Cheap to clone; to drop an answer is to give the question up.
#[derive(Clone)]
pub struct FilterPool(Arc<dyn Fn(FilterCall) -> Answer + Send + Sync>);

impl FilterPool {
    /// Asks `ask`, on the thread of the replication.
    pub fn new(ask: impl Fn(FilterCall) -> Answer + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// A pool where there is none: every question fails.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|_| {
            let no_pool = "there are no query servers that could run it".to_owned();
            Box::pin(std::future::ready(Err(no_pool)))
        })
    }

    /// Asks; the answer has a value for each document.
    ///
    /// # Errors
    /// In words: the function failed, or no query server answered.
    pub async fn ask(&self, call: FilterCall) -> Result<Vec<bool>, String> {
        (self.0)(call).await
    }
}

impl fmt::Debug for FilterPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FilterPool")
    }
}
