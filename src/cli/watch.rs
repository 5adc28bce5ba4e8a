//! Shows a value of the running service, once or repeatedly.

use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::exit::CliResult;
use super::output::Output;
use super::service_socket::Service;
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
    /// Prints the service's answer to a path, as a table or unchanged, like [`WatchArgs::show`].
    ///
    /// # Errors
    /// Those of [`Service::get`], and a failure of standard output.
    pub(super) async fn show_table<T: DeserializeOwned>(
        &self,
        service: &Service,
        path: &str,
        table: fn(&T, Layout) -> String,
    ) -> CliResult {
        self.show(async || {
            let answer: Box<RawValue> = service.get(path).await?;
            Ok(if self.json {
                format!("{}\n", answer.get())
            } else {
                table(&service.read("the answer", &answer)?, self.table.layout())
            })
        })
        .await
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
            let shown = output.write(text)?;
            if !self.watch || shown == ControlFlow::Break(()) {
                return Ok(());
            }
        }
    }
}
