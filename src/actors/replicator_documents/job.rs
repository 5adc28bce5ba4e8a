//! From a replication to a job: finds out the id, hands the job to the scheduler.

use std::sync::Arc;
use std::time::Duration;

use super::DocumentsOptions;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::messages::replication_scheduler::{AddJob, AddJobError};
use crate::otp::registered_name::RegisteredName;
use crate::replicator::kept::Kept;
use crate::replicator::lease::DocLease;
use crate::replicator::rows::Taken;
use replication::endpoint::HttpSettings;
use replication::filter::fetch_code;
use replication::id::{ReplicationId, replication_id};
use replication::spec::Replication;

/// How long to wait for a scheduler that is being started again.
const SCHEDULER_WAIT: Duration = Duration::from_secs(1);

/// Hands a job to the scheduler, under the lease of its document where there is one.
pub(super) async fn add(
    scheduler: &RegisteredName<ReplicationScheduler>,
    job: &ReplicationId,
    replication: &Arc<Replication>,
    kept: &Kept,
    lease: Option<&Arc<DocLease>>,
) -> Result<(), Taken> {
    loop {
        let order = AddJob {
            priority: kept.priority,
            paused: kept.paused.clone(),
            guard: lease.map(DocLease::guard).unwrap_or_default(),
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
