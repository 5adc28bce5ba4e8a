//! The settee program: hands its arguments to [`settee::cli`], nothing else.

use std::process::ExitCode;

use settee::cli::couchjs;

fn main() -> ExitCode {
    // The query server is started often and by others: it reads its options itself, in no time.
    let mut arguments = std::env::args_os();
    let program = arguments.next();
    let is_couchjs = couchjs::is_called(program.as_ref())
        || arguments.next().is_some_and(|word| word == "couchjs");
    if is_couchjs {
        return couchjs::run(arguments);
    }
    settee::cli::main(std::env::args_os().collect())
}
