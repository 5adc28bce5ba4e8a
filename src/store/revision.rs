//! Revisions of documents: `N-hash`.
//!
//! SOURCE    couch_db: new_revid/1: a hash over the deletion, the revision before and the body.
//! DIFFERS   The hash is over JSON text, so that the same body has another one than in CouchDB.

use std::fmt;
use std::str::FromStr;

use md5::{Digest, Md5};

/// A revision of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// How many there have been, with this one.
    pub number: u64,
    /// The hash.
    pub hash: u128,
}

impl Revision {
    /// Returns the revision that comes after `parent` with this body.
    pub fn after(parent: Option<Self>, deleted: bool, body: &str) -> Self {
        let before = parent.unwrap_or(Self { number: 0, hash: 0 });
        let mut hash = Md5::new();
        hash.update([u8::from(deleted)]);
        hash.update(before.number.to_be_bytes());
        hash.update(before.hash.to_be_bytes());
        hash.update(body);
        Self {
            number: before.number + 1,
            hash: u128::from_be_bytes(hash.finalize().into()),
        }
    }

    /// Returns the hash alone, as text.
    pub fn hash_text(&self) -> String {
        format!("{:032x}", self.hash)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:032x}", self.number, self.hash)
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
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
        if hash.len() > 32 || !digits(hash) || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidRevision);
        }
        Ok(Self {
            number: number.parse().map_err(|_| InvalidRevision)?,
            hash: u128::from_str_radix(hash, 16).map_err(|_| InvalidRevision)?,
        })
    }
}
