//! Ordered names, each with a class: reading a page of some classes does not walk over the skipped names.
//!
//! SUMMARY   Names are in blocks, each with a count of its names by class, so that whole blocks can be skipped.
//! PROMISES  Names are unique. Setting or removing one searches one block. A page reads the counts of all blocks before
//!           its end, and the rows of the blocks that contain its names.
//! LIMITS    At most [`CLASSES_MAX`] classes, and [`BLOCK_NAMES_MAX`] names in a block.

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

/// Maximum number of classes.
pub const CLASSES_MAX: usize = 8;

/// Maximum number of names in a block: a block with more is split.
const BLOCK_NAMES_MAX: usize = 512;

/// A class: a number below [`CLASSES_MAX`].
pub type Class = u8;

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(u8);

impl Classes {
    /// All of them.
    pub const ALL: Self = Self(u8::MAX);

    const fn has(self, class: Class) -> bool {
        self.0 & (1 << class) != 0
    }
}

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        Self(classes.into_iter().fold(0, |all, class| all | 1 << class))
    }
}

/// Names between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub lower: Bound<&'a str>,
    pub upper: Bound<&'a str>,
}

impl Section<'_> {
    /// All names.
    pub const ALL: Self = Self {
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
    };

    /// Whether a name is between the bounds.
    fn contains(self, name: &str) -> bool {
        RangeBounds::<str>::contains(&(self.lower, self.upper), name)
    }
}

/// Ordered names.
#[derive(Clone, Debug, Default)]
pub struct CountedNames {
    /// In order, never empty.
    blocks: Vec<Block>,
}

/// A name with its class.
#[derive(Clone, Debug)]
struct Row {
    /// The first bytes of the name. They decide most comparisons, without reading the name, which is stored elsewhere.
    head: u64,
    name: Arc<str>,
    class: Class,
}

impl Row {
    fn key(&self) -> (u64, &str) {
        (self.head, &self.name)
    }
}

/// Returns a sort key of a name: its first bytes, then the name.
fn key(name: &str) -> (u64, &str) {
    let mut head = [0; 8];
    for (to, byte) in head.iter_mut().zip(name.bytes()) {
        *to = byte;
    }
    (u64::from_be_bytes(head), name)
}

#[derive(Clone, Debug, Default)]
struct Block {
    rows: Vec<Row>,
    counts: [usize; CLASSES_MAX],
}

impl Block {
    fn of(rows: Vec<Row>) -> Self {
        let mut counts = [0; CLASSES_MAX];
        for row in &rows {
            counts[usize::from(row.class)] += 1;
        }
        Self { rows, counts }
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        let key = key(name);
        self.rows.binary_search_by(|row| row.key().cmp(&key))
    }

    /// Returns the rows of a section.
    fn range(&self, section: Section<'_>) -> Range<usize> {
        let upward = Section {
            upper: Bound::Unbounded,
            ..section
        };
        let downward = Section {
            lower: Bound::Unbounded,
            ..section
        };
        let rows = &self.rows;
        let from = rows.partition_point(|row| !upward.contains(&row.name));
        let to = rows.partition_point(|row| downward.contains(&row.name));
        from..to.max(from)
    }

    /// Counts the rows of some classes in a range.
    fn count(&self, range: &Range<usize>, classes: Classes) -> usize {
        if range.len() < self.rows.len() {
            let rows = self.rows[range.clone()].iter();
            return rows.filter(|row| classes.has(row.class)).count();
        }
        let counts = (0..)
            .zip(self.counts)
            .filter(|(class, _)| classes.has(*class));
        counts.map(|(_, count)| count).sum()
    }
}

