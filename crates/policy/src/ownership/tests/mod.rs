//! Tests of ownership: several daemons and one database in simulated time.

mod daemon;
mod database;
mod histories;
mod judge;
mod sabotage;
mod world;

use std::time::Duration;

use test_support::TestRandom;

use super::*;
use sabotage::Sabotage;

/// FL-2: maximum time that a document has no owner.
const OWNER_WITHIN: Duration = Duration::from_secs(45);

/// FL-6: maximum time that a daemon keeps a document whose server only other daemons reach.
const REACHED_WITHIN: Duration = Duration::from_secs(90);

/// FL-2: maximum time until arriving and departing daemons have changed the shares.
const SHARE_WITHIN: Duration = Duration::from_secs(30);

impl Ownership {
    /// Returns whether a document is owned, under any claim.
    fn owns(&self, doc: &str) -> bool {
        self.docs.rows.get(doc).is_some_and(|held| held.is_owned())
    }

    /// Whether the daemon was stopped and has given everything back.
    fn is_gone(&self) -> bool {
        self.next_wake().is_none()
    }
}
