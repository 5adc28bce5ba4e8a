//! The target of a case.
//!
//! SUMMARY   [`Target`] is the tested program; [`Peer`] is one of its query servers, prompted line by line.
//!           Implementors define how one is started, and which of its lines are errors.
//! PROMISES  Dropping a peer ends a child with its group, and returns a lent process.

use std::time::Duration;

use bytes::Bytes;

use child::line_buffer::LineTooLong;
use child::{Exit, Spawner};

/// A tested program.
#[allow(async_fn_in_trait, reason = "peers stay on one thread")]
pub trait Target {
    /// Its query servers.
    type Peer: Peer;

    /// Starts or borrows a query server. `time` is the case's time limit.
    ///
    /// # Errors
    /// Why none can be started or borrowed.
    async fn start(&self, spawner: &Spawner, time: Duration) -> Result<Self::Peer, String>;
}

/// One query server.
#[allow(async_fn_in_trait, reason = "peers stay on one thread")]
pub trait Peer {
    /// Sends bytes unchanged.
    fn send(&mut self, bytes: &[u8]);

    /// Closes its input.
    fn close(&mut self);

    /// Waits for the next line; `None` at the end of the output.
    ///
    /// # Errors
    /// The line exceeds the maximum length; there are no further lines.
    async fn line(&mut self) -> Result<Option<Bytes>, LineTooLong>;

    /// Returns whether a line reports an error, fatal or not.
    fn is_error(&self, line: &str) -> bool;

    /// Returns how it ended, such as `exited with status 1`; called after the end of its output.
    async fn exit_report(&mut self) -> String;

    /// Waits for its end. `None`: it keeps running, or has no exit status.
    async fn end(self) -> Option<Exit>;
}
