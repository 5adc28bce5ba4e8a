//! Text tables: rows below their titles, with formatted numbers and times.
//!
//! SUMMARY   [`columns`] lays out cells. If there is too little room, long texts are cut and the least important
//!           columns are dropped.

use std::fmt::Display;

use json::shown::is_unprintable;

/// The length to which texts are cut before a column is dropped, in characters.
const CUT_CHARS: usize = 16;

/// The length to which texts are cut once no further column can be dropped, in characters.
const CUT_CHARS_MIN: usize = 4;

/// The end of a cut text.
const CUT_MARK: &str = "..";

/// A value with the title of its column.
pub(super) struct Cell {
    title: &'static str,
    value: String,
    /// Numbers are aligned to the right and never cut.
    is_number: bool,
    is_state: bool,
    /// Names that users retype are never cut.
    is_whole: bool,
    /// Columns with higher ranks are dropped first; 0: never.
    rank: u8,
}

impl Cell {
    /// Allows the column to be dropped if there is no room; higher ranks first.
    pub(super) fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// Keeps the text from being cut.
    pub(super) fn whole(self) -> Self {
        Self {
            is_whole: true,
            ..self
        }
    }
}

/// The layout of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Maximum width in characters; `None`: unlimited.
    pub(super) width: Option<usize>,
    /// Whether states have a colour.
    pub(super) is_coloured: bool,
}

/// Returns the value of a cell: a dash for none.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns a text cell.
pub(super) fn text(title: &'static str, value: impl Display) -> Cell {
    Cell {
        title,
        value: printable(&value.to_string()),
        is_number: false,
        is_state: false,
        is_whole: false,
        rank: 0,
    }
}

/// Returns a cell with a colour for the state.
pub(super) fn state(title: &'static str, value: impl Display) -> Cell {
    Cell {
        is_state: true,
        ..text(title, value)
    }
}

/// Returns a number cell.
pub(super) fn number(title: &'static str, value: impl Display) -> Cell {
    Cell {
        is_number: true,
        ..text(title, value)
    }
}

/// Returns rows below their titles, each column as wide as its widest cell; empty without rows.
pub(super) fn columns(rows: impl Iterator<Item = Vec<Cell>>, layout: Layout) -> String {
    let rows: Vec<Vec<Cell>> = rows.collect();
    let count = rows.first().map_or(0, Vec::len);
    let all = (0..count).map(|index| Column::of(&rows, index)).collect();
    let shown = match layout.width {
        Some(width) => fit(all, width),
        None => all,
    };
    let titles = shown.iter().map(|column| column.line(column.title, ""));
    let mut lines = vec![titles.collect::<Vec<_>>()];
    for row in &rows {
        let cells = shown.iter().map(|column| {
            let cell = &row[column.index];
            let colour = if cell.is_state && layout.is_coloured {
                colour(&cell.value)
            } else {
                ""
            };
            column.line(&cell.value, colour)
        });
        lines.push(cells.collect());
    }
    lines
        .into_iter()
        .filter(|line| !line.is_empty())
        .map(|line| line.join(GAP).trim_end().to_owned() + "\n")
        .collect()
}

/// Ends a table that has rows with an empty line.
pub(super) fn spaced(table: String) -> String {
    let end = if table.is_empty() { "" } else { "\n" };
    table + end
}

/// The gap between two columns.
const GAP: &str = "  ";

/// A column of a table.
#[derive(Clone)]
struct Column {
    index: usize,
    title: &'static str,
    width: usize,
    is_number: bool,
    can_be_cut: bool,
    rank: u8,
}

impl Column {
    fn of(rows: &[Vec<Cell>], index: usize) -> Self {
        let first = &rows[0][index];
        let lengths = rows.iter().map(|row| row[index].value.chars().count());
        // A column without values is dropped first.
        let says_nothing = rows.iter().all(|row| row[index].value == "-");
        Self {
            index,
            title: first.title,
            width: lengths.chain([first.title.len()]).max().unwrap_or(0),
            is_number: first.is_number,
            can_be_cut: !first.is_number && !first.is_whole,
            rank: match first.rank {
                0 => 0,
                _ if says_nothing => u8::MAX,
                rank => rank,
            },
        }
    }

    /// Returns a value padded to the column's width.
    fn line(&self, value: &str, colour: &str) -> String {
        let length = value.chars().count();
        let value = shortened(value, self.width);
        let space = " ".repeat(self.width.saturating_sub(length));
        let value = match colour {
            "" => value,
            colour => format!("{colour}{value}{NO_COLOUR}"),
        };
        if self.is_number {
            space + &value
        } else {
            value + &space
        }
    }
}

/// Returns a text of at most this many characters, ending in [`CUT_MARK`] if it was longer.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(CUT_MARK.len()))
        .collect::<String>()
        + CUT_MARK
}

/// Drops columns and cuts texts until a table is no wider than `room`. Names that users retype and numbers stay
/// whole, even if they do not fit.
fn fit(mut columns: Vec<Column>, room: usize) -> Vec<Column> {
    loop {
        if let Some(fitting) = cut(columns.clone(), room, CUT_CHARS) {
            return fitting;
        }
        let ranks = columns.iter().map(|column| column.rank).enumerate();
        match ranks
            .filter(|(_, rank)| *rank > 0)
            .max_by_key(|(_, rank)| *rank)
        {
            Some((at, _)) => drop(columns.remove(at)),
            None => break,
        }
    }
    cut(columns.clone(), room, CUT_CHARS_MIN).unwrap_or(columns)
}

