//! Replications whose filters Settee runs itself.

use actix::Actor;
use serde_json::Value;
use settee::actors::replication_job::ReplicationJob;
use settee::functions::caller::Caller;
use settee::functions::{QueryServers, filter_pool};
use settee::otp::registered_name::RegisteredName;
use settee::replication::filter::FilterPool;
use settee_testkit::TestPool;

use super::job::{Job, Outcome};
use super::program::SETTEE;

pub const KIND: &str = "function (doc, req) { return doc.kind === req.query.kind; }";
pub const EVEN: &str = "function (doc) { if (doc.n % 2 === 0) emit(doc.n); }";

/// A pool whose processes run the built-in JavaScript, and a handle on it for filters.
pub fn pool() -> (TestPool, FilterPool) {
    let command = format!("{SETTEE} couchjs");
    let pool = TestPool::builder().command("javascript", &command).start();
    let manager = RegisteredName::new(pool.manager());
    let filters = filter_pool(move || QueryServers::new(Caller::new(manager.clone())));
    (pool, filters)
}

pub fn job(body: &Value, filters: FilterPool) -> Job {
    let (mut start, mut job) = Job::prepare(body);
    start.settings.filters = filters;
    job.address = Some(ReplicationJob::new(start).start());
    job
}

pub async fn run(body: &Value) -> Outcome {
    let (pool, filters) = pool();
    let outcome = job(body, filters).outcome().await;
    pool.assert_quiet().await;
    outcome
}
