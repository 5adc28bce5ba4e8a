//! The connection to a server's `_db_updates`: opened, followed, and reopened.
//!
//! SUMMARY   [`follow`] passes the server's updates to subscribers, until there are none or the server refuses.
//! PROMISES  Subscribers are notified of the connection's end, even if the thread ends.
//! SOURCE    CouchDB's `_db_updates?feed=continuous`: an object per line, empty lines as heartbeats.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use slog::{info, warn};
use tokio::time::{Instant, sleep};

use super::Server;
use super::subscribers::Update;
use crate::changes::feed::{FeedParser, Framing};
use crate::endpoint::{Backoff, Chunks, Endpoint, Request, StatusCode, WAIT_MIN, lock};

/// Maximum delay before a reconnect.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A connection that lasted this long resets the count of failures.
const STEADY: Duration = Duration::from_secs(10);

const BACKOFF: Backoff = Backoff::new(WAIT_MIN, 2, WAIT_MAX);

/// The remedy if a server does not report updates.
const REMEDY: &str = "name an administrator of the source, which must be a CouchDB 2 or newer with a database \
                      `_global_changes`, or remove feed = \"db_updates\"";

/// Why a connection failed or ended.
enum Ended {
    /// The server refuses: an early retry is useless.
    Refused(String),
    /// It was lost, or could not be made.
    Lost(String),
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    db_name: std::borrow::Cow<'a, str>,
    #[serde(default, rename = "type")]
    update: Update,
}

/// Records on drop that the server is no longer followed, even if the thread ends.
struct Following(Arc<Server>);

impl Drop for Following {
    fn drop(&mut self) {
        lock(&self.0.subscribers).left(Instant::now());
    }
}

/// Follows the server's updates until the last subscriber leaves, or the server refuses.
pub(super) async fn follow(server: Arc<Server>, endpoint: Endpoint) {
    let following = Following(server);
    let server = &*following.0;
    let unwanted = async {
        while !lock(&server.subscribers).is_empty() {
            server.unwanted.notified().await;
        }
    };
    tokio::select! {
        () = unwanted => {}
        () = follow_again(server, &endpoint) => {}
    }
}

/// Returns when the server refuses.
async fn follow_again(server: &Server, endpoint: &Endpoint) {
    let mut backoff = BACKOFF;
    loop {
        let began = Instant::now();
        match follow_once(server, endpoint).await {
            Ended::Refused(why) => {
                if !lock(&server.subscribers).is_refused() {
                    warn!(endpoint.logger(), "a source does not report which of its databases change: replications use their own feeds";
                          "server" => endpoint.url(), "error" => &why, "remedy" => REMEDY);
                }
                let why = format!("a feed of its own, because of {why}; {REMEDY}");
                lock(&server.subscribers).refused(&why, Instant::now());
                return;
            }
            Ended::Lost(why) => {
                info!(endpoint.logger(), "the connection that reports changed databases was lost, and is reopened";
                      "server" => endpoint.url(), "error" => &why);
                let why = format!("a feed of its own until there is a connection: {why}");
                lock(&server.subscribers).failed(&why, Instant::now());
            }
        }
        if began.elapsed() >= STEADY {
            backoff = BACKOFF;
        }
        sleep(backoff.wait()).await;
    }
}

async fn follow_once(server: &Server, endpoint: &Endpoint) -> Ended {
    let heartbeat = endpoint.silence_max() / 3;
    let request = Request::get("_db_updates")
        .query("feed", "continuous")
        .query("since", "now")
        .query("heartbeat", heartbeat.as_millis().max(1).to_string())
        .endless();
    let reply = match endpoint.stream(request).await {
        Ok(reply) => reply,
        Err(failed) if failed.is_refused() => return Ended::Refused(failed.to_string()),
        Err(failed) => return Ended::Lost(failed.to_string()),
    };
    let asked = reply.asked.to_string();
    if reply.status != StatusCode::OK {
        let status = reply.status.as_u16();
        return Ended::Refused(format!("{asked}: {status}: {}", reply.excerpt().await));
    }
    lock(&server.subscribers).opened();
    let lost = |why: &dyn Display| Ended::Lost(format!("{asked}: {why}"));
    let mut parser = FeedParser::new(Framing::Continuous);
    let mut body = reply.body;
    loop {
        match body.chunk().await {
            Ok(Some(piece)) => parser.push(&piece),
            Ok(None) => return lost(&"the response ended"),
            Err(failed) => return lost(&failed),
        }
        loop {
            let text = match parser.next_text() {
                Ok(Some(text)) => text,
                Ok(None) => break,
                Err(error) => return Ended::Refused(format!("{asked}: {error}")),
            };
            // Any other object is a last_seq or an error, sent just before the end.
            if let Ok(line) = serde_json::from_slice::<Line<'_>>(&text) {
                lock(&server.subscribers).told(&line.db_name, line.update);
            }
        }
    }
}
