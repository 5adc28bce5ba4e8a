//! The nearest known name to a misspelt one.
//!
//! SUMMARY   Edit distance (insert, delete, replace, swap of neighbours), case-insensitive.
//! LIMITS    Names longer than 64 characters are compared by their first 64.

/// Longest part of a name that is compared; the work is quadratic.
const COMPARED_MAX: usize = 64;

/// A known name and how far the asked one is from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// The known name.
    pub name: &'a str,
    /// Whether it is so near that a slip of the finger is likely.
    pub likely: bool,
}

/// Returns the known name that takes the fewest edits to reach, the first of equals.
pub fn nearest<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Option<Nearest<'a>> {
    let asked = folded(asked);
    known
        .into_iter()
        .map(|name| (distance(&asked, &folded(name)), name))
        .min_by_key(|(edits, _)| *edits)
        .map(|(edits, name)| {
            let length = asked.len().max(name.chars().count());
            Nearest {
                name,
                likely: edits <= (length / 3).min(3),
            }
        })
}

fn folded(name: &str) -> Vec<char> {
    name.to_lowercase().chars().take(COMPARED_MAX).collect()
}

/// Returns the optimal string alignment distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_each_kind_of_edit_once() {
        let d = |a: &str, b: &str| distance(&folded(a), &folded(b));
        assert_eq!(d("", ""), 0);
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("abc", ""), 3);
        assert_eq!(d("log", "lgo"), 1);
        assert_eq!(d("log", "lo"), 1);
        assert_eq!(d("log", "logs"), 1);
        assert_eq!(d("log", "leg"), 1);
        assert_eq!(d("kitten", "sitting"), 3);
    }

    #[test]
    fn a_slip_is_likely_and_another_word_is_not() {
        let known = ["os_process_limit", "os_process_soft_limit", "db_tag"];
        let slip = nearest("os_proces_limt", known).expect("there are known names");
        assert_eq!((slip.name, slip.likely), ("os_process_limit", true));
        let case = nearest("DB_Tag", known).expect("there are known names");
        assert_eq!((case.name, case.likely), ("db_tag", true));
        let other = nearest("frobnicate", known).expect("there are known names");
        assert!(!other.likely);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_short_name_allows_few_edits() {
        let ioq = nearest("ioq", ["log"]).expect("there is a known name");
        assert!(!ioq.likely);
    }

    #[test]
    fn a_huge_name_is_compared_in_bounded_time() {
        let huge = "x".repeat(10_000_000);
        assert!(
            !nearest(&huge, ["log"])
                .expect("there is a known name")
                .likely
        );
    }
}
