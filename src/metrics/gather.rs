//! Gathers the values of all metrics: the counters of each part, and values read on demand, which are defined here.
//!
//! SOURCE    The counts of couch_os_process, couch_proc_manager, couch_query_servers, chttpd and couch_replicator.
//! DIFFERS   Native query servers are counted like any other. `vdu_process_time` is the time of one function, not of
//!           all that validate a document, as only the database knows these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strum::VariantArray;

use super::cells::{Counter, Times};
use super::definition::metrics;
use super::fleet::FleetMetrics;
use super::language::LanguageMetrics;
use super::names::REST;
use super::pool::{Counts, PoolMetrics};
use super::replication::ReplicationMetrics;
use super::service::{self, ServiceMetrics};
use super::snapshot::{Snapshot, Value};
use super::store::StoreMetrics;
use super::{CODES, ClientMetrics, Inner, METHODS, process};
use crate::config::SandboxMode;
use crate::health::findings::{CRITICAL, Kind, WARNING};
use crate::otp::system_time;
use crate::query_server::call::micros;
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::{DaemonStatus, PoolStatus, SandboxStatus, ServiceStatus};
use child::cell::layers::Layer;
use policy::invariants::Invariant;

type Named<T> = [(Arc<str>, Arc<T>)];

pub(super) fn gather(inner: &Inner, status: &DaemonStatus) -> Snapshot {
    let mut to = Snapshot::new();
    let (pools, languages) = (inner.pools.all(), inner.languages.all());
    let services = inner.services.all();
    query_servers(&mut to, &pools, &languages);
    http(&mut to, inner);
    replication(&mut to, &inner.replication);
    inner.store.add_fields(StoreMetrics::ROWS, &mut to, &[]);
    fleet(&mut to, &inner.fleet);
    program(&mut to, inner);
    process::gather(&mut to);
    let (pool_rows, service_rows) = (Rows::of(&pools), Rows::of(&services));
    left_out(
        &mut to,
        status,
        &pool_rows,
        &Rows::of(&languages),
        &service_rows,
    );
    status_of_pools(&mut to, status, &pool_rows);
    for (name, pool) in &pools {
        pool.counted().add_fields(Counts::ROWS, &mut to, &[name]);
    }
    for (name, language) in &languages {
        language.add_fields(LanguageMetrics::ROWS, &mut to, &[name]);
    }
    inner.clients.add_fields(ClientMetrics::ROWS, &mut to, &[]);
    for (name, service) in &services {
        service
            .connections()
            .add_fields(service::CONNECTIONS, &mut to, &[name]);
        service.add_fields(ServiceMetrics::ROWS, &mut to, &[name]);
    }
    status_of_services(&mut to, status, &service_rows, &pool_rows);
    to
}

/// The names that have rows of their own in the metrics; all others share the row [`REST`].
struct Rows<'a>(BTreeSet<&'a str>);

impl<'a> Rows<'a> {
    fn of<T>(all: &'a Named<T>) -> Self {
        Self(all.iter().map(|(name, _)| &**name).collect())
    }

    /// Returns the label of a name's row: the name itself, or [`REST`].
    fn of_name<'n>(&self, name: &'n str) -> &'n str {
        if self.0.contains(name) { name } else { REST }
    }

    /// Counts the different names that share the row [`REST`].
    fn count_others<'n>(&self, names: impl Iterator<Item = &'n str>) -> u64 {
        names
            .filter(|name| self.of_name(name) == REST)
            .collect::<BTreeSet<_>>()
            .len() as u64
    }
}

/// Adds, for each label, the number of names that share the row [`REST`].
fn left_out(
    to: &mut Snapshot,
    status: &DaemonStatus,
    pools: &Rows<'_>,
    languages: &Rows<'_>,
    services: &Rows<'_>,
) {
    let names = status.pools.iter().map(|pool| &*pool.name);
    // A language gets its row with its first process: one without a row is left out only if the row `_other` exists.
    let spoken = status
        .pools
        .iter()
        .map(|pool| &*pool.language)
        .filter(|_| languages.0.contains(REST));
    let served = status.services.iter().map(|service| &*service.name);
    for (label, count) in [
        ("pool", pools.count_others(names)),
        ("language", languages.count_others(spoken)),
        ("service", services.count_others(served)),
    ] {
        to.add("settee_names_left_out", &[label], count);
    }
}

