//! List functions: rows become a response, in chunks.
//!
//! SUMMARY   [`QueryServers::list`] takes rows from one channel and puts the function's output into another;
//!           [`QueryServers::list_all`] takes all rows at once.
//! PROMISES  One row is sent at a time, because the function may need no more. Dropping an unfinished list ends its
//!           process.
//! SOURCE    couch_mrview_show: handle_view_list/6, list_cb/2.
//! DIFFERS   An error in a row is an error of the call, not a chunk.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::acquire::give_back;
use super::decode::{broken, elements, is_word};
use super::response::Response;
use super::scrub::scrub;
use super::{FunctionError, FunctionResult, QueryServers};
use crate::messages::function::{Json, List, ListRow, ListStart};
use crate::messages::proc_manager::Lease;
use crate::query_server::prompt;
use json::{JsonList, JsonListBuilder};

/// The output of a list function, in parts: the response once, then its chunks.
#[derive(Clone, Debug)]
pub enum ListPart {
    /// Status and headers. Sent once, before the first chunk or at the end.
    Response(Response),
    /// A piece of the body; a string, except that the last may be any value.
    Chunk(Box<RawValue>),
}

/// The output of a list function.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The response.
    pub response: Response,
    /// The pieces of the body.
    pub chunks: JsonList,
}

/// Rows for a list function; an error ends the call.
pub type Rows = mpsc::Receiver<FunctionResult<ListRow>>;

/// Maximum buffered rows, and maximum buffered parts, of [`QueryServers::list_all`].
const AHEAD: usize = 16;

impl QueryServers {
    /// Runs a list function on the rows in the call (`list`).
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub(crate) async fn list_all(&self, call: List) -> FunctionResult<Listed> {
        let (rows, rows_in) = mpsc::channel(AHEAD);
        let (parts_out, mut parts) = mpsc::channel(AHEAD);
        let feed = async move {
            for row in call.rows.iter() {
                let row = ListRow::parse(row).expect("CL-4: a call's rows were checked to be rows");
                // The function needs no more rows.
                if rows.send(Ok(row)).await.is_err() {
                    break;
                }
            }
        };
        let collect = async {
            let (mut response, mut chunks) = (None, JsonListBuilder::default());
            while let Some(part) = parts.recv().await {
                match part {
                    ListPart::Response(it) => response = Some(it),
                    ListPart::Chunk(chunk) => chunks.push(&chunk),
                }
            }
            (response, chunks.finish())
        };
        let list = self.list(&call.start, rows_in, parts_out);
        let (result, (), (response, chunks)) = futures_util::join!(list, feed, collect);
        result?;
        let response = response.expect("CL-1: a list that ended well had a response");
        Ok(Listed { response, chunks })
    }

