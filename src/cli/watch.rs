//! Shows a value of the running service, once or repeatedly.

use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::time::Duration;

use super::exit::CliResult;
use super::output::Output;
use super::table::Layout;
use super::terminal::{self, TableArgs};

/// The poll interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Options of commands that show a value of the service.
#[derive(clap::Args)]
pub struct WatchArgs {
    /// Print the value as the service sends it: one JSON object on one line.
    #[arg(long)]
    pub(super) json: bool,
    /// Repeat every second until interrupted. On a terminal, the top of the table stays on the screen.
    #[arg(long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) table: TableArgs,
}

impl WatchArgs {
    /// Returns the layout of tables, for the current width of a terminal.
    pub(super) fn layout(&self) -> Layout {
        self.table.layout()
    }

    /// Prints the result of `ask`: once, or with `--watch` repeatedly until the output is closed.
    ///
    /// # Errors
    /// Those of `ask`, and a failure of standard output.
    pub(super) async fn show(&self, mut ask: impl AsyncFnMut() -> CliResult<String>) -> CliResult {
        let mut output = Output::standard();
        let is_screen = self.watch && !self.json && stdout().is_terminal();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let text = ask().await?;
            let text = if is_screen {
                terminal::frame(&text, terminal::rows())
            } else {
                text
            };
            let shown = output.write(&text)?;
            if !self.watch || shown == ControlFlow::Break(()) {
                return Ok(());
            }
        }
    }
}
