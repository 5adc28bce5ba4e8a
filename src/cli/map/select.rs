//! `settee map --selector` alone: prints the matching documents unchanged and in order.

use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::sources::bad_input;
use crate::cli::exit::CliResult;
use crate::cli::output::Output;
use crate::config::Config;
use crate::functions::view::{BadLines, DocumentCutter, DocumentReader, DocumentRules, MissingId};
use mango::Selector;

/// Reads, selects and prints one batch at a time, on this thread: it has nothing else to do.
pub(super) fn run(
    selector: Selector,
    input: impl Read,
    bad_lines: Option<Arc<BadLines>>,
    config: &Config,
    name: &str,
) -> CliResult {
    let mut output = Output::standard();
    let rules = DocumentRules {
        selector: Some(selector),
        missing_id: MissingId::Left,
        bad_lines,
        ..DocumentRules::default()
    };
    let mut reader = DocumentReader::new(input, DocumentCutter::new(config.server.line_max, rules));
    loop {
        let batch = reader.next_batch();
        let is_end = batch.as_ref().map_or(true, Vec::is_empty);
        // The output of one read is printed at once, so that slow input is not held back.
        let mut text = Vec::new();
        for document in batch.as_deref().unwrap_or_default() {
            text.extend_from_slice(document.text().as_bytes());
            text.push(b'\n');
        }
        if output.write(&text)? == ControlFlow::Break(()) {
            return Ok(());
        }
        match batch {
            Err(error) => return Err(bad_input(name, &error)),
            Ok(_) if is_end => return Ok(()),
            Ok(_) => {}
        }
    }
}
