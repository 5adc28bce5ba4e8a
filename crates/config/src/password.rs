//! Passwords: parsed, stored and compared as hashes; and random bytes for secrets.
//!
//! SUMMARY   [`PasswordHash`] is a password of `[admins]` and `[users.NAME]`: a hash in one of CouchDB's forms is kept
//!           unchanged, a plain password is hashed immediately.
//! PROMISES  Plain passwords are not stored, and no form of one is ever shown. Comparisons take constant time.
//! SOURCE    couch_passwords: `-pbkdf2-KEY,SALT,ITERATIONS` (SHA-1), `-pbkdf2:PRF-KEY,SALT,ITERATIONS`,
//!           `-hashed-KEY,SALT` (SHA-1 of password and salt).
//! DIFFERS   CouchDB writes the hash of a plain password back into its file; here the file is unchanged, and the hash
//!           is only as slow as a hash that never leaves memory has to be.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use pbkdf2::pbkdf2_hmac;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

/// Shown instead of passwords.
pub(crate) const HIDDEN: &str = "***";

/// Iterations for a plain password. Its hash never leaves memory and only has to slow down guessing over the network;
/// a reader of the file has the password itself.
const PLAIN_ITERATIONS: u32 = 10_000;

/// The salt of plain passwords.
const PLAIN_SALT: &str = "settee";

/// Maximum iterations of a hash: each login pays for them.
const ITERATIONS_MAX: u32 = 100_000_000;

/// Maximum length of a password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// The hash function of PBKDF2, by its name in a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Prf {
    #[strum(serialize = "sha")]
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The cost of comparing a password with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub prf: Prf,
    pub iterations: u32,
}

impl Cost {
    /// The cost of plain passwords' hashes.
    pub const PLAIN: Self = Self {
        prf: Prf::Sha256,
        iterations: PLAIN_ITERATIONS,
    };

    fn derive(self, password: &[u8], salt: &[u8]) -> Vec<u8> {
        let (derive, key_bytes) = self.prf.function();
        let mut key = vec![0; key_bytes];
        derive(password, salt, self.iterations, &mut key);
        key
    }
}

/// Derives a key from password, salt and number of iterations.
type Derive = fn(&[u8], &[u8], u32, &mut [u8]);

impl Prf {
    /// Returns the derivation function and the key length in bytes.
    const fn function(self) -> (Derive, usize) {
        match self {
            Self::Sha1 => (pbkdf2_hmac::<Sha1>, 20),
            Self::Sha224 => (pbkdf2_hmac::<Sha224>, 28),
            Self::Sha256 => (pbkdf2_hmac::<Sha256>, 32),
            Self::Sha384 => (pbkdf2_hmac::<Sha384>, 48),
            Self::Sha512 => (pbkdf2_hmac::<Sha512>, 64),
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Form {
    Pbkdf2(Cost),
    /// One SHA-1 of password and salt: CouchDB before 1.3.
    Simple,
}

/// The hash of an admin's or a user's password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PasswordHash {
    form: Form,
    key: Vec<u8>,
    salt: String,
}

impl PasswordHash {
    /// Parses a configured value: a hash, or a plain password, which is hashed; that takes some milliseconds.
    ///
    /// # Errors
    /// The mistake, without the value itself.
    pub fn of_config(text: &str) -> Result<Self, &'static str> {
        match text {
            "" => Err("the password is empty"),
            HIDDEN => Err("this is how a password is shown, not a password"),
            _ if text.len() > PASSWORD_BYTES_MAX => Err("the password is too long"),
            _ if text.starts_with("-pbkdf2") || text.starts_with("-hashed-") => Self::of_hash(text)
                .ok_or(
                    "it is not a hash as CouchDB writes them: -pbkdf2:sha256-KEY,SALT,ITERATIONS",
                ),
            _ => Ok(Self::of_plain(text)),
        }
    }

    /// Returns a hash that no password matches, at the cost of a plain password's hash.
    pub fn unmatchable() -> Self {
        Self {
            form: Form::Pbkdf2(Cost::PLAIN),
            key: random::<32>().to_vec(),
            salt: HEXLOWER.encode(&random::<16>()),
        }
    }

    /// The salt is constant, so equal passwords have equal hashes: reloading the configuration changes nothing, and
    /// sessions are valid after a restart and for other daemons. The hash is not stored.
    fn of_plain(password: &str) -> Self {
        let cost = Cost::PLAIN;
        Self {
            form: Form::Pbkdf2(cost),
            key: cost.derive(password.as_bytes(), PLAIN_SALT.as_bytes()),
            salt: PLAIN_SALT.to_owned(),
        }
    }

    fn of_hash(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("-hashed-") {
            let (key, salt) = rest.split_once(',')?;
            let key = HEXLOWER_PERMISSIVE.decode(key.as_bytes()).ok()?;
            return (key.len() == Prf::Sha1.function().1).then(|| Self {
                form: Form::Simple,
                key,
                salt: salt.to_owned(),
            });
        }
        let rest = text.strip_prefix("-pbkdf2")?;
        let (prf, rest) = match rest.strip_prefix(':') {
            Some(named) => named.split_once('-')?,
            None => ("sha", rest.strip_prefix('-')?),
        };
        let prf: Prf = prf.parse().ok()?;
        let mut parts = rest.split(',');
        let key = HEXLOWER_PERMISSIVE.decode(parts.next()?.as_bytes()).ok()?;
        let salt = parts.next()?.to_owned();
        let iterations = parts.next()?.trim().parse().ok()?;
        let right = parts.next().is_none()
            && key.len() == prf.function().1
            && (1..=ITERATIONS_MAX).contains(&iterations);
        right.then_some(Self {
            form: Form::Pbkdf2(Cost { prf, iterations }),
            key,
            salt,
        })
    }

    /// Returns whether this is the password. Deliberately slow: never on an event loop.
    pub fn matches(&self, password: &str) -> bool {
        let password = password.as_bytes();
        let key = match self.form {
            Form::Pbkdf2(cost) => cost.derive(password, self.salt.as_bytes()),
            Form::Simple => Sha1::new()
                .chain_update(password)
                .chain_update(self.salt.as_bytes())
                .finalize()
                .to_vec(),
        };
        key.ct_eq(&self.key).into()
    }

    /// Returns the cost of comparing a password with it.
    pub fn cost(&self) -> Cost {
        match self.form {
            Form::Pbkdf2(cost) => cost,
            Form::Simple => Cost {
                prf: Prf::Sha1,
                iterations: 1,
            },
        }
    }

    /// Returns this hash with another cost: a decoy, if made from an [unmatchable](Self::unmatchable) one.
    pub fn at_cost(&self, cost: Cost) -> Self {
        Self {
            form: Form::Pbkdf2(cost),
            ..self.clone()
        }
    }

    /// Returns the salt.
    pub fn salt(&self) -> &str {
        &self.salt
    }

    /// Returns the hash in CouchDB's form.
    pub fn text(&self) -> String {
        let key = HEXLOWER.encode(&self.key);
        let salt = &self.salt;
        match self.form {
            Form::Simple => format!("-hashed-{key},{salt}"),
            Form::Pbkdf2(Cost { prf, iterations }) => match prf {
                Prf::Sha1 => format!("-pbkdf2-{key},{salt},{iterations}"),
                _ => format!("-pbkdf2:{}-{key},{salt},{iterations}", <&str>::from(prf)),
            },
        }
    }
}

impl TryFrom<String> for PasswordHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::of_config(&text)
    }
}

