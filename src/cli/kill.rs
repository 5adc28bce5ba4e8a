//! `settee kill`: ends one process of the running service.
//!
//! SUMMARY   Prints the outcome, and which call failed because of it.

use serde_json::value::RawValue;

use super::exit::{CliResult, Exit};
use super::output;
use super::service_socket::{Service, SocketArgs, block_on, explained};
use super::status_table;
use super::table::printable;
use crate::client::{path, with_query};
use crate::query_server::status::{KilledProc, ProcRow};

/// Options of `settee kill`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A running process is killed at once: its call fails with os_process_error, which names who ordered
it, and may be retried. Any other is stopped in order: its input is closed, TERM follows after
stop_grace, and KILL after as much again. Its holder is notified. The pool starts another one when
needed.

Exit codes:
  0   the process was killed, or told to end
  64  the command line is wrong
  66  there is no such process
  69  no service answers
  74  writing standard output failed
  75  the process is still starting: try again
  77  this user is neither an administrator nor an operator

Example:
  settee kill javascript/17")]
pub struct Args {
    /// The process, POOL/NUMBER as `settee ps` shows it.
    #[arg(value_name = "PROC", value_parser = proc_name)]
    proc: String,
    /// Kill it at once, even if idle.
    #[arg(long)]
    now: bool,
    /// Print the value as the service sends it: one JSON object on one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

fn proc_name(text: &str) -> Result<String, String> {
    let is_number = |number: &str| number.parse::<u64>().is_ok();
    match text.rsplit_once('/') {
        Some((pool, number)) if !pool.is_empty() && is_number(number) => Ok(text.to_owned()),
        _ => Err("write it as POOL/NUMBER, javascript/17 for example; `settee ps` shows it".into()),
    }
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    let text = block_on(async {
        let service = Service::at(&args.socket, |_, said| {
            explained(
                said,
                &[("not_found", Exit::NotFound)],
                "`settee ps` lists the processes",
            )
        });
        let (pool, number) = args.proc.rsplit_once('/').unwrap_or_default();
        let proc = path(["_procs", pool, number]);
        let killed: Box<RawValue> = service
            .delete(&with_query(&proc, [("now", args.now.to_string())]))
            .await?;
        Ok(if args.json {
            format!("{}\n", killed.get())
        } else {
            told(&service.read("the answer", &killed)?) + "\n"
        })
    })?;
    output::print(&text)
}

/// Describes the outcome, and its cost.
fn told(killed: &KilledProc) -> String {
    let proc = &killed.proc;
    let pid = proc.os_pid.map(|pid| format!(" (pid {pid})"));
    let name = format!("{}{}", proc.name, pid.unwrap_or_default());
    let done = match killed.how.as_str() {
        "killed" => "was killed",
        "ending" => return format!("{name} is already ending; --now kills it at once"),
        _ => "was told to end, and is killed if it does not",
    };
    printable(&format!("{name} {done}: {}", cost(proc)))
}

/// Describes the cost of ending a process, and who bears it.
fn cost(proc: &ProcRow) -> String {
    let holder = proc.holder.as_ref().map(status_table::holder);
    let holder = holder.as_deref().unwrap_or("a client");
    match (proc.state.as_str(), &proc.function) {
        ("running", Some(function)) => {
            let of = |part: &Option<String>, word: &str| match part {
                Some(name) => format!(" {word} {name}"),
                None => String::new(),
            };
            let request = proc.request_id.as_deref().unwrap_or("-");
            format!(
                "the call {request} of {holder} fails, {function}{}{}",
                of(&proc.ddoc, "of"),
                of(&proc.db, "in"),
            )
        }
        ("running", None) => format!("the command of {holder} fails"),
        ("lent", _) => format!("{holder} held it, and is notified"),
        ("teaching", _) => "the request that waits for it gets an error".to_owned(),
        _ => "nobody held it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_server::status::Holder;

    #[test]
    fn a_process_is_named_as_ps_shows_it() {
        assert_eq!(proc_name("a.b-1/17"), Ok("a.b-1/17".to_owned()));
        for wrong in ["17", "javascript", "/17", "javascript/", "javascript/x"] {
            assert!(proc_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_report_says_what_was_done_and_which_call_failed() {
        let killed = |how: &str, state: &str, function: Option<&str>| {
            let proc = ProcRow {
                name: "javascript/17".into(),
                os_pid: Some(4711),
                state: state.into(),
                holder: Some(Holder {
                    user: Some("ann".into()),
                    ..Holder::default()
                }),
                function: function.map(str::to_owned),
                ddoc: function.map(|_| "_design/d".into()),
                db: function.map(|_| "shop".into()),
                request_id: function.map(|_| "5c2f-1".into()),
                ..ProcRow::default()
            };
            let how = how.to_owned();
            told(&KilledProc { how, proc })
        };
        assert_eq!(
            killed("killed", "running", Some("shows/s")),
            "javascript/17 (pid 4711) was killed: the call 5c2f-1 of ann fails, shows/s of _design/d in shop"
        );
        assert_eq!(
            killed("killed", "running", None),
            "javascript/17 (pid 4711) was killed: the command of ann fails"
        );
        let told = "javascript/17 (pid 4711) was told to end, and is killed if it does not";
        assert_eq!(
            killed("told", "lent", None),
            format!("{told}: ann held it, and is notified")
        );
        assert_eq!(
            killed("told", "idle", None),
            format!("{told}: nobody held it")
        );
        assert_eq!(
            killed("ending", "ending", None),
            "javascript/17 (pid 4711) is already ending; --now kills it at once"
        );
    }
}
