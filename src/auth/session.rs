//! Sessions: the content of the cookie `AuthSession`.
//!
//! SUMMARY   `NAME:TIME:SESSION:SIGNATURE` in URL-safe Base64; the time of issue in hexadecimal seconds and the
//!           session's random number, signed with the secret and the salt of the user's password.
//! PROMISES  Only logged-out sessions are kept in memory. A session ends by logout, by timeout, and when the secret or
//!           the password changes or the user is removed.
//! SOURCE    couch_httpd_auth: cookie_authentication_handler/1, cookie_auth_cookie/4.
//! DIFFERS   Signed only with SHA-256. In CouchDB a cookie stays valid after its session was logged out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::Mac;

use super::ended::SessionId;
use super::{Authority, keyed, lock};
use crate::config::password::{PasswordHash, random};

/// The name of the cookie.
pub const COOKIE: &str = "AuthSession";

/// The longest valid cookie, in bytes.
const COOKIE_BYTES_MAX: usize = 1024;

/// A valid session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The user's name; admins are users, too.
    pub name: String,
    /// Whether a tenth of its time has passed, so that its cookie should be renewed.
    pub needs_renewal: bool,
    /// The same in all its cookies.
    id: SessionId,
    /// The cookie that it was read from, and when that was issued.
    cookie: String,
    issued: SystemTime,
}

impl Authority {
    /// Begins a session after a login; returns its cookie, or `None` if no user with a password has this name.
    pub fn begin(&self, name: &str) -> Option<String> {
        self.issue_at(name, random(), SystemTime::now())
    }

    /// Returns a new cookie of a session, unless it has ended, perhaps during the request; a long request is a use.
    pub fn renew(&self, session: &Session) -> Option<String> {
        let renewed = self.issue_at(&session.name, session.id, SystemTime::now());
        // Checked last: the configuration may have changed since the new cookie was signed.
        self.session_at(&session.cookie, session.issued)?;
        renewed
    }

    /// Ends a session: all its cookies become invalid.
    pub fn end(&self, session: &Session) {
        let timeout = self.config.borrow().chttpd_auth.timeout.as_secs();
        lock(&self.ended).end(
            &session.name,
            session.id,
            seconds(SystemTime::now()),
            timeout,
        );
    }

    fn issue_at(&self, name: &str, id: SessionId, now: SystemTime) -> Option<String> {
        let hash = self.hash_of(name)?;
        let id = HEXLOWER.encode(&id);
        let mut cookie = format!("{name}:{:X}:{id}", seconds(now)).into_bytes();
        let signature = self.sign(&cookie, &hash);
        cookie.push(b':');
        cookie.extend(signature.finalize().into_bytes());
        Some(BASE64URL_NOPAD.encode(&cookie))
    }

    /// Returns the session of a cookie, unless the session has ended or the cookie is forged.
    pub fn session(&self, cookie: &str) -> Option<Session> {
        self.session_at(cookie, SystemTime::now())
    }

    fn session_at(&self, cookie: &str, now: SystemTime) -> Option<Session> {
        if cookie.len() > COOKIE_BYTES_MAX {
            return None;
        }
        let text = cookie;
        let cookie = BASE64URL_NOPAD
            .decode(text.trim_end_matches('=').as_bytes())
            .ok()?;
        let mut colons = memchr::memchr_iter(b':', &cookie);
        let (name_end, time_end, id_end) = (colons.next()?, colons.next()?, colons.next()?);
        let name = std::str::from_utf8(&cookie[..name_end]).ok()?;
        let signed = self.sign(&cookie[..id_end], &self.hash_of(name)?);
        // Takes constant time.
        signed.verify_slice(&cookie[id_end + 1..]).ok()?;
        let issued = std::str::from_utf8(&cookie[name_end + 1..time_end]).ok()?;
        let issued = u64::from_str_radix(issued, 16).ok()?;
        let id = HEXLOWER.decode(&cookie[time_end + 1..id_end]).ok()?;
        let id = SessionId::try_from(id).ok()?;
        if lock(&self.ended).has(name, &id, issued) {
            return None;
        }
        let timeout = self.config.borrow().chttpd_auth.timeout.as_secs();
        let age = seconds(now).saturating_sub(issued);
        (age < timeout).then(|| Session {
            name: name.to_owned(),
            needs_renewal: age.saturating_mul(10) >= timeout,
            id,
            cookie: text.to_owned(),
            issued: UNIX_EPOCH + Duration::from_secs(issued),
        })
    }

