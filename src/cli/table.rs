//! Tables for people: rows below their titles, and the words for numbers and times in them.

use std::fmt::Display;
use std::iter;

/// A value with the title of its column.
pub(super) struct Cell {
    title: &'static str,
    value: String,
    /// A number stands to the right.
    is_number: bool,
}

/// Returns a cell; without a value it is a dash.
pub(super) fn text(title: &'static str, value: Option<impl Display>) -> Cell {
    let value = value.map_or_else(|| "-".to_owned(), |value| printable(&value.to_string()));
    Cell {
        title,
        value,
        is_number: false,
    }
}

/// Returns a cell of a column of numbers; without a value it is a dash.
pub(super) fn number(title: &'static str, value: Option<impl Display>) -> Cell {
    Cell {
        is_number: true,
        ..text(title, value)
    }
}

/// Returns rows below their titles, each column as wide as its widest cell; nothing without any row.
pub(super) fn columns(rows: impl Iterator<Item = Vec<Cell>>) -> String {
    let rows: Vec<Vec<Cell>> = rows.collect();
    let Some(first) = rows.first() else {
        return String::new();
    };
    let titles = first.iter().map(|cell| Cell {
        value: cell.title.to_owned(),
        ..*cell
    });
    let titles: Vec<Cell> = titles.collect();
    let lines: Vec<&Vec<Cell>> = iter::once(&titles).chain(&rows).collect();
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].value.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..titles.len()).filter_map(width).collect();
    let line = |cells: &&Vec<Cell>| {
        let cells = cells
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| match cell.is_number {
                true => format!("{:>width$}", cell.value),
                false => format!("{:<width$}", cell.value),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// Returns the text without what would move the cursor: names come from outside.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Returns a number with its noun.
pub(super) fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// Returns a time in microseconds as far as it says something.
pub(super) fn microseconds(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds}us"),
        1_000..10_000 => format!("{:.1}ms", microseconds as f64 / 1000.0),
        _ => duration(microseconds / 1000),
    }
}

/// Returns a time in the two largest units that say something.
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

    #[test]
    fn times_are_told_in_their_largest_units() {
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
