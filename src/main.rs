//! The settee program: the daemon with its built-in languages only.

use std::process::ExitCode;

fn main() -> ExitCode {
    settee::Daemon::builder().run()
}
