//! JSON text, read without an engine.

use std::borrow::Cow;

use json::string::unescape;

/// Writes a text as a JSON string.
pub(super) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always JSON")
}

/// Returns the characters of a valid JSON string; `None` for other values.
pub(super) fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let json = json.trim();
    json.starts_with('"').then(|| unescape(json))
}

/// Returns the beginning of a JSON string, at most this many characters.
pub(super) fn beginning(json: &str, characters: usize) -> String {
    /// A surrogate pair takes two escapes of 6 bytes.
    const CHARACTER_BYTES_MAX: usize = 12;
    // An escape cut off here lies beyond the last of these characters.
    let most = (1 + characters * CHARACTER_BYTES_MAX).min(json.len().saturating_sub(1));
    let quoted = format!("{}\"", &json[..json.floor_char_boundary(most)]);
    unescape(&quoted).chars().take(characters).collect()
}

/// Characters of a source quoted to name a function.
const EXCERPT_CHARACTERS: usize = 60;

/// Returns the beginning of a source, on one line.
pub(super) fn excerpt(source: &str) -> String {
    let mut words = source.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(EXCERPT_CHARACTERS) {
        words.truncate(end);
        words.push_str(" ..");
    }
    words
}

/// Names the kind of a JSON value, for errors.
pub(super) fn kind_of(json: Option<&str>) -> &'static str {
    match json.and_then(|json| json.trim_start().bytes().next()) {
        None => "missing",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b'n') => "null",
        Some(b't' | b'f') => "a boolean",
        Some(_) => "a number",
    }
}

/// Returns the length of a text in UTF-16 units, as JavaScript does.
pub(super) fn utf16_len(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.encode_utf16().count()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unquoted() {
        assert_eq!(unquote(r#" "plain é" "#).unwrap(), "plain é");
        assert_eq!(unquote(r#""a\"\u00e9\ud83d\ude00""#).unwrap(), "a\"é😀");
        assert_eq!(unquote("7"), None);
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        assert_eq!(unquote(r#""\ude00\ud83d""#).unwrap(), "\u{fffd}\u{fffd}");
        assert_eq!(unquote(r#""\ud83dx\ud83d\ude00""#).unwrap(), "\u{fffd}x😀");
        assert_eq!(unquote(r#""\\ud83d\ud83d""#).unwrap(), "\\ud83d\u{fffd}");
    }

    #[test]
    fn a_string_is_cut_between_its_characters() {
        for (json, expected) in [
            (r#""abcdef""#.to_owned(), "abc"),
            (r#""ab""#.to_owned(), "ab"),
            (format!("\"{}\"", "\\u00e9".repeat(9)), "ééé"),
            (format!("\"{}\"", "é".repeat(20)), "ééé"),
            (format!("\"{}\"", "\\\\".repeat(20)), "\\\\\\"),
            (format!("\"x{}\"", "\\ud83d\\ude00".repeat(9)), "x😀😀"),
        ] {
            assert_eq!(beginning(&json, 3), expected, "{json}");
        }
    }

    #[test]
    fn length_counts_utf16_units() {
        assert_eq!(utf16_len("abc"), 3);
        assert_eq!(utf16_len("é🚀"), 3);
    }
}
