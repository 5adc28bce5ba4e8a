//! The settee program: hands its arguments to [`settee::cli`], nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    settee::cli::main(std::env::args_os().collect())
}
