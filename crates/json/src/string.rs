//! Unescapes strings of JSON text, and replaces unpaired surrogates in it.
//!
//! PROMISES  An unpaired surrogate becomes U+FFFD, as in CouchDB.

use std::borrow::Cow;

/// The replacement for an unpaired surrogate.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Returns the characters of a string given with its quotation marks.
pub fn unescape(quoted: &str) -> Cow<'_, str> {
    let end = quoted.len().saturating_sub(1);
    let inside = quoted.get(1..end).unwrap_or_default();
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Cow::Borrowed(inside);
    }
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut behind = escaped.chars();
        let Some(first) = behind.next() else {
            return Cow::Owned(text);
        };
        rest = behind.as_str();
        text.push(match first {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (character, behind) = unicode(rest).unwrap_or((REPLACEMENT, rest));
                rest = behind;
                character
            }
            itself => itself,
        });
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// As [`unescape`], for UTF-8.
pub fn unescape_bytes(quoted: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', quoted).is_none() {
        let end = quoted.len().saturating_sub(1);
        return Cow::Borrowed(quoted.get(1..end).unwrap_or_default());
    }
    let quoted = std::str::from_utf8(quoted).unwrap_or_default();
    Cow::Owned(unescape(quoted).into_owned().into_bytes())
}

/// Replaces unpaired surrogates in the strings of a JSON text. Everything else is kept, even if invalid.
pub fn replace_halves(json: &str) -> Cow<'_, str> {
    let mut replaced = String::new();
    let (mut rest, mut at) = (json, 0);
    while let Some(found) = memchr::memchr(b'\\', rest.as_bytes().get(at..).unwrap_or_default()) {
        let start = at + found;
        // Skips the character after any other escape: it may be a backslash.
        at = start + 2;
        match rest[start + 1..].strip_prefix('u').and_then(unicode) {
            Some((REPLACEMENT, behind)) => {
                replaced.push_str(&rest[..start]);
                replaced.push(REPLACEMENT);
                (rest, at) = (behind, 0);
            }
            Some((_, behind)) => at = rest.len() - behind.len(),
            None => {}
        }
    }
    if replaced.is_empty() {
        return Cow::Borrowed(json);
    }
    Cow::Owned(replaced + rest)
}

/// Decodes an escape after its `\u`: returns the character, which may take two escapes, and the rest. `None` without
/// four digits.
fn unicode(digits: &str) -> Option<(char, &str)> {
    let (first, rest) = code_unit(digits)?;
    if let Some((second, behind)) = rest.strip_prefix("\\u").and_then(code_unit)
        && let Some(Ok(pair @ '\u{10000}'..)) = char::decode_utf16([first, second]).next()
    {
        return Some((pair, behind));
    }
    Some((char::from_u32(first.into()).unwrap_or(REPLACEMENT), rest))
}

fn code_unit(digits: &str) -> Option<(u16, &str)> {
    let (unit, rest) = digits.split_at_checked(4)?;
    let is_number = unit.bytes().all(|digit| digit.is_ascii_hexdigit());
    let unit = u16::from_str_radix(unit, 16).ok().filter(|_| is_number)?;
    Some((unit, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_decoded_and_lone_surrogates_replaced() {
        for (quoted, expected) in [
            (r#""""#, ""),
            (
                r#""a\u00e9\"\\\/\b\f\n\r\tz""#,
                "a\u{e9}\"\\/\u{8}\u{c}\n\r\tz",
            ),
            (r#""\u0000\ud834\udd1e!""#, "\0\u{1d11e}!"),
            (r#""\udd1e\ud834""#, "\u{fffd}\u{fffd}"),
            (r#""\ud834\ud834\udd1e""#, "\u{fffd}\u{1d11e}"),
            (
                r#""\ud834\u0041\ud834\n\ud834x""#,
                "\u{fffd}A\u{fffd}\n\u{fffd}x",
            ),
        ] {
            assert_eq!(unescape(quoted), expected, "{quoted}");
            assert_eq!(*unescape_bytes(quoted.as_bytes()), *expected.as_bytes());
        }
        for broken in [
            "",
            "\"",
            "\"\\",
            "\"\\\"",
            "\"\\u12\"",
            "\"\\u\u{e9}\u{e9}\"",
        ] {
            unescape(broken);
            unescape_bytes(broken.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn strings_are_read_as_the_parser_reads_them(text in any::<String>()) {
            let mut quoted = serde_json::json!(text).to_string();
            prop_assert_eq!(unescape(&quoted), text.as_str());
            let escape = |unit: u16| format!("\\u{unit:04X}");
            quoted = format!("\"{}\"", text.encode_utf16().map(escape).collect::<String>());
            prop_assert_eq!(unescape(&quoted), text);
        }
    }
}
