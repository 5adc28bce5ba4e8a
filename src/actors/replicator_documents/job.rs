//! From a replication to a job: finds out the id, hands the job to the scheduler.

use std::sync::Arc;
use std::time::Duration;

use super::DocumentsOptions;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::messages::replication_scheduler::{AddJob, AddJobError};
use crate::otp::registered_name::RegisteredName;
use crate::replicator::kept::Kept;
use crate::replicator::past;
use crate::replicator::rows::Taken;
use crate::store::Store;
use crate::store::fleet::JobRow;
use replication::endpoint::HttpSettings;
use replication::filter::fetch_code;
use replication::id::{ReplicationId, replication_id};
use replication::spec::Replication;

/// How long to wait for a scheduler that is being started again.
const SCHEDULER_WAIT: Duration = Duration::from_secs(1);

/// Returns the row of a document's job; an empty one if the store does not answer.
pub(super) async fn job_row(store: &Store, doc: &str) -> JobRow {
    match store.fleet() {
        Some(fleet) => {
            let rows = fleet.job_rows(vec![doc.into()]).await;
            rows.ok()
                .and_then(|mut rows| rows.pop())
                .unwrap_or_default()
        }
        None => JobRow {
            kept: store.kept(doc).await.ok().flatten(),
            past: None,
        },
    }
}

/// Hands a job to the scheduler.
pub(super) async fn add(
    scheduler: &RegisteredName<ReplicationScheduler>,
    job: &ReplicationId,
    replication: &Arc<Replication>,
    row: &JobRow,
) -> Result<(), Taken> {
    let kept = row.kept.as_deref().map(Kept::read).unwrap_or_default();
    let past = row.past.as_deref();
    let earlier = past.map(|text| past::read(text, &replication.digest()));
    let earlier = earlier.unwrap_or_default();
    loop {
        let order = AddJob {
            priority: kept.priority,
            paused: kept.paused.clone(),
            earlier: earlier.clone(),
            ..AddJob::new(Arc::clone(replication), job.clone())
        };
        match scheduler.address().send(order).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(AddJobError::Taken { by: Some(by), .. })) => return Err(Taken::Document(by)),
            Ok(Err(AddJobError::Taken { by: None, .. })) => return Err(Taken::Transient),
            // The next start of the service makes it a job again.
            Ok(Err(AddJobError::ShuttingDown)) => std::future::pending().await,
            // It is being started again.
            Err(_) => actix_rt::time::sleep(SCHEDULER_WAIT).await,
        }
    }
}

/// Finds out an id, with the code of the filter if there is one.
///
/// # Errors
/// The store or the source does not say, in words.
pub(crate) async fn identify(
    options: &DocumentsOptions,
    replication: &Replication,
) -> Result<ReplicationId, String> {
    let identity = options.identity.get(options.database.store()).await;
    let identity = identity.map_err(|error| error.to_string())?;
    let threshold = options.config.borrow().replicator.health_threshold;
    let settings = HttpSettings::of_source(&replication.options, threshold);
    let source = options.http.endpoint(&replication.source, settings);
    let source = source.map_err(|error| error.to_string())?;
    let code = fetch_code(&source, &replication.options.filter).await;
    let code = code.map_err(|error| error.to_string())?;
    Ok(replication_id(replication, &identity, code.as_deref()))
}
