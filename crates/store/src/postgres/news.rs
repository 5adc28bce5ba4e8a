//! Notifications received on the listening connection.

use strum::EnumCount;
use tokio::sync::{Notify, watch};

use crate::fleet::Topic;

/// The channel on which daemons notify each other; writers of documents use `settee_docs`.
const FLEET: &str = "settee_fleet";

/// Waiters for notifications.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Notified when a service has written documents, this one included, or a connection has ended.
    pub documents: Notify,
    topics: [watch::Sender<u64>; Topic::COUNT],
}

impl News {
    /// Passes on a notification to its waiters.
    pub fn hear(&self, channel: &str, payload: &str) {
        if channel != FLEET {
            self.documents.notify_one();
        } else if let Ok(topic) = payload.parse::<Topic>() {
            // A later version may have more topics.
            bump(&self.topics[topic as usize]);
        }
    }

    /// Notifies the waiters for all topics, as notifications may have been missed.
    pub fn bump_all(&self) {
        self.topics.iter().for_each(bump);
    }

    pub fn of(&self, topic: Topic) -> watch::Receiver<u64> {
        self.topics[topic as usize].subscribe()
    }
}

fn bump(topic: &watch::Sender<u64>) {
    topic.send_modify(|count| *count += 1);
}