metrics! {
    /// CouchDB's counters of its query servers as a whole: sums over pools and languages.
    pub(super) const QUERY_SERVERS;

    /// Refusals by validate_doc_update functions
    Counter("couchdb.query_server.vdu_rejects", "couchdb_query_server_vdu_rejects_total");
    /// Processes lent to clients
    Counter("couchdb.query_server.acquired_processes", "couchdb_query_server_acquired_processes_total");
    /// Processes started
    Counter("couchdb.query_server.process_starts", "couchdb_query_server_process_starts_total");
    /// Processes that ended by themselves with exit status 0
    Counter("couchdb.query_server.process_exits", "couchdb_query_server_process_exits_total");
    /// Processes that ended by themselves in any other way
    Counter("couchdb.query_server.process_error_exits", "couchdb_query_server_process_error_exits_total");
    /// Prompts without an answer, or answered with an error
    Counter("couchdb.query_server.process_errors", "couchdb_query_server_process_errors_total");
    /// Prompts sent to processes
    Counter("couchdb.query_server.process_prompts", "couchdb_query_server_process_prompts_total");
    /// Processes running or being started
    Gauge("couchdb.query_server.process_count", "couchdb_query_server_process_count");
    /// Time of validate_doc_update functions
    Summary("couchdb.query_server.vdu_process_time", "couchdb_query_server_vdu_process_time_seconds");
    /// Processes started
    Counter("couchdb.query_server.calls.spawn_proc", "couchdb_query_server_calls_spawn_proc_total");
    /// Answered map_doc prompts
    Counter("couchdb.query_server.calls.map", "couchdb_query_server_calls_map_total");
    /// Answered reduce and rereduce prompts
    Counter("couchdb.query_server.calls.reduce", "couchdb_query_server_calls_reduce_total");
    /// Answered reset prompts
    Counter("couchdb.query_server.calls.reset", "couchdb_query_server_calls_reset_total");
    /// Answered add_fun prompts
    Counter("couchdb.query_server.calls.add_fun", "couchdb_query_server_calls_add_fun_total");
    /// Answered prompts that teach a design document
    Counter("couchdb.query_server.calls.ddoc_new", "couchdb_query_server_calls_ddoc_new_total");
    /// Answered prompts of validate_doc_update functions
    Counter("couchdb.query_server.calls.ddoc_vdu", "couchdb_query_server_calls_ddoc_vdu_total");
    /// Answered prompts of filter functions
    Counter("couchdb.query_server.calls.ddoc_filter", "couchdb_query_server_calls_ddoc_filter_total");
    /// Answered prompts of other design-document functions
    Counter("couchdb.query_server.calls.ddoc_other", "couchdb_query_server_calls_ddoc_other_total");
    /// Answered prompts of any other kind
    Counter("couchdb.query_server.calls.other", "couchdb_query_server_calls_other_total");
    /// Time of process starts
    Counter("couchdb.query_server.time.spawn_proc", "couchdb_query_server_time_spawn_proc_total");
    /// Time of answered map_doc prompts
    Counter("couchdb.query_server.time.map", "couchdb_query_server_time_map_total");
    /// Time of answered reduce and rereduce prompts
    Counter("couchdb.query_server.time.reduce", "couchdb_query_server_time_reduce_total");
    /// Time of answered reset prompts
    Counter("couchdb.query_server.time.reset", "couchdb_query_server_time_reset_total");
    /// Time of answered add_fun prompts
    Counter("couchdb.query_server.time.add_fun", "couchdb_query_server_time_add_fun_total");
    /// Time of teaching design documents
    Counter("couchdb.query_server.time.ddoc_new", "couchdb_query_server_time_ddoc_new_total");
    /// Time of answered prompts of validate_doc_update functions
    Counter("couchdb.query_server.time.ddoc_vdu", "couchdb_query_server_time_ddoc_vdu_total");
    /// Time of answered prompts of filter functions
    Counter("couchdb.query_server.time.ddoc_filter", "couchdb_query_server_time_ddoc_filter_total");
    /// Time of answered prompts of other design-document functions
    Counter("couchdb.query_server.time.ddoc_other", "couchdb_query_server_time_ddoc_other_total");
    /// Time of answered prompts of any other kind
    Counter("couchdb.query_server.time.other", "couchdb_query_server_time_other_total");
}

