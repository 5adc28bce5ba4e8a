//! Request ids, which link a request's log records to its answer.
//!
//! PROMISES  An id from a client has at most [`BYTES_MAX`] printable ASCII characters. A generated one is unique
//!           across runs of the service.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use serde::{Serialize, Serializer};

/// Maximum length of a client's id, in bytes.
const BYTES_MAX: usize = 128;

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Name);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Given(Arc<str>),
    Made(u64),
}

impl RequestId {
    /// Takes the id that a client sent; generates one if it is missing, empty, too long or not printable.
    pub(crate) fn of(given: Option<&str>) -> Self {
        let is_printable = |name: &&str| name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let fits = |name: &&str| (1..=BYTES_MAX).contains(&name.len());
        given
            .filter(fits)
            .filter(is_printable)
            .map_or_else(Self::made, |name| Self(Name::Given(name.into())))
    }

    pub(crate) fn made() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(1);
        Self(Name::Made(MADE.fetch_add(1, Ordering::Relaxed)))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Prefix of this run's ids.
        static RUN: LazyLock<u64> = LazyLock::new(|| getrandom::u64().unwrap_or_default());
        match &self.0 {
            Name::Given(name) => f.write_str(name),
            Name::Made(number) => write!(f, "{:016x}-{number:x}", *RUN),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printable_name_is_used_and_any_other_replaced() {
        let longest = "x".repeat(BYTES_MAX);
        for given in ["6f0c", "a b~!", &longest] {
            assert_eq!(RequestId::of(Some(given)).to_string(), given);
        }
        let too_long = "x".repeat(BYTES_MAX + 1);
        let refused = [
            None,
            Some(""),
            Some("a\n"),
            Some("\u{e9}"),
            Some(&*too_long),
        ];
        let made: Vec<String> = refused.map(|name| RequestId::of(name).to_string()).into();
        for (index, name) in made.iter().enumerate() {
            assert!(
                name.len() >= 18 && !made[..index].contains(name),
                "{made:?}"
            );
        }
    }
}
