//! What a case runs against.
//!
//! SUMMARY   [`Target`] is what is tested; [`Peer`] is one query server of it, prompted line by line. Implementors
//!           decide how one is started, and which of its lines are errors.
//! PROMISES  Dropping a peer ends a child with its group, and gives a lent process back.

use std::time::Duration;

use bytes::Bytes;

use child::line_buffer::LineTooLong;
use child::{Exit, Spawner};

/// What is tested.
#[allow(async_fn_in_trait, reason = "peers stay on one thread")]
pub trait Target {
    /// A query server of it.
    type Peer: Peer;

    /// Starts a query server, or takes one. `time` is what it may take for everything.
    ///
    /// # Errors
    /// Why there is none.
    async fn start(&self, spawner: &Spawner, time: Duration) -> Result<Self::Peer, String>;
}

/// One query server.
#[allow(async_fn_in_trait, reason = "peers stay on one thread")]
pub trait Peer {
    /// Sends bytes as they are.
    fn send(&mut self, bytes: &[u8]);

    /// Ends its input.
    fn close(&mut self);

    /// Waits for the next line; `None` is the end of the output.
    ///
    /// # Errors
    /// The line is longer than allowed; there is no further one.
    async fn line(&mut self) -> Result<Option<Bytes>, LineTooLong>;

    /// Returns whether a line reports an error, fatal or not.
    fn is_error(&self, line: &str) -> bool;

    /// Tells how it ended, after the end of its output: `exited with status 1`.
    async fn exit_report(&mut self) -> String;

    /// Waits for its end. `None`: it goes on to live, or has no exit status.
    async fn end(self) -> Option<Exit>;
}
