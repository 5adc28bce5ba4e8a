//! The notifications that the listening connection has received.

use tokio::sync::{Notify, watch};

use crate::fleet::Topic;

/// Writers notify of documents on the channel `settee_docs`; on this one daemons notify each other of the rest.
const FLEET: &str = "settee_fleet";

/// What waits for notifications.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Notified when another service has written documents.
    pub documents: Notify,
    claims: watch::Sender<u64>,
    orders: watch::Sender<u64>,
    overrides: watch::Sender<u64>,
}

impl News {
    /// Passes a notification to what waits for it.
    pub fn hear(&self, channel: &str, payload: &str) {
        match (channel, payload) {
            (FLEET, "claims") => bump(&self.claims),
            (FLEET, "orders") => bump(&self.orders),
            (FLEET, "overrides") => bump(&self.overrides),
            // A later program may have more topics.
            (FLEET, _) => {}
            _ => self.documents.notify_one(),
        }
    }

    /// Something may have been missed.
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
