//! Runs the requests of the store's handles on its thread.
//!
//! LIMITS    At most [`REQUESTS_MAX`] requests are in flight; later callers wait. Lease requests never do.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_postgres::{Error, Row};

use super::kept::keep_again;
use super::shared::{Param, Shared};
use crate::REQUESTS_MAX;
use crate::document_store::Answer;
use crate::error::{StoreError, StoreResult};
use crate::observer::DatabaseRequest;

/// A handle of the store's thread. Cheap to clone; does not keep it alive.
#[derive(Clone)]
pub(super) struct StoreThread {
    pub shared: Arc<Shared>,
    runtime: Handle,
    room: Arc<Semaphore>,
}

impl fmt::Debug for StoreThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shared.place)
    }
}

impl StoreThread {
    pub fn new(shared: Arc<Shared>, runtime: Handle) -> Self {
        Self {
            shared,
            runtime,
            room: Arc::new(Semaphore::new(REQUESTS_MAX)),
        }
    }

    /// Runs work on the thread once there is room for it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.map_err(|_| StoreError::Closed)?;
        self.run_at_once(async move {
            // Kept until the work ends, even if its caller leaves earlier.
            let _room = room;
            work.await
        })
        .await
    }

    /// Runs work on the thread immediately, ahead of all waiting work.
    pub async fn run_at_once<T: Send + 'static>(
        &self,
        work: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        self.runtime
            .spawn(work)
            .await
            .map_err(|_| StoreError::Closed)?
    }

    /// Reads rows and converts them.
    pub fn read<T: Send + 'static>(
        &self,
        sql: impl Into<String>,
        params: Vec<Param>,
        of: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        self.rows(DatabaseRequest::Read, sql, params, of)
    }

    /// Runs a writing statement and converts its rows; not repeated if its connection is lost.
    pub fn write<T: Send + 'static>(
        &self,
        sql: &'static str,
        params: Vec<Param>,
        of: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        self.rows(DatabaseRequest::Write, sql, params, of)
    }

    /// As [`Shared::rows`], once the store is open; converts the rows.
    fn rows<T: Send + 'static>(
        &self,
        request: DatabaseRequest,
        sql: impl Into<String>,
        params: Vec<Param>,
        of: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let (shared, sql) = (Arc::clone(&self.shared), sql.into());
        Box::pin(self.run(async move {
            shared.open().await?;
            let rows = shared.rows(request, &sql, &params).await?;
            of(&rows).map_err(|error| shared.failed(error))
        }))
    }

    /// Rewrites those values acknowledged by this daemon that the database has lost for these documents' jobs.
    pub async fn keep_again(&self, docs: Vec<String>) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { keep_again(&shared, Some(&docs)).await })
            .await
    }

    /// Reads rows of documents' jobs, after [`Self::keep_again`].
    pub fn read_kept<T: Send + 'static>(
        &self,
        sql: &'static str,
        mut docs: Vec<String>,
        of: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        // Existing ids contain no NUL.
        docs.retain(|id| !id.contains('\0'));
        Box::pin(async move {
            self.keep_again(docs.clone()).await?;
            self.read(sql, vec![Param::Texts(docs)], of).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use slog::{Discard, Logger, o};

    use super::*;
    use settee_config::store_url::StoreUrl;

    #[tokio::test]
    async fn a_request_whose_caller_left_is_still_in_flight() {
        let url = StoreUrl::parse("postgres://host/db").unwrap();
        let log = Logger::root(Discard, o!());
        let shared = Shared::new(url, "u".into(), Arc::new(()), Arc::new(()), log);
        let thread = StoreThread::new(Arc::new(shared), Handle::current());
        let request = thread.run(pending::<StoreResult<()>>());
        assert!(request.now_or_never().is_none(), "its caller leaves");
        assert_eq!(thread.room.available_permits(), REQUESTS_MAX - 1);
    }
}
