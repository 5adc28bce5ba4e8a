//! `settee completions`: prints a script that completes the command line in a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use super::exit::CliResult;
use super::output;

/// Options of `settee completions`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   the script was printed
  64  the command line is wrong

Example:
  settee completions bash > ~/.local/share/bash-completion/completions/settee")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

/// Runs the subcommand.
///
/// # Errors
/// A failure to write.
pub fn run(args: &Args) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut super::Cli::command(),
        "settee",
        &mut script,
    );
    output::print(&String::from_utf8_lossy(&script))
}
