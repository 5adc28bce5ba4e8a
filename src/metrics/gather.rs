//! Where the values of all metrics come from. Their names and meanings stand in `docs/metrics.md`.
//!
//! SOURCE    couch_os_process, couch_proc_manager, couch_query_servers, chttpd and couch_replicator: what
//!           they count.
//! DIFFERS   Native query servers are counted like any other. `vdu_process_time` is the time of one
//!           function and not of all that look at a document, which is the database's to know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strum::VariantArray;

use super::cells::{Counter, CountersBy, Times};
use super::fleet::FleetMetrics;
use super::language::LanguageMetrics;
use super::names::REST;
use super::pool::PoolMetrics;
use super::replication::ReplicationMetrics;
use super::service::ServiceMetrics;
use super::snapshot::{Snapshot, Value};
use super::store::StoreMetrics;
use super::{CODES, ClientMetrics, Inner, METHODS, process};
use crate::config::SandboxMode;
use crate::otp::wall_clock::system_time;
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
    store(&mut to, &inner.store);
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
    of_pools(&mut to, &pools);
    of_languages(&mut to, &languages);
    clients(&mut to, &inner.clients);
    of_services(&mut to, &services);
    status_of_services(&mut to, status, &service_rows, &pool_rows);
    to
}

/// Which names have a row of their own.
struct Rows<'a>(BTreeSet<&'a str>);

impl<'a> Rows<'a> {
    fn of<T>(all: &'a Named<T>) -> Self {
        Self(all.iter().map(|(name, _)| &**name).collect())
    }

    /// Returns the row of a name.
    fn of_name<'n>(&self, name: &'n str) -> &'n str {
        match self.0.contains(name) {
            true => name,
            false => REST,
        }
    }

    /// Counts the names that have none.
    fn count_others<'n>(&self, names: impl Iterator<Item = &'n str>) -> u64 {
        let others = names.filter(|name| self.of_name(name) == REST);
        others.collect::<BTreeSet<_>>().len() as u64
    }
}

/// How many names have no row of their own.
fn left_out(
    to: &mut Snapshot,
    status: &DaemonStatus,
    pools: &Rows<'_>,
    languages: &Rows<'_>,
    services: &Rows<'_>,
) {
    let names = status.pools.iter().map(|pool| &*pool.name);
    // A language has a row from its first process on: without a row for the rest, all that count have one.
    let spoken = status.pools.iter().map(|pool| &*pool.language);
    let spoken = spoken.filter(|_| languages.0.contains(REST));
    for (label, count) in [
        ("pool", pools.count_others(names)),
        ("language", languages.count_others(spoken)),
        (
            "service",
            services.count_others(status.services.iter().map(|service| &*service.name)),
        ),
    ] {
        to.add("settee_names_left_out", &[label], count);
    }
}

/// What CouchDB counts of its query servers as a whole.
fn query_servers(
    to: &mut Snapshot,
    pools: &Named<PoolMetrics>,
    languages: &Named<LanguageMetrics>,
) {
    let sum = |count: fn(&LanguageMetrics) -> u64| -> u64 {
        languages.iter().map(|(_, language)| count(language)).sum()
    };
    let answered = |class| merged(languages.iter().map(|(_, one)| one.answered_by(class)));
    let acquired = merged(pools.iter().map(|(_, pool)| pool.counted().wait.get()));
    let started = merged(pools.iter().map(|(_, pool)| pool.counted().open.get()));
    let mut add = |name: &str, count: u64| {
        to.add(&format!("couchdb_query_server_{name}_total"), &[], count);
    };
    add("vdu_rejects", sum(|language| language.vdu_rejects.get()));
    add("acquired_processes", acquired.count());
    add("process_starts", started.count());
    add("process_exits", sum(|language| language.exits.get()));
    let error_exits = sum(|language| language.error_exits.get());
    add("process_error_exits", error_exits);
    add("process_errors", sum(|language| language.failures.sum()));
    add("process_prompts", sum(|language| language.prompts.get()));
    let classes = PromptClass::ALL.map(|class| (class.name(), answered(class)));
    for (name, times) in [("spawn_proc", started)].into_iter().chain(classes) {
        add(&format!("calls_{name}"), times.count());
        let microseconds = u64::try_from(times.sum().as_micros()).unwrap_or(u64::MAX);
        add(&format!("time_{name}"), microseconds);
    }
    let vdu = answered(PromptClass::DdocVdu);
    to.add("couchdb_query_server_vdu_process_time_seconds", &[], vdu);
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
    let now = system_time();
    let mut add = |name: &str, number: u64| {
        to.add(&format!("couchdb_couch_replicator_{name}"), &[], number);
    };
    add("jobs_adds_total", metrics.adds.get());
    add("jobs_duplicate_adds_total", metrics.duplicate_adds.get());
    add("jobs_removes_total", metrics.removes.get());
    add("jobs_starts_total", metrics.starts.get());
    add("jobs_stops_total", metrics.stops.get());
    add("jobs_crashes_total", metrics.crashes.get());
    add("jobs_total", metrics.total.get());
    add("jobs_running", metrics.running.get());
    add("jobs_pending", metrics.pending.get());
    add("jobs_crashed", metrics.crashed.get());
    for (name, count) in metrics.work() {
        add(&format!("{}_total", name.replace('.', "_")), count);
    }
    let (completed, failed) = (metrics.completions.get(), metrics.failures.get());
    to.add("settee_replication_jobs_completed_total", &[], completed);
    to.add("settee_replication_jobs_failed_total", &[], failed);
    let paused = metrics.paused.get();
    to.add("settee_replication_jobs_paused", &[], paused);
    for (name, group) in metrics.groups.all() {
        let (failing, oldest) = group.failing(now);
        let mut add = |metric: &str, value: Value| to.add(metric, &[&name], value);
        add("settee_replication_lag_changes", group.lag().into());
        add("settee_replication_jobs_failing", failing.into());
        let oldest = oldest.as_secs_f64().into();
        add("settee_replication_oldest_failing_seconds", oldest);
    }
}