impl From<PasswordHash> for String {
    fn from(hash: PasswordHash) -> Self {
        hash.text()
    }
}

/// Returns a fingerprint that identifies equal secrets, and reveals nothing else while guessing is slow. Takes some
/// milliseconds.
pub fn fingerprint(secret: &str, salt: &str) -> String {
    HEXLOWER.encode(&Cost::PLAIN.derive(secret.as_bytes(), salt.as_bytes()))
}

/// Returns random bytes for a secret.
///
/// # Panics
/// The system has none; then nothing could be kept secret.
pub fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).expect("password: the system gives random bytes");
    bytes
}

/// Without the hash.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of RFC 6070 (SHA-1) and independently computed ones (SHA-256, `-hashed-`).
    #[test]
    fn couchdbs_hashes_are_understood() {
        let hashes = [
            "-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096",
            "-pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096",
            "-pbkdf2:sha-4b007901b765489abead49d926f721d065a429c1,salt,4096",
            "-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt",
        ];
        for text in hashes {
            let hash = PasswordHash::of_config(text).expect(text);
            assert!(hash.matches("password"), "{text}");
            assert!(!hash.matches("Password"), "{text}");
            assert!(!hash.matches(""), "{text}");
            let again = PasswordHash::of_config(&hash.text());
            assert_eq!(again.as_ref(), Ok(&hash), "{text}");
        }
    }

    #[test]
    fn a_plain_password_is_hashed_the_same_way_each_time_and_never_shown() {
        let hash = PasswordHash::of_config("open sesame").expect("a password");
        assert_eq!(PasswordHash::of_config("open sesame"), Ok(hash.clone()));
        assert!(hash.matches("open sesame"));
        assert!(!hash.matches("open"));
        assert!(!hash.text().contains("sesame"));
        assert_eq!(format!("{hash:?}"), "***");
    }

    #[test]
    fn an_invalid_password_is_refused_without_showing_it() {
        for text in [
            "",
            "***",
            "-pbkdf2-zz,salt,10",
            "-pbkdf2-4b00,salt,10",
            "-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt",
            "-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,0",
            "-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,1,1",
            "-pbkdf2:md5-4b007901b765489abead49d926f721d065a429c1,salt,1",
            "-hashed-4b007901,salt",
            "-hashed-c88e9c67041a74e0357befdff93f87dde0904214",
        ] {
            let refused = PasswordHash::of_config(text).expect_err(text);
            assert!(text.len() < 4 || !refused.contains(text));
        }
    }
}
