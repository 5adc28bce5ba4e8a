//! The bounded queue between the changes reader and the manager.
//!
//! SUMMARY   [`bounded`] makes both ends. The reader waits while the queue is full, the manager while it is empty; a
//!           take returns the queued items, up to a batch.
//! PROMISES  The queue exceeds its limits by at most one item. Only [`Producer::close`] ends it: if the reader
//!           vanishes, the manager keeps waiting, and the replication never looks complete.
//! SOURCE    `couch_work_queue`: either limit blocks the producer; the first item wakes a waiting taker.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;

use super::feed::Change;

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Items; at least 1.
    pub(crate) items: usize,
    /// Bytes; at least 1.
    pub(crate) bytes: usize,
}

impl QueueLimits {
    /// Two batches and 100 KiB for each worker.
    pub fn of(workers: usize, batch: usize) -> Self {
        const BYTES_A_WORKER: usize = 100 * 1024;
        Self {
            items: workers.saturating_mul(batch).saturating_mul(2).max(1),
            bytes: workers.saturating_mul(BYTES_A_WORKER).max(1),
        }
    }
}

/// Returns the approximate size of an item in bytes.
fn bytes_of(item: &Change) -> usize {
    const FIXED: usize = 100;
    let of_row = match item {
        Change::Row(row) => {
            let revs: usize = row.revs.iter().map(|rev| rev.len() + 24).sum();
            row.id.len() + revs
        }
        Change::LastSeq(_) => 0,
    };
    FIXED + item.seq().as_json().len() + of_row
}

struct Queue {
    items: RefCell<VecDeque<Change>>,
    bytes: Cell<usize>,
    limits: QueueLimits,
    /// The producer has closed the queue.
    complete: Cell<bool>,
    /// Notified when there is an item, or the queue is closed.
    filled: Notify,
    /// Notified when there is room.
    drained: Notify,
}

impl Queue {
    fn is_full(&self) -> bool {
        self.items.borrow().len() >= self.limits.items || self.bytes.get() >= self.limits.bytes
    }
}

/// The reader's end.
pub struct Producer(Rc<Queue>);

/// The manager's end.
pub struct Consumer(Rc<Queue>);

pub fn bounded(limits: QueueLimits) -> (Producer, Consumer) {
    let queue = Rc::new(Queue {
        items: RefCell::default(),
        bytes: Cell::default(),
        limits,
        complete: Cell::default(),
        filled: Notify::new(),
        drained: Notify::new(),
    });
    (Producer(Rc::clone(&queue)), Consumer(queue))
}

impl Producer {
    /// Waits for room and adds an item.
    pub(crate) async fn put(&self, item: Change) {
        let queue = &*self.0;
        while queue.is_full() {
            queue.drained.notified().await;
        }
        queue.bytes.set(queue.bytes.get() + bytes_of(&item));
        queue.items.borrow_mut().push_back(item);
        queue.filled.notify_one();
    }

    /// Marks the queue as complete.
    pub(crate) fn close(self) {
        self.0.complete.set(true);
        self.0.filled.notify_one();
    }
}

impl Consumer {
    /// Waits for items and takes at most `most`; none at the end.
    pub async fn take(&self, most: usize) -> Vec<Change> {
        let queue = &*self.0;
        while queue.items.borrow().is_empty() {
            if queue.complete.get() {
                return Vec::new();
            }
            queue.filled.notified().await;
        }
        let mut items = queue.items.borrow_mut();
        let count = items.len().min(most.max(1));
        let taken: Vec<Change> = items.drain(..count).collect();
        let bytes: usize = taken.iter().map(bytes_of).sum();
        queue.bytes.set(queue.bytes.get() - bytes);
        queue.drained.notify_one();
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::seq::Seq;

    /// Returns an item of this size.
    fn item(bytes: usize) -> Change {
        let empty = bytes_of(&Change::LastSeq(Seq::from_value(&"".into())));
        let item = Change::LastSeq(Seq::from_value(&"x".repeat(bytes - empty).into()));
        assert_eq!(bytes_of(&item), bytes);
        item
    }

    async fn is_full(producer: &Producer, item: Change) -> bool {
        // Paused time passes only when nothing else can happen.
        timeout(Duration::from_secs(1), producer.put(item))
            .await
            .is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn either_limit_blocks_the_producer() {
        let (producer, consumer) = bounded(QueueLimits {
            items: 3,
            bytes: 10_000,
        });
        for _ in 0..3 {
            producer.put(item(200)).await;
        }
        assert!(is_full(&producer, item(200)).await);
        assert_eq!(consumer.take(2).await, [item(200), item(200)]);
        producer.put(item(9_800)).await;
        assert!(
            is_full(&producer, item(200)).await,
            "10,000 bytes are in it"
        );
        assert_eq!(consumer.take(500).await, [item(200), item(9_800)]);
        // An item beyond the limit passes alone.
        producer.put(item(100_000)).await;
        assert!(is_full(&producer, item(200)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_taker_gets_what_there_is_and_then_the_end() {
        let (producer, consumer) = bounded(QueueLimits::of(4, 500));
        let waiting = async { consumer.take(500).await };
        let putting = async { producer.put(item(700)).await };
        assert_eq!(tokio::join!(waiting, putting).0, [item(700)]);
        producer.put(item(800)).await;
        producer.close();
        assert_eq!(consumer.take(500).await, [item(800)]);
        assert!(consumer.take(500).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_producer_that_vanished_is_not_the_end() {
        let (producer, consumer) = bounded(QueueLimits::of(1, 1));
        drop(producer);
        let taken = timeout(Duration::from_secs(3600), consumer.take(1)).await;
        assert!(taken.is_err());
    }

    #[test]
    fn the_default_limits_are_couchdbs() {
        let expected = QueueLimits {
            items: 4000,
            bytes: 409_600,
        };
        assert_eq!(QueueLimits::of(4, 500), expected);
    }
}
