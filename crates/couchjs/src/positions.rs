//! Maps positions in the text that the engine ran to positions in the author's source.
//!
//! SUMMARY   [`Source`] knows the insertions that were made in a source before it was run, and its text. [`Excerpt`]
//!           shows a line with a mark below a column.
//! LIMITS    The text of a source is not kept if it is long or memory is short. Then a column counts bytes, and on
//!           the first line may be one too small.

use std::rc::Rc;

use super::memory::{Account, Held, LONG_BYTES};
use super::source::{INSERTED, is_name_part};

/// A position in a source. Line and column count from 1; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub line: u32,
    pub column: u32,
}

/// An insertion into a source, by its position in the text that is run: a line and a byte.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    line: u32,
    column: u32,
    bytes: u32,
}

/// A source, as far as it is known.
#[derive(Default)]
pub(super) struct Source {
    pieces: Vec<Piece>,
    /// The author's text.
    text: Option<(String, Held)>,
}

impl Source {
    /// Compares a source with the text that was run for it. No line was added.
    pub fn of(source: &str, run: &str, memory: &Rc<Account>) -> Self {
        Source {
            pieces: pieces(source, run),
            text: kept(source, memory),
        }
    }

    /// Describes a source that follows other text on its first line.
    pub fn behind(text_before: &str, source: &str, memory: &Rc<Account>) -> Self {
        let piece = Piece {
            line: 1,
            column: 1,
            bytes: number(text_before.len()),
        };
        Source {
            pieces: vec![piece],
            text: kept(source, memory),
        }
    }

    /// Returns the position in the source for a byte in a line of the text that was run. `exact` is false at run
    /// time, when the engine counts columns of names on the first line from 1, and others from 0.
    pub fn spot(&self, (line, mut column): (u32, u32), exact: bool) -> Spot {
        let mut inserted = 0;
        for piece in self.pieces.iter().filter(|piece| piece.line == line) {
            // A position in an insertion becomes the position of the insertion.
            let inside = column.saturating_sub(piece.column).min(piece.bytes);
            if inside == piece.bytes {
                inserted += piece.bytes
            } else {
                column -= inside
            }
        }
        column = column.saturating_sub(inserted).max(1);
        if let Some((text, _)) = &self.text
            && let Some(text) = line_of(text, line)
        {
            if line == 1 && !exact && !begins_name(text, column) {
                column = column.saturating_add(1);
            }
            let end = usize::try_from(column).map_or(text.len(), |column| column - 1);
            column = number(text[..text.floor_char_boundary(end)].chars().count()) + 1;
        }
        Spot { line, column }
    }
}

/// Keeps a source if there is memory for it.
fn kept(source: &str, memory: &Rc<Account>) -> Option<(String, Held)> {
    let is_short = source.len() < LONG_BYTES;
    let held = is_short.then(|| memory.take(source.len()).ok())??;
    Some((source.to_owned(), held))
}

/// Returns whether a name begins at a byte of a line, from 1.
fn begins_name(line: &str, byte: u32) -> bool {
    let before = usize::try_from(byte).map_or(0, |byte| byte - 1);
    line.split_at_checked(before)
        .is_some_and(|(before, after)| {
            after.starts_with(is_name_part) && !before.ends_with(is_name_part)
        })
}

fn pieces(source: &str, run: &str) -> Vec<Piece> {
    let (mut in_source, mut in_run) = (source.as_bytes(), run.as_bytes());
    let mut pieces = Vec::new();
    while in_run.len() > in_source.len() {
        let same = in_source
            .iter()
            .zip(in_run)
            .take_while(|(source, run)| source == run)
            .count();
        in_source = &in_source[same..];
        in_run = &in_run[same..];
        let known = INSERTED
            .iter()
            .find(|piece| in_run.starts_with(piece.as_bytes()));
        let Some(piece) = known else {
            break;
        };
        let before = &run[..run.len() - in_run.len()];
        let last = lines(before).last().unwrap_or_default();
        pieces.push(Piece {
            line: number(lines(before).count()),
            column: number(last.len()) + 1,
            bytes: number(piece.len()),
        });
        in_run = &in_run[piece.len()..];
    }
    pieces
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Splits a text into lines, as the engine does.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r', '\u{2028}', '\u{2029}']) else {
            return rest.take();
        };
        let (line, after) = text.split_at(end);
        let length = if after.starts_with("\r\n") {
            2
        } else {
            after.chars().next().map_or(0, char::len_utf8)
        };
        rest = Some(&after[length..]);
        Some(line)
    })
}