impl CountedNames {
    /// Adds a name, or changes its class. Returns its previous class.
    pub fn set(&mut self, name: &Arc<str>, class: Class) -> Option<Class> {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let at = self.block_of(name).min(self.blocks.len() - 1);
        let block = &mut self.blocks[at];
        block.counts[usize::from(class)] += 1;
        match block.place(name) {
            Ok(place) => {
                let before = std::mem::replace(&mut block.rows[place].class, class);
                block.counts[usize::from(before)] -= 1;
                Some(before)
            }
            Err(place) => {
                let ((head, _), name) = (key(name), Arc::clone(name));
                block.rows.insert(place, Row { head, name, class });
                if block.rows.len() > BLOCK_NAMES_MAX {
                    let upper = block.rows.split_off(BLOCK_NAMES_MAX / 2);
                    *block = Block::of(std::mem::take(&mut block.rows));
                    self.blocks.insert(at + 1, Block::of(upper));
                }
                None
            }
        }
    }

    /// Removes a name. Returns its class.
    pub fn remove(&mut self, name: &str) -> Option<Class> {
        let at = self.block_of(name);
        let block = self.blocks.get_mut(at)?;
        let place = block.place(name).ok()?;
        let Row { class, .. } = block.rows.remove(place);
        block.counts[usize::from(class)] -= 1;
        if block.rows.is_empty() {
            self.blocks.remove(at);
        } else {
            // Walking many nearly empty blocks would take as long as walking the names.
            self.join(at);
            self.join(at.wrapping_sub(1));
        }
        Some(class)
    }

    /// Merges a block with the next one if both together have few names.
    fn join(&mut self, at: usize) {
        let of = |at: usize| self.blocks.get(at).map(|block| block.rows.len());
        let (Some(own), Some(next)) = (of(at), of(at.wrapping_add(1))) else {
            return;
        };
        if own + next <= BLOCK_NAMES_MAX / 4 {
            let next = self.blocks.remove(at + 1);
            let mut rows = std::mem::take(&mut self.blocks[at].rows);
            rows.extend(next.rows);
            self.blocks[at] = Block::of(rows);
        }
    }

    /// Counts the names of some classes in a section.
    pub fn count(&self, classes: Classes, section: Section<'_>) -> usize {
        let blocks = self.blocks[self.blocks_of(section)].iter();
        blocks
            .map(|block| block.count(&block.range(section), classes))
            .sum()
    }