fn store(to: &mut Snapshot, metrics: &StoreMetrics) {
    for (request, times) in metrics.times() {
        to.add("settee_store_request_seconds", &[request], times);
    }
    let (now, ever) = (metrics.connections.get(), metrics.connects.get());
    to.add("settee_store_connections", &[], now);
    to.add("settee_store_connects_total", &[], ever);
}

fn fleet(to: &mut Snapshot, metrics: &FleetMetrics) {
    to.add("settee_fleet_daemons", &[], metrics.daemons.get());
    to.add("settee_fleet_documents_owned", &[], metrics.owned.get());
    let left = metrics.lease_left().as_secs_f64();
    to.add("settee_fleet_lease_left_seconds", &[], left);
    for (result, count) in metrics.renewals.by_name() {
        to.add("settee_fleet_renewals_total", &[result], count);
    }
    let takeovers = metrics.takeovers.get();
    to.add("settee_fleet_takeovers_total", &[], takeovers);
    let (unowned, since) = metrics.unowned();
    to.add("settee_fleet_documents_unowned", &[], unowned);
    let since = since.as_secs_f64();
    to.add("settee_fleet_unowned_seconds", &[], since);
}

/// The program itself.
fn program(to: &mut Snapshot, inner: &Inner) {
    let uptime = inner.started.elapsed().as_secs_f64();
    to.add("couchdb_uptime_seconds", &[], uptime);
    to.add("settee_build_info", &[env!("CARGO_PKG_VERSION")], 1_u64);
    let dropped = inner.log_dropped();
    to.add("settee_log_records_dropped_total", &[], dropped);
    let judged = Invariant::ALL.into_iter().zip(&inner.invariants);
    for (id, count) in judged.filter(|(id, _)| id.is_judged_on_tables()) {
        let id = id.to_string();
        to.add("settee_invariant_violations_total", &[&id], count.get());
    }
}

