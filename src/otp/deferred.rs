//! gen_server's `noreply`: a handler that answers later.
//!
//! actix passes the reply sender only after the handler has returned, so handler and later answer meet in a small
//! shared slot. As measured, this costs no more than an immediate reply.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::task::{self, Poll, Waker};

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};
use tokio::task::coop::unconstrained;

enum Slot<T> {
    /// With the waker to be woken when the caller has gone.
    Waiting(Option<Waker>),
    Asked(OneshotSender<T>),
    Answered(T),
    Closed,
}

/// The handler's return value.
pub struct Deferred<T>(Answer<T>);

enum Answer<T> {
    Now(T),
    Later(Rc<RefCell<Slot<T>>>),
}

impl<T> Deferred<T> {
    /// Answers immediately, without a shared slot.
    pub fn now(answer: T) -> Self {
        Self(Answer::Now(answer))
    }
}

/// Kept by the actor, which answers with it later.
pub struct Replier<T>(Rc<RefCell<Slot<T>>>);

/// Makes the two halves of a later answer.
pub fn deferred<T>() -> (Deferred<T>, Replier<T>) {
    let slot = Rc::new(RefCell::new(Slot::Waiting(None)));
    (Deferred(Answer::Later(Rc::clone(&slot))), Replier(slot))
}

impl<A, M, T> MessageResponse<A, M> for Deferred<T>
where
    A: Actor,
    M: Message<Result = T>,
    T: 'static,
{
    fn handle(self, _: &mut A::Context, sender: Option<OneshotSender<T>>) {
        let slot = match self.0 {
            Answer::Later(slot) => slot,
            // The caller may have gone meanwhile, as below.
            Answer::Now(value) => return drop(sender.map(|sender| sender.send(value))),
        };
        let mut slot = slot.borrow_mut();
        match (std::mem::replace(&mut *slot, Slot::Closed), sender) {
            // The caller may have gone meanwhile; a dropped answer returns its lease by itself.
            (Slot::Answered(value), Some(sender)) => drop(sender.send(value)),
            (Slot::Waiting(gone), Some(mut sender)) => {
                if let Some(gone) = gone
                    && poll_gone(&mut sender, &mut task::Context::from_waker(&gone)).is_ready()
                {
                    gone.wake();
                }
                *slot = Slot::Asked(sender);
            }
            (Slot::Waiting(Some(gone)), None) => gone.wake(),
            _ => {}
        }
    }
}

/// Unconstrained: an exhausted budget would wake the waker while the caller still waits.
fn poll_gone<T>(sender: &mut OneshotSender<T>, cx: &mut task::Context<'_>) -> Poll<()> {
    pin!(unconstrained(sender.closed())).poll(cx)
}

impl<T> Replier<T> {
    /// Polls whether the caller has gone. The waker is woken only then, possibly on another thread.
    pub fn poll_gone(&self, cx: &mut task::Context<'_>) -> Poll<()> {
        match &mut *self.0.borrow_mut() {
            Slot::Waiting(gone) => {
                *gone = Some(cx.waker().clone());
                Poll::Pending
            }
            Slot::Asked(sender) => poll_gone(sender, cx),
            Slot::Answered(_) | Slot::Closed => Poll::Ready(()),
        }
    }

    /// Answers. Returns the value if the caller no longer waits for it.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut slot = self.0.borrow_mut();
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Asked(sender) => sender.send(value),
            Slot::Waiting(_) => {
                *slot = Slot::Answered(value);
                Ok(())
            }
            Slot::Answered(_) | Slot::Closed => Err(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use actix::prelude::*;

    use super::*;

    /// Answers immediately, later, never, or on demand.
    #[derive(Default)]
    struct Answerer {
        kept: Vec<Replier<u32>>,
    }

    impl Actor for Answerer {
        type Context = Context<Self>;
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Ask {
        AtOnce,
        Later,
        Never,
    }

    impl Message for Ask {
        type Result = u32;
    }

    impl Handler<Ask> for Answerer {
        type Result = Deferred<u32>;

        fn handle(&mut self, how: Ask, _: &mut Self::Context) -> Deferred<u32> {
            let (answer, replier) = deferred();
            match how {
                Ask::AtOnce => assert_eq!(replier.send(1), Ok(())),
                Ask::Later => self.kept.push(replier),
                Ask::Never => drop(replier),
            }
            answer
        }
    }

    /// Answers all pending requests; returns the number of callers that still waited.
    struct AnswerAll;

    impl Message for AnswerAll {
        type Result = usize;
    }

    impl Handler<AnswerAll> for Answerer {
        type Result = usize;

        fn handle(&mut self, _: AnswerAll, _: &mut Self::Context) -> usize {
            let results: Vec<_> = self.kept.drain(..).map(|kept| kept.send(2)).collect();
            assert!(
                results
                    .iter()
                    .all(|result| *result == Ok(()) || *result == Err(2))
            );
            results.iter().filter(|result| result.is_ok()).count()
        }
    }

    #[actix_rt::test]
    async fn an_answer_may_come_before_or_after_the_handler_returns() {
        let address = Answerer::default().start();
        assert_eq!(address.send(Ask::AtOnce).await, Ok(1));
        let later = address.send(Ask::Later);
        assert_eq!(address.send(AnswerAll).await, Ok(1));
        assert_eq!(later.await, Ok(2));
    }

    #[actix_rt::test]
    async fn an_answer_without_a_receiver_is_returned() {
        let address = Answerer::default().start();
        let mut gone = Box::pin(address.send(Ask::Later));
        // Polled once, so that the handler has the sender, and then dropped.
        assert!(futures_util::poll!(&mut gone).is_pending());
        assert_eq!(address.send(Ask::AtOnce).await, Ok(1));
        drop(gone);
        assert_eq!(address.send(AnswerAll).await, Ok(0));
        // Sent without expecting an answer.
        address.do_send(Ask::Later);
        address.do_send(Ask::AtOnce);
        assert_eq!(address.send(AnswerAll).await, Ok(0));
    }

    #[actix_rt::test]
    async fn a_dropped_replier_is_an_error_to_its_caller() {
        let address = Answerer::default().start();
        assert!(address.send(Ask::Never).await.is_err());
        let lost = address.send(Ask::Later);
        assert_eq!(address.send(Ask::AtOnce).await, Ok(1));
        drop(address);
        assert!(lost.await.is_err());
    }
}
