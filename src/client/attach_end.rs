//! The line that the service adds behind everything that an attached process printed.
//!
//! SUMMARY   [`EndLine`] takes what comes over the connection, hands on what is the process's, and
//!           keeps back what may be the line: it begins with a zero byte and is the last one.
//! PROMISES  Every byte of the process's is handed on, in order, at once or at the end; also one that
//!           looks like the line and is not the last.
//! LIMITS    A line that begins with a zero byte is kept back for as long as nothing follows it. No
//!           answer of a query server begins so.

use serde::Deserialize;

use super::error::ServiceError;

/// How the line begins, before its JSON object.
pub const END_MARK: u8 = 0;

/// The longest such line, in bytes; what is longer is the process's.
const END_BYTES_MAX: usize = 4096;

/// What became of the process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AttachEnd {
    /// Whether it lived until it went back to its pool.
    pub alive: bool,
    /// How it ended, in words.
    #[serde(default)]
    pub exit: Option<String>,
    /// Why there was no process at all.
    #[serde(default)]
    pub error: Option<Box<ServiceError>>,
}

/// Parts what the process printed from the line at the end.
#[derive(Debug)]
pub struct EndLine {
    /// What may be the line: from its first byte.
    held: Vec<u8>,
    at_line_start: bool,
}

impl Default for EndLine {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            at_line_start: true,
        }
    }
}

impl EndLine {
    /// Takes a chunk and gives to `pass` what is certainly the process's.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn take<E>(
        &mut self,
        chunk: &[u8],
        mut pass: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.held.is_empty() && memchr::memchr(END_MARK, chunk).is_none() {
            self.at_line_start = chunk
                .last()
                .map_or(self.at_line_start, |last| *last == b'\n');
            return pass(chunk);
        }
        // It was held since the start of its line.
        self.at_line_start |= !self.held.is_empty();
        self.held.extend_from_slice(chunk);
        let text = std::mem::take(&mut self.held);
        let before_last = text.strip_suffix(b"\n").unwrap_or(&text);
        let line_feed = memchr::memrchr(b'\n', before_last);
        let last = line_feed.map_or(0, |at| at + 1);
        let starts = self.at_line_start || last > 0;
        let is_end = starts && text.get(last) == Some(&END_MARK);
        let kept = if is_end && text.len() - last <= END_BYTES_MAX {
            text.len() - last
        } else {
            0
        };
        let (passed, held) = text.split_at(text.len() - kept);
        self.held.extend_from_slice(held);
        self.at_line_start = passed
            .last()
            .map_or(self.at_line_start, |last| *last == b'\n');
        pass(passed)
    }

    /// The connection has ended: gives the rest to `pass` unless it is the line, which is returned.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn finish<E>(
        self,
        pass: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<Option<AttachEnd>, E> {
        let json = self.held.strip_prefix(&[END_MARK]);
        let end = json.and_then(|json| serde_json::from_slice(json).ok());
        if end.is_none() {
            pass(&self.held)?;
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// What is handed on of a text that comes in pieces of `size`, and the end.
    fn parted(text: &[u8], size: usize) -> (Vec<u8>, Option<AttachEnd>) {
        let mut passed = Vec::new();
        let mut line = EndLine::default();
        for chunk in text.chunks(size) {
            let result: Result<(), Infallible> = line.take(chunk, |bytes| {
                passed.extend_from_slice(bytes);
                Ok(())
            });
            assert_eq!(result, Ok(()));
        }
        let end = line.finish(|bytes| -> Result<(), Infallible> {
            passed.extend_from_slice(bytes);
            Ok(())
        });
        (passed, end.unwrap_or_default())
    }

    #[test]
    fn the_line_is_found_however_it_is_cut_and_everything_else_is_passed_on() {
        let end = AttachEnd {
            alive: false,
            exit: Some("exited with status 1".into()),
            error: None,
        };
        let line = b"\0{\"alive\":false,\"exit\":\"exited with status 1\"}\n";
        for own in [
            &b""[..],
            b"true\n",
            b"true\n\0{\"alive\":true}\ntrue\n",
            b"a\0b\n",
            b"\0\n",
            b"\n\n",
        ] {
            let text = [own, &line[..]].concat();
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(
                    parted(&text, size),
                    (own.to_vec(), Some(end.clone())),
                    "{size}"
                );
                assert_eq!(parted(own, size), (own.to_vec(), None), "{own:?} {size}");
            }
        }
    }

    #[test]
    fn what_is_no_such_line_is_the_process_s() {
        for own in [
            &b"true\n\0"[..],
            b"true\n\0{\"alive\":",
            b"true\0{\"alive\":true}\n",
            b"\0{\"dead\":true}\n",
        ] {
            for size in [1, 4, 1000] {
                assert_eq!(parted(own, size), (own.to_vec(), None), "{own:?}");
            }
        }
        let long = [&b"\0"[..], &[b'x'; END_BYTES_MAX]].concat();
        assert_eq!(parted(&long, 100), (long.clone(), None));
    }
}