/// What the manager says of its processes. A row may be of several pools: of those without a row of their
/// own, or of one that is going and another of its name.
fn status_of_pools(to: &mut Snapshot, status: &DaemonStatus, rows: &Rows<'_>) {
    let count = status.proc_count;
    to.add("couchdb_query_server_process_count", &[], count);
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
    let any = |holds: fn(&PoolStatus) -> bool| u32::from(pools.iter().any(|pool| holds(pool)));
    for (state, count) in [
        ("used", sum(|pool| pool.used)),
        ("idle", sum(|pool| pool.free)),
        ("opening", sum(|pool| pool.opening)),
        ("stopping", sum(|pool| pool.stopping)),
    ] {
        to.add("settee_pool_processes", &[name, state], count);
    }
    let limit = sum(|pool| pool.hard_limit);
    to.add("settee_pool_process_limit", &[name], limit);
    let tagged = sum(|pool| pool.free_tagged);
    to.add("settee_pool_tagged_processes", &[name], tagged);
    to.add("settee_pool_waiters", &[name], sum(|pool| pool.waiting));
    let is_throttled = any(|pool| pool.throttled_ms.is_some());
    to.add("settee_pool_throttled", &[name], is_throttled);
    let is_stressed = any(|pool| pool.stressed_ms.is_some());
    to.add("settee_pool_stressed", &[name], is_stressed);
    let longest = pools.iter().map(|pool| pool.longest_wait_ms).max();
    let longest = seconds(longest.unwrap_or(0));
    to.add("settee_pool_longest_wait_seconds", &[name], longest);
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

/// Which layers of a cell hold; without a cell none does.
fn layers_of(sandbox: &SandboxStatus) -> Vec<(String, bool)> {
    if sandbox.mode == SandboxMode::Off.to_string() {
        let all = Layer::VARIANTS.iter();
        return all.map(|layer| (layer.to_string(), false)).collect();
    }
    let held = sandbox.layers.iter().map(|layer| (layer.clone(), true));
    let missing = sandbox.missing.keys().map(|layer| (layer.clone(), false));
    held.chain(missing).collect()
}

fn of_pools(to: &mut Snapshot, pools: &Named<PoolMetrics>) {
    for (name, pool) in pools {
        let counts = pool.counted();
        to.add("settee_pool_wait_seconds", &[name], counts.wait.get());
        to.add("settee_pool_open_seconds", &[name], counts.open.get());
        let failures = &counts.open_failures;
        add_by(to, "settee_pool_open_failures_total", name, failures);
        add_by(to, "settee_pool_timeouts_total", name, &counts.timeouts);
        add_by(to, "settee_pool_refusals_total", name, &counts.refusals);
        add_by(to, "settee_pool_returns_total", name, &counts.returns);
        to.add("settee_pool_forgets_total", &[name], counts.forgets.get());
        for (reason, count) in counts.stops() {
            to.add("settee_pool_stops_total", &[name, reason], count);
        }
        for (call, count) in counts.refused_calls.by_name() {
            to.add("settee_sandbox_refusals_total", &[name, &call], count);
        }
    }
}

fn of_languages(to: &mut Snapshot, languages: &Named<LanguageMetrics>) {
    for (name, language) in languages {
        let times = merged(PromptClass::ALL.map(|class| language.answered_by(class)));
        to.add("settee_prompt_seconds", &[name], times);
        add_by(to, "settee_prompt_errors_total", name, &language.failures);
        let (sent, received) = (language.prompt_bytes.get(), language.answer_bytes.get());
        to.add("settee_prompt_bytes_total", &[name], sent);
        to.add("settee_answer_bytes_total", &[name], received);
        add_by(to, "settee_kills_total", name, &language.kills);
    }
}

fn clients(to: &mut Snapshot, clients: &ClientMetrics) {
    to.add("settee_clients", &[], clients.connected.get());
    to.add("settee_clients_accepted_total", &[], clients.accepted.get());
    let (received, sent) = (clients.received_bytes.get(), clients.sent_bytes.get());
    to.add("settee_client_received_bytes_total", &[], received);
    to.add("settee_client_sent_bytes_total", &[], sent);
}

fn of_services(to: &mut Snapshot, services: &Named<ServiceMetrics>) {
    for (name, service) in services {
        let clients = service.connections();
        to.add(
            "settee_service_connections",
            &[name],
            clients.connected.get(),
        );
        to.add(
            "settee_service_accepted_total",
            &[name],
            clients.accepted.get(),
        );
        let (received, sent) = (clients.received_bytes.get(), clients.sent_bytes.get());
        to.add("settee_service_received_bytes_total", &[name], received);
        to.add("settee_service_sent_bytes_total", &[name], sent);
        to.add("settee_service_listening", &[name], service.listening.get());
        let reached = service.limit_reached.get();
        to.add("settee_service_limit_reached_total", &[name], reached);
        add_by(to, "settee_service_ends_total", name, &service.ends);
    }
}

/// The services that are there, before which pools. As with pools, a row may be of several.
fn status_of_services(
    to: &mut Snapshot,
    status: &DaemonStatus,
    service_rows: &Rows<'_>,
    pool_rows: &Rows<'_>,
) {
    let mut by_row: BTreeMap<[&str; 2], Vec<&ServiceStatus>> = BTreeMap::new();
    for service in &status.services {
        let row = [
            service_rows.of_name(&service.name),
            pool_rows.of_name(&service.pool),
        ];
        by_row.entry(row).or_default().push(service);
    }
    for (labels, services) in by_row {
        let limits = services.iter().filter_map(|service| service.limit);
        if let Some(limit) = limits.reduce(u32::saturating_add) {
            to.add("settee_service_limit", &labels, limit);
        }
        let longest = |time: fn(&ServiceStatus) -> Option<u64>| {
            let times = services.iter().filter_map(|service| time(service));
            seconds(times.max().unwrap_or(0))
        };
        let throttled = longest(|service| service.throttled_ms);
        to.add("settee_service_throttled_seconds", &labels, throttled);
        let stressed = longest(|service| service.stressed_ms);
        to.add("settee_service_stressed_seconds", &labels, stressed);
    }
}

/// Adds a sample for each reason.
fn add_by<R>(to: &mut Snapshot, metric: &str, name: &str, counters: &CountersBy<R>)
where
    R: VariantArray + Copy + PartialEq + Into<&'static str>,
{
    for (reason, count) in counters.by_name() {
        to.add(metric, &[name, reason], count);
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}

fn merged(all: impl IntoIterator<Item = Times>) -> Times {
    let mut merged = Times::default();
    all.into_iter().for_each(|times| merged.merge(&times));
    merged
}
