//! Losses as problems, which last until acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use settee_client::Problem;

use super::{Kind, critical_if, quoted};
use crate::logging::Losses;

/// Finds permanent losses, reported until acknowledged. `open` returns the unacknowledged part of a loss.
pub(crate) fn of_losses(
    refused: BTreeMap<String, u64>,
    logs: &[(&'static str, Arc<Losses>)],
    open: impl Fn(Kind, &str, u64) -> u64,
) -> Vec<Problem> {
    let refused = refused.into_iter().filter_map(|(replication, count)| {
        let count = open(Kind::DocumentsRefused, &replication, count);
        if count == 0 {
            return None;
        }
        let cause = format!("its target refused {count} documents, which are missing there");
        let name = quoted(&replication);
        let remedy = format!(
            "`settee jobs refused {name}` shows which and why; once settled: `settee health ack documents_refused {name}`"
        );
        Some(Kind::DocumentsRefused.found(&replication, count, cause, remedy))
    });
    let logs = logs.iter().filter_map(|(log, losses)| {
        let failure = losses.failure();
        let count = open(Kind::RecordsDropped, log, losses.count());
        (count > 0 || failure.is_some()).then(|| of_log(log, count, failure))
    });
    refused.chain(logs).collect()
}

/// A gap in the audit is worse than one in another log.
fn of_log(log: &str, count: u64, failure: Option<String>) -> Problem {
    let key = if log == "log" { "file" } else { log };
    let cause = match &failure {
        Some(error) if count == 0 => format!("no record can be written now: {error}"),
        Some(error) => format!("{count} records are lost, and none can be written now: {error}"),
        None => format!("{count} records that came too fast or could not be written are lost"),
    };
    let remedy = match failure {
        Some(_) => {
            format!("make room for [log] {key}, then: `settee health ack records_dropped {log}`")
        }
        None => format!(
            "check the space for [log] {key}, and what is logged so often; then: `settee health ack records_dropped {log}`"
        ),
    };
    critical_if(
        log == "audit",
        Kind::RecordsDropped.found(log, count, cause, remedy),
    )
}
