//! Sessions ended early.
//!
//! PROMISES  A logged-out session is invalid with any of its cookies. At most [`ENDED_MAX`] are kept per user; beyond
//!           it, all sessions of that user end.
//! LIMITS    Kept in memory: with a configured secret, a logged-out session becomes valid again after a restart,
//!           until it expires.

use std::collections::HashMap;

/// Maximum ended sessions of one user that have not expired.
const ENDED_MAX: usize = 1000;

/// The number of a session; renewal keeps it.
pub(super) type SessionId = [u8; 12];

#[derive(Default)]
pub(super) struct EndedSessions(HashMap<String, OfUser>);

#[derive(Default)]
struct OfUser {
    /// Session -> the second when it was ended.
    ids: HashMap<SessionId, u64>,
    /// Everything issued up to this second has ended.
    until: Option<u64>,
}

impl EndedSessions {
    /// Ends a session; after `timeout` seconds its cookies are invalid anyway.
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

    /// Returns whether a session has ended, given the second when its cookie was issued.
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
    fn too_many_ended_sessions_of_a_user_end_all_sessions_of_that_user_only() {
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
        // Expired ones are dropped.
        let mut ended = EndedSessions::default();
        for number in 0..ENDED_MAX {
            ended.end("ann", id(number), 100, 600);
        }
        ended.end("ann", id(ENDED_MAX), 701, 600);
        assert!(!ended.has("ann", &id(ENDED_MAX + 1), 700));
    }
}
