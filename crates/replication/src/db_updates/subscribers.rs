//! Decides which replications wait for a server's `_db_updates`, and which read next, and wakes them.
//!
//! SUMMARY   A subscriber is a replication with one database of the server as its source. It reads when it is *due*:
//!           initially, when its database was reported, and after each connect.
//! PROMISES  A change written while the connection is up, or before, makes its subscriber due. Each subscriber is in
//!           a single state: it waits, reads, or has its own feed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long the connection may be lost before subscribers use their own feeds.
pub(super) const AWAY_MAX: Duration = Duration::from_secs(30);

/// Retry interval of a server that refused `_db_updates`.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(600);

/// The time between two subscribers that start their own feeds, and the maximum delay of one.
const TURN: Duration = Duration::from_millis(2);
const TURN_MAX: Duration = Duration::from_secs(10);

pub(super) type SubscriberId = u64;

/// A subscriber's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits until it is woken.
    Wait,
    /// It reads the changes after its last sequence.
    Read,
    /// It uses its own feed for now, for this reason. One that was waiting starts after this delay.
    OwnFeed(Arc<str>, Duration),
    /// Its database was deleted: its state is void.
    Deleted,
}

/// The state of a database, as the server reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Update {
    Deleted,
    /// It was written to or created.
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Debug)]
enum Connection {
    /// It is being opened, or has no subscriber yet.
    Away {
        since: Option<Instant>,
        /// The reason, once it has been lost for [`AWAY_MAX`].
        given_up: Option<Arc<str>>,
    },
    Up,
    /// The server refuses `_db_updates`.
    Refused {
        until: Instant,
        why: Arc<str>,
    },
}

#[derive(Debug)]
struct Subscriber {
    database: Arc<str>,
    /// Notified when its next step may have changed.
    bell: Arc<Notify>,
    is_due: bool,
    is_deleted: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Subscribers {
    connection: Connection,
    /// Whether a subscriber opens the connection, or reads from it.
    is_followed: bool,
    all: BTreeMap<SubscriberId, Subscriber>,
    by_database: FxHashMap<Arc<str>, Vec<SubscriberId>>,
    last: SubscriberId,
}

impl Default for Subscribers {
    fn default() -> Self {
        Self {
            connection: Connection::Away {
                since: None,
                given_up: None,
            },
            is_followed: false,
            all: BTreeMap::new(),
            by_database: FxHashMap::default(),
            last: 0,
        }
    }
}

impl Subscribers {
    /// Adds one; it is due. Returns its id, and what wakes it.
    pub fn subscribe(&mut self, database: &str) -> (SubscriberId, Arc<Notify>) {
        self.last += 1;
        let database: Arc<str> = database.into();
        let bell = Arc::<Notify>::default();
        self.by_database
            .entry(Arc::clone(&database))
            .or_default()
            .push(self.last);
        self.all.insert(
            self.last,
            Subscriber {
                database,
                bell: Arc::clone(&bell),
                is_due: true,
                is_deleted: false,
            },
        );
        (self.last, bell)
    }

