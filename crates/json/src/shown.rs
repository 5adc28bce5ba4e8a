//! Which characters of untrusted text are unsafe to show.

/// Returns whether a character of untrusted text must not reach a terminal or a page: it moves the cursor, ends the
/// line (including U+2028 and U+2029), or changes the direction of the text around it.
pub fn is_unprintable(character: char) -> bool {
    let moves_or_turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    moves_or_turns || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidi_characters_are_not_shown() {
        for hidden in [
            '\0', '\n', '\u{1b}', '\u{7f}', '\u{80}', '\u{9b}', '\u{9f}', '\u{61c}', '\u{200f}',
            '\u{2028}', '\u{202e}', '\u{2066}', '\u{2069}',
        ] {
            assert!(is_unprintable(hidden), "{hidden:?}");
        }
        for shown in [
            'a', ' ', '\u{a0}', 'é', 'ש', '中', '\u{200d}', '👪', '\u{2027}', '\u{206a}',
        ] {
            assert!(!is_unprintable(shown), "{shown:?}");
        }
    }
}
