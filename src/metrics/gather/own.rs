//! The metrics that CouchDB does not have: the service, its pools, languages and clients.

use std::sync::Arc;
use std::time::SystemTime;

use super::super::Inner;
use super::super::language::LanguageMetrics;
use super::super::pool::PoolMetrics;
use super::super::snapshot::{Definition, Kind, Sample};
use super::{List, each, merged, sample};
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::{DaemonStatus, PoolStatus};
use policy::invariants::Invariant;

/// The service itself.
pub(super) fn service(list: &mut List, inner: &Inner) {
    list.add(
        Definition {
            stats: None,
            prometheus: "couchdb_uptime_seconds".into(),
            kind: Kind::Gauge,
            unit: "s",
            labels: &[],
            help: "Time since the service was started",
        },
        [sample(&[], inner.started.elapsed().as_secs_f64())],
    );
    let started = inner.started_at.duration_since(SystemTime::UNIX_EPOCH);
    list.seconds(
        "start_time",
        &[],
        "When the service was started, in seconds since 1970 in UTC",
        [sample(&[], started.unwrap_or_default().as_secs_f64())],
    );
    list.gauge(
        "build_info",
        &["version"],
        "1, with the version of the program",
        [sample(&[env!("CARGO_PKG_VERSION")], 1)],
    );
    list.counter(
        "log_records_dropped",
        &[],
        "Log records lost because they came too fast",
        [sample(&[], inner.log_dropped())],
    );
    let judged = Invariant::ALL.into_iter().zip(&inner.invariants);
    let judged = judged.filter(|(id, _)| id.is_judged_on_tables());
    list.counter(
        "invariant_violations",
        &["invariant"],
        "Checks that found an invariant of the pool's tables broken: a mistake of ours",
        judged.map(|(id, count)| sample(&[&id.to_string()], count.get())),
    );
}

/// What the manager says of its pools.
pub(super) fn pools_now(list: &mut List, status: &DaemonStatus) {
    let in_states = status.pools.iter().flat_map(|pool| {
        let states = [
            ("used", pool.used),
            ("idle", pool.free),
            ("opening", pool.opening),
            ("stopping", pool.stopping),
        ];
        states.map(|(state, count)| sample(&[&pool.name, state], u64::from(count)))
    });
    list.gauge(
        "pool_processes",
        &["pool", "state"],
        "Processes, by what they do: used, idle, opening, stopping",
        in_states,
    );
    let each_pool = |value: fn(&PoolStatus) -> u32| -> Vec<Sample> {
        let pools = status.pools.iter();
        pools
            .map(|pool| sample(&[&pool.name], u64::from(value(pool))))
            .collect()
    };
    list.gauge(
        "pool_process_limit",
        &["pool"],
        "The most processes that there may be: max, os_process_limit",
        each_pool(|pool| pool.hard_limit),
    );
    list.gauge(
        "pool_tagged_processes",
        &["pool"],
        "Idle processes that are tied to a database",
        each_pool(|pool| pool.free_tagged),
    );
    list.gauge(
        "pool_waiters",
        &["pool"],
        "Requests that wait for a process or for room to start one",
        each_pool(|pool| pool.waiting),
    );
    list.gauge(
        "pool_throttled",
        &["pool"],
        "1 while no process is started because a start failed, 0 otherwise",
        each_pool(|pool| u32::from(pool.throttled_ms.is_some())),
    );
    list.gauge(
        "pool_stressed",
        &["pool"],
        "1 while processes are started with stress on, 0 otherwise",
        each_pool(|pool| u32::from(pool.stressed_ms.is_some())),
    );
    let waits = status.pools.iter();
    list.seconds(
        "pool_longest_wait",
        &["pool"],
        "How long the oldest of those requests has waited",
        waits.map(|pool| sample(&[&pool.name], pool.longest_wait_ms as f64 / 1e3)),
    );
    list.gauge(
        "stale_processes",
        &[],
        "Processes from before the last reload, which go when they come back",
        [sample(&[], u64::from(status.stale_proc_count))],
    );
}

