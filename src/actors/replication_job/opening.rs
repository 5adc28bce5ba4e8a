//! Starts a run: opens both databases, and finds the sequence to resume at.
//!
//! SOURCE    `couch_replicator_scheduler_job:do_init`, `init_state`.
//! DIFFERS   CouchDB reads checkpoints even with `use_checkpoints` false. Settee does not, so that such a run restores
//!           what the target has lost.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use crate::messages::replication_job::JobStart;
use replication::counters::Stats;
use replication::crash::Crash;
use replication::endpoint::HttpSettings;
use replication::filter::FilterHere;
use replication::log::{self, CheckpointLog, HistoryEntry, LogIds, Side};
use replication::open::open_endpoint;
use replication::seq::Seq;

/// The starting point of a run.
pub(super) struct Opened {
    pub source: Side,
    pub target: Side,
    /// The sequence to resume at.
    pub start_seq: Seq,
    /// Earlier runs, newest first.
    pub history: Vec<HistoryEntry>,
    /// Their counts.
    pub stats: Stats,
    /// The filter, if the source does not run it.
    pub filter: Option<Rc<FilterHere>>,
}

/// Opens both databases and reads the history of earlier runs.
///
/// # Errors
/// A database cannot be opened, or its checkpoints are unreadable; the filter cannot run here; a checkpoint has to be
/// rewritten with a newer id, but the lease has expired.
pub(super) async fn open(start: JobStart) -> Result<Opened, Crash> {
    let JobStart { run, settings } = &start;
    sleep(jitter(settings.startup_jitter)).await;
    let replication = &run.replication;
    let options = &replication.options;
    let threshold = settings.health_threshold;
    let http = &settings.http;
    let source = http.endpoint(
        &replication.source,
        HttpSettings::of_source(options, threshold),
    )?;
    let target = http.endpoint(
        &replication.target,
        HttpSettings::of_target(options, threshold),
    )?;
    let source_info = open_endpoint(&source, None).await?;
    let target_info = open_endpoint(
        &target,
        options
            .create_target
            .then_some(&options.create_target_params),
    )
    .await?;
    let identity = &settings.identity;
    let filter = FilterHere::open(replication, &run.id, identity, &source, &settings.filters)
        .await?
        .map(Rc::new);
    let (mut source_log, mut target_log) = (CheckpointLog::default(), CheckpointLog::default());
    if options.tuning.use_checkpoints {
        let ids = LogIds::new(&run.id.base, replication, identity, &source);
        source_log = log::find(&source, &ids).await?;
        target_log = log::find(&target, &ids).await?;
    }
    for (endpoint, log) in [(&source, &mut source_log), (&target, &mut target_log)] {
        if log.is_older {
            run.guard
                .while_held(log::renew(endpoint, log))
                .await
                .ok_or(Crash::LeaseLost)??;
        }
    }
    let ancestor = log::compare(&source_log.body, &target_log.body);
    let recorded = ancestor.history.first().map(|entry| entry.stats);
    let start_seq = match &options.since_seq {
        Some(since) if ancestor.start_seq.is_zero() => since.clone(),
        _ => ancestor.start_seq,
    };
    Ok(Opened {
        source: Side {
            endpoint: source,
            info: source_info,
            log: source_log,
        },
        target: Side {
            endpoint: target,
            info: target_info,
            log: target_log,
        },
        start_seq,
        history: ancestor.history,
        stats: run.earlier.max(&recorded.unwrap_or_default()),
        filter,
    })
}

/// Returns a random fraction of the maximum delay, so that jobs do not all start at once.
fn jitter(longest: Duration) -> Duration {
    let mut bytes = [0; 4];
    // Without randomness they all start at once, which is better than not at all.
    let _ = getrandom::fill(&mut bytes);
    longest.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
