//! Revisions of documents: `N-hash`.
//!
//! SOURCE    couch_db: new_revid/1: a hash over the deletion, the previous revision and the body; couch_doc:
//!           parse_rev/1.
//! DIFFERS   The hash is over JSON text, so a body's hash differs from CouchDB's. Foreign hashes have at most 32
//!           letters and digits.

use std::fmt;
use std::str::FromStr;

use md5::{Digest, Md5};

/// Maximum length of a hash, in bytes: the digits of an MD5.
const HASH_BYTES_MAX: usize = 32;

/// A revision of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The number of revisions so far, including this one.
    pub number: u64,
    /// The hash: 1 to 32 letters and digits; 32 hexadecimal digits are in lower case.
    pub hash: String,
}

impl Revision {
    /// Returns the revision after `parent` with this body.
    pub fn after(parent: Option<&Self>, deleted: bool, body: &str) -> Self {
        let mut hash = Md5::new();
        hash.update([u8::from(deleted)]);
        if let Some(parent) = parent {
            hash.update(parent.to_string());
        }
        hash.update([0]);
        hash.update(body);
        Self {
            number: parent.map_or(0, |parent| parent.number).saturating_add(1),
            hash: data_encoding::HEXLOWER.encode(&hash.finalize()),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.hash)
    }
}

impl FromStr for Revision {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, hash) = text.split_once('-').ok_or(())?;
        let is_hash = (1..=HASH_BYTES_MAX).contains(&hash.len())
            && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_hash || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        let is_md5 =
            hash.len() == HASH_BYTES_MAX && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        match number.parse() {
            Ok(0) | Err(_) => Err(()),
            Ok(number) => Ok(Self {
                number,
                hash: if is_md5 {
                    hash.to_ascii_lowercase()
                } else {
                    hash.to_owned()
                },
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_revision_reads_as_it_is_written() {
        let revision = Revision::after(None, false, "{}");
        assert_eq!(revision.to_string().parse(), Ok(revision.clone()));
        assert_ne!(Revision::after(None, true, "{}"), revision);
        assert_ne!(
            Revision::after(Some(&revision), false, "{}").hash,
            revision.hash
        );
        for text in ["1-a", "12-xyz", "3-00000000000000000000000000000abc"] {
            assert_eq!(text.parse::<Revision>().unwrap().to_string(), text);
        }
        let upper = "1-0123456789ABCDEF0123456789ABCDEF";
        let same: Revision = upper.parse().unwrap();
        assert_eq!(same.to_string(), upper.to_lowercase());
        let long = format!("1-{}", "x".repeat(33));
        for text in ["", "1", "1-", "-1", "0-1", "x-1", "1-+1", "+1-1", &long] {
            assert_eq!(text.parse::<Revision>(), Err(()), "{text}");
        }
    }
}
