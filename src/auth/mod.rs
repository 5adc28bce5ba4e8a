//! Authentication: logins by password and by session, for HTTP and for clients on TCP.
//!
//! SUMMARY   [`Authority`] has the admins and users of the current configuration. A login costs a slow hash on a
//!           separate thread, a repeated one a lookup in a small cache.
//! PROMISES  A wrong name takes as long as a wrong password. At most [`WAITING_MAX`] logins are pending, at most
//!           [`WAITING_OF_ADDRESS_MAX`] of them from one address; [`CHECKS_MAX`] are hashed at a time. Failures are
//!           counted by name and address together: no other login is delayed. A changed password invalidates the
//!           cached one.
//! SOURCE    couch_httpd_auth, chttpd_auth_lockout.
//! DIFFERS   Users are in the configuration: there is no `_users` database. A lockout is reported with
//!           429 and not with 403.

mod decoy;
mod ended;
pub mod rights;
pub mod session;
mod token;
mod waiting;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::password::{PASSWORD_BYTES_MAX, PasswordHash, random};
use crate::in_flight::network_of;
use crate::{ConfigWatch, lock};
use ended::EndedSessions;
use rights::Rights;
use token::Tokens;
use waiting::{Waiting, WaitingPlace};

/// Maximum concurrent password checks.
const CHECKS_MAX: usize = 2;

/// Maximum pending logins, waiting for their check or being checked; more are refused.
const WAITING_MAX: usize = 64;

/// Maximum pending logins of one address, to leave room for others.
const WAITING_OF_ADDRESS_MAX: usize = 32;

/// How long a correct password is cached.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Maximum cached passwords.
const REMEMBERED_MAX: usize = 1024;

/// Consecutive failed logins, of one name from one address, that cause a lockout.
const FAILURES_MAX: u32 = 20;

/// How long a lockout lasts, and how long a failure counts.
const LOCKOUT: Duration = Duration::from_secs(60);

/// Maximum counters of failures, by name and address; beyond it, those with the fewest failures are dropped.
const FAILURES_REMEMBERED_MAX: usize = 4096;

/// What a user may do, and by which password: see [`Authority::standing`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    rights: Rights,
    hash: Option<PasswordHash>,
}

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// No user has this name and password.
    #[error("Name or password is incorrect.")]
    Incorrect,
    /// Too many consecutive failed logins.
    #[error("too many failed logins: wait a minute before the next one")]
    LockedOut,
    /// Too many concurrent logins.
    #[error("too many logins are being checked: try again later")]
    Busy,
    /// The system cannot create the thread that checks a password.
    #[error("the system has no thread to check the password on: try again later")]
    NoThread,
}

/// The key for counting failures: a keyed hash of the given name, known or not, and the client's address.
type Suspect = [u8; 32];

/// Authenticates users. Shared by all threads.
pub struct Authority {
    config: ConfigWatch,
    checks: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
    /// When each cached login expires, by a keyed hash of its name, password and configured password hash.
    remembered: Mutex<HashMap<[u8; 32], Instant>>,
    failures: Mutex<HashMap<Suspect, (u32, Instant)>>,
    /// Makes every failure take the same time.
    decoy: Arc<PasswordHash>,
    ended: Mutex<EndedSessions>,
    tokens: Mutex<Tokens>,
    cache_key: [u8; 32],
    /// Signs sessions if the configuration has no secret.
    secret: [u8; 32],
}

impl Authority {
    /// Creates an authority that follows the configuration.
    pub fn new(config: ConfigWatch) -> Self {
        Self {
            config,
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            waiting: Mutex::default(),
            remembered: Mutex::default(),
            failures: Mutex::default(),
            decoy: Arc::new(PasswordHash::unmatchable()),
            ended: Mutex::default(),
            tokens: Mutex::default(),
            cache_key: random(),
            secret: random(),
        }
    }

    /// Returns whether HTTP needs no login and every client there is an administrator.
    pub fn is_open(&self) -> bool {
        self.config.borrow().server.open
    }

    /// Returns a user's rights; an unknown user has none.
    pub(crate) fn rights(&self, name: &str) -> Rights {
        let config = self.config.borrow();
        match config.users.get(name) {
            _ if config.admins.contains_key(name) => Rights::all(),
            Some(user) => Rights::of(&user.roles, &user.pools),
            None => Rights::default(),
        }
    }

    /// Returns what a user's long request depends on.
    pub(crate) fn standing(&self, name: &str) -> Standing {
        Standing {
            rights: self.rights(name),
            hash: self.hash_of(name),
        }
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        let config = self.config.borrow();
        config.admins.contains_key(name) || config.users.contains_key(name)
    }

