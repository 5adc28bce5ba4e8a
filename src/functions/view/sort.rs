//! Sorting by keys that are bytes, with several threads.
//!
//! SUMMARY   [`sorted`] asks for the sort key of each row and returns the rows in order.
//! PROMISES  Each sort key is made once. Keys lie in one piece of memory a thread, and most
//!           comparisons are of numbers: the eight bytes after the beginning that all keys of a
//!           group share. No thread waits for another one to merge: each gets a range of keys.
//! SOURCE    Sample sort, and within a range multikey quicksort with the next bytes at hand.

use std::cmp::Ordering;
use std::ops::Range;

/// How many bytes of a key are compared as one number.
const HEAD_BYTES: usize = 8;

/// Groups of so few rows are sorted by comparing keys as they are.
const SMALL_GROUP: usize = 8;

/// How many keys are looked at, for each thread, to find ranges with about equally many.
const SAMPLES: usize = 64;

/// A row and where its key is.
#[derive(Clone, Copy)]
struct Entry {
    /// Some bytes of its key, as many as fit, as a number that compares as they do.
    head: u64,
    row: usize,
    start: usize,
    length: u32,
    thread: u32,
}

/// The keys that one thread made.
#[derive(Default)]
struct Part {
    keys: Vec<u8>,
    entries: Vec<Entry>,
    /// How many bytes all its keys begin with.
    common: usize,
}

/// Returns the rows from 0 to `count`, as what `take` makes of them, in the order of their keys,
/// then by `tie`, which no two rows may be equal by.
///
/// `writer` makes, for each thread, what appends the key of a row.
pub(super) fn sorted<T: Send, W: FnMut(usize, &mut Vec<u8>)>(
    count: usize,
    threads: usize,
    writer: impl Fn() -> W + Sync,
    tie: impl Fn(usize, usize) -> Ordering + Sync,
    take: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let share = count.div_ceil(threads.max(1)).max(1);
    let shares = (0..count)
        .step_by(share)
        .map(|start| start..(start + share).min(count));
    let parts = in_threads((0..).zip(shares), |(thread, rows)| {
        Part::write(thread, rows, writer())
    });
    let common = common_beginning(&parts);
    let (keys, entries): (Vec<_>, Vec<_>) = parts
        .into_iter()
        .map(|part| (part.keys, part.entries))
        .unzip();
    let keys = Keys { parts: keys, tie };
    let splitters = keys.splitters(&entries, threads, common);
    let divided = in_threads(entries, |entries| keys.divide(entries, &splitters, common));
    let mut ranges = vec![Vec::new(); splitters.len() + 1];
    for part in divided {
        for (range, entries) in ranges.iter_mut().zip(part) {
            range.push(entries);
        }
    }
    let sorted = in_threads(ranges, |range| {
        let mut entries = range.concat();
        keys.sort(&mut entries, common);
        let rows = entries.iter().map(|entry| take(entry.row));
        rows.collect::<Vec<T>>()
    });
    sorted.into_iter().flatten().collect()
}

/// Does a piece of work in a thread of its own, for each of some; returns what came of them, in
/// their order.
fn in_threads<I: Send, O: Send>(
    work: impl IntoIterator<Item = I>,
    what: impl Fn(I) -> O + Sync,
) -> Vec<O> {
    std::thread::scope(|scope| {
        let what = &what;
        let start = |piece| scope.spawn(move || what(piece));
        let running: Vec<_> = work.into_iter().map(start).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined
            .map(|done| done.expect("VW-4: sorting does not panic"))
            .collect()
    })
}

impl Part {
    fn write(
        thread: u32,
        rows: Range<usize>,
        mut write_key: impl FnMut(usize, &mut Vec<u8>),
    ) -> Self {
        let mut part = Self::default();
        part.entries.reserve_exact(rows.len());
        for row in rows {
            let start = part.keys.len();
            write_key(row, &mut part.keys);
            let length = part.keys.len() - start;
            let key = &part.keys[start..];
            part.common = match part.beginning() {
                _ if part.entries.is_empty() => length,
                beginning if key.starts_with(beginning) => part.common,
                beginning => shared_bytes(beginning, key),
            };
            part.entries.push(Entry {
                head: 0,
                row,
                start,
                length: u32::try_from(length).expect("VW-2: an answer is shorter than 4 GiB"),
                thread,
            });
        }
        part
    }

    fn beginning(&self) -> &[u8] {
        let start = self.entries.first().map_or(0, |first| first.start);
        &self.keys[start..start + self.common]
    }
}

/// All keys.
struct Keys<C> {
    parts: Vec<Vec<u8>>,
    tie: C,
}

impl<C: Fn(usize, usize) -> Ordering> Keys<C> {
    /// Returns what comes after the first bytes of a key.
    fn rest(&self, entry: &Entry, from: usize) -> &[u8] {
        &self.parts[entry.thread as usize][entry.start + from..entry.start + entry.length as usize]
    }

    /// Compares keys of which that many bytes are equal, then rows.
    fn compare(&self, one: &Entry, other: &Entry, from: usize) -> Ordering {
        let rests = self.rest(one, from).cmp(self.rest(other, from));
        rests.then_with(|| (self.tie)(one.row, other.row))
    }

