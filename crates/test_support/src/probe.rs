//! Probe: an actor that records messages of one type, so that a test can await them.

use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::timeout;
use tokio::sync::mpsc;

use crate::wait::within;

/// Records messages of type `M`, oldest first.
///
/// Every message is immediately answered with its result's default value.
pub struct Probe<M: 'static> {
    address: Addr<Recorder<M>>,
    messages: mpsc::UnboundedReceiver<M>,
}

impl<M: Message + Send + 'static> Probe<M>
where
    M::Result: Default + Send,
{
    /// Starts a probe on the current arbiter.
    pub fn start() -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let address = Recorder { sender }.start();
        Self { address, messages }
    }

    /// Returns the recipient of recorded messages.
    pub fn recipient(&self) -> Recipient<M> {
        self.address.clone().recipient()
    }

    /// Returns the next message.
    ///
    /// # Panics
    /// There is none within [`PATIENCE`](crate::PATIENCE).
    pub async fn next(&mut self) -> M {
        within("the next message of the probe", self.messages.recv())
            .await
            .expect("the probe keeps its actor alive")
    }

    /// Returns whether no message arrives for `time`. One that arrives is dropped.
    pub async fn is_silent_for(&mut self, time: Duration) -> bool {
        timeout(time, self.messages.recv()).await.is_err()
    }

    /// Takes the messages recorded so far.
    pub fn take(&mut self) -> Vec<M> {
        std::iter::from_fn(|| self.messages.try_recv().ok()).collect()
    }
}

struct Recorder<M> {
    sender: mpsc::UnboundedSender<M>,
}

/// Nothing in it is ever pinned.
impl<M> Unpin for Recorder<M> {}

impl<M: 'static> Actor for Recorder<M> {
    type Context = Context<Self>;
}

impl<M: Message + Send + 'static> Handler<M> for Recorder<M>
where
    M::Result: Default + Send,
{
    type Result = MessageResult<M>;

    fn handle(&mut self, msg: M, _: &mut Self::Context) -> Self::Result {
        // A dropped probe needs no messages.
        drop(self.sender.send(msg));
        MessageResult(M::Result::default())
    }
}
