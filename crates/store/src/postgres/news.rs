//! Notifications received on the listening connection.

use tokio::sync::{Notify, watch};

use crate::fleet::Topic;

/// The channel on which daemons notify each other; writers of documents use `settee_docs`.
const FLEET: &str = "settee_fleet";

/// Waiters for notifications.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Notified when a service has written documents, this one included, or a connection has ended.
    pub documents: Notify,
    claims: watch::Sender<u64>,
    orders: watch::Sender<u64>,
    overrides: watch::Sender<u64>,
}

impl News {
    /// Passes on a notification to its waiters.
    pub fn hear(&self, channel: &str, payload: &str) {
        match (channel, payload) {
            (FLEET, "claims") => bump(&self.claims),
            (FLEET, "orders") => bump(&self.orders),
            (FLEET, "overrides") => bump(&self.overrides),
            // A later version may have more topics.
            (FLEET, _) => {}
            _ => self.documents.notify_one(),
        }
    }

    /// Notifies the waiters for all topics, as notifications may have been missed.
    pub fn bump_all(&self) {
        for topic in [&self.claims, &self.orders, &self.overrides] {
            bump(topic);
        }
    }

    pub fn of(&self, topic: Topic) -> watch::Receiver<u64> {
        let sender = match topic {
            Topic::Claims => &self.claims,
            Topic::Orders => &self.orders,
            Topic::Overrides => &self.overrides,
        };
        sender.subscribe()
    }
}

fn bump(topic: &watch::Sender<u64>) {
    topic.send_modify(|count| *count += 1);
}
