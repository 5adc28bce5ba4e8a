//! Terminal output: a redrawn progress line, and tables that fit the screen.
//!
//! SUMMARY   [`TableArgs::layout`] returns a table's width, and whether it has colours; [`draw_line`] draws a
//!           progress line, [`clear_line`] clears it before other output, [`ClearingDrain`] before each log record;
//!           [`frame`] cuts a text to the screen.

use std::io::{self, IsTerminal};
use std::time::Duration;

use rustix::termios::{Winsize, tcgetwinsize};
use slog::{Drain, OwnedKVList, Record};

use super::output::print_error;
use super::table::Layout;

/// Moves to the beginning of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Moves to the upper left corner and clears the screen.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Makes the terminal cut long lines, until [`WRAP`] makes it wrap them again.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The height of a terminal that does not report it, in rows.
const ROWS: usize = 24;

/// The width of a terminal that does not report it, in characters.
const WIDTH: usize = 80;

/// Options of commands that print tables.
#[derive(Clone, clap::Args)]
pub(super) struct TableArgs {
    /// Print every column in full, even if wider than the terminal.
    #[arg(long)]
    wide: bool,
}

impl TableArgs {
    /// Returns the layout of tables on standard output: whole and without colours unless it is a terminal.
    pub(super) fn layout(&self) -> Layout {
        if !io::stdout().is_terminal() {
            return Layout::default();
        }
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Layout {
            width: (!self.wide).then(|| extent(|size| size.ws_col, WIDTH)),
            is_coloured: !is_set("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        }
    }
}

/// Redraws the progress line.
pub(super) fn draw_line(line: &str) {
    print_error(&format!("{CLEAR_LINE}{line}"));
}

/// Clears the progress line, if standard error is a terminal and so may have one.
pub(super) fn clear_line() {
    if io::stderr().is_terminal() {
        draw_line("");
    }
}

/// Returns a rate for the progress line.
#[expect(clippy::cast_precision_loss, reason = "rates are rounded anyway")]
pub(super) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(0.001)
}

/// Returns the height of standard output's terminal, in rows.
pub(super) fn rows() -> usize {
    extent(|size| size.ws_row, ROWS)
}

/// Returns a dimension of standard output's terminal; `otherwise` if it does not report one.
fn extent(of: fn(Winsize) -> u16, otherwise: usize) -> usize {
    match tcgetwinsize(io::stdout()).map_or(0, of) {
        0 => otherwise,
        extent => extent.into(),
    }
}

/// Returns a text as one screen: its top, and the number of omitted lines.
pub(super) fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The last row is the cursor's.
    let room = rows.saturating_sub(1).max(2);
    let shown = if lines.len() > room {
        room - 1
    } else {
        lines.len()
    };
    let mut screen = format!("{CLEAR_SCREEN}{NO_WRAP}");
    for line in &lines[..shown] {
        screen.push_str(line);
        screen.push('\n');
    }
    if shown < lines.len() {
        screen.push_str(&format!(".. {} more lines\n", lines.len() - shown));
    }
    screen + WRAP
}

/// Clears the progress line before each record.
pub(super) struct ClearingDrain<D>(pub(super) D);

impl<D: Drain> Drain for ClearingDrain<D> {
    type Ok = D::Ok;
    type Err = D::Err;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<D::Ok, D::Err> {
        clear_line();
        self.0.log(record, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_taller_than_the_screen_is_cut_to_its_top() {
        let table: String = (0..30).map(|number| format!("line {number}\n")).collect();
        let screen = frame(&table, 10);
        let body = screen.strip_prefix("\x1b[H\x1b[2J\x1b[?7l").unwrap();
        let body = body.strip_suffix("\x1b[?7h").unwrap();
        let lines: Vec<&str> = body.lines().collect();
        assert_eq!((lines[0], lines[7]), ("line 0", "line 7"));
        assert_eq!(lines[8], ".. 22 more lines");
        assert_eq!(lines.len(), 9, "and the cursor's row");
    }

    #[test]
    fn a_table_that_fits_is_shown_whole() {
        assert!(frame("a\nb\n", 3).contains("a\nb\n"));
        assert!(!frame("a\nb\n", 3).contains("more lines"));
        assert!(frame("a\nb\nc\n", 0).contains("a\n.. 2 more lines"));
    }
}
