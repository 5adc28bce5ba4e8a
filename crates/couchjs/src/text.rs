//! JSON text: what the server needs to know about it without an engine.

use std::borrow::Cow;

/// `text` as a JSON string.
pub(super) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always JSON")
}

/// The string a JSON string stands for, a lone surrogate read as U+FFFD; `None` for other values.
pub(super) fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let json = json.trim();
    if !json.starts_with('"') {
        return None;
    }
    if let Some(plain) = json[1..].strip_suffix('"')
        && !plain.contains('\\')
    {
        return Some(Cow::Borrowed(plain));
    }
    let decoded = serde_json::from_str(json).or_else(|_| serde_json::from_str(&replaced(json)));
    decoded.ok().map(Cow::Owned)
}

/// The first characters of the string that a JSON string stands for, at most so many.
pub(super) fn beginning(json: &str, characters: usize) -> String {
    const ESCAPE_BYTES: usize = 6;
    let text = json
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let text = text.unwrap_or(json);
    let mut end = text.len().min(characters * ESCAPE_BYTES);
    // It may have been cut in a character or in an escape, of which a pair is the longest.
    for _ in 0..2 * ESCAPE_BYTES {
        let part = text.get(..end).map(|part| format!("\"{part}\""));
        if let Some(whole) = part.as_deref().and_then(unquote) {
            return whole.chars().take(characters).collect();
        }
        end = end.saturating_sub(1);
    }
    String::new()
}

/// `json` with the escapes of lone surrogates replaced: Rust's strings cannot hold them.
fn replaced(json: &str) -> String {
    let mut result = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (escape(rest), escape(rest.get(6..).unwrap_or(""))) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                result.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        result.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    result + rest
}

/// How much of a source is quoted to name a function, in characters.
const EXCERPT_CHARACTERS: usize = 60;

/// The beginning of a source, on one line.
pub(super) fn excerpt(source: &str) -> String {
    let mut words = source.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(EXCERPT_CHARACTERS) {
        words.truncate(end);
        words.push_str(" ..");
    }
    words
}

/// What kind of value a JSON text is, for errors.
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

/// The code of a `\uXXXX` that `text` starts with.
fn escape(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

/// The length of `text` in UTF-16 units: what `length` is in JavaScript.
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
            (format!("\"x{}\"", "\\ud83d\\ude00".repeat(9)), "x😀"),
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
