//! Connections to the database: how they are opened, and the meaning of their errors.
//!
//! PROMISES  No error contains the password. Connecting ends within [`CONNECT_MAX`], and a statement within
//!           [`REQUEST_MAX`], even if the network loses the answer.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use child::watches;
use tokio::time::timeout;
use tokio_postgres::config::SslMode as Ssl;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, SimpleQueryMessage};

use super::news::News;
use super::tls::Tls;
use crate::error::{OpenProblem, TOO_MANY_FILES};
use crate::observer::StoreObserver;
use settee_config::store_url::{SslMode, StoreUrl};

/// Timeout of connecting.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Timeout of a statement, or of the transaction of a batch of writes.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(10);

/// The oldest supported version, in PostgreSQL's numbering.
const VERSION_MIN: u32 = 130_000;

/// Opens connections to one database.
pub(crate) struct Connector {
    config: Config,
    tls: Tls,
    news: Arc<News>,
    observer: Arc<dyn StoreObserver>,
}

/// Reports a connection to the observer: as made when created, as lost when dropped.
struct Up(Arc<dyn StoreObserver>);

impl Up {
    fn new(observer: &Arc<dyn StoreObserver>) -> Self {
        observer.connected();
        Self(Arc::clone(observer))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

impl Connector {
    /// Reads a URL and its certificates. Blocks.
    pub fn of(
        url: &StoreUrl,
        news: &Arc<News>,
        observer: &Arc<dyn StoreObserver>,
    ) -> Result<Self, OpenProblem> {
        let mut config = url
            .without_ssl()
            .parse::<Config>()
            .map_err(|error| OpenProblem::Refused(text(&error)))?;
        if config.get_application_name().is_none() {
            config.application_name("settee");
        }
        config
            .ssl_mode(match url.ssl_mode() {
                SslMode::Disable => Ssl::Disable,
                SslMode::Prefer => Ssl::Prefer,
                SslMode::Require | SslMode::VerifyFull => Ssl::Require,
            })
            .connect_timeout(CONNECT_MAX)
            .tcp_user_timeout(REQUEST_MAX)
            .keepalives_idle(REQUEST_MAX);
        Ok(Self {
            config,
            tls: Tls::of(url).map_err(OpenProblem::Refused)?,
            news: Arc::clone(news),
            observer: Arc::clone(observer),
        })
    }

    /// Opens a connection, which runs on this runtime.
    pub async fn connect(&self) -> Result<Client, OpenProblem> {
        timeout(CONNECT_MAX, self.try_connect())
            .await
            .unwrap_or_else(|_| Err(no_answer(CONNECT_MAX)))
    }

    async fn try_connect(&self) -> Result<Client, OpenProblem> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let (news, up) = (Arc::clone(&self.news), Up::new(&self.observer));
        tokio::spawn(async move {
            let mut next = std::future::poll_fn(|cx| connection.poll_message(cx));
            while let Some(Ok(message)) = (&mut next).await {
                if let AsyncMessage::Notification(told) = message {
                    news.hear(told.channel(), told.payload());
                }
            }
            drop(up);
            // Notifies listeners that notifications have stopped.
            news.documents.notify_one();
        });
        prepare(&client).await?;
        Ok(client)
    }
}

/// Sets the timeouts of a connection, and checks the server. Turns off JIT compilation: for the lease statements,
/// which scan all jobs, it would take longer than their execution.
async fn prepare(client: &Client) -> Result<(), OpenProblem> {
    let bound = REQUEST_MAX.as_millis();
    let set = format!(
        "SET statement_timeout = {bound}; SET idle_in_transaction_session_timeout = {}; \
         SET client_min_messages = warning; SET jit = off; SHOW server_version_num; SHOW server_encoding; \
         SHOW server_version",
        2 * bound
    );
    let answers = client.simple_query(&set).await?;
    let shown = answers.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let shown: Vec<&str> = shown.collect();
    let [number, encoding, version] = &shown[..] else {
        return Err(OpenProblem::Refused("it is not PostgreSQL".to_owned()));
    };
    if number
        .parse::<u32>()
        .is_ok_and(|number| number < VERSION_MIN)
    {
        let old = format!("it is PostgreSQL {version}, and 13 or newer is needed");
        return Err(OpenProblem::Refused(old));
    }
    if *encoding != "UTF8" {
        return Err(OpenProblem::Refused(format!(
            "its encoding is {encoding}, and UTF8 is needed"
        )));
    }
    Ok(())
}

/// Interprets a failed request.
impl From<tokio_postgres::Error> for OpenProblem {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = text(&error);
        let code = error.code().map_or("", SqlState::code);
        match code.get(..2).unwrap_or_default() {
            "28" | "3D" => Self::Refused(text),
            "23" => Self::Constraint(text),
            "53" if code == SqlState::DISK_FULL.code() => Self::Full(text),
            "53" | "54" => Self::Limit(text),
            "25" if code == SqlState::READ_ONLY_SQL_TRANSACTION.code() => Self::ReadOnly(text),
            _ if code == SqlState::INSUFFICIENT_PRIVILEGE.code() => Self::Rights(text),
            "" if lacks_room(&error) => Self::Limit(text),
            "" | "08" | "57" => Self::Database(text),
            _ => Self::Failed(text),
        }
    }
}

/// Returns the error of a request that timed out.
pub(crate) fn no_answer(within: Duration) -> OpenProblem {
    OpenProblem::Database(format!("nothing came back within {} s", within.as_secs()))
}

/// Returns whether a request failed because its connection was lost.
pub(super) fn is_lost(client: &Client, error: &tokio_postgres::Error) -> bool {
    let ended = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    client.is_closed() || error.is_closed() || error.code().is_some_and(|c| ended.contains(c))
}

/// Iterates over an error and its causes.
fn causes(error: &tokio_postgres::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(Some(error as &(dyn Error + 'static)), |error| {
        (*error).source()
    })
}

/// Returns whether this machine lacks a descriptor or a watch for a connection.
fn lacks_room(error: &tokio_postgres::Error) -> bool {
    let mut systems = causes(error).filter_map(|error| error.downcast_ref::<io::Error>());
    systems.any(|error| {
        error.kind() == io::ErrorKind::StorageFull
            || matches!(error.raw_os_error(), Some(code) if TOO_MANY_FILES.contains(&code))
    })
}

/// Returns the server's message, or why there is none.
fn text(error: &tokio_postgres::Error) -> String {
    if let Some(told) = error.as_db_error() {
        return format!("{}: {}", told.severity(), told.message());
    }
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    watches::named_in(texts.join(": "), error)
}
