//! Metrics in both formats, under names that do not collide.

use std::collections::BTreeSet;
use std::time::Duration;

use regex::Regex;
use serde_json::{Value as Json, json};
use strum::VariantArray;

use super::*;
use crate::messages::process::{ExitReport, PromptError};
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::PoolStatus;
use policy::pool::{Phase, ReturnStatus, StopReason};

/// A worst-case name.
const STRANGE: &str = "a \"strange\\\nname";

impl Snapshot {
    /// Returns a metric by its Prometheus name.
    pub(super) fn family(&self, prometheus: &str) -> Option<&snapshot::Family> {
        let mut families = self.families.iter();
        families.find(|family| family.definition.prometheus == prometheus)
    }

    /// Returns the value of a counter or a gauge, or a histogram's count, by Prometheus name and the values of labels.
    pub(crate) fn number(&self, prometheus: &str, labels: &[&str]) -> Option<f64> {
        let samples = &self.family(prometheus)?.samples;
        let sample = samples.iter().find(|sample| sample.labels == labels)?;
        Some(match &sample.value {
            Value::Number(number) => *number as f64,
            Value::Real(real) => *real,
            Value::Times(times) => times.count() as f64,
        })
    }
}

/// Counts one of each kind, with a pool's state.
fn counted() -> Snapshot {
    let metrics = Metrics::new();
    let pool = metrics.pool("javascript");
    let count = pool.count();
    count.wait.observe(Duration::from_millis(1));
    count.open.observe(Duration::from_millis(30));
    count.open_failures.one(OpenFailure::Host);
    count.returns.one(ReturnStatus::Lost);
    pool.request_timed_out(Phase::Teach);
    pool.prompt_timed_out();
    count.stops.one(StopReason::Shutdown);
    let language = metrics.language("javascript");
    language.prompts_sent(1, b"[\"reset\"]".len());
    for class in PromptClass::VARIANTS {
        language.prompt_done(*class, Duration::from_micros(1500), &Ok(b"[]"));
    }
    language.prompt_done(
        PromptClass::Map,
        Duration::ZERO,
        &Err::<&[u8], _>(PromptError::Exited(ExitReport::default())),
    );
    language.kills.one(KillReason::Overdue);
    language.exited(true);
    language.exited(false);
    language.exited(false);
    metrics.clients().connected.up();
    metrics.http_request("GET", 200, Duration::from_millis(2));
    metrics.http_request("PATCH", 405, Duration::from_millis(2));
    metrics.http_request("GET", 9999, Duration::from_millis(2));
    metrics.invariant_violated(Invariant::Pm5);
    metrics.pool(STRANGE);
    metrics.snapshot(&DaemonStatus {
        pools: vec![PoolStatus {
            name: STRANGE.into(),
            used: 2,
            waiting: 3,
            longest_wait_ms: 1500,
            ..PoolStatus::default()
        }],
        services: Vec::new(),
        proc_count: 7,
        stale_proc_count: 1,
    })
}

fn at(stats: &Json, path: &str) -> Json {
    stats_at(stats, path).clone()
}

#[test]
fn stats_have_the_paths_and_leaves_of_couchdb() {
    let stats = stats_json(&counted());
    let value = |path: &str| at(&stats, &format!("/couchdb/query_server/{path}/value"));
    for (path, expected) in [
        ("vdu_rejects", 1),
        ("acquired_processes", 1),
        ("process_starts", 1),
        ("process_exits", 1),
        ("process_error_exits", 2),
        ("process_errors", 1),
        ("process_prompts", 1),
        ("process_count", 7),
        ("calls/spawn_proc", 1),
        ("calls/map", 1),
        ("calls/ddoc_vdu", 1),
        ("time/spawn_proc", 30_000),
        ("time/reduce", 1500),
        ("time/other", 1500),
    ] {
        assert_eq!(value(path), expected, "{path}");
    }
    let leaf = at(&stats, "couchdb/query_server/process_starts");
    assert_eq!(leaf["type"], "counter");
    assert!(leaf["desc"].is_string());
    let histogram = at(&stats, "/couchdb/query_server/vdu_process_time");
    assert_eq!(histogram["type"], "histogram");
    assert_eq!(histogram["value"]["n"], 1);
    assert_eq!(histogram["value"]["arithmetic_mean"], 1.5);
    assert_eq!(histogram["value"]["percentile"][5][0], 999);
    assert_eq!(histogram["value"]["histogram"], json!([[2.0, 1]]));
}

#[test]
fn an_unknown_path_is_null() {
    let stats = stats_json(&counted());
    assert_eq!(*stats_at(&stats, ""), stats);
    for path in ["/nothing", "/couchdb/query_server/process_starts/value/x"] {
        assert_eq!(*stats_at(&stats, path), Json::Null, "{path}");
    }
}

