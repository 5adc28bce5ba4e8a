//! Revisions of documents: `N-hash`.
//!
//! SOURCE    couch_db: new_revid/1: a hash over the deletion, the revision before and the body;
//!           couch_doc: parse_rev/1.
//! DIFFERS   The hash is over JSON text, so that the same body has another one than in CouchDB.
//!           Hashes that others made have at most 32 letters and digits.

use std::fmt;
use std::str::FromStr;

use md5::{Digest, Md5};

/// Longest hash, in bytes: the digits of an MD5.
const HASH_BYTES_MAX: usize = 32;

/// The hash of a revision: 1 to 32 letters and digits. 32 hexadecimal digits are in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevHash {
    // First, with zeros at its end: so the order is that of the texts.
    bytes: [u8; HASH_BYTES_MAX],
    length: u8,
}

impl RevHash {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length)];
        std::str::from_utf8(bytes).expect("revision: a hash is made of letters and digits")
    }
}

impl fmt::Display for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RevHash {
    type Err = InvalidRevision;

    fn from_str(text: &str) -> Result<Self, InvalidRevision> {
        let is_one = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if text.is_empty() || text.len() > HASH_BYTES_MAX || !is_one {
            return Err(InvalidRevision);
        }
        let mut bytes = [0; HASH_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        if text.len() == HASH_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            bytes.make_ascii_lowercase();
        }
        Ok(Self {
            bytes,
            length: u8::try_from(text.len()).map_err(|_| InvalidRevision)?,
        })
    }
}

/// A revision of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// How many there have been on its branch, with this one.
    pub number: u64,
    /// The hash.
    pub hash: RevHash,
}

impl Revision {
    /// Returns the revision that comes after `parent` with this body.
    pub fn after(parent: Option<Self>, deleted: bool, body: &str) -> Self {
        let mut hash = Md5::new();
        hash.update([u8::from(deleted)]);
        if let Some(parent) = parent {
            hash.update(parent.to_string());
        }
        hash.update([0]);
        hash.update(body);
        let digits = data_encoding::HEXLOWER.encode(&hash.finalize());
        Self {
            number: parent.map_or(0, |parent| parent.number).saturating_add(1),
            hash: digits.parse().expect("revision: an MD5 has 32 digits"),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.hash)
    }
}

/// The text is no revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid rev format")]
pub struct InvalidRevision;

impl FromStr for Revision {
    type Err = InvalidRevision;

    fn from_str(text: &str) -> Result<Self, InvalidRevision> {
        let (number, hash) = text.split_once('-').ok_or(InvalidRevision)?;
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidRevision);
        }
        let number: u64 = number.parse().map_err(|_| InvalidRevision)?;
        let hash = hash.parse()?;
        match number {
            0 => Err(InvalidRevision),
            number => Ok(Self { number, hash }),
        }
    }
}
