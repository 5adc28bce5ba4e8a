//! The metrics that CouchDB does not have: the service, its pools, languages and clients.

use std::sync::Arc;
use std::time::SystemTime;

use super::super::Inner;
use super::super::cells::Times;
use super::super::language::LanguageMetrics;
use super::super::pool::PoolMetrics;
use super::super::snapshot::{Definition, Kind};
use super::{List, Own, by_reason, each, merged, sample};
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::{PoolStatus, ServiceStatus};
use policy::invariants::Invariant;

/// Something of a pool as it is now.
type Now = fn(&PoolStatus) -> u32;

/// Some times of a pool.
type PoolTimes = fn(&PoolMetrics) -> Times;

/// A count of a language.
type LanguageCount = fn(&LanguageMetrics) -> u64;

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
    list.settee(
        Own {
            stats: "start_time",
            prometheus: "start_time_seconds",
            kind: Kind::Gauge,
            unit: "s",
            labels: &[],
            help: "When the service was started, in seconds since 1970 in UTC",
        },
        [sample(&[], started.unwrap_or_default().as_secs_f64())],
    );
    list.settee(
        Own {
            stats: "build_info",
            prometheus: "build_info",
            kind: Kind::Gauge,
            unit: "",
            labels: &["version"],
            help: "1, with the version of the program",
        },
        [sample(&[env!("CARGO_PKG_VERSION")], 1)],
    );
    list.settee(
        Own {
            stats: "log_records_dropped",
            prometheus: "log_records_dropped_total",
            kind: Kind::Counter,
            unit: "",
            labels: &[],
            help: "Log records lost because they came too fast",
        },
        [sample(&[], inner.log_dropped())],
    );
    let judged = Invariant::ALL.into_iter().zip(&inner.invariants);
    let judged = judged.filter(|(id, _)| id.predicate().is_some());
    list.settee(
        Own {
            stats: "invariant_violations",
            prometheus: "invariant_violations_total",
            kind: Kind::Counter,
            unit: "",
            labels: &["invariant"],
            help: "Checks that found an invariant of the pool's tables broken: a mistake of ours",
        },
        judged.map(|(id, count)| sample(&[&id.to_string()], count.get())),
    );
}

/// What the manager says of its pools.
pub(super) fn pools_now(list: &mut List, status: &ServiceStatus) {
    const PROCESSES: [(&str, Now); 4] = [
        ("used", |pool| pool.used),
        ("idle", |pool| pool.free),
        ("opening", |pool| pool.opening),
        ("stopping", |pool| pool.stopping),
    ];
    let in_states = status.pools.iter().flat_map(|pool| {
        PROCESSES.map(|(state, count)| sample(&[&pool.name, state], u64::from(count(pool))))
    });
    list.settee(
        Own {
            stats: "pool_processes",
            prometheus: "pool_processes",
            kind: Kind::Gauge,
            unit: "",
            labels: &["pool", "state"],
            help: "Processes, by what they do: used, idle, opening, stopping",
        },
        in_states,
    );
    let gauges: [(&str, &str, Now); 5] = [
        (
            "pool_process_limit",
            "The most processes that there may be: max, os_process_limit",
            |pool| pool.hard_limit,
        ),
        (
            "pool_tagged_processes",
            "Idle processes that are tied to a database",
            |pool| pool.free_tagged,
        ),
        (
            "pool_waiters",
            "Requests that wait for a process or for room to start one",
            |pool| pool.waiting,
        ),
        (
            "pool_throttled",
            "1 while no process is started because a start failed, 0 otherwise",
            |pool| u32::from(pool.throttled_ms.is_some()),
        ),
        (
            "pool_stressed",
            "1 while processes are started with stress on, 0 otherwise",
            |pool| u32::from(pool.stressed_ms.is_some()),
        ),
    ];
    for (name, help, value) in gauges {
        list.settee(
            Own {
                stats: name,
                prometheus: name,
                kind: Kind::Gauge,
                unit: "",
                labels: &["pool"],
                help,
            },
            status
                .pools
                .iter()
                .map(|pool| sample(&[&pool.name], u64::from(value(pool)))),
        );
    }
    list.settee(
        Own {
            stats: "pool_longest_wait",
            prometheus: "pool_longest_wait_seconds",
            kind: Kind::Gauge,
            unit: "s",
            labels: &["pool"],
            help: "How long the oldest of those requests has waited",
        },
        status
            .pools
            .iter()
            .map(|pool| sample(&[&pool.name], pool.longest_wait_ms as f64 / 1e3)),
    );
    list.settee(
        Own {
            stats: "stale_processes",
            prometheus: "stale_processes",
            kind: Kind::Gauge,
            unit: "",
            labels: &[],
            help: "Processes from before the last reload, which go when they come back",
        },
        [sample(&[], u64::from(status.stale_proc_count))],
    );
}

