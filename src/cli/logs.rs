//! `settee logs`: what functions of a database log, and their errors.
//!
//! SUMMARY   Prints the kept lines after `--since`; with `--follow`, polls for later ones until interrupted.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::Deserialize;

use super::exit::CliResult;
use super::output::Output;
use super::service_socket::{SocketArgs, block_on};
use crate::client::{path, with_query};
use json::shown::is_unprintable;

/// Poll interval of `--follow`.
const INTERVAL: Duration = Duration::from_millis(500);

/// Options of `settee logs`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A line has its time, log or error, the function, and the message. The last 1,000 lines of each
database, or 1 MiB, are kept until the service ends; a line tells how many were lost before they
were printed.

Exit codes:
  0   the lines were printed, or with --follow the output was closed
  64  the command line is wrong
  69  no service answers
  74  writing standard output failed
  77  the socket belongs to another user

Example:
  settee logs shop --follow")]
pub struct Args {
    /// The database.
    db: String,
    /// Print further lines as they come, until interrupted.
    #[arg(long, short)]
    follow: bool,
    /// Only lines after this number, the seq of --json.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    since: u64,
    /// Print the lines as the service sends them: one JSON object on each.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The shown parts of a line.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    seq: Option<u64>,
    kind: String,
    time: String,
    ddoc: Option<String>,
    function: String,
    doc: Option<String>,
    name: Option<String>,
    message: String,
    /// The number of lost lines; only in a line that reports a loss.
    lines: Option<u64>,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    block_on(async {
        let service = args.socket.service();
        let mut output = Output::standard();
        let mut since = args.since;
        loop {
            let query = [("since", since.to_string())];
            let log = with_query(&path(["_tenants", &args.db, "log"]), query);
            let lines = service.answer(service.operator.text(&log)).await?;
            let mut text = String::new();
            for line in lines.lines() {
                let read: Line = serde_json::from_str(line).unwrap_or_default();
                since = read.seq.unwrap_or(since);
                if args.json {
                    text.push_str(line)
                } else {
                    text.push_str(&read.shown())
                }
                text.push('\n');
            }
            if output.write(&text)? == ControlFlow::Break(()) || !args.follow {
                break;
            }
            if text.is_empty() {
                tokio::time::sleep(INTERVAL).await;
            }
        }
        Ok(())
    })
}

impl Line {
    fn shown(&self) -> String {
        let text = match &*self.kind {
            "lost" => {
                let count = self
                    .lines
                    .map_or("an unknown number of".into(), |n| n.to_string());
                format!("{count} lines are lost")
            }
            _ => {
                let place: Vec<&str> =
                    [self.ddoc.as_ref(), Some(&self.function), self.doc.as_ref()]
                        .into_iter()
                        .flatten()
                        .map(String::as_str)
                        .collect();
                let name = self
                    .name
                    .as_ref()
                    .map_or(String::new(), |name| format!("{name}: "));
                let (place, message) = (place.join(" "), &self.message);
                format!("{} {} {place}: {name}{message}", self.time, self.kind)
            }
        };
        // A function's line stays one line, regardless of its characters.
        text.replace(is_unprintable, " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str) -> String {
        serde_json::from_str::<Line>(json).unwrap().shown()
    }

    #[test]
    fn a_line_is_one_line_whatever_a_function_says() {
        let log = r#"{"seq":7,"time":"T","kind":"log","ddoc":"_design/d","function":"shows/s","message":"a\nb\u001b[2J"}"#;
        assert_eq!(shown(log), "T log _design/d shows/s: a b [2J");
        let error = r#"{"seq":8,"time":"T","kind":"error","function":"map_docs","doc":"1","name":"TypeError","message":"m"}"#;
        assert_eq!(shown(error), "T error map_docs 1: TypeError: m");
        assert_eq!(shown(r#"{"kind":"lost","lines":3}"#), "3 lines are lost");
        let unknown = "an unknown number of lines are lost";
        assert_eq!(shown(r#"{"kind":"lost","lines":null}"#), unknown);
    }
}
