//! Many commands to one process, with many unanswered at a time.
//!
//! PROMISES  What is unanswered is bounded in number and in bytes. Answers come in the order of the
//!           commands. However it ends, nothing of it is unanswered while the process lives.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::acquire::give_back;
use super::{FunctionError, QueryServers};
use crate::messages::client_error::Place;
use crate::messages::proc_manager::Want;

/// How many commands of a call may be unanswered.
const IN_FLIGHT_MAX: usize = 64;

/// How many bytes of them may be unanswered, if it is more than one command.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;

impl QueryServers {
    /// Takes a process, sends it commands, has each answer taken, with its number from 0, and gives
    /// the process back. The others are sent once the first is answered.
    ///
    /// # Errors
    /// The first error, of a prompt or of `take`; `place` tells what the command was about. No more
    /// is sent then, and what was sent before is waited for.
    pub(super) async fn prompt_all(
        &self,
        want: &Want,
        commands: impl IntoIterator<Item = Bytes>,
        timeout: Option<Duration>,
        mut take: impl FnMut(usize, Bytes) -> Result<(), FunctionError>,
        place: impl Fn(usize) -> Place,
    ) -> Result<(), FunctionError> {
        let mut commands = commands.into_iter();
        let Some(first) = commands.next() else {
            return Ok(());
        };
        let (lease, mut answer) = self.prompt_clean(want, first, timeout).await?;
        let mut result = Ok(());
        let mut answers = FuturesOrdered::new();
        let mut bytes_in_flight = 0;
        for number in 0.. {
            if result.is_ok() {
                let taken = answer.map_err(FunctionError::from);
                let taken = taken.and_then(|answer| take(number, answer));
                result = taken.map_err(|error| error.at(place(number)));
            }
            while result.is_ok()
                && (answers.is_empty()
                    || (answers.len() < IN_FLIGHT_MAX && bytes_in_flight < IN_FLIGHT_BYTES_MAX))
            {
                let Some(command) = commands.next() else {
                    break;
                };
                let length = command.len();
                bytes_in_flight += length;
                let answer = lease.prompt(command, timeout);
                answers.push_back(async move { (length, answer.await) });
            }
            let Some((length, next)) = answers.next().await else {
                break;
            };
            bytes_in_flight -= length;
            answer = next;
        }
        drop(answers);
        give_back(lease, &result).await;
        result
    }
}
