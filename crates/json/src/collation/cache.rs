//! A cache of sort keys.
//!
//! SUMMARY   [`KeyCache`] remembers the sort keys of short strings: keys of a view are usually names, dates and types
//!           rather than unique strings, and a lookup takes less time than collating.
//! PROMISES  Memory is bounded. A string that occurs once costs little more than without a cache.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// Strings in each set: with one, two names in the same set would replace each other at every row.
const WAYS: usize = 4;

/// Number of sets, a power of two: 4096 strings in total.
const SETS: usize = 1024;

/// Maximum length of a cached string, in bytes. Its sort key is about twice as long.
const STRING_BYTES_MAX: usize = 64;

/// Strings and their sort keys, each in the set of its hash. A full set replaces one of its strings.
pub struct KeyCache {
    /// A part of the hash of each string.
    tags: Vec<[u32; WAYS]>,
    strings: Vec<[Remembered; WAYS]>,
    /// The place that was last replaced in a full set.
    turn: usize,
}

#[derive(Clone, Default)]
struct Remembered {
    /// The string, then its sort key; empty if unused.
    bytes: Vec<u8>,
    /// The length of the string in `bytes`.
    text_bytes: usize,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self {
            tags: vec![[0; WAYS]; SETS],
            strings: vec![Default::default(); SETS],
            turn: 0,
        }
    }
}

impl KeyCache {
    /// Appends the sort key of `text`, which `write` would append. Sort keys are never empty.
    pub fn append(
        &mut self,
        text: &[u8],
        key: &mut Vec<u8>,
        write: impl FnOnce(&[u8], &mut Vec<u8>),
    ) {
        if text.len() > STRING_BYTES_MAX {
            return write(text, key);
        }
        let mut hasher = FxHasher::default();
        hasher.write(text);
        let hash = hasher.finish();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "parts of the hash are enough"
        )]
        let (set, tag) = (hash as usize % SETS, (hash >> 32) as u32);
        let (tags, strings) = (&mut self.tags[set], &mut self.strings[set]);
        for (known, remembered) in tags.iter().zip(&*strings) {
            if *known == tag && remembered.is(text) {
                key.extend_from_slice(remembered.key());
                return;
            }
        }
        let free = strings.iter().position(|known| known.bytes.is_empty());
        let place = free.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        tags[place] = tag;
        let remembered = &mut strings[place];
        remembered.bytes.clear();
        remembered.bytes.extend_from_slice(text);
        remembered.text_bytes = text.len();
        write(text, &mut remembered.bytes);
        key.extend_from_slice(remembered.key());
    }
}

impl Remembered {
    fn is(&self, text: &[u8]) -> bool {
        !self.bytes.is_empty() && self.bytes[..self.text_bytes] == *text
    }

    fn key(&self) -> &[u8] {
        &self.bytes[self.text_bytes..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of cached strings.
    const STRINGS_MAX: usize = SETS * WAYS;

    #[test]
    fn a_sort_key_is_the_same_whether_it_was_remembered_or_not() {
        let mut cache = KeyCache::default();
        let mut calls = 0;
        // More strings than fit, each twice in a row, then all again.
        for round in 0..2 {
            for number in 0..3 * STRINGS_MAX {
                let text = "x".repeat(number % 70) + &number.to_string();
                for _ in 0..2 {
                    let mut key = vec![round];
                    cache.append(text.as_bytes(), &mut key, |text, key| {
                        calls += 1;
                        key.extend(text.iter().rev());
                    });
                    let wanted: Vec<u8> = text.bytes().rev().collect();
                    assert_eq!((key[0], &key[1..]), (round, &wanted[..]));
                }
            }
        }
        assert!(calls < 4 * 3 * STRINGS_MAX, "nothing was remembered");
    }

    #[test]
    fn strings_that_fill_a_quarter_of_the_cache_rarely_evict_each_other() {
        let mut cache = KeyCache::default();
        let mut calls = 0;
        for _ in 0..10 {
            for number in 0..STRINGS_MAX / 4 {
                let text = format!("customer {number}");
                cache.append(text.as_bytes(), &mut Vec::new(), |_, key| {
                    calls += 1;
                    key.push(1);
                });
            }
        }
        // One call for each, and a few more for sets with more than their share.
        assert!(calls < STRINGS_MAX / 4 * 3 / 2, "{calls}");
    }

    #[test]
    fn the_empty_string_has_a_sort_key_too() {
        let mut cache = KeyCache::default();
        for _ in 0..2 {
            let mut key = Vec::new();
            cache.append(b"", &mut key, |_, key| key.push(7));
            assert_eq!(key, [7]);
        }
    }
}