/// What happened in the pools.
pub(super) fn pools_so_far(list: &mut List, pools: &[Arc<PoolMetrics>]) {
    let times: [(&str, &str, &str, PoolTimes); 2] = [
        (
            "pool_wait_time",
            "pool_wait_seconds",
            "Time from a request to the process that it got, starting and teaching included",
            PoolMetrics::wait,
        ),
        (
            "pool_open_time",
            "pool_open_seconds",
            "Time in which a process was started",
            PoolMetrics::open,
        ),
    ];
    for (stats, prometheus, help, get) in times {
        let own = Own {
            stats,
            prometheus,
            kind: Kind::Histogram,
            unit: "s",
            labels: &["pool"],
            help,
        };
        list.settee(
            own,
            pools.iter().map(|pool| sample(&[pool.name()], get(pool))),
        );
    }
    by_reason(
        list,
        ("pool_open_failures", "pool_open_failures_total"),
        &["pool", "reason"],
        "Processes that could not be started: timeout, stopped (not wanted any more), \
         query_server (its command is wrong or it ended at once), host (no resources), client (its \
         language is not configured any more), settee (a mistake of ours)",
        each(pools, PoolMetrics::name, PoolMetrics::open_failures),
    );
    by_reason(
        list,
        ("pool_timeouts", "pool_timeouts_total"),
        &["pool", "phase"],
        "Times that were up: for a request in the queue, while its process was opened or taught; for \
         a prompt",
        each(pools, PoolMetrics::name, PoolMetrics::timeouts),
    );
    by_reason(
        list,
        ("pool_refusals", "pool_refusals_total"),
        &["pool", "reason"],
        "Requests that were refused at once: busy (as many wait as may), throttled (no process is \
         started for a while), removed (the pool was)",
        each(pools, PoolMetrics::name, PoolMetrics::refusals),
    );
    by_reason(
        list,
        ("pool_returns", "pool_returns_total"),
        &["pool", "status"],
        "Processes that came back: ok, fail (its client found it broken), lost (its client died or \
         let go of it)",
        each(pools, PoolMetrics::name, PoolMetrics::returns),
    );
    by_reason(
        list,
        ("pool_stops", "pool_stops_total"),
        &["pool", "reason"],
        "Processes that the pool told to stop: idle, stale, reaped (for another database), \
         over_limit, failed (said its client), broken (in mid-work), teach_failed, reset_failed, \
         uses, age, memory, memory_hard, culled, client_crashed, stress, removed, shutdown",
        each(pools, PoolMetrics::name, PoolMetrics::stops),
    );
}

/// What happened to prompts and processes.
pub(super) fn languages_so_far(list: &mut List, languages: &[Arc<LanguageMetrics>]) {
    let own = Own {
        stats: "prompt_time",
        prometheus: "prompt_seconds",
        kind: Kind::Histogram,
        unit: "s",
        labels: &["language"],
        help: "Time of answered prompts, from when each was the oldest one unanswered",
    };
    let prompts = |language: &LanguageMetrics| {
        merged(PromptClass::ALL.map(|class| language.answered_by(class)))
    };
    let samples = languages
        .iter()
        .map(|language| sample(&[language.name()], prompts(language)));
    list.settee(own, samples);
    by_reason(
        list,
        ("prompt_errors", "prompt_errors_total"),
        &["language", "reason"],
        "Prompts that failed: function (an error line), timeout, exit (the process ended), protocol \
         (the process broke it)",
        each(languages, LanguageMetrics::name, LanguageMetrics::failures),
    );
    let bytes: [(&str, &str, &str, LanguageCount); 2] = [
        (
            "prompt_bytes",
            "prompt_bytes_total",
            "Size of the prompts sent, without line feeds",
            LanguageMetrics::prompt_bytes,
        ),
        (
            "answer_bytes",
            "answer_bytes_total",
            "Size of the answers, without line feeds",
            LanguageMetrics::answer_bytes,
        ),
    ];
    for (stats, prometheus, help, get) in bytes {
        let own = Own {
            stats,
            prometheus,
            kind: Kind::Counter,
            unit: "bytes",
            labels: &["language"],
            help,
        };
        let samples = languages
            .iter()
            .map(|language| sample(&[language.name()], get(language)));
        list.settee(own, samples);
    }
    by_reason(
        list,
        ("kills", "kills_total"),
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
    for (stats, prometheus, kind, unit, help, value) in [
        (
            "clients",
            "clients",
            Kind::Gauge,
            "",
            "Connections on the client socket",
            clients.connected.get(),
        ),
        (
            "clients_accepted",
            "clients_accepted_total",
            Kind::Counter,
            "",
            "Connections that were ever accepted",
            clients.accepted.get(),
        ),
        (
            "client_received_bytes",
            "client_received_bytes_total",
            Kind::Counter,
            "bytes",
            "What clients sent on the client socket",
            clients.received_bytes.get(),
        ),
        (
            "client_sent_bytes",
            "client_sent_bytes_total",
            Kind::Counter,
            "bytes",
            "What was sent to clients on the client socket",
            clients.sent_bytes.get(),
        ),
    ] {
        let own = Own {
            stats,
            prometheus,
            kind,
            unit,
            labels: &[],
            help,
        };
        list.settee(own, [sample(&[], value)]);
    }
}
