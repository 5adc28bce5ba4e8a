//! `/_dashboard/history`: the metrics of the last hour, and the task that samples them.
//!
//! SUMMARY   [`sample`] reads the metrics, the manager and the running replications every [`SAMPLE_PERIOD`];
//!           [`history`] returns the samples.
//! LIMITS    A sample is skipped if the manager or the replicator does not answer; its numbers count in the next one.

use std::sync::{Arc, PoisonError};

use actix_web::HttpRequest;
use actix_web::web::Data;
use tokio::time::{MissedTickBehavior, interval};

use super::HttpContext;
use super::answer::{self, Answer, Refusal};
use super::compress::Text;
use super::params::Params;
use crate::actors::pool_executor::{PoolWork, Principal};
use crate::actors::proc_manager::GetStatus;
use crate::auth::rights::Rights;
use crate::functions::QueryServers;
use crate::metrics::history::{CallTally, PoolReading, Reading, SAMPLE_PERIOD};
use crate::query_server::status::PoolStatus;
use store::unix_now;

/// `GET /_dashboard/history`, with `pool` for that pool alone.
pub(super) async fn history(request: HttpRequest, shared: Data<HttpContext>) -> Answer {
    let params = Params::of(&request)?;
    let history = shared.history.lock();
    let history = history.unwrap_or_else(PoisonError::into_inner);
    let series = answer::line(&history.series(params.get("pool")));
    Ok(Text::passing(series).answer(&request, answer::json_response()))
}

/// Samples forever.
pub(super) async fn sample(shared: Arc<HttpContext>) {
    let mut ticks = interval(SAMPLE_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Ok(reading) = read(&shared).await {
            let history = shared.history.lock();
            history.unwrap_or_else(PoisonError::into_inner).add(reading);
        }
    }
}

async fn read(shared: &HttpContext) -> Result<Reading, Refusal> {
    let snapshot = shared.manager.call(GetStatus { pool: None }).await?;
    let status = snapshot.summary();
    let tasks = shared.replications.own_tasks().await?;
    let pending = tasks
        .iter()
        .filter_map(|task| task["changes_pending"].as_u64());
    let nobody = Principal {
        limits: Rights::all().limits(),
        who: None,
    };
    let pools = status
        .pools
        .iter()
        .map(|pool| ((&*pool.name).into(), reading_of(pool, shared)));
    Ok(Reading {
        at: unix_now(),
        pools: pools.collect(),
        docs_written: shared.metrics.replication().docs_written(),
        pending: pending.sum(),
        tally: shared.pool.run(TakeTally, nobody).await?,
    })
}

fn reading_of(pool: &PoolStatus, shared: &HttpContext) -> PoolReading {
    let (lent, waited) = shared.metrics.pool(&pool.name).lent();
    PoolReading {
        waiting: pool.waiting,
        lent,
        waited,
    }
}

/// Requests the number of recent calls.
struct TakeTally;

impl PoolWork for TakeTally {
    type Output = CallTally;

    async fn run(self, servers: QueryServers) -> Self::Output {
        let records = servers.records();
        records.map_or_else(CallTally::default, |records| records.take_tally())
    }
}