/// Cuts texts, longest first, to this many characters or their titles' length; `None` if that is not enough.
fn cut(mut columns: Vec<Column>, room: usize, least: usize) -> Option<Vec<Column>> {
    let width = |columns: &[Column]| {
        let widths: usize = columns.iter().map(|column| column.width).sum();
        widths + GAP.len() * columns.len().saturating_sub(1)
    };
    while width(&columns) > room {
        let can_be_cut = |column: &&mut Column| {
            column.can_be_cut && column.width > least.max(column.title.len())
        };
        columns
            .iter_mut()
            .filter(can_be_cut)
            .max_by_key(|column| column.width)?
            .width -= 1;
    }
    Some(columns)
}

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const NO_COLOUR: &str = "\x1b[0m";

/// Prefixes of bad states.
const BAD: &[&str] = &[
    "cannot",
    "closed",
    "crashing",
    "error",
    "failed",
    "failing",
    "lease expired",
    "no such",
    "throttled",
];

/// Good states.
const GOOD: &[&str] = &["alive", "completed", "listening", "running"];

/// Neutral states.
const PLAIN: &[&str] = &["-", "idle"];

/// Returns the colour of a state, the worst one if there are several.
fn colour(state: &str) -> &'static str {
    let is_one_of = |words: &[&str]| {
        state
            .split(", ")
            .any(|state| words.iter().any(|word| state.starts_with(word)))
    };
    let is_only = |words: &[&str]| words.contains(&state);
    match () {
        () if is_one_of(BAD) => RED,
        () if is_only(PLAIN) => "",
        () if is_only(GOOD) => GREEN,
        () => YELLOW,
    }
}

/// Replaces unprintable characters: a name from outside could control the terminal.
pub(super) fn printable(text: &str) -> String {
    text.replace(is_unprintable, "?")
}

/// Returns a number with its noun, in the plural unless it is 1.
pub(super) fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let ending = match noun {
        _ if number == N::from(1) => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Returns a time in microseconds with sensible precision.
pub(super) fn microseconds(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds}us"),
        1_000..10_000 => format!("{:.1}ms", microseconds as f64 / 1000.0),
        _ => duration(microseconds / 1000),
    }
}

/// Returns a time in its two largest significant units.
pub(super) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match (milliseconds, seconds) {
        (0..1000, _) => format!("{milliseconds}ms"),
        (_, 0..60) => format!("{seconds}.{}s", milliseconds % 1000 / 100),
        (_, 60..3600) => format!("{}m{:02}s", seconds / 60, seconds % 60),
        (_, 3600..86_400) => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, command: &str, doing: &str) -> Vec<Cell> {
        vec![
            text("NAME", name).whole(),
            number("USED", 7),
            number("WAITS", or_dash(None::<u8>)).rank(1),
            number("STOPS", 0).rank(2),
            state("STATE", doing),
            text("COMMAND", command).rank(3),
        ]
    }

    fn shown(width: Option<usize>, is_coloured: bool) -> String {
        let rows = [
            row(
                "a-long-name",
                "a command of many words and options",
                "running",
            ),
            row("b", "short", "closed, throttled 1s"),
        ];
        columns(rows.into_iter(), Layout { width, is_coloured })
    }

    #[test]
    fn a_table_that_is_too_wide_has_texts_cut_first_and_then_the_least_useful_columns_dropped() {
        let whole = "\
NAME         USED  WAITS  STOPS  STATE                 COMMAND
a-long-name     7      -      0  running               a command of many words and options
b               7      -      0  closed, throttled 1s  short
";
        assert_eq!(shown(None, false), whole);
        assert_eq!(shown(Some(90), false), whole);
        let cut = "\
NAME         USED  WAITS  STOPS  STATE                 COMMAND
a-long-name     7      -      0  running               a command of many wo..
b               7      -      0  closed, throttled 1s  short
";
        assert_eq!(shown(Some(77), false), cut);
        let less = "\
NAME         USED  STOPS  STATE             COMMAND
a-long-name     7      0  running           a command of m..
b               7      0  closed, thrott..  short
";
        assert_eq!(shown(Some(60), false), less);
        let least = "\
NAME         USED  STATE
a-long-name     7  running
b               7  closed,..
";
        assert_eq!(shown(Some(28), false), least);
        for width in 28..100 {
            let table = shown(Some(width), false);
            assert!(table.lines().all(|line| line.len() <= width), "{table}");
        }
        // Names that users retype.
        assert!(shown(Some(5), false).contains("a-long-name"));
    }

    #[test]
    fn a_state_has_the_colour_of_its_worst_part_and_other_cells_have_none() {
        let table = shown(Some(77), true);
        assert!(table.contains("0  \x1b[32mrunning\x1b[0m      "), "{table}");
        assert!(
            table.contains("  \x1b[31mclosed, throttled 1s\x1b[0m  short\n"),
            "{table}"
        );
        assert_eq!(table.matches("\x1b[").count(), 4, "{table}");
        assert_eq!(
            ["-", "idle", "starting", "listening, stress 1s"].map(colour),
            ["", "", YELLOW, YELLOW]
        );
    }

    #[test]
    fn an_empty_table_prints_nothing() {
        assert_eq!(columns(std::iter::empty(), Layout::default()), "");
    }

    #[test]
    fn durations_are_shown_in_their_largest_units() {
        let told = [
            0, 999, 1000, 59_999, 60_000, 3_599_999, 7_260_000, 90_000_000,
        ]
        .map(duration);
        assert_eq!(
            told,
            [
                "0ms", "999ms", "1.0s", "59.9s", "1m00s", "59m59s", "2h01m", "1d01h"
            ]
        );
    }
}
