//! `settee check-config --against-running`: what a reload of the running service would change.
//!
//! SUMMARY   Queries the service, which knows its files, its environment and values set over HTTP, and prints a row
//!           for each differing value.
//! PROMISES  Fails if a reload would be refused.

use serde_json::value::RawValue;

use crate::cli::exit::{CliError, CliResult, Exit};
use crate::cli::output;
use crate::cli::service_socket::{Service, SocketArgs, block_on, explained};
use crate::cli::table::{Layout, columns, or_dash, text};
use crate::config::reload::{Change, Effect};

/// Queries the service, and prints the changes.
///
/// # Errors
/// No service answers, the files have mistakes, or a change requires a restart.
pub(super) fn run(socket: &SocketArgs, json: bool) -> CliResult {
    let (raw, changes) = block_on(async {
        // A refused plan is an error of the configuration.
        let service = Service::at(socket, |_, said| {
            let codes = [("bad_request", Exit::Config)];
            explained(said, &codes, "correct it: a reload would be refused")
        });
        let raw: Box<RawValue> = service.post("/_node/_local/_config/_plan", &()).await?;
        let changes: Vec<Change> = service.read("the plan", &raw)?;
        Ok((raw, changes))
    })?;
    output::print(&if json {
        format!("{}\n", raw.get())
    } else {
        table(&changes)
    })?;
    verdict(&changes)
}

fn table(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "a reload changes nothing\n".to_owned();
    }
    let rows = changes.iter().map(|change| {
        vec![
            text("KEY", format!("[{}] {}", change.section, change.key)),
            text("IN FORCE", or_dash(shown(change.old.as_ref()))),
            text("CONFIGURED", or_dash(shown(change.new.as_ref()))),
            text("TAKES EFFECT", when(change)),
        ]
    });
    columns(rows, Layout::default())
}

fn shown(value: Option<&String>) -> Option<&str> {
    value.map(|value| match value.as_str() {
        "" => "\"\"",
        value => value,
    })
}

fn when(change: &Change) -> String {
    match change.effect {
        Effect::Reload => "on reload".to_owned(),
        Effect::Restart => "on restart".to_owned(),
        Effect::Overridden => format!(
            "after DELETE /_node/_local/_config/{}/{}: set over HTTP",
            change.section, change.key
        ),
    }
}

fn verdict(changes: &[Change]) -> CliResult {
    let keys: Vec<String> = changes
        .iter()
        .filter(|c| c.effect == Effect::Restart)
        .map(|change| format!("[{}] {}", change.section, change.key))
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    Err(CliError::new(
        Exit::Failed,
        format!(
            "a reload would be refused: a restart is needed for {}",
            keys.join(", ")
        ),
        "restart the service, or undo the change",
    ))
}