    /// Returns the entries that divide all of them into about equal ranges, one for each thread.
    fn splitters(&self, parts: &[Vec<Entry>], threads: usize, common: usize) -> Vec<Entry> {
        let count: usize = parts.iter().map(Vec::len).sum();
        let step = (count / (SAMPLES * threads.max(1))).max(1);
        let mut samples: Vec<Entry> = parts.iter().flatten().step_by(step).copied().collect();
        for sample in &mut samples {
            sample.head = head(self.rest(sample, common));
        }
        samples.sort_unstable_by(|one, other| self.compare(one, other, common));
        let places = (1..threads).map(|thread| thread * samples.len() / threads);
        places
            .filter_map(|place| samples.get(place))
            .copied()
            .collect()
    }

    /// Sets the heads of entries and puts each into the range between two splitters that it is in.
    fn divide(&self, entries: Vec<Entry>, splitters: &[Entry], common: usize) -> Vec<Vec<Entry>> {
        let room = entries.len() / (splitters.len() + 1) * 5 / 4;
        let mut ranges = vec![Vec::with_capacity(room); splitters.len() + 1];
        for mut entry in entries {
            entry.head = head(self.rest(&entry, common));
            let range = splitters.partition_point(|splitter| {
                let heads = splitter.head.cmp(&entry.head);
                heads
                    .then_with(|| self.compare(splitter, &entry, common))
                    .is_le()
            });
            ranges[range].push(entry);
        }
        ranges
    }

    /// Sorts entries whose keys begin with that many equal bytes.
    fn sort(&self, entries: &mut [Entry], common: usize) {
        let mut groups = vec![(0..entries.len(), common)];
        while let Some((place, from)) = groups.pop() {
            let start = place.start;
            let group = &mut entries[place];
            if group.len() <= SMALL_GROUP {
                group.sort_unstable_by(|one, other| self.compare(one, other, from));
                continue;
            }
            let from = from + self.shared(group, from);
            for entry in &mut *group {
                entry.head = head(self.rest(entry, from));
            }
            group.sort_unstable_by_key(|entry| entry.head);
            let mut at = start;
            for equal in group.chunk_by_mut(|one, other| one.head == other.head) {
                let place = at..at + equal.len();
                at = place.end;
                let next = from + HEAD_BYTES;
                if equal.len() == 1 {
                    continue;
                }
                if equal.iter().all(|entry| entry.length as usize >= next) {
                    groups.push((place, next));
                } else {
                    // A head that ends with zeros may be of a key that ends before them.
                    equal.sort_unstable_by(|one, other| self.compare(one, other, from));
                }
            }
        }
    }

    /// Returns how many bytes after the first ones all keys of a group share.
    fn shared(&self, group: &[Entry], from: usize) -> usize {
        let Some((first, others)) = group.split_first() else {
            return 0;
        };
        let first = self.rest(first, from);
        others.iter().fold(first.len(), |shared, entry| {
            shared_bytes(&first[..shared], self.rest(entry, from))
        })
    }
}

/// Returns how many bytes the keys of all parts begin with.
fn common_beginning(parts: &[Part]) -> usize {
    let Some((first, others)) = parts.split_first() else {
        return 0;
    };
    let first = first.beginning();
    others.iter().fold(first.len(), |common, part| {
        shared_bytes(&first[..common], part.beginning())
    })
}

fn shared_bytes(one: &[u8], two: &[u8]) -> usize {
    let pairs = one.iter().zip(two);
    pairs.take_while(|(one, two)| one == two).count()
}

fn head(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk::<HEAD_BYTES>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; HEAD_BYTES];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(keys: &[Vec<u8>], threads: usize) -> Vec<usize> {
        let writer = || |row: usize, key: &mut Vec<u8>| key.extend_from_slice(&keys[row]);
        sorted(
            keys.len(),
            threads,
            writer,
            |one, two| two.cmp(&one),
            |row| row,
        )
    }

    fn expected(keys: &[Vec<u8>]) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..keys.len()).collect();
        // Of equal keys the last row comes first, as `tie` says above.
        rows.sort_by(|one, two| keys[*one].cmp(&keys[*two]).then(two.cmp(one)));
        rows
    }

    #[test]
    fn no_rows_have_no_order() {
        assert_eq!(order(&[], 4), [0; 0]);
    }

    #[test]
    fn keys_that_are_equal_or_beginnings_of_each_other_are_told_apart() {
        let keys: Vec<Vec<u8>> = ["aaa", "aaa", "a", "aa", "", "aaa\0", "a"]
            .map(|key| key.as_bytes().to_vec())
            .into();
        for threads in 1..9 {
            assert_eq!(order(&keys, threads), expected(&keys));
        }
    }

    proptest! {
        #[test]
        fn rows_are_in_the_order_of_their_keys(
            beginning in proptest::collection::vec(0_u8..3, 0..12),
            letters in 1_u8..4,
            rests in proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..40), 0..200),
            threads in 1_usize..5,
        ) {
            let keys: Vec<Vec<u8>> = rests
                .iter()
                .map(|rest| {
                    let rest: Vec<u8> = rest.iter().map(|letter| letter % letters).collect();
                    [&beginning[..], &rest].concat()
                })
                .collect();
            prop_assert_eq!(order(&keys, threads), expected(&keys));
        }
    }
}
