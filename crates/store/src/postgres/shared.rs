//! State shared by all requests to the database: connections, and facts about it.
//!
//! SUMMARY   Four connections: a pipelined one for reads and single writing statements, one for transactions, one that
//!           listens, and one for leases. The next request reconnects a lost one.
//! PROMISES  While the database does not answer, requests fail at once, except for one every [`WAIT_MIN`] to
//!           [`WAIT_MAX`], which retries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use slog::Logger;
use tokio::sync::{Mutex as AsyncMutex, Notify, OnceCell, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::connect::{Connector, REQUEST_MAX, is_lost, no_answer};
use super::follow::{follow, stock};
use super::kept::Acknowledged;
use super::news::News;
use super::schema;
use crate::document_store::Watcher;
use crate::error::{OpenProblem, StoreError, StoreResult};
use crate::lock;
use crate::observer::{DatabaseRequest, StoreObserver};
use crate::place::StorePlace;
use policy::ownership::{self, Epoch};
use settee_config::store_url::StoreUrl;

/// Time between two attempts to connect: it doubles with each failure.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// Maximum time between two attempts to connect.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);

/// The database recently did not answer.
struct Outage {
    until: Instant,
    wait: Duration,
    error: StoreError,
}

/// A statement's parameter.
pub(crate) enum Param {
    Text(String),
    Texts(Vec<String>),
    OptionalTexts(Vec<Option<String>>),
    Number(u64),
    /// Already of the database's type.
    Integers(Vec<i64>),
    Epoch(Epoch),
    Flag(bool),
    Flags(Vec<bool>),
}

impl Param {
    fn typed(&self) -> (Box<dyn ToSql + Sync + Send + '_>, Type) {
        match self {
            Self::Text(text) => (Box::new(text), Type::TEXT),
            Self::Texts(texts) => (Box::new(texts), Type::TEXT_ARRAY),
            Self::OptionalTexts(texts) => (Box::new(texts), Type::TEXT_ARRAY),
            Self::Number(number) => (Box::new(int(*number)), Type::INT8),
            Self::Integers(numbers) => (Box::new(numbers), Type::INT8_ARRAY),
            Self::Epoch(epoch) => (Box::new(epoch_int(*epoch)), Type::INT8),
            Self::Flag(flag) => (Box::new(flag), Type::BOOL),
            Self::Flags(flags) => (Box::new(flags), Type::BOOL_ARRAY),
        }
    }
}

/// Converts a number to the database's type.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number of the database.
pub(crate) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Converts an epoch to the database's type: the same 64 bits.
pub(super) fn epoch_int(epoch: Epoch) -> i64 {
    epoch.0.cast_signed()
}

/// Converts an epoch of the database.
pub(super) fn epoch(number: i64) -> Epoch {
    Epoch(number.cast_unsigned())
}

pub(super) struct Shared {
    pub place: StorePlace,
    /// Opens connections; made from the URL with the first one.
    connector: OnceCell<Connector>,
    /// The id of a new store.
    pub new_uuid: Arc<str>,
    pub watcher: Arc<dyn Watcher>,
    pub observer: Arc<dyn StoreObserver>,
    /// The last update known to `watcher`.
    pub update_seq: watch::Sender<Option<u64>>,
    /// The sequence that `update_seq` belongs to: see [`Info::mark`](crate::documents::Info::mark).
    pub mark: Mutex<String>,
    /// Acknowledged settings of jobs.
    pub acknowledged: Acknowledged,
    /// Notifications received on the listening connection.
    pub news: Arc<News>,
    /// Notified when there may be updates unknown to `watcher`.
    pub nudge: Notify,
    reader: Line,
    /// The connection for leases, which other requests never block.
    leases: Line,
    opened: OnceCell<()>,
    outage: Mutex<Option<Outage>>,
    pub log: Logger,
}

impl Shared {
    pub fn new(
        url: StoreUrl,
        new_uuid: Arc<str>,
        watcher: Arc<dyn Watcher>,
        observer: Arc<dyn StoreObserver>,
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
            acknowledged: Acknowledged::default(),
            news: Arc::default(),
            nudge: Notify::new(),
            reader: Line::default(),
            leases: Line::default(),
            opened: OnceCell::new(),
            outage: Mutex::default(),
            log,
        }
    }

    /// Opens the store, unless it is open.
    pub async fn open(self: &Arc<Self>) -> StoreResult<()> {
        let opened = self.opened.get_or_try_init(async || {
            let client = self.client(&self.reader).await?;
            let prepared = timeout(REQUEST_MAX * 2, schema::make(&client, &self.new_uuid))
                .await
                .unwrap_or_else(|_| Err(no_answer(REQUEST_MAX * 2)));
            if prepared.is_err() {
                // It may be inside a transaction.
                self.reader.forget(&client).await;
            }
            prepared.map_err(|problem| self.failed(problem))?;
            let stock = stock(self).await?;
            self.watcher.opened(stock.documents);
            *lock(&self.mark) = stock.mark;
            self.update_seq.send_replace(Some(stock.seq));
            tokio::spawn(follow(Arc::clone(self)));
            Ok(())
        });
        opened.await.copied()
    }

    /// Converts a problem to an error of this store.
    pub fn failed(&self, problem: impl Into<OpenProblem>) -> StoreError {
        self.place.cannot_open(problem.into()).into()
    }

    /// Connects, unless a recent attempt failed.
    pub async fn connect(&self) -> StoreResult<Client> {
        let now = Instant::now();
        if let Some(outage) = lock(&self.outage)
            .as_ref()
            .filter(|outage| now < outage.until)
        {
            return Err(outage.error.clone());
        }
        let made = async { self.connector().await?.connect().await };
        let made = made.await.map_err(|problem| self.failed(problem));
        let mut outage = lock(&self.outage);
        *outage = made.as_ref().err().map(|error| {
            let wait = outage
                .as_ref()
                .map_or(WAIT_MIN, |before| before.wait * 2)
                .min(WAIT_MAX);
            Outage {
                until: Instant::now() + wait,
                wait,
                error: error.clone(),
            }
        });
        drop(outage);
        made
    }

    async fn connector(&self) -> Result<&Connector, OpenProblem> {
        let StorePlace::Postgres(url) = &self.place else {
            return Err(OpenProblem::Refused("it is not a database".to_owned()));
        };
        self.connector
            .get_or_try_init(async || Connector::of(url, &self.news, &self.observer))
            .await
    }

    async fn client(&self, line: &Line) -> StoreResult<Arc<Client>> {
        let mut known = line.0.lock().await;
        if let Some(client) = known.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(self.connect().await?);
        Ok(Arc::clone(known.insert(client)))
    }

    /// Waits for a sent request, at most `max`.
    pub async fn ended<T>(
        &self,
        max: Duration,
        request: DatabaseRequest,
        work: impl Future<Output = T>,
    ) -> StoreResult<T> {
        let begun = Instant::now();
        let done = timeout(max, work).await;
        self.observer.ended(request, begun.elapsed());
        done.map_err(|_| self.failed(no_answer(max)))
    }

    /// Runs a statement, concurrently with others, and returns its rows. A read is retried once if the connection was
    /// lost; after an error a write may have been carried out.
    pub async fn rows(
        &self,
        request: DatabaseRequest,
        sql: &str,
        params: &[Param],
    ) -> StoreResult<Vec<Row>> {
        let rows = match self.once(request, sql, params).await? {
            Err(failed) if failed.is_lost && request == DatabaseRequest::Read => {
                self.once(request, sql, params).await?
            }
            rows => rows,
        };
        rows.map_err(|failed| self.failed(failed.error))
    }

    /// As [`Self::rows`], without a retry.
    pub async fn once(
        &self,
        request: DatabaseRequest,
        sql: &str,
        params: &[Param],
    ) -> StoreResult<Result<Vec<Row>, Failed>> {
        let client = self.client(&self.reader).await?;
        let work = query(&client, sql, params);
        let done = self.ended(REQUEST_MAX, request, work).await;
        self.sorted(&self.reader, &client, done).await
    }

    /// Runs a lease statement within the time for leases. After an error it may have been carried out.
    pub async fn lease(&self, sql: &str, params: &[Param]) -> StoreResult<Vec<Row>> {
        let begun = Instant::now();
        let late = || self.failed(no_answer(ownership::REQUEST_MAX));
        let client = timeout(ownership::REQUEST_MAX, self.client(&self.leases))
            .await
            .map_err(|_| late())??;
        let left = ownership::REQUEST_MAX.saturating_sub(begun.elapsed());
        let done = self
            .ended(left, DatabaseRequest::Lease, query(&client, sql, params))
            .await
            .map_err(|_| late());
        let done = self.sorted(&self.leases, &client, done).await?;
        done.map_err(|failed| self.failed(failed.error))
    }

    /// Marks errors of a lost connection; the next request reopens a lost or silent one.
    async fn sorted(
        &self,
        line: &Line,
        client: &Arc<Client>,
        done: StoreResult<Result<Vec<Row>, Error>>,
    ) -> StoreResult<Result<Vec<Row>, Failed>> {
        let sorted = done.map(|answer| {
            answer.map_err(|error| Failed {
                is_lost: is_lost(client, &error),
                error,
            })
        });
        if matches!(&sorted, Err(_) | Ok(Err(Failed { is_lost: true, .. }))) {
            line.forget(client).await;
        }
        sorted
    }
}

/// A connection shared by many requests, opened by the first.
#[derive(Default)]
pub(super) struct Line(AsyncMutex<Option<Arc<Client>>>);

impl Line {
    async fn forget(&self, client: &Arc<Client>) {
        let mut known = self.0.lock().await;
        drop(known.take_if(|known| Arc::ptr_eq(known, client)));
    }
}

/// The database's error for a failed statement.
pub(super) struct Failed {
    pub error: Error,
    /// Whether its connection is gone.
    is_lost: bool,
}

/// Runs a statement in one round trip.
pub(crate) async fn query(client: &Client, sql: &str, params: &[Param]) -> Result<Vec<Row>, Error> {
    let typed: Vec<_> = params.iter().map(Param::typed).collect();
    let typed: Vec<(&(dyn ToSql + Sync), Type)> = typed
        .iter()
        .map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone()))
        .collect();
    client.query_typed(sql, &typed).await
}
