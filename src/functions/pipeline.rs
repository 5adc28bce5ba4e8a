//! Pipelines many commands to one process.
//!
//! PROMISES  Unanswered commands are bounded in number and bytes. Answers keep the order of the commands; an extra
//!           line among them fails the call. However the call ends, none of its commands stays unanswered while the
//!           process is alive.

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::acquire::{TimedWant, give_back};
use super::{FunctionError, FunctionResult, QueryServers};
use crate::messages::client_error::Place;

/// Maximum number of unanswered commands of a call.
const IN_FLIGHT_MAX: usize = 64;

/// Size of a call's unanswered commands from which no further command is sent, in bytes.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;

impl QueryServers {
    /// Borrows a process, sends it commands, passes each answer and its number, from 0, to `take`, and returns the
    /// process. The commands after the first are sent once the first is answered.
    ///
    /// # Errors
    /// The first error of a prompt or of `take`, with the `place` of its command. No further command is sent, and the
    /// answers to earlier ones are awaited.
    pub(super) async fn prompt_all(
        &self,
        (want, timeout): TimedWant,
        commands: impl IntoIterator<Item = Bytes>,
        mut take: impl FnMut(usize, Bytes) -> FunctionResult<()>,
        place: impl Fn(usize) -> Place,
    ) -> FunctionResult<()> {
        let mut commands = commands.into_iter().peekable();
        let Some(first) = commands.next() else {
            return Ok(());
        };
        let is_only = commands.peek().is_none();
        let (lease, mut answer) = self.prompt_clean((want, timeout), first, is_only).await?;
        // The fence is sent with the last command; after an error, by `give_back`.
        let send = async |command: Option<Bytes>| match command {
            Some(command) => lease.prompt(command, timeout).await,
            None => lease.fence().await.map(|()| Bytes::new()),
        };
        let mut is_fenced = is_only;
        let mut result = Ok(());
        let mut answers = FuturesOrdered::new();
        let mut bytes_in_flight = 0;
        for number in 0.. {
            if result.is_ok() {
                let taken = answer
                    .map_err(FunctionError::from)
                    .and_then(|answer| take(number, answer));
                result = taken.map_err(|error| error.at(place(number)));
            }
            while result.is_ok()
                && !is_fenced
                && (answers.is_empty()
                    || (answers.len() < IN_FLIGHT_MAX && bytes_in_flight < IN_FLIGHT_BYTES_MAX))
            {
                let command = commands.next();
                is_fenced = command.is_none();
                let length = command.as_ref().map(Bytes::len);
                bytes_in_flight += length.unwrap_or_default();
                let answer = send(command);
                answers.push_back(async move { (length, answer.await) });
            }
            match answers.next().await {
                Some((Some(length), next)) => {
                    bytes_in_flight -= length;
                    answer = next;
                }
                // The fence's answer is the last.
                Some((None, fence)) => {
                    result = result.and(fence.map(drop).map_err(FunctionError::from));
                    break;
                }
                None => break,
            }
        }
        drop(answers);
        give_back(lease, result).await
    }
}
