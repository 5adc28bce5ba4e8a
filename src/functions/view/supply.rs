//! Documents that wait for a process, shared by all workers of a view.
//!
//! SUMMARY   [`Supply`] takes batches from the input when a worker needs documents, and hands documents out one by
//!           one, numbered in input order.
//! PROMISES  Waiting workers are woken when there is a document, when one may be sent, and at the end of the input.
//!           An error of the input is reported after everything before it is done.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::{Mutex, Notify};

use super::answer::MapAnswer;
use super::documents::{Document, InputError};
use super::order::{Order, Window};
use super::reader::Batches;

/// A document's number, from 0, and the document.
pub(super) type Numbered = (u64, Document);

pub(super) struct Supply {
    input: Mutex<Batches>,
    /// Documents not taken by a worker, oldest first.
    waiting: RefCell<VecDeque<Document>>,
    /// The number of the first waiting document.
    next: Cell<u64>,
    /// Set if answers must keep the order of the input.
    window: Option<RefCell<Window>>,
    ended: Cell<bool>,
    /// Why the input ended early, if it did.
    pub error: RefCell<Option<InputError>>,
    /// Notified when another document may be sent, and at the end.
    changed: Notify,
}

impl Supply {
    pub fn new(input: Batches, order: Order) -> Self {
        Self {
            input: Mutex::new(input),
            waiting: RefCell::default(),
            next: Cell::new(0),
            window: (order == Order::AsRead).then(RefCell::default),
            ended: Cell::new(false),
            error: RefCell::default(),
            changed: Notify::new(),
        }
    }

    /// Waits for a document that may be sent. Returns false after the last one.
    ///
    /// Another worker may take it first.
    pub async fn wait(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            if self.may_begin() {
                return true;
            }
            if !self.waiting.borrow().is_empty() {
                changed.await;
            } else if self.ended.get() {
                return false;
            } else {
                let mut input = self.input.lock().await;
                // Another worker may have added some under the lock.
                if self.waiting.borrow().is_empty() && !self.ended.get() {
                    self.add(input.recv().await);
                }
            }
        }
    }

    /// Takes the next document that may be sent, if there is one, without waiting.
    pub fn take(&self) -> Option<Numbered> {
        if self.waiting.borrow().is_empty()
            && !self.ended.get()
            && let Ok(mut input) = self.input.try_lock()
            && let Ok(batch) = input.try_recv()
        {
            self.add(Some(batch));
        }
        if !self.may_begin() {
            return None;
        }
        let number = self.next.get();
        let document = self.waiting.borrow_mut().pop_front()?;
        self.next.set(number + 1);
        if self.ended.get() && self.waiting.borrow().is_empty() {
            self.changed.notify_waiters();
        }
        Some((number, document))
    }

    /// Waits until the input has ended and every document is taken.
    pub async fn exhausted(&self) {
        loop {
            let changed = self.changed.notified();
            if self.ended.get() && self.waiting.borrow().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Passes on a document and its answer, and those that waited for it, or holds them back until their turn. If
    /// answers must keep the order of the input, `answer` is left empty.
    pub fn hand_on(
        &self,
        (number, document): Numbered,
        answer: &mut MapAnswer,
        mut to: impl FnMut(&Document, &MapAnswer),
    ) {
        let Some(window) = &self.window else {
            return to(&document, answer);
        };
        let mut window = window.borrow_mut();
        window.take(
            number,
            document,
            std::mem::take(answer),
            |document, answer| {
                to(&document, &answer);
            },
        );
        self.changed.notify_waiters();
    }

    fn may_begin(&self) -> bool {
        let window = self.window.as_ref();
        !self.waiting.borrow().is_empty()
            && window.is_none_or(|window| window.borrow().may_begin(self.next.get()))
    }

    fn add(&self, batch: Option<Result<Vec<Document>, InputError>>) {
        match batch {
            Some(Ok(batch)) => self.waiting.borrow_mut().extend(batch),
            end => {
                self.error.replace(end.and_then(Result::err));
                self.ended.set(true);
            }
        }
        self.changed.notify_waiters();
    }
}