/// What happened in the pools.
pub(super) fn pools_so_far(list: &mut List, pools: &[Arc<PoolMetrics>]) {
    list.times(
        "pool_wait",
        &["pool"],
        "Time from a request to the process that it got, starting and teaching included",
        pools.iter().map(|pool| sample(&[pool.name()], pool.wait())),
    );
    list.times(
        "pool_open",
        &["pool"],
        "Time in which a process was started",
        pools.iter().map(|pool| sample(&[pool.name()], pool.open())),
    );
    list.counter(
        "pool_open_failures",
        &["pool", "reason"],
        "Processes that could not be started: timeout, stopped (not wanted any more), \
         query_server (its command is wrong or it ended at once), host (no resources), client (its \
         language is not configured any more), settee (a mistake of ours)",
        each(pools, PoolMetrics::name, PoolMetrics::open_failures),
    );
    list.counter(
        "pool_timeouts",
        &["pool", "phase"],
        "Times that were up: for a request in the queue, while its process was opened or taught; for \
         a prompt",
        each(pools, PoolMetrics::name, PoolMetrics::timeouts),
    );
    list.counter(
        "pool_refusals",
        &["pool", "reason"],
        "Requests that were refused at once: busy (as many wait as may), throttled (no process is \
         started for a while), removed (the pool was)",
        each(pools, PoolMetrics::name, PoolMetrics::refusals),
    );
    list.counter(
        "pool_returns",
        &["pool", "status"],
        "Processes that came back: ok, fail (its client found it broken), lost (its client died or \
         let go of it)",
        each(pools, PoolMetrics::name, PoolMetrics::returns),
    );
    list.counter(
        "pool_stops",
        &["pool", "reason"],
        "Processes that the pool told to stop: idle, stale, reaped (for another database), \
         over_limit, failed (said its client), broken (in mid-work), teach_failed, reset_failed, \
         uses, age, memory, memory_hard, culled, client_crashed, stress, removed, shutdown",
        each(pools, PoolMetrics::name, PoolMetrics::stops),
    );
}

/// What happened to prompts and processes.
pub(super) fn languages_so_far(list: &mut List, languages: &[Arc<LanguageMetrics>]) {
    let prompts = |language: &LanguageMetrics| {
        merged(PromptClass::ALL.map(|class| language.answered_by(class)))
    };
    let each_language = |count: fn(&LanguageMetrics) -> u64| -> Vec<Sample> {
        let languages = languages.iter();
        languages
            .map(|language| sample(&[language.name()], count(language)))
            .collect()
    };
    let times = languages.iter();
    list.times(
        "prompt",
        &["language"],
        "Time of answered prompts, from when each was the oldest one unanswered",
        times.map(|language| sample(&[language.name()], prompts(language))),
    );
    list.counter(
        "prompt_errors",
        &["language", "reason"],
        "Prompts that failed: function (an error line), timeout, exit (the process ended), protocol \
         (the process broke it)",
        each(languages, LanguageMetrics::name, LanguageMetrics::failures),
    );
    list.counter(
        "prompt_bytes",
        &["language"],
        "Size of the prompts sent, without line feeds",
        each_language(LanguageMetrics::prompt_bytes),
    );
    list.counter(
        "answer_bytes",
        &["language"],
        "Size of the answers, without line feeds",
        each_language(LanguageMetrics::answer_bytes),
    );
    list.counter(
        "kills",
        &["language", "reason"],
        "Processes killed, or given up where they run inside the service: timeout, protocol (broke \
         it), fatal (reported a fatal error), overdue (told to stop and did not), stopped (not to be \
         trusted any more, or the service had to end at once)",
        each(languages, LanguageMetrics::name, LanguageMetrics::kills),
    );
}

/// The client socket.
pub(super) fn clients(list: &mut List, inner: &Inner) {
    let clients = &inner.clients;
    list.gauge(
        "clients",
        &[],
        "Connections on the client socket",
        [sample(&[], clients.connected.get())],
    );
    list.counter(
        "clients_accepted",
        &[],
        "Connections that were ever accepted",
        [sample(&[], clients.accepted.get())],
    );
    list.counter(
        "client_received_bytes",
        &[],
        "What clients sent on the client socket",
        [sample(&[], clients.received_bytes.get())],
    );
    list.counter(
        "client_sent_bytes",
        &[],
        "What was sent to clients on the client socket",
        [sample(&[], clients.sent_bytes.get())],
    );
}