    /// Runs a list function on rows as they arrive. It ends early if `parts` is closed.
    ///
    /// # Errors
    /// See [`FunctionError`]; earlier parts have been sent.
    pub async fn list(
        &self,
        start: &ListStart,
        mut rows: Rows,
        parts: mpsc::Sender<ListPart>,
    ) -> FunctionResult<()> {
        let at = &start.at;
        let path = ["lists", &*start.name];
        let place = |error: FunctionError| error.at(at.place(&path));
        let line = at.command(&path, (&start.head, &*scrub(&start.req)));
        let begun = self.prompt_clean(at.want(), line, false).await;
        let (lease, answer) = begun.map_err(place)?;
        let result = async {
            let (chunks, response) = read_start(&answer.map_err(FunctionError::from)?)?;
            let mut body = Body {
                response: Some(response),
                parts,
            };
            body.take(chunks, None).await?;
            body.take_rows(&lease, &mut rows, at.timeout).await?;
            Ok(lease.fence().await.map_err(FunctionError::from)?)
        }
        .await;
        // Ends a sender that waits for capacity.
        drop(rows);
        let result = match result {
            // The caller reads no more: the list is abandoned, and the process is replaced.
            Err(Stopped::Unwanted) => return Ok(()),
            Err(Stopped::Failed(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        give_back(lease, result).await.map_err(place)
    }
}

/// Why a list ends early.
enum Stopped {
    Failed(FunctionError),
    Unwanted,
}

impl From<FunctionError> for Stopped {
    fn from(error: FunctionError) -> Self {
        Self::Failed(error)
    }
}

/// The response and the chunks on their way to the caller.
struct Body {
    /// The response, until it is sent: a later one may replace it before the first chunk.
    response: Option<Response>,
    parts: mpsc::Sender<ListPart>,
}

impl Body {
    /// Prompts with rows until they end or the function needs no more.
    async fn take_rows(
        &mut self,
        lease: &Lease,
        rows: &mut Rows,
        timeout: Option<Duration>,
    ) -> Result<(), Stopped> {
        loop {
            let row = rows.recv().await.transpose()?;
            let line = match &row {
                Some(row) => prompt::line(&("list_row", row)),
                None => prompt::line(&["list_end"]),
            };
            let answer = lease.prompt(line, timeout).await;
            let step = Step::read(&answer.map_err(FunctionError::from)?, row.is_some())?;
            let is_end = step.is_end;
            self.take(step.chunks, step.response).await?;
            if is_end {
                return self.send_response().await;
            }
        }
    }

    async fn take(&mut self, chunks: Vec<Json>, response: Option<Response>) -> Result<(), Stopped> {
        if self.response.is_some() && response.is_some() {
            self.response = response;
        }
        for chunk in chunks {
            self.send_response().await?;
            self.send(ListPart::Chunk(chunk)).await?;
        }
        Ok(())
    }

    async fn send_response(&mut self) -> Result<(), Stopped> {
        match self.response.take() {
            Some(response) => self.send(ListPart::Response(response)).await,
            None => Ok(()),
        }
    }

    async fn send(&self, part: ListPart) -> Result<(), Stopped> {
        self.parts.send(part).await.map_err(|_| Stopped::Unwanted)
    }
}

/// Reads `["start", [CHUNK, ..], RESPONSE]`.
fn read_start(answer: &Bytes) -> FunctionResult<(Vec<Json>, Response)> {
    match elements(answer).as_deref() {
        Some([word, chunks, response]) if is_word(word, "start") => {
            Ok((read_chunks(answer, chunks)?, Response::check(response)?))
        }
        _ => Err(broken(answer, "[\"start\", [..], {..}]")),
    }
}

/// The answer to a row or to the end of the rows.
struct Step {
    is_end: bool,
    chunks: Vec<Json>,
    /// A response that the function started after its first rows.
    response: Option<Response>,
}

impl Step {
    /// Parses `["chunks", [..]]`, valid only for a row, or `["end", [..]]`; either may include a response.
    fn read(answer: &Bytes, to_row: bool) -> FunctionResult<Self> {
        let expected = if to_row {
            "[\"chunks\", [..]] or [\"end\", [..]]"
        } else {
            "[\"end\", [..]]"
        };
        let elements = elements(answer).unwrap_or_default();
        let (word, chunks, response) = match elements[..] {
            [word, chunks] => (word, chunks, None),
            [word, chunks, response] => (word, chunks, Some(response)),
            _ => return Err(broken(answer, expected)),
        };
        let is_end = is_word(word, "end");
        let goes_on = to_row && is_word(word, "chunks");
        if !is_end && !goes_on {
            return Err(broken(answer, expected));
        }
        Ok(Self {
            is_end,
            chunks: read_chunks(answer, chunks)?,
            response: response.map(Response::check).transpose()?,
        })
    }
}

fn read_chunks(answer: &Bytes, chunks: &RawValue) -> FunctionResult<Vec<Json>> {
    serde_json::from_str(chunks.get()).map_err(|_| broken(answer, "chunks in an array"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::client_error::ErrorReply;
    use crate::messages::process::Fault;

    fn step(answer: &'static str, to_row: bool) -> Result<Step, FunctionError> {
        Step::read(&Bytes::from_static(answer.as_bytes()), to_row)
    }

    #[test]
    fn list_row_is_answered_by_chunks_or_end_and_list_end_only_by_end() {
        let chunks = step(r#"["chunks",["a","b"]]"#, true).unwrap();
        assert_eq!((chunks.is_end, chunks.chunks.len()), (false, 2));
        let end = step(r#"["end",[null,{"a": 1.0}]]"#, false).unwrap();
        assert_eq!((end.is_end, end.chunks[1].get()), (true, "{\"a\": 1.0}"));
        let late = step(r#"["chunks",[],{"headers":{"A":"b"}}]"#, true).unwrap();
        assert_eq!(
            late.response.unwrap().json.get(),
            r#"{"headers":{"A":"b"}}"#
        );
        assert!(step(r#"["end",[],{"headers":{}}]"#, true).unwrap().is_end);
    }

    #[test]
    fn other_answers_break_the_protocol() {
        for (answer, to_row) in [
            (r#"["chunks",["a"]]"#, false),
            (r#"["start",[],{}]"#, true),
            (r#"["end"]"#, true),
            (r#"["end",7]"#, true),
            ("true", true),
        ] {
            let error = step(answer, to_row).err().unwrap();
            let fault = ErrorReply::from(error).fault;
            assert_eq!(fault, Fault::QueryServer, "{answer}");
        }
        assert!(read_start(&Bytes::from_static(br#"["resp",[],{}]"#)).is_err());
    }

    #[test]
    fn a_late_response_is_checked_like_an_early_one() {
        let error = step(r#"["end",[],{"status":1}]"#, true).err().unwrap();
        assert_eq!(ErrorReply::from(error).fault, Fault::Client);
    }
}
