//! The settee program: calls a subcommand.

use std::process::ExitCode;

use settee::cli::couchjs;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next();
    if couchjs::is_called(program.as_ref()) {
        return couchjs::run(arguments);
    }
    if arguments
        .next()
        .is_some_and(|subcommand| subcommand == "couchjs")
    {
        return couchjs::run(arguments);
    }
    eprintln!("usage: settee couchjs [OPTIONS]");
    ExitCode::from(64)
}