/// Adds CouchDB's counters of its query servers as a whole.
fn query_servers(
    to: &mut Snapshot,
    pools: &Named<PoolMetrics>,
    languages: &Named<LanguageMetrics>,
) {
    let sum = |count: fn(&LanguageMetrics) -> u64| -> u64 {
        languages.iter().map(|(_, language)| count(language)).sum()
    };
    let answered = |class| Times::merged(languages.iter().map(|(_, one)| one.answered_by(class)));
    let acquired = Times::merged(pools.iter().map(|(_, pool)| pool.counted().wait.get()));
    let started = Times::merged(pools.iter().map(|(_, pool)| pool.counted().open.get()));
    let mut add = |name: &str, count: u64| {
        to.add(&format!("couchdb_query_server_{name}_total"), &[], count);
    };
    add("vdu_rejects", sum(|language| language.vdu_rejects.get()));
    add("acquired_processes", acquired.count());
    add("process_starts", started.count());
    add("process_exits", sum(|language| language.exits.get()));
    add(
        "process_error_exits",
        sum(|language| language.error_exits.get()),
    );
    add("process_errors", sum(|language| language.failures.sum()));
    add("process_prompts", sum(|language| language.prompts.get()));
    let classes = PromptClass::VARIANTS
        .iter()
        .map(|class| (class.into(), answered(*class)));
    for (name, times) in [("spawn_proc", started)].into_iter().chain(classes) {
        add(&format!("calls_{name}"), times.count());
        add(&format!("time_{name}"), micros(times.sum()));
    }
    to.add(
        "couchdb_query_server_vdu_process_time_seconds",
        &[],
        answered(PromptClass::DdocVdu),
    );
}

metrics! {
    /// Requests over HTTP.
    pub(super) const HTTP;

    /// HTTP requests answered
    Counter("couchdb.httpd.requests", "couchdb_httpd_requests_total");
    /// Time from an HTTP request to the head of its answer
    Summary("couchdb.request_time", "couchdb_request_time_seconds");
    /// HTTP requests answered, by method
    Counter("couchdb.httpd_request_methods", "couchdb_httpd_request_methods").labels("method");
    /// HTTP requests answered, by status code
    Counter("couchdb.httpd_status_codes", "couchdb_httpd_status_codes").labels("code");
}

fn http(to: &mut Snapshot, inner: &Inner) {
    let times = inner.http.time.get();
    to.add("couchdb_httpd_requests_total", &[], times.count());
    to.add("couchdb_request_time_seconds", &[], times);
    for (method, count) in METHODS.iter().zip(&inner.http.methods) {
        to.add("couchdb_httpd_request_methods", &[method], count.get());
    }
    for (code, count) in CODES.zip(inner.http.codes.iter().map(Counter::get)) {
        if count > 0 {
            to.add("couchdb_httpd_status_codes", &[&code.to_string()], count);
        }
    }
}

fn replication(to: &mut Snapshot, metrics: &ReplicationMetrics) {
    metrics.add_fields(ReplicationMetrics::ROWS, to, &[]);
    for (name, count) in metrics.work() {
        to.add(
            &format!("couchdb_couch_replicator_{}_total", name.replace('.', "_")),
            &[],
            count,
        );
    }
    let now = system_time();
    for (name, group) in metrics.groups.all() {
        let (failing, oldest) = group.failing(now);
        let mut add = |metric: &str, value: Value| to.add(metric, &[&name], value);
        add("settee_replication_lag_changes", group.lag().into());
        add("settee_replication_jobs_failing", failing.into());
        add(
            "settee_replication_oldest_failing_seconds",
            oldest.as_secs_f64().into(),
        );
    }
}

fn fleet(to: &mut Snapshot, metrics: &FleetMetrics) {
    metrics.add_fields(FleetMetrics::ROWS, to, &[]);
    to.add(
        "settee_fleet_lease_left_seconds",
        &[],
        seconds(metrics.lease_left_ms()),
    );
    to.add(
        "settee_fleet_unowned_seconds",
        &[],
        seconds(metrics.unowned_ms()),
    );
}

