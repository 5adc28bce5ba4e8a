//! One-time login tokens for browsers, in the URL of `settee dashboard`.
//!
//! SUMMARY   A token is requested on the Unix socket by an administrator, and exchanged for a session by `POST
//!           /_session`.
//! PROMISES  A token is valid once, within [`TOKEN_TIME`]. At most [`TOKENS_MAX`] are valid at a time; a new one
//!           invalidates the oldest.

use std::time::Duration;

use data_encoding::HEXLOWER;
use tokio::time::Instant;

use super::{Authority, lock};
use crate::config::Role;
use crate::config::password::random;

/// How long a token is valid.
pub(crate) const TOKEN_TIME: Duration = Duration::from_secs(60);

/// Maximum valid tokens.
const TOKENS_MAX: usize = 16;

/// Keyed hashes of valid tokens, oldest first. Timing of hash comparisons reveals nothing about a token.
pub(super) type Tokens = Vec<([u8; 32], Instant)>;

impl Authority {
    pub(crate) fn issue_token(&self) -> String {
        let token = HEXLOWER.encode(&random::<32>());
        let mut tokens = lock(&self.tokens);
        tokens.retain(|(_, issued)| issued.elapsed() < TOKEN_TIME);
        if tokens.len() >= TOKENS_MAX {
            tokens.remove(0);
        }
        tokens.push((self.digest(&[&token]), Instant::now()));
        token
    }

    /// Redeems a token. Returns the user of the new session: the first administrator.
    pub(crate) fn take_token(&self, token: &str) -> Option<String> {
        let hash = self.digest(&[token]);
        let (_, issued) = {
            let mut tokens = lock(&self.tokens);
            let place = tokens.iter().position(|(known, _)| *known == hash)?;
            tokens.remove(place)
        };
        if issued.elapsed() >= TOKEN_TIME {
            return None;
        }
        let config = self.config.borrow();
        let admins = config
            .users
            .iter()
            .filter(|(_, user)| user.roles.contains(&Role::Admin));
        config
            .admins
            .keys()
            .chain(admins.map(|(name, _)| name))
            .next()
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::watch;

    use super::*;
    use crate::config::Config;
    use crate::config::password::PasswordHash;

    fn authority() -> Authority {
        let mut config = Config::default();
        let hash = PasswordHash::of_config("secret").unwrap();
        config.admins.insert("ann".into(), hash);
        Authority::new(watch::channel(Arc::new(config)).1)
    }

    #[actix_rt::test]
    async fn a_token_is_valid_once_and_for_a_minute() {
        let authority = authority();
        let (one, other) = (authority.issue_token(), authority.issue_token());
        assert_eq!(authority.take_token("x"), None);
        assert_eq!(authority.take_token(&one).as_deref(), Some("ann"));
        assert_eq!(authority.take_token(&one), None);
        tokio::time::pause();
        tokio::time::advance(TOKEN_TIME).await;
        assert_eq!(authority.take_token(&other), None);
    }

    #[actix_rt::test]
    async fn a_new_token_beyond_the_maximum_invalidates_the_oldest() {
        let authority = authority();
        let tokens: Vec<_> = (0..=TOKENS_MAX).map(|_| authority.issue_token()).collect();
        assert_eq!(authority.take_token(&tokens[0]), None);
        assert!(authority.take_token(&tokens[1]).is_some());
    }
}
