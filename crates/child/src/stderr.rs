//! Logs a child's standard error, and keeps its last lines for errors.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::line_buffer::LineBuffer;

/// Maximum length of a kept line, in bytes; longer ones are cut.
pub const LINE_BYTES_MAX: usize = 4096;

/// Maximum lines kept for error messages.
const KEPT_LINES: usize = 10;

/// Called with each non-empty line.
pub type LineLog = Box<dyn Fn(&str)>;

/// Collects what a child writes to its standard error.
pub struct StderrLog {
    lines: LineBuffer,
    kept: VecDeque<String>,
    log: Option<LineLog>,
}

impl StderrLog {
    /// Without a log, lines are only kept.
    pub fn new(log: Option<LineLog>) -> Self {
        Self {
            lines: LineBuffer::new(LINE_BYTES_MAX),
            kept: VecDeque::new(),
            log,
        }
    }

    /// Adds bytes read.
    pub fn add(&mut self, chunk: &Bytes) {
        // In pieces that end with their line, so that an overlong line is cut and the next one still found.
        let lines = chunk.split_inclusive(|byte| *byte == b'\n');
        for piece in lines.flat_map(|line| line.chunks(LINE_BYTES_MAX / 2)) {
            self.lines.add(chunk.slice_ref(piece));
            match self.lines.next_line() {
                Ok(Some(line)) => self.keep(&line),
                Ok(None) => {}
                Err(_) => self.keep_rest(),
            }
        }
    }

    /// Returns the last lines, oldest first, including an unfinished one.
    pub fn last_words(&mut self) -> Vec<String> {
        self.keep_rest();
        self.kept.iter().cloned().collect()
    }

    /// Drops the lines kept so far; an unfinished one is logged first.
    pub fn forget(&mut self) {
        self.keep_rest();
        self.kept.clear();
    }

    /// Keeps what there is of a line.
    fn keep_rest(&mut self) {
        let rest = self.lines.take_rest();
        self.keep(&rest);
    }

    fn keep(&mut self, line: &Bytes) {
        let end = line.len().min(LINE_BYTES_MAX);
        let text = String::from_utf8_lossy(&line[..end]).trim_end().to_owned();
        if text.is_empty() {
            return;
        }
        if let Some(log) = &self.log {
            log(&text);
        }
        if self.kept.len() == KEPT_LINES {
            self.kept.pop_front();
        }
        self.kept.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(chunks: &[&str]) -> Vec<String> {
        let mut stderr = StderrLog::new(None);
        for chunk in chunks {
            stderr.add(&Bytes::copy_from_slice(chunk.as_bytes()));
        }
        stderr.last_words()
    }

    #[test]
    fn the_last_lines_are_kept_with_an_unfinished_one() {
        assert_eq!(
            collected(&["a\nb", "c\n\n", "unfinished"]),
            ["a", "bc", "unfinished"]
        );
        let many: String = (0..50).map(|n| format!("{n}\n")).collect();
        assert_eq!(collected(&[&many]).first().map(String::as_str), Some("40"));
    }

    #[test]
    fn an_endless_line_is_cut_and_the_next_ones_are_seen() {
        let endless = "x".repeat(1_000_000);
        let in_one_chunk = format!("{endless}\nafter\n");
        for kept in [
            collected(&[&endless, "\nafter\n"]),
            collected(&[&in_one_chunk]),
        ] {
            assert_eq!(kept.last().map(String::as_str), Some("after"));
            assert!(kept.iter().all(|line| line.len() <= LINE_BYTES_MAX));
        }
    }
}
