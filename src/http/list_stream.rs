//! `POST /_query/list` line by line: the rows of a view in, a rendered response out.
//!
//! SUMMARY   The first line has the arguments without rows; each further line is a row. The answer begins with a line
//!           `{"response": R}`; each piece of the body is a line `{"chunk": C}`.
//! PROMISES  The function gets each row when it has finished the previous one. A function that needs no more rows
//!           ends the answer, however many rows follow.
//! SOURCE    couch_mrview_show: handle_view_list/6, list_cb/2.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use actix_web::HttpRequest;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::Shared;
use super::access::User;
use super::answer::{Answer, Refusal, line};
use super::body::{IDLE_MAX, Incoming};
use super::line_stream::{self, ANSWERS_AHEAD, Lines, not_read, recorded};
use super::query::stream_options;
use crate::actors::pool_executor::PoolWork;
use crate::functions::{FunctionError, FunctionErrorKind, ListPart, QueryServers, Rows};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::{CallOptions, ListRow, ListStart};

/// Maximum number of rows waiting for the function.
const ROWS_AHEAD: usize = 64;

/// A row, or an error of its line.
type Row = Result<ListRow, FunctionError>;

/// `POST /_query/list` with a body of lines.
pub(super) async fn list(
    request: HttpRequest,
    incoming: Incoming,
    shared: Shared,
    user: User,
) -> Answer {
    let parse = |text: &str| ListStart::parse(text, &shared.ddocs);
    let ((start, options), lines) = Lines::begin(incoming, &shared, parse).await?;
    let options = stream_options(options, &request)?;
    let (rows_in, rows) = mpsc::channel(ROWS_AHEAD);
    let (answers, answers_out) = mpsc::channel(ANSWERS_AHEAD);
    let work = List {
        start,
        rows,
        answers,
        is_cut: Arc::clone(&lines.incoming.is_cut),
        options,
    };
    line_stream::answer(pump(lines, rows_in), answers_out, work, (&shared, &user)).await
}

/// Splits the body into rows and passes them on, until the end or an error.
async fn pump(mut lines: Lines, rows: mpsc::Sender<Row>) {
    // The arguments are the first line.
    for number in 2_u64.. {
        let row = match lines.next_line("it").await {
            Ok(None) => return,
            Ok(Some(line)) if line.trim_ascii().is_empty() => continue,
            Ok(Some(line)) => std::str::from_utf8(&line)
                .map_err(|_| "not UTF-8".to_owned())
                .and_then(|line| {
                    ListRow::parse(line.trim_ascii()).map_err(|error| Refusal::from(error).reason())
                }),
            Err(refusal) => Err(refusal.reason()),
        };
        let row = row.map_err(|problem| {
            FunctionErrorKind::BadCall(format!("line {number}: {problem}")).into()
        });
        let is_last = row.is_err();
        // The receiver is gone if the function needs no more rows, or the call failed.
        if rows.send(row).await.is_err() || is_last {
            return;
        }
    }
}

/// Runs the function on rows as they arrive.
struct List {
    start: ListStart,
    rows: Rows,
    answers: mpsc::Sender<Bytes>,
    is_cut: Arc<AtomicBool>,
    options: CallOptions,
}

impl PoolWork for List {
    type Output = Result<(), Refusal>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        let (parts_in, mut parts) = mpsc::channel(ANSWERS_AHEAD);
        let (servers, call) = servers.begin(
            self.start.at.subject(&["lists", &*self.start.name]),
            &self.options,
        );
        let answers = self.answers;
        let last = answers.clone();
        let forward = async move {
            while let Some(part) = parts.recv().await {
                let sent = answers.send_timeout(line_of(&part), IDLE_MAX).await;
                // Dropping the parts stops the list.
                sent.map_err(|_| not_read())?;
            }
            Ok::<_, Refusal>(())
        };
        let (listed, forwarded) =
            futures_util::join!(servers.list(&self.start, self.rows, parts_in), forward);
        let listed = listed.map_err(ErrorReply::from);
        let unread = forwarded.is_err().then(ErrorReply::unread);
        let error = listed
            .as_ref()
            .err()
            .cloned()
            .or(unread)
            .map(|error| recorded(error, &last, &self.is_cut));
        let finished = call.end(error.as_ref());
        let report = finished.report();
        if let Err(error) = listed {
            return Err(Refusal::from(error).with_members(&report));
        }
        forwarded?;
        if let Some(report) = &report {
            last.send_timeout(line(report), IDLE_MAX)
                .await
                .map_err(|_| not_read())?;
        }
        Ok(())
    }
}

fn line_of(part: &ListPart) -> Bytes {
    let (name, json) = match part {
        ListPart::Response(response) => ("response", response.json.get()),
        ListPart::Chunk(chunk) => ("chunk", chunk.get()),
    };
    Bytes::from(format!("{{\"{name}\":{json}}}\n"))
}
