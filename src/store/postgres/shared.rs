//! What all requests to the database share: its connections, and what is known of it.
//!
//! SUMMARY   There is one connection for reads, whose requests are sent behind each other without waiting, one for
//!           writes, and one that listens. A connection that was lost is made anew by the next request.
//! PROMISES  While the database does not answer, requests fail at once, except for one in [`WAIT_MIN`] to
//!           [`WAIT_MAX`] that tries again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slog::Logger;
use tokio::sync::{Mutex as AsyncMutex, Notify, OnceCell, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::connect::{Connector, REQUEST_MAX, is_lost, no_answer, problem};
use super::follow::{follow, stock};
use super::migrations::migrate;
use crate::config::store_url::StoreUrl;
use crate::store::document_store::Watcher;
use crate::store::error::{OpenProblem, StoreError};
use crate::store::observer::{DatabaseObserver, DatabaseRequest};
use crate::store::place::StorePlace;

/// The time from one try to connect to the next: it doubles with each that fails.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// The longest such time.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);

/// The database did not answer lately.
struct Outage {
    until: Instant,
    wait: Duration,
    error: StoreError,
}

/// What a statement is given.
pub(in crate::store) enum Param {
    Text(String),
    Texts(Vec<String>),
    Number(u64),
}

impl Param {
    fn typed(&self) -> (Box<dyn ToSql + Sync + Send + '_>, Type) {
        match self {
            Self::Text(text) => (Box::new(text), Type::TEXT),
            Self::Texts(texts) => (Box::new(texts), Type::TEXT_ARRAY),
            Self::Number(number) => (Box::new(int(*number)), Type::INT8),
        }
    }
}

/// Returns a number as the database has it.
pub(in crate::store) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number of the database.
pub(in crate::store) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) struct Shared {
    pub place: StorePlace,
    /// How connections are made; read from the URL with the first.
    connector: OnceCell<Connector>,
    /// What a new store is called.
    pub new_uuid: Arc<str>,
    pub watcher: Arc<dyn Watcher>,
    observer: Arc<dyn DatabaseObserver>,
    /// The last update that `watcher` has heard of.
    pub update_seq: watch::Sender<Option<u64>>,
    /// Whose numbers that of `update_seq` is: see [`Info::mark`](crate::store::documents::Info::mark).
    mark: Mutex<String>,
    /// Notified when there may be updates that `watcher` has not heard of.
    pub nudge: Notify,
    reader: AsyncMutex<Option<Arc<Client>>>,
    opened: OnceCell<()>,
    outage: Mutex<Option<Outage>>,
    pub log: Logger,
}

impl Shared {
    pub fn new(
        url: StoreUrl,
        new_uuid: Arc<str>,
        watcher: Arc<dyn Watcher>,
        observer: Arc<dyn DatabaseObserver>,
        log: Logger,
    ) -> Self {
        Self {
            place: StorePlace::Postgres(url),
            connector: OnceCell::new(),
            new_uuid,
            watcher,
            observer,
            update_seq: watch::Sender::new(None),
            mark: Mutex::default(),
            nudge: Notify::new(),
            reader: AsyncMutex::default(),
            opened: OnceCell::new(),
            outage: Mutex::default(),
            log,
        }
    }

    /// Opens the store, unless it is open.
    pub async fn open(self: &Arc<Self>) -> Result<(), StoreError> {
        let opened = self.opened.get_or_try_init(async || {
            let client = self.reader().await?;
            let prepared = timeout(REQUEST_MAX * 2, migrate(&client, &self.new_uuid, false)).await;
            let prepared = prepared.unwrap_or_else(|_| Err(no_answer(REQUEST_MAX * 2)));
            if prepared.is_err() {
                // It may stand in the middle of a transaction.
                self.forget_reader(&client).await;
            }
            prepared.map_err(|problem| self.failed(problem))?;
            let stock = stock(self).await?;
            self.watcher.opened(stock.documents);
            *self.mark() = stock.mark;
            self.update_seq.send_replace(Some(stock.seq));
            tokio::spawn(follow(Arc::clone(self)));
            Ok(())
        });
        opened.await.copied()
    }

    /// Says that a problem is one of this store.
    pub fn failed(&self, problem: OpenProblem) -> StoreError {
        self.place.cannot_open(problem).into()
    }

    /// Makes a connection, unless another failed a moment ago.
    pub async fn connect(&self) -> Result<Client, StoreError> {
        let now = Instant::now();
        if let Some(outage) = self.outage().as_ref().filter(|outage| now < outage.until) {
            return Err(outage.error.clone());
        }
        let made = async {
            let connector = self.connector().await?;
            connector.connect().await
        };
        let made = made.await.map_err(|problem| self.failed(problem));
        let mut outage = self.outage();
        *outage = made.as_ref().err().map(|error| {
            let wait = outage.as_ref().map_or(WAIT_MIN, |before| before.wait * 2);
            let wait = wait.min(WAIT_MAX);
            Outage {
                until: Instant::now() + wait,
                wait,
                error: error.clone(),
            }
        });
        drop(outage);
        made
    }

    /// Returns what is notified when another service has written.
    pub async fn news(&self) -> Result<Arc<Notify>, StoreError> {
        let connector = self.connector().await;
        let connector = connector.map_err(|problem| self.failed(problem))?;
        Ok(Arc::clone(&connector.news))
    }

    async fn connector(&self) -> Result<&Connector, OpenProblem> {
        let StorePlace::Postgres(url) = &self.place else {
            return Err(OpenProblem::Refused("it is no database".to_owned()));
        };
        self.connector
            .get_or_try_init(async || Connector::of(url, &self.observer))
            .await
    }

    pub fn mark(&self) -> std::sync::MutexGuard<'_, String> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reader(&self) -> Result<Arc<Client>, StoreError> {
        let mut reader = self.reader.lock().await;
        if let Some(client) = reader.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(self.connect().await?);
        Ok(Arc::clone(reader.insert(client)))
    }

    async fn forget_reader(&self, client: &Arc<Client>) {
        let mut reader = self.reader.lock().await;
        drop(reader.take_if(|known| Arc::ptr_eq(known, client)));
    }

    /// Waits for a request that was sent, at most [`REQUEST_MAX`].
    pub async fn ended<T>(
        &self,
        request: DatabaseRequest,
        work: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let done = timeout(REQUEST_MAX, work).await;
        self.observer.ended(request, begun.elapsed());
        done.map_err(|_| self.failed(no_answer(REQUEST_MAX)))
    }

    /// Reads rows; once more if the connection was lost.
    pub async fn rows(&self, sql: &str, params: &[Param]) -> Result<Vec<Row>, StoreError> {
        let mut is_second = false;
        loop {
            let client = self.reader().await?;
            let read = query(&client, sql, params);
            match self.ended(DatabaseRequest::Read, read).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => {
                    let is_lost = is_lost(&client, &error);
                    if is_lost {
                        self.forget_reader(&client).await;
                    }
                    if !is_lost || std::mem::replace(&mut is_second, true) {
                        return Err(self.failed(problem(&error)));
                    }
                }
                Err(error) => {
                    self.forget_reader(&client).await;
                    return Err(error);
                }
            }
        }
    }
}

/// Runs a statement in one round trip.
pub(in crate::store) async fn query(
    client: &Client,
    sql: &str,
    params: &[Param],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let typed: Vec<_> = params.iter().map(Param::typed).collect();
    let typed: Vec<(&(dyn ToSql + Sync), Type)> = typed
        .iter()
        .map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone()))
        .collect();
    client.query_typed(sql, &typed).await
}
