//! Finds the end of an object in a text that arrives in pieces.
//!
//! SUMMARY   [`ObjectEnd::find`] is called again whenever more of the text has arrived.
//! PROMISES  Each byte is read once.
//! LIMITS    It follows only brackets and strings: the parser decides whether the object is well formed.

/// Searches for the end of an object. Each search resumes where the previous one stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectEnd {
    at: usize,
    depth: usize,
    in_string: bool,
}

impl ObjectEnd {
    /// Returns whether the beginning of the object was seen.
    pub fn has_begun(&self) -> bool {
        self.at > 0
    }

    /// Returns the length of the object at the start of `text`, if its end has arrived. `text` must begin with the
    /// text of the previous call.
    pub fn find(&mut self, text: &[u8]) -> Option<usize> {
        while self.at < text.len() {
            if self.in_string {
                let rest = &text[self.at..];
                self.at += memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            }
            let Some(byte) = text.get(self.at) else {
                break;
            };
            self.at += 1;
            match (self.in_string, byte) {
                // Skips the escaped character, which may not have arrived yet.
                (true, b'\\') => self.at += 1,
                (_, b'"') => self.in_string = !self.in_string,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') if self.depth <= 1 => return Some(self.at),
                (false, b'}' | b']') => self.depth -= 1,
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_ends_at_the_same_place_wherever_its_text_is_cut() {
        for object in [
            "{}",
            r#"{"a":[{"b":"}]"},"\"}\\"],"\\":{}}"#,
            "{\"\u{e9}{\":\"[\\u007b\"}",
        ] {
            let text = format!("{object}}}{{");
            for cut in 1..object.len() {
                let mut end = ObjectEnd::default();
                assert_eq!(end.find(&text.as_bytes()[..cut]), None, "{object}");
                assert!(end.has_begun());
                assert_eq!(end.find(text.as_bytes()), Some(object.len()), "{object}");
            }
        }
    }
}
