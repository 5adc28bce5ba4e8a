//! `/_dashboard/history`: the metrics of the last hour, and the task that samples them.
//!
//! SUMMARY   [`sample`] reads the metrics, the manager and the running replications every [`SAMPLE_PERIOD`];
//!           [`history`] returns the samples.
//! LIMITS    A sample is skipped if the manager or the replicator does not answer; its numbers count in the next one.

use std::sync::Arc;

use actix_web::HttpRequest;
use tokio::time::{MissedTickBehavior, interval};

use super::answer::{self, Answer, Refusal};
use super::compress::Text;
use super::functions_api::OfRecords;
use super::params::Params;
use super::{HttpContext, Shared};
use crate::actors::pool_executor::Principal;
use crate::actors::proc_manager::GetStatus;
use crate::functions::records::CallRecords;
use crate::lock;
use crate::metrics::history::{PoolReading, Reading, SAMPLE_PERIOD};
use store::unix_now;

/// `GET /_dashboard/history`, with `pool` for that pool alone.
pub(super) async fn history(request: HttpRequest, params: Params, shared: Shared) -> Answer {
    let text = Text::passing(answer::line(
        &lock(&shared.history).series(params.get("pool")),
    ));
    Ok(text.answer(&request, answer::json_response()))
}

/// Samples forever.
pub(super) async fn sample(shared: Arc<HttpContext>) {
    let mut ticks = interval(SAMPLE_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Ok(reading) = read(&shared).await {
            lock(&shared.history).add(reading);
        }
    }
}

async fn read(shared: &HttpContext) -> Result<Reading, Refusal> {
    let status = shared
        .manager
        .call(GetStatus { pool: None })
        .await?
        .summary();
    let tasks = shared.replications.own_tasks().await?;
    let pending = tasks
        .iter()
        .filter_map(|task| task["changes_pending"].as_u64());
    let pools = status.pools.iter().map(|pool| {
        let (lent, waited) = shared.metrics.pool(&pool.name).lent();
        (
            (&*pool.name).into(),
            PoolReading {
                waiting: pool.waiting,
                lent,
                waited,
            },
        )
    });
    Ok(Reading {
        at: unix_now(),
        pools: pools.collect(),
        docs_written: shared.metrics.replication().docs_written(),
        pending: pending.sum(),
        tally: shared
            .pool
            .run(OfRecords(CallRecords::take_tally), Principal::default())
            .await?
            .unwrap_or_default(),
    })
}
