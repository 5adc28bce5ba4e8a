//! Filter functions from replication sources, run by the pool.
//!
//! SUMMARY   [`SourceFilter`] is a filter function with its design document parsed; it decides which documents pass.
//!           [`filter_pool`] runs filters on the replication's thread.
//! CALLED    By the service with its pool, and by `settee replicate` with its own pool.

use std::sync::Arc;

use replication::filter::{FilterFunction, FilterKind, FilterPool};

use super::{FunctionError, QueryServers};
use crate::messages::function::{FilterDocs, FilterView, InDdoc, Json};
use crate::messages::proc_manager::TakeFrom;
use crate::query_server::ddoc::{BadDdoc, Ddoc};

/// Runs filters with query servers on the replication's own thread.
pub fn filter_pool(
    servers: impl Fn() -> QueryServers + Clone + Send + Sync + 'static,
) -> FilterPool {
    FilterPool::new(move |function| {
        let filter = SourceFilter::parse(function).map_err(|error| error.to_string())?;
        let servers = servers.clone();
        Ok(Box::new(move |docs| {
            let (filter, servers) = (filter.clone(), servers());
            Box::pin(async move {
                filter
                    .ask(docs, &servers)
                    .await
                    .map_err(|error| error.to_string())
            })
        }))
    })
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct SourceFilter {
    at: InDdoc,
    kind: FilterKind,
}

impl SourceFilter {
    /// Parses the design document. A process that was taught it serves only this source.
    ///
    /// # Errors
    /// [`BadDdoc`].
    pub fn parse(function: FilterFunction) -> Result<Self, BadDdoc> {
        let at = InDdoc {
            db: function.db,
            ddoc: Arc::new(Ddoc::parse(&function.ddoc)?),
            from: TakeFrom::Own,
            timeout: None,
        };
        Ok(Self {
            at,
            kind: function.kind,
        })
    }

    /// Returns whether each document passes.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn ask(
        self,
        docs: Vec<Json>,
        servers: &QueryServers,
    ) -> Result<Vec<bool>, FunctionError> {
        let at = self.at;
        let docs = docs.iter().map(|doc| &**doc).collect();
        match self.kind {
            FilterKind::Filter { name, req } => {
                let call = FilterDocs {
                    at,
                    name,
                    docs,
                    req,
                };
                servers.filter_docs(&call).await
            }
            FilterKind::View { name } => servers.filter_view(&FilterView { at, name, docs }).await,
        }
    }
}
