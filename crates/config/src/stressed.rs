//! Commands that differ under stress: `server --timeout ${stress?{10}:{300}}`.
//!
//! SUMMARY   [`expand`] replaces the placeholders for stress in a text.
//! SOURCE    Postfix's `${name?value}`, `${name:value}` and `${name?{value}:{value}}`, with `stress` as the only
//!           name.
//! LIMITS    No nesting.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A placeholder. `{stress}` is the word `yes` or nothing; `${stress}` is the shell's, not a placeholder.
static PLACE: LazyLock<Regex> = LazyLock::new(|| {
    let place = r"(?x)
        \$\{stress (?:
            \? \{ (?<both_stressed> [^}]* ) \} : \{ (?<both_normal> [^}]* ) \} \}
          | \? (?: \{ (?<braced_stressed> [^}]* ) \} | (?<stressed> (?: [^{}] [^}]* )? ) ) \}
          | :  (?: \{ (?<braced_normal> [^}]* ) \} | (?<normal> (?: [^{}] [^}]* )? ) ) \}
        )?
        | (?<word> \{stress\} )";
    Regex::new(place).expect("stressed: the pattern is valid")
});

/// Returns the text for one state. Text that only resembles a placeholder is kept.
pub fn expand(text: &str, stress: bool) -> String {
    let chosen = |place: &Captures<'_>| {
        let first = |names: [&str; 3]| names.iter().find_map(|name| place.name(name));
        let normal = first(["both_normal", "braced_normal", "normal"]);
        let stressed = first(["both_stressed", "braced_stressed", "stressed"]);
        if place.name("word").is_some() {
            return if stress { "yes" } else { "" }.to_owned();
        }
        match (normal, stressed) {
            (None, None) => place[0].to_owned(),
            _ if stress => stressed.map_or("", |found| found.as_str()).to_owned(),
            _ => normal.map_or("", |found| found.as_str()).to_owned(),
        }
    };
    PLACE.replace_all(text, chosen).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> (String, String) {
        (expand(text, false), expand(text, true))
    }

    fn pair(normal: &str, stressed: &str) -> (String, String) {
        (normal.into(), stressed.into())
    }

    #[test]
    fn a_placeholder_has_one_text_without_stress_and_one_with() {
        assert_eq!(both("${stress?{10}:{300}}"), pair("300", "10"));
        assert_eq!(both("a ${stress?{x y}:{}} b"), pair("a  b", "a x y b"));
        assert_eq!(both("${stress?-q}"), pair("", "-q"));
        assert_eq!(both("${stress?{-q}}"), pair("", "-q"));
        assert_eq!(both("${stress:-v}"), pair("-v", ""));
        assert_eq!(both("${stress:{-v}}"), pair("-v", ""));
    }

    #[test]
    fn the_word_is_yes_under_stress_and_nothing_without() {
        assert_eq!(
            both("run --stress={stress} x"),
            pair("run --stress= x", "run --stress=yes x")
        );
    }

    #[test]
    fn placeholders_are_replaced_independently() {
        assert_eq!(
            both("${stress?a}{stress}${stress:b}${stress?{1}:{2}}"),
            pair("b2", "ayes1")
        );
    }

    #[test]
    fn text_that_only_looks_like_a_placeholder_is_left_alone() {
        for text in [
            "${stress",
            "${stress?{a",
            "${stress?{a}:b}",
            "${stress?{a}:{b}",
            "${stressed?a}",
            "${stress-x}",
            "$stress",
            "{STRESS}",
            "é${stress?é",
        ] {
            assert_eq!(both(text), pair(text, text), "{text}");
        }
    }
}
