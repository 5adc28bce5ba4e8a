//! The next step of a relay.
//!
//! SUMMARY   One poll of everything that a relay waits for: the process, the client's pipes, signals from outside,
//!           the time to return the process.
//! PROMISES  Answers go first, so that available answers are written together; the end of a process follows its last
//!           answer. No wake-up is lost: everything polled wakes the relay.

use std::task::{Context, Poll};

use actix_rt::time::Instant;
use bytes::Bytes;
use futures_util::FutureExt;

use super::loan::WatchedPool;
use super::pipes::PipeInput;
use super::{LINE_BYTES_MAX, LINES_UNANSWERED_MAX, Loan, Relay, Signal, UNSENT_BYTES_MAX};
use crate::messages::proc_manager::{CallError, Lease};
use crate::messages::process::PromptError;
use policy::attach::{QuietLoan, give_back_at};

/// The next step of a relay.
pub(super) enum Event {
    Line(Bytes),
    Answer(Result<Bytes, PromptError>),
    Lent(Result<Lease, CallError>),
    GiveBack,
    ProcessDown,
    ReaderGone,
    Stop,
    /// The input has ended, and everything is answered.
    Done,
}

impl Relay {
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(event) = self.poll_loan(cx) {
            return Poll::Ready(event);
        }
        match self.output.poll_flush(cx) {
            Poll::Ready(Err(_)) => return Poll::Ready(Event::ReaderGone),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        // Signals are polled after the answers: a process's last answers precede its end.
        while let Poll::Ready(Some(signal)) = self.signals.poll_recv(cx) {
            match signal {
                Signal::ProcessDown => return Poll::Ready(Event::ProcessDown),
                Signal::Stop => self.stopping = true,
            }
        }
        // Input not yet given to a process is left to the next service, if that can continue the conversation.
        let in_hand = if self.taught.is_portable() {
            self.sent
        } else {
            self.unanswered.len()
        };
        if self.stopping && in_hand == 0 && (self.ended || !self.taught.is_list_open()) {
            return Poll::Ready(Event::Stop);
        }
        if self.has_room()
            && let Poll::Ready(input) = self.input.poll(cx)
        {
            match input {
                PipeInput::Line(line) => return Poll::Ready(Event::Line(line)),
                PipeInput::TooLong => (self.ended, self.too_long) = (true, true),
                PipeInput::End => self.ended = true,
            }
        }
        self.poll_quiet(cx)
    }

    fn has_room(&self) -> bool {
        !self.ended
            && (!self.stopping || self.taught.is_list_open())
            && self.unanswered.len() < LINES_UNANSWERED_MAX
            && self.unanswered_bytes < LINE_BYTES_MAX
            && self.output.unsent_bytes() < UNSENT_BYTES_MAX
    }

    fn poll_loan(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match &mut self.loan {
            Loan::None => Poll::Pending,
            Loan::Asked(asked) => asked.as_mut().poll(cx).map(|(lease, pool)| {
                self.pool = pool;
                Event::Lent(lease)
            }),
            Loan::Held(_) => {
                let head = self.unanswered.front_mut();
                let Some(answer) = head.and_then(|head| head.answer.as_mut()) else {
                    return Poll::Pending;
                };
                answer.poll_unpin(cx).map(Event::Answer)
            }
        }
    }

    /// While no line waits for an answer: ends after the last input, or returns the process when due.
    fn poll_quiet(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if !self.unanswered.is_empty() {
            return Poll::Pending;
        }
        let held = match &mut self.loan {
            _ if self.ended && self.output.unsent_bytes() > 0 => return Poll::Pending,
            Loan::Asked(_) => return Poll::Pending,
            _ if self.ended => return Poll::Ready(Event::Done),
            Loan::Held(held) if self.taught.is_portable() => held,
            Loan::None | Loan::Held(_) => return Poll::Pending,
        };
        let loan = QuietLoan {
            lent: held.since,
            quiet_since: self.quiet_since,
            idle_max: self.terms.idle_max,
        };
        loop {
            let others_wait = self.pool.as_ref().is_some_and(WatchedPool::others_wait);
            let (due, now) = (give_back_at(&loan, others_wait), self.clock.now());
            if due <= now {
                return Poll::Ready(Event::GiveBack);
            }
            let due = Instant::now() + due.since(now);
            // A timer that fires earlier is kept, and only checks the time again: so a line need not set it.
            if self.timer.is_elapsed() || self.timer.deadline() > due {
                self.timer.as_mut().reset(due);
            }
            let fired = self.timer.as_mut().poll(cx).is_ready();
            let told = match &self.pool {
                Some(pool) if !others_wait => held.poll_waiters(pool, cx).is_ready(),
                _ => false,
            };
            if !fired && !told {
                return Poll::Pending;
            }
        }
    }
}
