//! The nearest known name to a misspelt one.
//!
//! SUMMARY   Edit distance (insert, delete, replace, swap of neighbours), case-insensitive.
//! LIMITS    Names longer than 64 characters are compared by their first 64.

/// Maximum compared characters of a name; the work is quadratic.
const COMPARED_MAX: usize = 64;

/// Returns the known name of which `asked` is a likely typo, if any: the one with the fewest edits, the first of
/// equals, unless even that differs too much.
pub fn slip<'a>(asked: &str, known: &[&'a str]) -> Option<&'a str> {
    let folded = |name: &str| {
        let compared: String = name.chars().take(COMPARED_MAX).collect();
        compared.to_lowercase()
    };
    let asked = folded(asked);
    let (edits, name) = known
        .iter()
        .copied()
        .map(|name| (strsim::osa_distance(&asked, &folded(name)), name))
        .min_by_key(|(edits, _)| *edits)?;
    let length = asked.chars().count().max(name.chars().count());
    (edits <= (length / 3).min(3)).then_some(name)
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
        assert_eq!(slip("os_proces_limt", &known), Some("os_process_limit"));
        assert_eq!(slip("DB_Tag", &known), Some("db_tag"));
        assert_eq!(slip("frobnicate", &known), None);
        assert_eq!(slip("x", &[]), None);
    }

    #[test]
    fn a_short_name_allows_few_edits() {
        assert_eq!(slip("ioq", &["log"]), None);
    }

    #[test]
    fn a_huge_name_is_compared_in_bounded_time() {
        let huge = "x".repeat(10_000_000);
        assert_eq!(slip(&huge, &["log"]), None);
    }
}