metrics! {
    /// The program itself.
    pub(super) const PROGRAM;

    /// 1, labelled with the program's version
    Gauge("settee.build_info", "settee_build_info").labels("version");
    /// Records that came too fast or could not be written: log, access_log, audit
    Counter("settee.log_records_dropped", "settee_log_records_dropped_total").labels("log");
    /// Broken invariants of the pool's tables: a bug in Settee
    Counter("settee.invariant_violations", "settee_invariant_violations_total").labels("invariant");
    /// Pools, languages and services without their own row, counted in _other
    Gauge("settee.names_left_out", "settee_names_left_out").labels("label");
    /// Current [problems](operations.md#problems)
    Gauge("settee.problems", "settee_problems").labels("kind", "severity");
}

/// The logs that may lose records.
const LOGS: [&str; 3] = ["log", "access_log", "audit"];

/// Adds the metrics of the program itself.
fn program(to: &mut Snapshot, inner: &Inner) {
    to.add(
        "couchdb_uptime_seconds",
        &[],
        inner.started.0.elapsed().as_secs_f64(),
    );
    to.add("settee_build_info", &[env!("CARGO_PKG_VERSION")], 1_u64);
    let problems = inner.health.counts();
    for kind in Kind::VARIANTS {
        for severity in [CRITICAL, WARNING] {
            let kind: &str = kind.into();
            let count = problems
                .get(&(kind.to_owned(), severity.to_owned()))
                .copied()
                .unwrap_or(0);
            to.add("settee_problems", &[kind, severity], count);
        }
    }
    for log in LOGS {
        let mut logs = inner.logs.get().into_iter().flatten();
        let losses = logs.find(|(name, _)| *name == log);
        to.add(
            "settee_log_records_dropped_total",
            &[log],
            losses.map_or(0, |(_, losses)| losses.count()),
        );
    }
    for (id, count) in Invariant::ALL
        .iter()
        .zip(&inner.invariants)
        .filter(|(id, _)| id.is_judged_on_tables())
    {
        to.add(
            "settee_invariant_violations_total",
            &[&id.to_string()],
            count.get(),
        );
    }
}

metrics! {
    /// The manager's status of its processes.
    pub(super) const POOLS_NOW;

    /// Processes by state: used, idle, opening, stopping
    Gauge("settee.pool_processes", "settee_pool_processes").labels("pool", "state");
    /// Maximum processes in force: max, os_process_limit
    Gauge("settee.pool_process_limit", "settee_pool_process_limit").labels("pool");
    /// Idle processes bound to a database
    Gauge("settee.pool_tagged_processes", "settee_pool_tagged_processes").labels("pool");
    /// Requests waiting for a process
    Gauge("settee.pool_waiters", "settee_pool_waiters").labels("pool");
    /// 1 while no process is started after failed starts
    Gauge("settee.pool_throttled", "settee_pool_throttled").labels("pool");
    /// 1 while processes are started with stress on
    Gauge("settee.pool_stressed", "settee_pool_stressed").labels("pool");
    /// Longest wait for a process, except of requests held back by their tenant's bounds
    Gauge("settee.pool_longest_wait", "settee_pool_longest_wait_seconds").labels("pool");
    /// 1 for each layer that the pool's cells have, 0 for a missing one; all 0 if sandbox is off
    Gauge("settee.sandbox_layers", "settee_sandbox_layers").labels("pool", "layer");
    /// Processes from before the last reload, stopped on return
    Gauge("settee.stale_processes", "settee_stale_processes");
}

/// Adds the manager's status of its processes. A row may cover several pools: those without their own row, or one
/// being removed and its successor of the same name.
fn status_of_pools(to: &mut Snapshot, status: &DaemonStatus, rows: &Rows<'_>) {
    to.add("couchdb_query_server_process_count", &[], status.proc_count);
    to.add("settee_stale_processes", &[], status.stale_proc_count);
    let mut by_row: BTreeMap<&str, Vec<&PoolStatus>> = BTreeMap::new();
    for pool in &status.pools {
        by_row
            .entry(rows.of_name(&pool.name))
            .or_default()
            .push(pool);
    }
    for (name, pools) in by_row {
        status_of_row(to, name, &pools);
    }
}

