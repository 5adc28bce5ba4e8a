//! A fake CouchDB server with many databases, and `_db_updates`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Database, decode};
use crate::support::http_server::{Answer, End, Piece, Received, Server};

/// The server, which can be restarted at the same port.
pub struct Host {
    pub server: Option<Server>,
    address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    databases: BTreeMap<String, Database>,
    /// The open `_db_updates` feeds.
    followers: Vec<UnboundedSender<Bytes>>,
    /// The answer to `_db_updates` while it is refused.
    refusal: Option<Answer>,
    /// The number of `_changes` requests without `limit` for each database.
    reads: BTreeMap<String, usize>,
    /// The path prefix of all databases, with a slash at its end.
    prefix: String,
}

impl Host {
    pub async fn start() -> Self {
        Self::with_prefix("").await
    }

    /// Starts a server with all databases below this path, which ends with a slash.
    pub async fn with_prefix(prefix: &str) -> Self {
        let inner = Arc::new(Mutex::new(Inner {
            prefix: prefix.to_owned(),
            ..Inner::default()
        }));
        let answering = Arc::clone(&inner);
        let server = Server::start(move |request| answering.lock().unwrap().answer(request)).await;
        Self {
            address: server.address,
            server: Some(server),
            inner,
        }
    }

    /// Closes all connections and restarts the server.
    pub async fn restart(&mut self) {
        self.server = None;
        self.drop_updates();
        let answering = Arc::clone(&self.inner);
        let answer = move |request: &Received| answering.lock().unwrap().answer(request);
        self.server = Some(Server::start_at(self.address, answer).await);
    }

    /// The URL of a database, whose name is percent-encoded.
    pub fn url(&self, encoded: &str) -> String {
        let prefix = self.inner.lock().unwrap().prefix.clone();
        format!("http://{}/{prefix}{encoded}", self.address)
    }

    /// Creates a database.
    pub fn create(&self, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.databases.insert(name.into(), Database::default());
        inner.notify(name, "created");
    }

    pub fn delete(&self, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.databases.remove(name);
        inner.notify(name, "deleted");
    }

    pub fn database(&self, name: &str) -> Database {
        self.inner.lock().unwrap().databases[name].clone()
    }

    /// Stores a document and notifies the followers.
    pub fn put(&self, name: &str, id: &str) {
        self.put_silently(name, id);
        self.inner.lock().unwrap().notify(name, "updated");
    }

    /// Stores a document without notifying the followers.
    pub fn put_silently(&self, name: &str, id: &str) {
        self.database(name).put(id, None, json!({}));
    }

    /// Cuts all connections of `_db_updates`.
    pub fn drop_updates(&self) {
        self.inner.lock().unwrap().followers.clear();
    }

    /// Answers `_db_updates` with `answer` from now on; `None` restores the feed.
    pub fn refuse_updates(&self, answer: Option<Answer>) {
        self.inner.lock().unwrap().refusal = answer;
    }

    /// Returns the number of open `_db_updates` feeds.
    pub fn followers(&self) -> usize {
        let mut inner = self.inner.lock().unwrap();
        inner.followers.retain(|follower| !follower.is_closed());
        inner.followers.len()
    }

    /// Returns the number of `_changes` requests without `limit` for a database.
    pub fn reads(&self, name: &str) -> usize {
        let inner = self.inner.lock().unwrap();
        inner.reads.get(name).copied().unwrap_or_default()
    }
}

impl Inner {
    fn notify(&mut self, name: &str, kind: &str) {
        let line = json!({"db_name": name, "type": kind, "seq": "1-x"});
        self.followers
            .retain(|follower| follower.send(format!("{line}\n").into()).is_ok());
    }

    fn answer(&mut self, request: &Received) -> Answer {
        let Some(path) = request.path.strip_prefix(&self.prefix) else {
            return Answer::error(404, "not_found", "not below the prefix");
        };
        if path == "_db_updates" {
            return self
                .refusal
                .clone()
                .unwrap_or_else(|| self.updates(request));
        }
        let (name, call) = path.split_once('/').unwrap_or((path, ""));
        let name = decode(name);
        let Some(database) = self.databases.get(&name).cloned() else {
            return Answer::error(404, "not_found", "Database does not exist.");
        };
        if call == "_changes" && request.param("limit").is_none() {
            *self.reads.entry(name.clone()).or_default() += 1;
        }
        let mut request = request.clone();
        if request.path != "_session" {
            request.path = format!("db/{call}");
        }
        let before = database.seq();
        let answer = database.answer(&request);
        if database.seq() != before {
            self.notify(&name, "updated");
        }
        answer
    }

    fn updates(&mut self, request: &Received) -> Answer {
        let heartbeat = request.param("heartbeat").unwrap().parse().unwrap();
        let (sender, receiver) = unbounded_channel();
        self.followers.push(sender);
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let lines = Piece::Lines(receiver, Duration::from_millis(heartbeat));
        let pieces = vec![Piece::Bytes("\n".into()), lines];
        let mut answer = Answer::stream(200, "application/json", pieces);
        answer.end = End::Cut;
        answer
    }
}