    fn sign(&self, text: &[u8], hash: &PasswordHash) -> hmac::Hmac<sha2::Sha256> {
        let config = self.config.borrow();
        let configured = config.chttpd_auth.secret.as_bytes();
        let secret = if configured.is_empty() {
            &self.secret
        } else {
            configured
        };
        let mut mac = keyed(&[secret, hash.salt().as_bytes()].concat());
        mac.update(text);
        // A session ends with its password, regardless of the salt.
        mac.update(hash.text().as_bytes());
        mac
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::watch;

    use super::*;
    use crate::config::Config;

    fn config(password: &str, secret: &str) -> Config {
        let mut config = Config::default();
        let hash = PasswordHash::of_config(password).unwrap();
        config.admins.insert("ann".into(), hash);
        config.chttpd_auth.secret = secret.into();
        config
    }

    fn authority(config: Config) -> (Authority, watch::Sender<Arc<Config>>) {
        let (sender, receiver) = watch::channel(Arc::new(config));
        (Authority::new(receiver), sender)
    }

    #[test]
    fn a_session_lasts_its_time_and_needs_renewal_after_a_tenth_of_it() {
        let (authority, _config) = authority(config("one", ""));
        let start = SystemTime::now();
        let cookie = authority.issue_at("ann", random(), start).unwrap();
        let after = |seconds| {
            let now = start + Duration::from_secs(seconds);
            authority
                .session_at(&cookie, now)
                .map(|session| (session.name, session.needs_renewal))
        };
        assert_eq!(after(0), Some(("ann".into(), false)));
        assert_eq!(after(59), Some(("ann".into(), false)));
        assert_eq!(after(60), Some(("ann".into(), true)));
        assert_eq!(after(599), Some(("ann".into(), true)));
        assert_eq!(after(600), None);
        assert_eq!(authority.issue_at("bob", random(), start), None);
    }

    #[test]
    fn a_logout_invalidates_all_cookies_of_the_session() {
        let (authority, _config) = authority(config("one", "secret"));
        let cookie = authority.begin("ann").unwrap();
        let other = authority.begin("ann").unwrap();
        let session = authority.session(&cookie).unwrap();
        let renewed = authority.renew(&session).unwrap();
        authority.end(&authority.session(&renewed).unwrap());
        assert_eq!(authority.session(&cookie), None);
        assert_eq!(authority.session(&renewed), None);
        assert!(authority.session(&other).is_some());
    }

    #[test]
    fn a_forged_session_is_invalid() {
        let (ours, _config) = authority(config("one", ""));
        let (other, _other) = authority(config("one", ""));
        assert_eq!(ours.session(&other.begin("ann").unwrap()), None);
        let cookie = ours.begin("ann").unwrap();
        for at in 0..cookie.len() {
            let mut forged = cookie.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(ours.session(&forged).is_none(), "{at}");
        }
        for nonsense in ["", ":", "AAAA", "YW5uOjE6", "\u{e4}", &"A".repeat(5000)] {
            assert_eq!(ours.session(nonsense), None);
        }
        assert!(ours.session(&cookie).is_some());
    }

    #[test]
    fn a_session_ends_with_the_secret_the_password_and_the_admin() {
        let hashed = "-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096";
        let (authority, sender) = authority(config(hashed, "secret"));
        let cookie = authority.begin("ann").unwrap();
        let session = authority.session(&cookie).unwrap();
        let mut without = config(hashed, "secret");
        without.admins.clear();
        for other in [config(hashed, "other"), config("one", "secret"), without] {
            sender.send(Arc::new(other)).unwrap();
            assert_eq!(authority.session(&cookie), None);
            assert_eq!(authority.renew(&session), None, "during a request");
        }
        sender.send(Arc::new(config(hashed, "secret"))).unwrap();
        assert!(authority.session(&cookie).is_some());
        assert!(authority.renew(&session).is_some());
    }
}
