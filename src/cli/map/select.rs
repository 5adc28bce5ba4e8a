//! `settee map --selector` alone: prints the matching documents unchanged and in order.

use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::sources::bad_input;
use crate::cli::exit::CliError;
use crate::cli::output::Output;
use crate::config::Config;
use crate::functions::view::{BadLines, DocumentCutter, DocumentReader, MissingId};
use mango::Selector;

/// Reads, selects and prints one batch at a time, on this thread: it has nothing else to do.
pub(super) fn run(
    selector: Selector,
    input: impl Read,
    bad_lines: Option<Arc<BadLines>>,
    config: &Config,
    name: &str,
) -> Result<(), CliError> {
    let mut output = Output::standard();
    let cutter = DocumentCutter::new(config.server.line_max)
        .matching(Some(selector))
        .missing_id(MissingId::Left)
        .skipping(bad_lines);
    let mut reader = DocumentReader::new(input, cutter);
    loop {
        let batch = reader.next_batch();
        let is_end = batch.as_ref().map_or(true, Vec::is_empty);
        // The output of one read is printed at once, so that slow input is not held back.
        let mut text = Vec::new();
        for document in batch.as_deref().unwrap_or_default() {
            text.extend_from_slice(document.text().as_bytes());
            text.push(b'\n');
        }
        if output.write_bytes(&text)? == ControlFlow::Break(()) {
            return Ok(());
        }
        match batch {
            Err(error) => return Err(bad_input(name, &error)),
            Ok(_) if is_end => return Ok(()),
            Ok(_) => {}
        }
    }
}
