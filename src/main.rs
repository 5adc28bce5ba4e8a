//! The settee program: the daemon with the languages that it brings along, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    settee::Daemon::builder().run()
}