    fn hash_of(&self, name: &str) -> Option<PasswordHash> {
        let config = self.config.borrow();
        config
            .admins
            .get(name)
            .or_else(|| config.users.get(name)?.password.as_ref())
            .cloned()
    }

    /// Checks a name and a password.
    ///
    /// # Errors
    /// See [`LoginError`]: the caller's fault, or too much load.
    pub async fn log_in(
        &self,
        name: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<(), LoginError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(LoginError::Incorrect);
        }
        let from = from.map(network_of);
        let hash = self.hash_of(name);
        let memory = hash
            .as_ref()
            .map(|hash| self.digest(&[name, password, &hash.text()]));
        if memory.is_some_and(|memory| self.is_remembered(&memory)) {
            return Ok(());
        }
        let suspect = self.digest(&[name, &format!("{from:?}")]);
        if self.is_locked_out(&suspect) {
            return Err(LoginError::LockedOut);
        }
        let right = {
            let _place = WaitingPlace::take(&self.waiting, from).ok_or(LoginError::Busy)?;
            let checking = Arc::clone(&self.checks)
                .acquire_owned()
                .await
                .map_err(|_| LoginError::Busy)?;
            // Other logins may have failed or succeeded meanwhile.
            if memory.is_some_and(|memory| self.is_remembered(&memory)) {
                return Ok(());
            }
            if self.is_locked_out(&suspect) {
                return Err(LoginError::LockedOut);
            }
            self.check(hash, password.to_owned(), checking).await?
        };
        match memory.filter(|_| right) {
            Some(memory) => {
                self.remember(memory);
                lock(&self.failures).remove(&suspect);
                Ok(())
            }
            None => {
                self.count_failure(suspect);
                Err(LoginError::Incorrect)
            }
        }
    }

    /// Checks a password; a wrong one takes extra work, so that all failures take equally long.
    async fn check(
        &self,
        hash: Option<PasswordHash>,
        password: String,
        checking: OwnedSemaphorePermit,
    ) -> Result<bool, LoginError> {
        let config = Arc::clone(&self.config.borrow());
        let decoy = Arc::clone(&self.decoy);
        blocking::run("password", move || {
            // Held until the work ends, even if the client has disconnected.
            let _checking = checking;
            let right = hash.as_ref().is_some_and(|hash| hash.matches(&password));
            if !right {
                let users = config
                    .users
                    .values()
                    .filter_map(|user| user.password.as_ref());
                decoy::spend(
                    &decoy,
                    &password,
                    hash.as_ref(),
                    config.admins.values().chain(users),
                );
            }
            right
        })
        .await
        .map_err(|_| LoginError::NoThread)
    }

    /// Returns a keyed hash of texts, of the same length however long they are.
    fn digest(&self, parts: &[&str]) -> [u8; 32] {
        let mut mac = keyed(&self.cache_key);
        for part in parts {
            mac.update(&part.len().to_le_bytes());
            mac.update(part.as_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    fn is_remembered(&self, memory: &[u8; 32]) -> bool {
        let until = lock(&self.remembered).get(memory).copied();
        until.is_some_and(|until| Instant::now() < until)
    }

    fn remember(&self, memory: [u8; 32]) {
        let now = Instant::now();
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, until| now < *until);
        }
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(memory, now + REMEMBERED);
        }
    }

    fn is_locked_out(&self, suspect: &Suspect) -> bool {
        lock(&self.failures)
            .get(suspect)
            .copied()
            .is_some_and(|(count, last)| count >= FAILURES_MAX && last.elapsed() < LOCKOUT)
    }

    fn count_failure(&self, suspect: Suspect) {
        let now = Instant::now();
        let mut failures = lock(&self.failures);
        if failures.len() >= FAILURES_REMEMBERED_MAX {
            failures.retain(|_, (_, last)| now - *last < LOCKOUT);
        }
        if failures.len() >= FAILURES_REMEMBERED_MAX {
            // Failures of many names must not clear the count of one: those with the fewest failures are dropped.
            let mut counts: Vec<u32> = failures.values().map(|(count, _)| *count).collect();
            let middle = counts.len() / 2;
            let (_, fewest, _) = counts.select_nth_unstable(middle);
            let fewest = *fewest;
            let mut left = middle;
            failures.retain(|_, (count, _)| {
                let goes = *count <= fewest && left > 0;
                left -= usize::from(goes);
                !goes
            });
        }
        let entry = failures.entry(suspect).or_insert((0, now));
        if now - entry.1 >= LOCKOUT {
            entry.0 = 0;
        }
        *entry = (entry.0 + 1, now);
    }
}

/// Begins a keyed hash.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("auth: a key of any length will do")
}

#[cfg(test)]
mod tests;
