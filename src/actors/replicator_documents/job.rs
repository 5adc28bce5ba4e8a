//! From a replication to a job: finds out the id, hands the job to the scheduler.

use std::sync::Arc;
use std::time::Duration;

use super::DocumentsOptions;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::messages::replication_scheduler::{AddJob, AddJobError};
use crate::otp::registered_name::RegisteredName;
use crate::replicator::kept::Kept;
use crate::replicator::lease::DocLease;
use crate::replicator::past::{self, Past};
use crate::replicator::rows::Taken;
use crate::store::fleet::JobRow;
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
    row: &JobRow,
    lease: Option<&Arc<DocLease>>,
) -> Result<(), Taken> {
    let kept = row.kept.as_deref().map(Kept::read).unwrap_or_default();
    let past = row.past.as_deref();
    let past = past.map(|text| past::read(text, &replication.digest()));
    let Past { earlier, refused } = past.unwrap_or_default();
    let earlier = kept.counts_of(earlier);
    loop {
        let order = AddJob {
            priority: kept.priority,
            paused: kept.paused.clone(),
            earlier: earlier.clone(),
            refused: refused.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::replication_scheduler::SchedulerOptions;
    use crate::messages::replication_scheduler::GetJob;
    use crate::metrics::Metrics;
    use actix::Actor;
    use policy::schedule::{Earlier, History, Settings, WallTime};
    use replication::crash::Crash;
    use replication::endpoint::Http;
    use replication::refused::RefusedDoc;
    use replication::spec::{DocRef, UserCtx};
    use serde_json::json;
    use slog::{Discard, Logger, o};

    fn replication(password: &str) -> Arc<Replication> {
        let body = json!({
            "source": format!("http://u:{password}@s.example/a"), "target": "http://t.example/b",
        });
        let (database, id) = ("_replicator".to_owned(), "d".to_owned());
        let doc = Some(DocRef { database, id });
        let parsed = Replication::parse(&body, &Default::default(), UserCtx::default(), doc);
        Arc::new(parsed.expect("it is right"))
    }

    #[actix_rt::test]
    async fn a_job_has_the_past_of_its_row_unless_the_document_asks_for_something_else() {
        let log = Logger::root(Discard, o!());
        let http = Http::new(Default::default(), &log).expect("there are no files to read");
        let scheduler = ReplicationScheduler::new(SchedulerOptions {
            settings: Settings::default(),
            jobs: Box::new(|_| Err(Crash::JobDied("none is to start".to_owned()))),
            live: Default::default(),
            states: Arc::default(),
            http,
            metrics: Metrics::new().replication(),
            log,
        });
        let scheduler = RegisteredName::new(scheduler.start());
        let not_before = WallTime::from_micros(u64::MAX);
        let history = History::default();
        let refused = RefusedDoc {
            id: "a".to_owned(),
            rev: None,
            error: "forbidden".to_owned(),
            reason: "no".to_owned(),
        };
        let past = Past {
            earlier: Earlier {
                history,
                not_before,
            },
            refused: vec![Arc::new(refused.clone())],
        };
        let text = past::text(&replication("wrong").digest(), &past);
        let row = JobRow {
            kept: None,
            past: Some(text),
        };
        for (password, waits) in [("wrong", true), ("right", false)] {
            let id: ReplicationId = password.parse().expect("it is an id");
            // The next one has the id of another job: this is about pasts alone.
            let added = add(&scheduler, &id, &replication(password), &row, None).await;
            added.expect("it is new");
            let job = scheduler.address().send(GetJob { id }).await;
            let job = job.expect("it is there").expect("it was added");
            assert_eq!(job.next_try() == Some(not_before), waits, "{password}");
            assert_eq!(job.refused == [refused.clone()], waits, "{password}");
        }
    }
}
