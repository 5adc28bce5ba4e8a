//! A child's standard error: it is logged, and its last lines are kept for errors.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::line_buffer::LineBuffer;

/// The longest line that is kept, in bytes; the rest of a longer one is left out.
pub const LINE_BYTES_MAX: usize = 4096;

/// How many lines are kept for error messages.
const KEPT_LINES: usize = 10;

/// Gets every line, in addition.
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

    /// Adds what was read.
    pub fn add(&mut self, chunk: &Bytes) {
        // Piece by piece, so that a line over the bound is cut and the next one is still seen.
        for piece in chunk.chunks(LINE_BYTES_MAX / 2) {
            self.lines.add(chunk.slice_ref(piece));
            loop {
                match self.lines.next_line() {
                    Ok(Some(line)) => self.keep(&line),
                    Ok(None) => break,
                    Err(_) => {
                        let cut = self.lines.take_rest();
                        self.keep(&cut);
                        break;
                    }
                }
            }
        }
    }

    /// Returns the last lines, oldest first, with an unfinished one.
    pub fn last_words(&mut self) -> Vec<String> {
        let rest = self.lines.take_rest();
        self.keep(&rest);
        self.kept.iter().cloned().collect()
    }

    /// Keeps none of the lines so far.
    pub fn forget(&mut self) {
        let rest = self.lines.take_rest();
        self.keep(&rest);
        self.kept.clear();
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
        let kept = collected(&[&endless, "\nafter\n"]);
        assert_eq!(kept.last().map(String::as_str), Some("after"));
        assert!(kept.iter().all(|line| line.len() <= LINE_BYTES_MAX));
    }
}
