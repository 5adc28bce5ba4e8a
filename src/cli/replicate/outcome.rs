//! The outcome of a replication: a summary, and the remedy for a failure.

use super::refusals::Refusals;
use crate::cli::exit::{CliError, Exit};
use crate::messages::replication_job::{JobEnd, JobProgress};
use replication::counters::Stats;
use replication::crash::Crash;
use replication::endpoint::Cause;

pub(super) const GIVE_PASSWORD: &str = "give the name and password of a user who may do this, in the URL or by $SETTEE_SOURCE_PASSWORD and $SETTEE_TARGET_PASSWORD";
pub(super) const CORRECT_FILTER: &str = "check that the source has the filter, its design document and its view, and that its parameters are given";

/// Returns the exit code and the remedy if the URL, or a setting of `[replicator]`, must be corrected.
pub(super) fn settings_to_correct(cause: &Cause) -> Option<(Exit, &'static str)> {
    match cause {
        Cause::RedirectedElsewhere { .. } => Some((
            Exit::Data,
            "correct the URL, or name the other origin in [replicator] redirects_to",
        )),
        Cause::Denied(_) => Some((
            Exit::Config,
            "correct the URL, or [replicator] endpoints_allowed and endpoints_denied",
        )),
        _ => None,
    }
}

/// Converts a crash to an error for the user.
pub(super) fn explain(crash: impl Into<Crash>) -> CliError {
    let crash = crash.into();
    let (code, hint) = match &crash {
        crash if crash.is_refusal() => (Exit::NoPermission, GIVE_PASSWORD),
        Crash::DbNotFound(_) | Crash::NoDatabase(_) => (
            Exit::Data,
            "correct the URL; --create-target makes a target that is not there",
        ),
        // The source rejects the request for its changes: the filter or a parameter is wrong.
        Crash::ChangesReqFailed(answered) if matches!(answered.code, Some(400..500)) => {
            (Exit::Data, CORRECT_FILTER)
        }
        crash if crash.code() == Some(404) => (
            Exit::Data,
            "check that the database still exists; then run this again: it continues from its checkpoint",
        ),
        Crash::FilterFailed(_) => (
            Exit::Data,
            "correct the filter at the source; then run this again: it continues from its checkpoint",
        ),
        Crash::DocWriteFailed { .. } => (
            Exit::Data,
            "look at the document and the target; then run this again: it continues from its checkpoint",
        ),
        crash => crash.cause().and_then(settings_to_correct).unwrap_or((
            Exit::TryAgain,
            "run this again later: it continues from its checkpoint",
        )),
    };
    CliError::new(code, crash.to_string(), hint)
}

/// Returns the final summary.
pub(super) fn summary(
    end: &JobEnd,
    last: &JobProgress,
    began_with: Stats,
    refusals: &Refusals,
) -> String {
    let (how, last) = match end {
        JobEnd::Normal(completed) => ("everything is replicated", &completed.progress),
        JobEnd::Stopped => ("stopped", last),
        JobEnd::Crashed(_) => ("not finished", last),
    };
    let done = last.stats.since(&began_with);
    let mut text = format!(
        "{how}: {} revisions looked at, {} missing at the target, {} read, {} written ({} bytes), {} refused\n\
         through sequence {}, checkpoint at {}\n",
        done.missing_checked,
        done.missing_found,
        done.docs_read,
        done.docs_written,
        last.bytes_written,
        done.doc_write_failures,
        last.through_seq.as_text(),
        last.checkpointed_source_seq.as_text(),
    );
    if done.doc_write_failures > 0 {
        text.push_str(&refusals.advice());
    }
    text
}