fn line_of(text: &str, line: u32) -> Option<&str> {
    lines(text).nth(usize::try_from(line).ok()?.checked_sub(1)?)
}

/// How many characters of a line are shown, around a column.
const SHOWN_CHARACTERS: usize = 160;

/// A line of a source, with a mark below a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub line: String,
    /// White space and a `^`.
    pub caret: String,
}

impl Excerpt {
    /// Shows a position in a source; a long line only in part.
    pub fn of(source: &str, spot: Spot) -> Option<Self> {
        let line = line_of(source, spot.line)?;
        let before = usize::try_from(spot.column).ok()?.saturating_sub(1);
        let first = before.saturating_sub(SHOWN_CHARACTERS / 2);
        let shown: String = line.chars().skip(first).take(SHOWN_CHARACTERS).collect();
        // A tab is kept, so that the mark is right for any tab width.
        let blank = |c: char| if c == '\t' { c } else { ' ' };
        let mut caret: String = shown.chars().take(before - first).map(blank).collect();
        caret.push('^');
        Some(Excerpt { line: shown, caret })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::source::{begun, mended};

    fn memory() -> Rc<Account> {
        Account::new(64 << 20)
    }

    /// The position of `@` in a source, queried by its position in the text that is run.
    fn place_of_mark(source: &str) -> (u32, u32) {
        let mut run = begun(source).into_owned();
        if let Some(mended) = mended(&source.replace('@', "7"), 64 << 20) {
            run = mended.replacen('7', "@", 1);
        }
        let before = &run[..run.find('@').unwrap()];
        let line = number(lines(before).count());
        let column = number(lines(before).last().unwrap().len()) + 1;
        let spot = Source::of(source, &run, &memory()).spot((line, column), true);
        (spot.line, spot.column)
    }

    #[test]
    fn a_place_is_that_of_the_source_whatever_was_inserted_for_the_engine() {
        for (source, expected) in [
            ("function(d) { @ }", (1, 15)),
            ("// c\n function(d) {\n @ }", (3, 2)),
            ("/* c */ function(d) { @ }", (1, 23)),
            ("(d) => { @ }", (1, 10)),
            ("(function(d) { @ })", (1, 16)),
            ("var a = 1; function(d) { @ }", (1, 26)),
            ("function(a){} function(d) { @ }", (1, 29)),
            ("function(d) { 'é\u{1f680}' + @ }", (1, 22)),
            ("function(d) { 'é' }\r\n@", (2, 1)),
            ("function(d) { 'é' }\u{2028}'é'@", (2, 4)),
        ] {
            assert_eq!(place_of_mark(source), expected, "{source}");
        }
    }

    #[test]
    fn text_before_a_module_is_not_counted() {
        let source = Source::behind("(function () { ", "a.b", &memory());
        assert_eq!(source.spot((1, 18), false), Spot { line: 1, column: 3 });
        assert_eq!(source.spot((1, 4), true), Spot { line: 1, column: 1 });
        assert_eq!(source.spot((2, 4), false), Spot { line: 2, column: 4 });
    }

    #[test]
    fn a_column_beyond_the_end_of_a_line_is_the_end() {
        let source = Source::of("(d) => 1", "(d) => 1", &memory());
        assert_eq!(source.spot((1, u32::MAX), false).column, 9);
    }

    #[test]
    fn a_mark_is_below_its_column() {
        let excerpt = Excerpt::of("a\n\té = b;", Spot { line: 2, column: 6 }).unwrap();
        assert_eq!(excerpt.line, "\té = b;");
        assert_eq!(excerpt.caret, "\t    ^");
        let long = format!("{}@{}", "x".repeat(5000), "y".repeat(5000));
        let shown = Excerpt::of(
            &long,
            Spot {
                line: 1,
                column: 5001,
            },
        )
        .unwrap();
        assert_eq!(shown.line.chars().count(), SHOWN_CHARACTERS);
        assert_eq!(shown.line.find('@'), shown.caret.find('^'));
        assert_eq!(Excerpt::of("a", Spot { line: 2, column: 1 }), None);
        let behind = Excerpt::of("a", Spot { line: 1, column: 9 }).unwrap();
        assert_eq!(behind.caret, " ^");
    }
}