    /// Removes one.
    pub fn leave(&mut self, id: SubscriberId) {
        let Some(gone) = self.all.remove(&id) else {
            return;
        };
        if let Some(ids) = self.by_database.get_mut(&gone.database) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.by_database.remove(&gone.database);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns whether the server is known to refuse `_db_updates`.
    pub fn is_refused(&self) -> bool {
        matches!(self.connection, Connection::Refused { .. })
    }

    /// Returns whether the caller has to open and follow the connection; no other subscriber will.
    pub fn take_connection(&mut self, now: Instant) -> bool {
        let is_refused =
            matches!(&self.connection, Connection::Refused { until, .. } if *until > now);
        !is_refused && !std::mem::replace(&mut self.is_followed, true)
    }

    /// The connection is open. Wakes all, since earlier writes are unknown.
    pub fn opened(&mut self) {
        self.connection = Connection::Up;
        for subscriber in self.all.values_mut() {
            subscriber.is_due = true;
        }
        self.wake_all();
    }

    /// The server reports a database. Wakes its subscribers.
    pub fn told(&mut self, database: &str, update: Update) {
        for id in self.by_database.get(database).into_iter().flatten() {
            if let Some(subscriber) = self.all.get_mut(id) {
                subscriber.is_due = true;
                subscriber.is_deleted |= update == Update::Deleted;
                subscriber.bell.notify_one();
            }
        }
    }

    /// The connection was lost, or could not be opened. Wakes all, once it has been lost too long.
    pub fn failed(&mut self, why: &str, now: Instant) {
        match &mut self.connection {
            Connection::Up => {
                self.connection = Connection::Away {
                    since: Some(now),
                    given_up: None,
                };
            }
            Connection::Away { since, given_up } => {
                let since = *since.get_or_insert(now);
                if given_up.is_none() && now - since >= AWAY_MAX {
                    *given_up = Some(why.into());
                    self.wake_all();
                }
            }
            // The state stays until an attempt succeeds.
            Connection::Refused { until, .. } => *until = now + REFUSED_FOR,
        }
    }

    /// The server refuses `_db_updates`. Wakes all.
    pub fn refused(&mut self, why: &str, now: Instant) {
        self.connection = Connection::Refused {
            until: now + REFUSED_FOR,
            why: why.into(),
        };
        self.wake_all();
    }

    /// The connection is no longer followed. Wakes all, of which one reopens it, unless the server refuses.
    pub fn left(&mut self, now: Instant) {
        self.is_followed = false;
        match self.connection {
            Connection::Refused { .. } => return,
            Connection::Up => {
                self.connection = Connection::Away {
                    since: Some(now),
                    given_up: None,
                };
            }
            Connection::Away { .. } => {}
        }
        self.wake_all();
    }

    /// Returns a subscriber's next step.
    pub fn next(&self, id: SubscriberId) -> Next {
        let Some(subscriber) = self.all.get(&id) else {
            return Next::Wait;
        };
        if subscriber.is_deleted {
            return Next::Deleted;
        }
        match &self.connection {
            Connection::Refused { why, .. } => Next::OwnFeed(Arc::clone(why), Duration::ZERO),
            Connection::Away {
                given_up: Some(why),
                ..
            } => {
                let turns = u32::try_from(id % 1_000_000).unwrap_or_default();
                Next::OwnFeed(Arc::clone(why), (TURN * turns).min(TURN_MAX))
            }
            _ if subscriber.is_due => Next::Read,
            _ => Next::Wait,
        }
    }

    /// A subscriber has to read, as its read interval has passed or it has not read to the end; or it begins to read.
    pub fn set_due(&mut self, id: SubscriberId, is_due: bool) {
        if let Some(subscriber) = self.all.get_mut(&id) {
            subscriber.is_due = is_due;
        }
    }

    fn wake_all(&self) {
        self.all.values().for_each(|one| one.bell.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Returns which subscribers were woken since this was last asked.
    fn woken<const N: usize>(subscribers: &Subscribers, ids: &[SubscriberId; N]) -> [bool; N] {
        ids.map(|id| {
            subscribers.all[&id]
                .bell
                .notified()
                .now_or_never()
                .is_some()
        })
    }

    /// Three waiting replications that have read, two of them of the same database.
    fn waiting() -> (Subscribers, [SubscriberId; 3]) {
        let mut subscribers = Subscribers::default();
        let ids = ["a", "a", "b"].map(|name| subscribers.subscribe(name).0);
        assert!(subscribers.take_connection(Instant::now()));
        subscribers.opened();
        assert_eq!(woken(&subscribers, &ids), [true; 3]);
        ids.iter().for_each(|id| subscribers.set_due(*id, false));
        (subscribers, ids)
    }

    fn next(subscribers: &Subscribers, ids: &[SubscriberId]) -> Vec<Next> {
        ids.iter().map(|id| subscribers.next(*id)).collect()
    }

    #[test]
    fn a_new_subscriber_reads_at_once_and_again_when_the_connection_is_made() {
        let mut subscribers = Subscribers::default();
        let (id, _) = subscribers.subscribe("a");
        assert_eq!(subscribers.next(id), Next::Read);
        subscribers.set_due(id, false);
        assert_eq!(subscribers.next(id), Next::Wait);
        subscribers.opened();
        assert_eq!(woken(&subscribers, &[id]), [true]);
        assert_eq!(subscribers.next(id), Next::Read);
    }

    #[test]
    fn an_update_wakes_only_subscribers_of_its_database() {
        let (mut subscribers, ids) = waiting();
        subscribers.told("a", Update::Other);
        assert_eq!(woken(&subscribers, &ids), [true, true, false]);
        let expected = [Next::Read, Next::Read, Next::Wait];
        assert_eq!(next(&subscribers, &ids), expected);
        subscribers.told("c", Update::Other);
        assert_eq!(woken(&subscribers, &ids), [false; 3]);
    }

    #[test]
    fn an_update_during_a_read_has_its_subscriber_read_again() {
        let (mut subscribers, [id, ..]) = waiting();
        subscribers.told("a", Update::Other);
        subscribers.set_due(id, false);
        subscribers.told("a", Update::Other);
        assert_eq!(subscribers.next(id), Next::Read);
    }

    #[test]
    fn all_subscribers_read_once_after_a_reconnect() {
        let (mut subscribers, ids) = waiting();
        subscribers.failed("reset", Instant::now());
        assert_eq!(woken(&subscribers, &ids), [false; 3]);
        assert!(
            next(&subscribers, &ids)
                .iter()
                .all(|next| *next == Next::Wait)
        );
        subscribers.opened();
        assert_eq!(woken(&subscribers, &ids), [true; 3]);
        assert!(
            next(&subscribers, &ids)
                .iter()
                .all(|next| *next == Next::Read)
        );
        ids.iter().for_each(|id| subscribers.set_due(*id, false));
        assert!(
            next(&subscribers, &ids)
                .iter()
                .all(|next| *next == Next::Wait)
        );
    }

    #[test]
    fn when_the_connection_stays_away_subscribers_move_to_their_own_feeds_in_turn() {
        let (mut subscribers, ids) = waiting();
        let now = Instant::now();
        subscribers.failed("reset", now);
        let soon = now + AWAY_MAX - Duration::from_secs(1);
        subscribers.failed("refused", soon);
        assert_eq!(woken(&subscribers, &ids), [false; 3]);
        assert_eq!(subscribers.next(ids[0]), Next::Wait);
        subscribers.failed("refused", now + AWAY_MAX);
        assert_eq!(woken(&subscribers, &ids), [true; 3]);
        let turns = next(&subscribers, &ids).into_iter().map(|next| match next {
            Next::OwnFeed(why, after) => (why.to_string(), after),
            other => panic!("{other:?}"),
        });
        let turns: Vec<_> = turns.collect();
        assert!(turns.is_sorted() && turns[0].1 < turns[2].1, "{turns:?}");
        assert_eq!(turns[0].0, "refused");
        subscribers.failed("refused", now + AWAY_MAX * 2);
        assert_eq!(
            woken(&subscribers, &ids),
            [false; 3],
            "subscribers are woken once"
        );
        subscribers.opened();
        assert_eq!(subscribers.next(ids[0]), Next::Read);
    }

    #[test]
    fn a_server_that_refuses_is_retried_only_after_a_while() {
        let (mut subscribers, ids) = waiting();
        let now = Instant::now();
        subscribers.refused("403", now);
        assert_eq!(woken(&subscribers, &ids), [true; 3]);
        subscribers.left(now);
        assert_eq!(woken(&subscribers, &ids), [false; 3]);
        let own = Next::OwnFeed("403".into(), Duration::ZERO);
        assert_eq!(subscribers.next(ids[0]), own);
        assert!(!subscribers.take_connection(now));
        assert!(subscribers.take_connection(now + REFUSED_FOR));
        assert_eq!(
            subscribers.next(ids[0]),
            own,
            "until the connection is made"
        );
        subscribers.failed("timeout", now + REFUSED_FOR);
        assert_eq!(subscribers.next(ids[0]), own);
        assert!(subscribers.is_refused());
        subscribers.opened();
        assert!(!subscribers.is_refused());
        assert_eq!(subscribers.next(ids[0]), Next::Read);
    }

    #[test]
    fn one_subscriber_makes_the_connection_and_another_takes_over() {
        let (mut subscribers, ids) = waiting();
        let now = Instant::now();
        assert!(!subscribers.take_connection(now));
        subscribers.left(now);
        assert_eq!(woken(&subscribers, &ids), [true; 3]);
        assert!(subscribers.take_connection(now));
        assert!(!subscribers.take_connection(now));
    }

    #[test]
    fn a_deletion_is_kept_even_if_the_database_is_created_again() {
        let (mut subscribers, ids) = waiting();
        subscribers.told("b", Update::Deleted);
        subscribers.told("b", Update::Other);
        assert_eq!(subscribers.next(ids[2]), Next::Deleted);
        assert_eq!(subscribers.next(ids[0]), Next::Wait);
    }

    #[test]
    fn a_subscriber_made_due_reads_again() {
        let (mut subscribers, [id, ..]) = waiting();
        subscribers.set_due(id, true);
        assert_eq!(subscribers.next(id), Next::Read);
    }

    #[test]
    fn nothing_is_kept_of_subscribers_that_left() {
        let (mut subscribers, ids) = waiting();
        for id in ids {
            subscribers.leave(id);
            subscribers.leave(id);
        }
        assert!(subscribers.is_empty() && subscribers.by_database.is_empty());
        subscribers.told("a", Update::Other);
    }
}