fn status_of_row(to: &mut Snapshot, name: &str, pools: &[&PoolStatus]) {
    let sum = |number: fn(&PoolStatus) -> u32| -> u64 {
        pools.iter().map(|pool| u64::from(number(pool))).sum()
    };
    let any = |holds: fn(&PoolStatus) -> bool| u64::from(pools.iter().any(|pool| holds(pool)));
    for (state, count) in [
        ("used", sum(|pool| pool.used)),
        ("idle", sum(|pool| pool.free)),
        ("opening", sum(|pool| pool.opening)),
        ("stopping", sum(|pool| pool.stopping)),
    ] {
        to.add("settee_pool_processes", &[name, state], count);
    }
    for (metric, count) in [
        ("settee_pool_process_limit", sum(|pool| pool.hard_limit)),
        ("settee_pool_tagged_processes", sum(|pool| pool.free_tagged)),
        ("settee_pool_waiters", sum(|pool| pool.waiting)),
        (
            "settee_pool_throttled",
            any(|pool| pool.throttled_ms.is_some()),
        ),
        (
            "settee_pool_stressed",
            any(|pool| pool.stressed_ms.is_some()),
        ),
    ] {
        to.add(metric, &[name], count);
    }
    let longest = pools.iter().map(|pool| pool.longest_wait_ms).max();
    to.add(
        "settee_pool_longest_wait_seconds",
        &[name],
        seconds(longest.unwrap_or(0)),
    );
    let mut layers: BTreeMap<String, bool> = BTreeMap::new();
    for sandbox in pools.iter().filter_map(|pool| pool.sandbox.as_ref()) {
        for (layer, holds) in layers_of(sandbox) {
            *layers.entry(layer).or_insert(true) &= holds;
        }
    }
    for (layer, holds) in layers {
        to.add("settee_sandbox_layers", &[name, &layer], u32::from(holds));
    }
}

/// Returns each layer, and whether it is in effect; without a cell none is.
fn layers_of(sandbox: &SandboxStatus) -> Vec<(String, bool)> {
    if sandbox.mode == SandboxMode::Off.to_string() {
        return Layer::VARIANTS
            .iter()
            .map(|layer| (layer.to_string(), false))
            .collect();
    }
    let held = sandbox.layers.iter().map(|layer| (layer.clone(), true));
    held.chain(sandbox.missing.keys().map(|layer| (layer.clone(), false)))
        .collect()
}

metrics! {
    /// The current services and their pools.
    pub(super) const SERVICES_NOW;

    /// Maximum processes of a service's pool now
    Gauge("settee.service_limit", "settee_service_limit").labels("service", "pool");
    /// How long a service's pool will start no process
    Gauge("settee.service_throttled", "settee_service_throttled_seconds").labels("service", "pool");
    /// How long a service's processes will be started with stress on
    Gauge("settee.service_stressed", "settee_service_stressed_seconds").labels("service", "pool");
}

/// Adds the status of the services. A row may cover several services, as with pools.
fn status_of_services(
    to: &mut Snapshot,
    status: &DaemonStatus,
    service_rows: &Rows<'_>,
    pool_rows: &Rows<'_>,
) {
    let mut by_row: BTreeMap<[&str; 2], Vec<&ServiceStatus>> = BTreeMap::new();
    for service in &status.services {
        by_row
            .entry([
                service_rows.of_name(&service.name),
                pool_rows.of_name(&service.pool),
            ])
            .or_default()
            .push(service);
    }
    for (labels, services) in by_row {
        if let Some(limit) = services
            .iter()
            .filter_map(|service| service.limit)
            .reduce(u32::saturating_add)
        {
            to.add("settee_service_limit", &labels, limit);
        }
        let longest = |time: fn(&ServiceStatus) -> Option<u64>| {
            seconds(
                services
                    .iter()
                    .filter_map(|service| time(service))
                    .max()
                    .unwrap_or(0),
            )
        };
        to.add(
            "settee_service_throttled_seconds",
            &labels,
            longest(|service| service.throttled_ms),
        );
        to.add(
            "settee_service_stressed_seconds",
            &labels,
            longest(|service| service.stressed_ms),
        );
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}
