//! Many commands to one process, with many unanswered at a time.
//!
//! PROMISES  What is unanswered is bounded in number and in bytes. Answers come in the order of the
//!           commands. However it ends, nothing of it is unanswered while the process lives.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::FunctionError;
use crate::messages::proc_manager::Lease;

/// How many commands of a call may be unanswered.
const IN_FLIGHT_MAX: usize = 64;

/// How many bytes of them may be unanswered, if it is more than one command.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;

/// Sends commands and has each answer taken, with its number from 0.
///
/// # Errors
/// The first error, of a prompt or of `take`; the number tells which command it was about. No more
/// is sent then, and what was sent before is waited for.
pub(super) async fn pipeline(
    lease: &Lease,
    commands: impl IntoIterator<Item = Bytes>,
    timeout: Option<Duration>,
    mut take: impl FnMut(usize, Bytes) -> Result<(), FunctionError>,
) -> Result<(), (usize, FunctionError)> {
    let mut commands = commands.into_iter();
    let mut answers = FuturesOrdered::new();
    let mut bytes_in_flight = 0;
    let mut failed = None;
    let mut number = 0;
    loop {
        while failed.is_none()
            && (answers.is_empty()
                || (answers.len() < IN_FLIGHT_MAX && bytes_in_flight < IN_FLIGHT_BYTES_MAX))
        {
            let Some(command) = commands.next() else {
                break;
            };
            let length = command.len();
            bytes_in_flight += length;
            answers.push_back(async move { (length, lease.prompt(command, timeout).await) });
        }
        let Some((length, answer)) = answers.next().await else {
            return failed.map_or(Ok(()), Err);
        };
        bytes_in_flight -= length;
        if failed.is_none() {
            let taken = answer
                .map_err(FunctionError::from)
                .and_then(|answer| take(number, answer));
            failed = taken.err().map(|error| (number, error));
        }
        number += 1;
    }
}
