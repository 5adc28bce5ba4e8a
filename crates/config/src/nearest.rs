//! The nearest known name to a misspelt one.
//!
//! SUMMARY   Edit distance (insert, delete, replace, swap of neighbours), case-insensitive.
//! LIMITS    Names longer than 64 characters are compared by their first 64.

/// Maximum compared characters of a name; the work is quadratic.
const COMPARED_MAX: usize = 64;

/// A known name and its distance from the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nearest<'a> {
    pub(super) name: &'a str,
    /// Whether it is close enough for a likely typo.
    pub(super) likely: bool,
}

/// Returns the known name with the fewest edits, the first of equals.
pub(super) fn nearest<'a>(
    asked: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<Nearest<'a>> {
    let folded = |name: &str| {
        let compared: String = name.chars().take(COMPARED_MAX).collect();
        compared.to_lowercase()
    };
    let asked = folded(asked);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&asked, &folded(name)), name))
        .min_by_key(|(edits, _)| *edits)
        .map(|(edits, name)| {
            let length = asked.chars().count().max(name.chars().count());
            let likely = edits <= (length / 3).min(3);
            Nearest { name, likely }
        })
}

/// Returns the known name of which `asked` is a likely typo, if any.
pub fn slip<'a>(asked: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = nearest(asked, known.iter().copied())?;
    near.likely.then_some(near.name)
}

/// Returns the hint for an unknown name: the likely known one; otherwise `all`, followed by every known name or `none`.
pub fn hint(asked: &str, known: &[&str], all: &str) -> String {
    match slip(asked, known) {
        Some(name) => format!("did you mean '{name}'?"),
        None if known.is_empty() => format!("{all} none"),
        None => format!("{all} {}", known.join(", ")),
    }
}

/// Returns the hint for a name that is not configured.
pub(super) fn advice(asked: &str, known: &[&str], or: &str) -> String {
    match slip(asked, known) {
        Some(name) => format!("did you mean {name:?}?"),
        None if known.is_empty() => "there are none yet".to_owned(),
        None => format!("{or}take one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
