//! Runs the commands of a documentation page in one shell, and compares their output with the page.
//!
//! PROMISES  A `sh` block prints the `text` block below it, or nothing if there is none. `...` in the latter matches
//!           anything within a line, and alone on a line any number of lines. Unlike a reader's run, the service
//!           listens on a free port, and `cargo` is a stub: the program is already built.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::daemon::wait_for_exit;
use crate::support::program::{SETTEE, project};

/// How long a block may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// Where the service listens on the page.
const LISTENS: &str = "127.0.0.1:5995";

/// What the shell prints after a block.
const END: &str = "-- the end of the block";

/// Shell commands and their expected output.
struct Step {
    lines: String,
    printed: Vec<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let text = fs::read_to_string(project().join(page)).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for piece in text.split("```sh\n").skip(1) {
        let (lines, rest) = piece.split_once("```\n").unwrap();
        let printed = rest.strip_prefix("```text\n");
        let printed = printed.map_or("", |rest| rest.split_once("```").unwrap().0);
        steps.push(Step {
            lines: lines.to_owned(),
            printed: printed.lines().map(str::to_owned).collect(),
        });
    }
    let outputs = text.matches("```text\n").count();
    let compared = steps.iter().filter(|step| !step.printed.is_empty());
    assert_eq!(
        compared.count(),
        outputs,
        "an output has no command above it"
    );
    steps
}

fn line_fits(expected: &str, printed: &str) -> bool {
    let Some((before, expected)) = expected.split_once("...") else {
        return expected == printed;
    };
    let Some(printed) = printed.strip_prefix(before) else {
        return false;
    };
    let mut ends = printed.char_indices().map(|(at, _)| at);
    ends.any(|at| line_fits(expected, &printed[at..])) || line_fits(expected, "")
}

fn fits(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "..." => {
            (0..=printed.len()).any(|left_out| fits(rest, &printed[left_out..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| line_fits(line, first) && fits(rest, others)),
    }
}

/// A shell that runs one block after another, in a folder that looks like a clone.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// Where the service listens, once it has said so.
    address: Option<String>,
}

impl Shell {
    fn start(folder: &Path) -> Self {
        for name in ["clients", "examples"] {
            symlink(project().join(name), folder.join(name)).unwrap();
        }
        // The program is already built: `cargo` only links or runs it.
        let (bin, run) = (folder.join("bin"), folder.join("run"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir(&run).unwrap();
        let cargo = bin.join("cargo");
        let script = format!(
            "#!/bin/sh\nmkdir -p target/release && ln -s {SETTEE} target/release/settee\n\
             [ \"$1\" = run ] || exit 0\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec {SETTEE} \"$@\"\n"
        );
        fs::write(&cargo, script).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new("sh")
            .current_dir(folder)
            .env("PATH", format!("{}:{}", bin.display(), env!("PATH")))
            .env("HOME", folder)
            .env("XDG_RUNTIME_DIR", &run)
            .env("SETTEE__SERVER__HTTP", "127.0.0.1:0")
            .env("PYTHONDONTWRITEBYTECODE", "yes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A process group of its own, so that a failed test kills the service too.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "exec 2>&1").unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            output,
            address: None,
        }
    }

    /// Runs a block. The error is its output, if that is not the expected one.
    fn run(&mut self, step: &Step) -> Result<(), String> {
        let lines = match &self.address {
            Some(address) => step.lines.replace(LISTENS, address),
            None => step.lines.clone(),
        };
        writeln!(self.input, "{lines}\necho '{END}'").unwrap();
        let since = Instant::now();
        let (mut printed, mut has_ended) = (Vec::new(), false);
        // Background jobs may print after the end.
        while !has_ended || !fits(&step.printed, &printed) {
            let left = DEADLINE.saturating_sub(since.elapsed());
            match self.output.recv_timeout(left) {
                Ok(line) if line == END => has_ended = true,
                Ok(line) => printed.push(self.as_on_the_page(line)),
                Err(_) => return Err(printed.join("\n")),
            }
            if has_ended && printed.len() >= step.printed.len() && !fits(&step.printed, &printed) {
                return Err(printed.join("\n"));
            }
        }
        Ok(())
    }

    fn as_on_the_page(&mut self, line: String) -> String {
        let said = line.strip_prefix("settee: listening on http://");
        if let Some(address) = said {
            self.address = Some(address.trim_end_matches('/').to_owned());
        }
        match &self.address {
            Some(address) => line.replace(address, LISTENS),
            None => line,
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Only when a test failed.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let group = format!("-{}", self.child.id());
            drop(Command::new("kill").args(["-KILL", "--", &group]).status());
            drop(self.child.wait());
        }
    }
}

/// Runs the blocks of a page, except those with a command in `left_out`. `log` is the path of the service's log.
pub fn assert_prints_what_it_says(page: &str, log: &str, left_out: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::start(folder.path());
    for step in steps(page) {
        if left_out.iter().any(|command| step.lines.contains(command)) {
            continue;
        }
        if let Err(printed) = shell.run(&step) {
            let log = fs::read_to_string(folder.path().join(log)).unwrap_or_default();
            let expected = step.printed.join("\n");
            panic!(
                "{}\nprinted\n{printed}\nwhere the page says\n{expected}\n{log}",
                step.lines
            );
        }
    }
    // The shell ends well, and the service has removed its socket.
    writeln!(shell.input, "exit").unwrap();
    assert_eq!(wait_for_exit(&mut shell.child), Some(0));
    assert!(!folder.path().join("run/settee/settee.sock").exists());
}

#[test]
fn every_block_of_the_tutorial_prints_the_output_below_it() {
    assert_prints_what_it_says("docs/tutorial.md", "tutorial.log", &[]);
}

#[test]
fn an_output_matches_if_only_the_placeholders_differ() {
    let text = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<Vec<_>>()
    };
    let expected = text(&["a ... c", "...", "d"]);
    assert!(fits(&expected, &text(&["a b c", "d"])));
    assert!(fits(&expected, &text(&["a  c", "x", "y", "d"])));
    assert!(!fits(&expected, &text(&["a b", "d"])));
    assert!(!fits(&expected, &text(&["a b c", "d", "e"])));
    assert!(!fits(&text(&["a"]), &[]));
}
