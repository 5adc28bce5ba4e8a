//! `POST /_query/list` line by line: the rows of a view in, a rendered response out.
//!
//! SUMMARY   The first line holds the arguments without rows; each further line is a row. The answer
//!           begins with a line `{"response": R}`; each piece of the body is a line `{"chunk": C}`.
//! PROMISES  A row is sent to the function when it has dealt with the one before. A function that has
//!           enough ends the answer, however many rows are still to come.
//! SOURCE    couch_mrview_show: handle_view_list/6, list_cb/2.

use actix_web::web::Data;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::Shared;
use super::access::User;
use super::answer::{Answer, Refusal};
use super::body::{IDLE_MAX, Incoming};
use super::line_stream::{self, ANSWERS_AHEAD, Lines, not_read};
use crate::actors::pool_executor::PoolWork;
use crate::functions::{FunctionError, FunctionErrorKind, ListPart, QueryServers, Rows};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::{ListRow, ListStart};

/// Rows that wait for the function.
const ROWS_AHEAD: usize = 64;

/// A row, or why there is none.
type Row = Result<ListRow, FunctionError>;

/// `POST /_query/list`, where the body is lines.
pub(super) async fn list(incoming: Incoming, shared: Data<Shared>, user: User) -> Answer {
    let (start, lines) = Lines::begin(incoming, &shared, ListStart::parse).await?;
    let (rows_in, rows) = mpsc::channel(ROWS_AHEAD);
    let (answers, answers_out) = mpsc::channel(ANSWERS_AHEAD);
    let work = List {
        start,
        rows,
        answers,
    };
    let pump = pump(lines, rows_in);
    line_stream::answer(pump, answers_out, work, (&shared, &user)).await
}

/// Cuts what comes into rows and hands them over, until the end or an error.
async fn pump(lines: Lines, rows: mpsc::Sender<Row>) {
    let Lines {
        mut incoming,
        mut buffer,
    } = lines;
    // The arguments are the first line.
    let mut number = 1_u64;
    loop {
        match buffer.next_line() {
            Ok(Some(line)) => {
                number += 1;
                // Nobody takes it any more: the function has enough, or the work is over and says
                // why.
                if !hand_over(&rows, number, &line).await {
                    return;
                }
            }
            Ok(None) => match incoming.next().await {
                Ok(Some(chunk)) => buffer.add(chunk),
                Ok(None) => break,
                Err(refusal) => return give_up(&rows, number, &refusal.reason()).await,
            },
            Err(error) => return give_up(&rows, number + 1, &error.to_string()).await,
        }
    }
    hand_over(&rows, number + 1, &buffer.take_rest()).await;
}

/// Hands a row over. `false`: nobody wants more.
async fn hand_over(rows: &mpsc::Sender<Row>, number: u64, line: &[u8]) -> bool {
    let line = line.trim_ascii();
    if line.is_empty() {
        return !rows.is_closed();
    }
    let row = std::str::from_utf8(line)
        .map_err(|_| "not UTF-8".to_owned())
        .and_then(|line| ListRow::parse(line).map_err(|error| Refusal::from(error).reason()));
    match row {
        Ok(row) => rows.send(Ok(row)).await.is_ok(),
        Err(problem) => {
            give_up(rows, number, &problem).await;
            false
        }
    }
}

async fn give_up(rows: &mpsc::Sender<Row>, number: u64, problem: &str) {
    let reason = format!("line {number}: {problem}");
    // If nobody takes it, the work is over already and says why.
    let _ = rows
        .send(Err(FunctionErrorKind::BadCall(reason).into()))
        .await;
}

/// Runs the function over rows as they come.
struct List {
    start: ListStart,
    rows: Rows,
    answers: mpsc::Sender<Bytes>,
}

impl PoolWork for List {
    type Output = Result<(), Refusal>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        let (parts_in, mut parts) = mpsc::channel(ANSWERS_AHEAD);
        let answers = self.answers;
        let forward = async move {
            while let Some(part) = parts.recv().await {
                let sent = answers.send_timeout(line_of(&part), IDLE_MAX).await;
                // To let go of the parts is to tell the list that nobody wants more.
                sent.map_err(|_| not_read())?;
            }
            Ok(())
        };
        let list = servers.list(&self.start, self.rows, parts_in);
        let (listed, forwarded) = futures_util::join!(list, forward);
        listed.map_err(|error| Refusal::from(ErrorReply::from(error)))?;
        forwarded
    }
}

fn line_of(part: &ListPart) -> Bytes {
    let (name, json) = match part {
        ListPart::Response(response) => ("response", response.json.get()),
        ListPart::Chunk(chunk) => ("chunk", chunk.get()),
    };
    Bytes::from(format!("{{\"{name}\":{json}}}\n"))
}