    /// Returns the names of some classes in a section: at most `limit`, skipping the first `skip`; in reverse order
    /// if `descending`.
    pub fn page(
        &self,
        classes: Classes,
        section: Section<'_>,
        descending: bool,
        mut skip: usize,
        limit: usize,
    ) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        let mut blocks = self.blocks[self.blocks_of(section)].iter();
        while names.len() < limit
            && let Some(block) = if descending {
                blocks.next_back()
            } else {
                blocks.next()
            }
        {
            let range = block.range(section);
            let count = block.count(&range, classes);
            if count <= skip {
                skip -= count;
                continue;
            }
            let rows = block.rows[range].iter();
            let chosen = rows
                .filter(|row| classes.has(row.class))
                .map(|row| Arc::clone(&row.name));
            let room = limit - names.len();
            if descending {
                names.extend(chosen.rev().skip(skip).take(room))
            } else {
                names.extend(chosen.skip(skip).take(room))
            }
            skip = 0;
        }
        names
    }

    /// Returns the first block that may contain a name.
    fn block_of(&self, name: &str) -> usize {
        let key = key(name);
        self.blocks.partition_point(|block| {
            let last = block.rows.last();
            last.is_some_and(|last| last.key() < key)
        })
    }

    /// Returns the blocks that may contain names of a section.
    fn blocks_of(&self, section: Section<'_>) -> Range<usize> {
        let from = match section.lower {
            Bound::Unbounded => 0,
            Bound::Included(name) | Bound::Excluded(name) => self.block_of(name),
        };
        let to = match section.upper {
            Bound::Unbounded => self.blocks.len(),
            Bound::Included(name) | Bound::Excluded(name) => {
                (self.block_of(name) + 1).min(self.blocks.len())
            }
        };
        from..to.max(from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use test_support::TestRandom;

    fn bound(random: &mut TestRandom, names: usize) -> Bound<String> {
        let name = format!("{:05}", random.below(names));
        match random.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(name),
            _ => Bound::Included(name),
        }
    }

    #[test]
    fn pages_equal_those_of_an_ordered_map() {
        const NAMES: usize = 4000;
        let mut random = TestRandom::for_test("pages_of_counted_names");
        let mut names = CountedNames::default();
        let mut map: BTreeMap<Arc<str>, Class> = BTreeMap::new();
        for round in 0..20 {
            for _ in 0..2000 {
                let name: Arc<str> = format!("{:05}", random.below(NAMES)).into();
                // The set grows, then shrinks to almost nothing.
                if random.below(8) < if round % 5 == 4 { 8 } else { 3 } {
                    assert_eq!(names.remove(&name), map.remove(&name));
                } else {
                    let class = random.below(CLASSES_MAX) as Class;
                    assert_eq!(names.set(&name, class), map.insert(name, class));
                }
            }
            for _ in 0..50 {
                let classes: Classes = (0..random.below(9))
                    .map(|_| random.below(8) as Class)
                    .collect();
                let (lower, upper) = (bound(&mut random, NAMES), bound(&mut random, NAMES));
                let section = Section {
                    lower: lower.as_ref().map(String::as_str),
                    upper: upper.as_ref().map(String::as_str),
                };
                let is_in = |name: &str| {
                    let is_above = match section.lower {
                        Bound::Unbounded => true,
                        Bound::Included(lower) => name >= lower,
                        Bound::Excluded(lower) => name > lower,
                    };
                    is_above
                        && match section.upper {
                            Bound::Unbounded => true,
                            Bound::Included(upper) => name <= upper,
                            Bound::Excluded(upper) => name < upper,
                        }
                };
                let rows = map
                    .iter()
                    .filter(|(name, class)| is_in(name) && classes.has(**class));
                let mut expected: Vec<_> = rows.map(|(name, _)| Arc::clone(name)).collect();
                assert_eq!(names.count(classes, section), expected.len());
                let descending = random.below(2) == 0;
                if descending {
                    expected.reverse();
                }
                let (skip, limit) = (random.below(NAMES), random.below(600));
                let expected: Vec<_> = expected.into_iter().skip(skip).take(limit).collect();
                assert_eq!(
                    names.page(classes, section, descending, skip, limit),
                    expected
                );
            }
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_bytes_whatever_they_begin_with() {
        let mut expected = vec![
            "",
            "\0",
            "a",
            "a\0",
            "a\0b",
            "abcdefg",
            "abcdefgh",
            "abcdefgh\0",
            "abcdefgha",
            "abcdefghz",
            "abcdefgi",
            "\u{e9}",
            "\u{1f600}",
        ];
        let mut names = CountedNames::default();
        for name in expected.iter().rev() {
            assert_eq!(names.set(&Arc::from(*name), 1), None);
        }
        expected.sort_unstable();
        let all = names.page(Classes::ALL, Section::ALL, false, 0, usize::MAX);
        assert_eq!(all.iter().map(|name| &**name).collect::<Vec<_>>(), expected);
        assert!(expected.iter().all(|name| names.remove(name) == Some(1)));
    }

    #[test]
    fn few_blocks_are_left_after_most_names_are_removed() {
        let mut names = CountedNames::default();
        let name = |n: usize| -> Arc<str> { format!("{n:06}").into() };
        (0..100_000).for_each(|n| assert_eq!(names.set(&name(n), 0), None));
        let most = names.blocks.len();
        assert!(most <= 2 * 100_000 / BLOCK_NAMES_MAX + 1, "{most} blocks");
        (0..100_000)
            .filter(|n| n % 1000 != 0)
            .for_each(|n| assert_eq!(names.remove(&name(n)), Some(0)));
        assert!(
            names.blocks.len() <= 4,
            "{} blocks for 100 names",
            names.blocks.len()
        );
        assert_eq!(names.count(Classes::ALL, Section::ALL), 100);
    }
}