#[test]
fn an_empty_histogram_is_all_zeros() {
    let stats = stats_json(&Metrics::new().snapshot(&DaemonStatus::default()));
    let value = at(&stats, "/couchdb/query_server/vdu_process_time/value");
    for (name, figure) in value.as_object().expect("an object") {
        match name.as_str() {
            "percentile" => assert_eq!(figure[0], json!([50, 0.0])),
            "histogram" => assert_eq!(*figure, json!([])),
            _ => assert_eq!(figure.as_f64(), Some(0.0), "{name}"),
        }
    }
}

#[test]
fn every_prometheus_line_is_well_formed_and_belongs_to_the_family_above_it() {
    let text = prometheus_text(&counted());
    let sample = r#"^([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\[\\"n])*"(?:,[a-z]+="(?:[^"\\]|\\[\\"n])*")*\})? (\S+)$"#;
    let sample = Regex::new(sample).expect("a pattern");
    let (mut name, mut kind) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (help_name, help) = rest.split_once(' ').expect("a name and a meaning");
            assert!(!help.is_empty());
            name = help_name.to_owned();
            assert!(seen.insert(name.clone()), "{name} appears twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (type_name, type_kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(type_name, name);
            kind = type_kind.to_owned();
        } else {
            let parts = sample.captures(line).unwrap_or_else(|| panic!("{line}"));
            let own = &parts[1];
            let suffix = own.strip_prefix(&name).unwrap_or_else(|| panic!("{line}"));
            match kind.as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                "summary" => assert!(["", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            assert!(parts[3].parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[test]
fn prometheus_metrics_have_base_units_and_couchdbs_names() {
    let text = prometheus_text(&counted());
    for line in [
        "couchdb_query_server_process_starts_total 1",
        "couchdb_query_server_process_count 7",
        "couchdb_query_server_calls_spawn_proc_total 1",
        "couchdb_query_server_time_map_total 1500",
        "couchdb_query_server_vdu_process_time_seconds_sum 0.0015",
        "couchdb_query_server_vdu_process_time_seconds_count 1",
        "couchdb_httpd_status_codes{code=\"200\"} 1",
        "couchdb_httpd_requests_total 3",
        "settee_pool_open_seconds_bucket{pool=\"javascript\",le=\"0.02\"} 0",
        "settee_pool_open_seconds_bucket{pool=\"javascript\",le=\"0.05\"} 1",
        "settee_pool_open_seconds_bucket{pool=\"javascript\",le=\"+Inf\"} 1",
        "settee_pool_waiters{pool=\"a \\\"strange\\\\\\nname\"} 3",
        "settee_pool_timeouts_total{pool=\"javascript\",phase=\"prompt\"} 1",
        "settee_pool_stops_total{pool=\"javascript\",reason=\"shutdown\"} 1",
        "settee_prompt_errors_total{language=\"javascript\",reason=\"exit\"} 1",
        "settee_invariant_violations_total{invariant=\"PM-5\"} 1",
        "settee_clients 1",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
}

#[test]
fn names_follow_the_conventions() {
    for family in counted().families {
        let Definition {
            prometheus, kind, ..
        } = family.definition;
        let unit = family.definition.unit();
        if let Some(own) = prometheus.strip_prefix("settee_") {
            assert_eq!(own.ends_with("_total"), *kind == Kind::Counter, "{own}");
            let stem = own.trim_end_matches("_total");
            assert_eq!(stem.ends_with("_seconds"), unit == "s", "{own}");
            assert_eq!(stem.ends_with("_bytes"), unit == "bytes", "{own}");
        }
        for sample in &family.samples {
            assert_eq!(sample.labels.len(), family.definition.labels.len());
        }
    }
}

#[test]
fn process_metrics_are_plausible() {
    let metrics = Metrics::new();
    let read = |name: &str| {
        let number = metrics.snapshot(&DaemonStatus::default()).number(name, &[]);
        number.unwrap_or_else(|| panic!("{name}"))
    };
    let before = read("process_cpu_seconds_total");
    while read("process_cpu_seconds_total") < before + 0.01 {
        std::hint::black_box(before);
    }
    assert!(read("process_resident_memory_bytes") > f64::from(1 << 20));
    let virtual_memory = read("process_virtual_memory_bytes");
    assert!(virtual_memory >= read("process_resident_memory_bytes"));
    assert!(read("process_threads") >= 1.0);
    let started = Duration::from_secs_f64(read("process_start_time_seconds"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("a clock");
    assert!(started <= now && now - started < Duration::from_secs(86_400));
    assert!(read("process_open_fds") >= 3.0);
    assert!(read("process_max_fds") >= read("process_open_fds"));
}

#[test]
fn concurrent_counts_are_not_lost() {
    let metrics = Metrics::new();
    let language = metrics.language("python");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    language.prompt_done(PromptClass::Map, Duration::from_micros(1), &Ok(b"[]"));
                }
            });
        }
    });
    let snapshot = metrics.snapshot(&DaemonStatus::default());
    let calls = snapshot.number("couchdb_query_server_calls_map_total", &[]);
    assert_eq!(calls, Some(40_000.0));
    let time = snapshot.number("couchdb_query_server_time_map_total", &[]);
    assert_eq!(time, Some(40_000.0));
}
