//! Sessions that were ended before their time.
//!
//! PROMISES  A session that was logged out is invalid, under any cookie that was issued for it. At
//!           most [`ENDED_MAX`] of one user are kept; beyond, all sessions of that user end.
//! LIMITS    Kept in memory: with a secret in the configuration, a session that was logged out counts
//!           again after a restart, until its time is over.

use std::collections::HashMap;

/// Sessions of one user that were ended and whose time is not over.
const ENDED_MAX: usize = 1000;

/// The number of a session; the cookies that renew it have the same.
pub(super) type SessionId = [u8; 12];

/// Which sessions were ended.
#[derive(Default)]
pub(super) struct EndedSessions(HashMap<String, OfUser>);

#[derive(Default)]
struct OfUser {
    /// Session -> the second in which it was ended.
    ids: HashMap<SessionId, u64>,
    /// The second up to which everything issued has ended.
    until: Option<u64>,
}

impl EndedSessions {
    /// Ends a session; after `timeout` seconds none of its cookies counts anyway.
    pub(super) fn end(&mut self, name: &str, id: SessionId, now: u64, timeout: u64) {
        let user = self.0.entry(name.to_owned()).or_default();
        if user.ids.len() >= ENDED_MAX {
            user.ids
                .retain(|_, ended| now.saturating_sub(*ended) <= timeout);
        }
        if user.ids.len() >= ENDED_MAX {
            user.ids.clear();
            user.until = Some(now);
        }
        user.ids.insert(id, now);
    }

    /// Returns whether a session has ended, of which a cookie was issued in this second.
    pub(super) fn has(&self, name: &str, id: &SessionId, issued: u64) -> bool {
        self.0.get(name).is_some_and(|user| {
            user.ids.contains_key(id) || user.until.is_some_and(|until| issued <= until)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ended_sessions_than_are_kept_end_all_of_their_user_and_of_nobody_else() {
        let mut ended = EndedSessions::default();
        let id = |number: usize| {
            let mut id = SessionId::default();
            id[..8].copy_from_slice(&number.to_le_bytes());
            id
        };
        for number in 0..ENDED_MAX {
            ended.end("ann", id(number), 100, 600);
        }
        assert!(ended.has("ann", &id(0), 90));
        assert!(!ended.has("ann", &id(ENDED_MAX), 90));
        ended.end("ann", id(ENDED_MAX + 1), 101, 600);
        for number in [0, ENDED_MAX, ENDED_MAX + 1] {
            assert!(ended.has("ann", &id(number), 90), "{number}");
        }
        assert!(!ended.has("ann", &id(ENDED_MAX), 102));
        assert!(!ended.has("bob", &id(0), 90));
        // Those whose time is over make room.
        let mut ended = EndedSessions::default();
        for number in 0..ENDED_MAX {
            ended.end("ann", id(number), 100, 600);
        }
        ended.end("ann", id(ENDED_MAX), 701, 600);
        assert!(!ended.has("ann", &id(ENDED_MAX + 1), 700));
    }
}
