//! `GET /_tenants/DB/log`: log lines and final errors of a database's functions.
//!
//! SUMMARY   A feed returns the stored lines, and with `follow` continues with new ones.
//! PROMISES  A feed holds one page of lines at a time: a slow reader learns how many lines it has lost. A feed
//!           ends when the service stops, the client disconnects, or its user's rights change.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::access::{User, WhileAllowed};
use super::answer::{Answer, Piece, Pieces, Refusal, streamed};
use super::params::Params;
use super::request::{NDJSON, segments};
use crate::query_server::tenant_logs::{LINES_MAX, PAGE_LINES_MAX, TenantLogs};

/// Maximum silence of a feed; then it sends an empty line, to check whether the client still exists.
const HEARTBEAT: Duration = Duration::from_secs(30);

struct Feed {
    logs: Arc<TenantLogs>,
    db: String,
    since: u64,
    /// Remaining pages; `None` if the feed continues with new lines.
    pages: Option<usize>,
    /// Whether nothing was sent yet.
    is_first: bool,
    stopping: watch::Receiver<bool>,
}

/// Returns the lines after `since`, and new ones with `follow`.
pub(super) async fn log(
    request: HttpRequest,
    params: Params,
    visitor: User,
    shared: Shared,
) -> Answer {
    let follows = match params.get("follow") {
        Some("") => true,
        _ => params.boolean("follow", false)?,
    };
    let [_, db, _] =
        <[String; 3]>::try_from(segments(request.path())?).map_err(|_| Refusal::no_such_path())?;
    let feed = Feed {
        since: params.count("since")?.unwrap_or(0) as u64,
        pages: (!follows).then_some(LINES_MAX / PAGE_LINES_MAX),
        is_first: true,
        stopping: shared.stopping.subscribe(),
        logs: Arc::clone(&shared.tenant_logs),
        db,
    };
    streamed(NDJSON, WhileAllowed::new(feed, &visitor, shared)).await
}

impl Feed {
    /// Returns the next page; `None` if there is nothing new.
    fn page(&mut self) -> Option<Bytes> {
        let page = self.logs.page(&self.db, self.since);
        self.since = page.last;
        let text: String = page.texts().map(|line| line + "\n").collect();
        (!text.is_empty()).then(|| text.into())
    }
}

impl Pieces for Feed {
    async fn next(&mut self) -> Piece {
        // The answer's head is sent with its first piece.
        let is_first = std::mem::take(&mut self.is_first);
        let silence = if is_first { Duration::ZERO } else { HEARTBEAT };
        // Lines of other databases wake the feed, but do not delay its heartbeat.
        let beat_at = Instant::now() + silence;
        let logs = Arc::clone(&self.logs);
        while self.pages != Some(0) {
            // Registered before reading the page, so that no line is missed.
            let news = logs.news(&self.db).notified();
            if let Some(page) = self.page() {
                self.pages = self.pages.map(|pages| pages - 1);
                return Ok(Some(page));
            }
            if self.pages.is_some() {
                break;
            }
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => break,
                () = news => {}
                () = sleep_until(beat_at) => return Ok(Some(Bytes::from_static(b"\n"))),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use tokio::time::sleep;

    use super::*;
    use crate::query_server::request_id::RequestId;
    use crate::query_server::tenant_logs::{LineKind, TenantLine};

    fn note(logs: &TenantLogs, db: &Arc<str>) {
        let line = TenantLine {
            kind: LineKind::Log,
            request_id: &RequestId::made(),
            pool: None,
            ddoc: None,
            function: "map_docs",
            index: None,
            doc: None,
            name: None,
            message: "x",
            line: None,
        };
        logs.note(db, line);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_feed_sends_heartbeats_while_other_databases_log() {
        let logs = TenantLogs::new();
        let mut others = (0..10_000).map(|number| Arc::<str>::from(format!("db{number}")));
        let of_shop = logs.news("shop");
        let other = others.find(|db| ptr::eq(logs.news(db), of_shop));
        let other = other.expect("a database of the same group");
        let (_service, stopping) = watch::channel(false);
        let mut feed = Feed {
            logs: Arc::clone(&logs),
            db: "shop".to_owned(),
            since: 0,
            pages: None,
            is_first: false,
            stopping,
        };
        let logging = async {
            for _ in 0..6 {
                sleep(HEARTBEAT / 3).await;
                note(&logs, &other);
            }
        };
        tokio::select! {
            piece = feed.next() => assert_eq!(piece.unwrap().as_deref(), Some(&b"\n"[..])),
            () = logging => panic!("no heartbeat"),
        }
    }
}
