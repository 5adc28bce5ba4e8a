//! The number of series is bounded, regardless of the number of pools, languages and services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::definition::DEFINITIONS;
use super::names::{NAMES_MAX, REST};
use super::*;
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::{PoolStatus, SandboxStatus, ServiceStatus};
use policy::pool::{ReturnStatus, StopReason};

/// Returns a metric's row of the table in `docs/metrics.md`.
fn row(metric: &Definition) -> String {
    let stats = metric
        .stats
        .map_or_else(String::new, |name| format!(" `{name}`"));
    let mut kind = vec![metric.kind.prometheus().to_owned()];
    kind.extend((!metric.unit().is_empty()).then(|| metric.unit().to_owned()));
    let names = metric.labels.iter();
    let labels: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    kind.extend((!labels.is_empty()).then(|| format!("by {}", labels.join(" and "))));
    let (name, kind, help) = (metric.prometheus, kind.join(", "), metric.help);
    format!("|{stats} | `{name}` | {kind} | {help} |\n")
}

/// A pool's state with numbers that the tests expect.
fn pool_of(name: &str) -> PoolStatus {
    PoolStatus {
        name: name.into(),
        language: "python".into(),
        used: 1,
        hard_limit: 10,
        longest_wait_ms: 2000,
        ..PoolStatus::default()
    }
}

#[test]
fn names_beyond_the_bound_share_a_row_and_their_number_is_reported() {
    let metrics = Metrics::new();
    let names: Vec<_> = (0..NAMES_MAX + 10)
        .map(|number| format!("pool{number}"))
        .collect();
    let counts: Vec<_> = names.iter().map(|name| metrics.pool(name)).collect();
    for pool in &counts {
        pool.count().returns.one(ReturnStatus::Ok);
    }
    let snapshot = metrics.snapshot(&DaemonStatus {
        pools: names.iter().map(|name| pool_of(name)).collect(),
        ..DaemonStatus::default()
    });
    for name in ["settee_pool_wait_seconds", "settee_pool_waiters"] {
        let family = snapshot.family(name).expect("a family");
        assert_eq!(family.samples.len(), NAMES_MAX + 1, "{name}");
    }
    for (name, labels, expected) in [
        ("settee_pool_returns_total", &[REST, "ok"][..], 10.0),
        ("settee_pool_processes", &[REST, "used"], 10.0),
        ("settee_pool_process_limit", &[REST], 100.0),
        ("settee_pool_longest_wait_seconds", &[REST], 2.0),
        ("settee_names_left_out", &["pool"], 10.0),
        ("settee_names_left_out", &["language"], 0.0),
        ("settee_names_left_out", &["service"], 0.0),
    ] {
        let number = snapshot.number(name, labels);
        assert_eq!(number, Some(expected), "{name} {labels:?}");
    }
    let stats = stats_json(&snapshot);
    assert_eq!(*stats_at(&stats, "settee/pool_returns/_other/ok/value"), 10);
    assert!(Arc::ptr_eq(&metrics.pool("pool3"), &counts[3]));
}

#[test]
fn the_row_of_a_removed_name_is_reused_and_no_total_falls() {
    let metrics = Metrics::new();
    for number in 0..NAMES_MAX + 50 {
        let pool = metrics.pool(&format!("gone{number}"));
        let count = pool.count();
        count.wait.observe(Duration::from_millis(1));
        count.returns.one(ReturnStatus::Ok);
        count.stops.one(StopReason::Removed);
        count.refused_calls.add("mount", 1);
        let language = metrics.language(&format!("gone{number}"));
        language.prompt_done(PromptClass::Map, Duration::from_micros(1), &Ok(b"[]"));
        let service = metrics.service(&format!("gone{number}"));
        service.connections().accepted.one();
        service.ends.one(LendEnd::Idle);
    }
    let name = "new";
    let counts = (
        metrics.pool(name),
        metrics.language(name),
        metrics.service(name),
    );
    counts.0.count().returns.one(ReturnStatus::Fail);
    let snapshot = metrics.snapshot(&DaemonStatus {
        pools: vec![pool_of(name)],
        ..DaemonStatus::default()
    });
    let number = |name: &str, labels: &[&str]| snapshot.number(name, labels);
    let all = |name: &str| -> f64 {
        let samples = &snapshot.family(name).expect("a family").samples;
        let labels = samples.iter().map(|sample| &sample.labels);
        let labels = labels.map(|labels| labels.iter().map(String::as_str).collect::<Vec<_>>());
        labels.filter_map(|labels| number(name, &labels)).sum()
    };
    let count = (NAMES_MAX + 50) as f64;
    for (name, expected) in [
        ("couchdb_query_server_acquired_processes_total", count),
        ("couchdb_query_server_calls_map_total", count),
        ("settee_pool_wait_seconds", count),
        ("settee_pool_returns_total", count + 1.0),
        ("settee_pool_stops_total", count),
        ("settee_sandbox_refusals_total", count),
        ("settee_prompt_seconds", count),
        ("settee_service_accepted_total", count),
        ("settee_service_ends_total", count),
    ] {
        assert_eq!(all(name), expected, "{name}");
    }
    let own = number("settee_pool_returns_total", &[name, "fail"]);
    assert_eq!(own, Some(1.0));
    let state = number("settee_pool_processes", &[name, "used"]);
    assert_eq!(state, Some(1.0));
    assert_eq!(number("settee_names_left_out", &["pool"]), Some(0.0));
}

#[test]
fn a_pool_being_removed_and_its_namesake_share_a_row() {
    let metrics = Metrics::new();
    let _counts = metrics.pool("p");
    let sandbox = |missing: &[&str]| SandboxStatus {
        mode: "standard".into(),
        layers: vec!["files".into()],
        missing: missing
            .iter()
            .map(|layer| ((*layer).into(), String::new()))
            .collect(),
        error: None,
    };
    let going = PoolStatus {
        removing: Some("graceful".into()),
        throttled_ms: Some(1),
        sandbox: Some(sandbox(&["pids"])),
        ..pool_of("p")
    };
    let staying = PoolStatus {
        sandbox: Some(sandbox(&[])),
        ..pool_of("p")
    };
    let snapshot = metrics.snapshot(&DaemonStatus {
        pools: vec![going, staying],
        ..DaemonStatus::default()
    });
    for (name, labels, expected) in [
        ("settee_pool_processes", &["p", "used"][..], 2.0),
        ("settee_pool_process_limit", &["p"], 20.0),
        ("settee_pool_throttled", &["p"], 1.0),
        ("settee_pool_stressed", &["p"], 0.0),
        ("settee_pool_longest_wait_seconds", &["p"], 2.0),
        ("settee_sandbox_layers", &["p", "files"], 1.0),
        ("settee_sandbox_layers", &["p", "pids"], 0.0),
    ] {
        let number = snapshot.number(name, labels);
        assert_eq!(number, Some(expected), "{name} {labels:?}");
        let samples = &snapshot.family(name).expect("a family").samples;
        let same = samples.iter().filter(|sample| sample.labels == labels);
        assert_eq!(same.count(), 1, "{name} {labels:?}");
    }
}

const DOCUMENT: &str = include_str!("../../docs/metrics.md");

#[test]
fn the_page_has_the_table_of_all_metrics() {
    let (text, table) = DOCUMENT.split_once("## Metrics\n\n").expect("a section");
    let head: String = table.split_inclusive('\n').take(2).collect();
    let rows: String = DEFINITIONS.iter().map(|metric| row(metric)).collect();
    let page = format!("{text}## Metrics\n\n{head}{rows}");
    if std::env::var_os("WRITE_PAGES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        return std::fs::write(path, page).expect("the page can be written");
    }
    let help = "run `WRITE_PAGES=1 cargo test --lib the_page_has`";
    assert!(
        DOCUMENT == page,
        "docs/metrics.md differs from the declared metrics: {help}"
    );
}

/// Returns the rows of the table of labels: each label and its maximum number of values.
fn documented() -> BTreeMap<&'static str, usize> {
    let (_, table) = DOCUMENT.split_once("## Labels\n").expect("a section");
    let rows = table.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (
            cells[1].trim_matches('`'),
            cells[3].parse().expect("a number"),
        )
    })
    .collect()
}

/// Returns metrics with every value that labels can have, and with more pools, languages, services and groups than get
/// rows.
fn crowded() -> Snapshot {
    let metrics = Metrics::new();
    let names: Vec<_> = (0..NAMES_MAX + 10)
        .map(|number| format!("name{number}"))
        .collect();
    let mut rows = Vec::new();
    for name in &names {
        let row = (
            metrics.pool(name),
            metrics.language(name),
            metrics.service(name),
            metrics.replication().groups.join(Some(name)),
        );
        let calls = &row.0.count().refused_calls;
        (0..100).for_each(|call| calls.add(&format!("call{call}"), 1));
        rows.push(row);
    }
    for code in CODES {
        metrics.http_request("GET", code, Duration::ZERO);
    }
    let off = SandboxStatus {
        mode: "off".into(),
        ..SandboxStatus::default()
    };
    metrics.snapshot(&DaemonStatus {
        pools: names
            .iter()
            .map(|name| PoolStatus {
                language: name.clone(),
                sandbox: Some(off.clone()),
                ..pool_of(name)
            })
            .collect(),
        services: names
            .iter()
            .map(|name| ServiceStatus {
                name: name.clone(),
                pool: name.clone(),
                limit: Some(1),
                ..ServiceStatus::default()
            })
            .collect(),
        ..DaemonStatus::default()
    })
}

#[test]
fn each_label_has_as_many_values_as_the_documentation_says() {
    let snapshot = crowded();
    let mut most: BTreeMap<&str, usize> = BTreeMap::new();
    for family in &snapshot.families {
        for (at, label) in family.definition.labels.iter().enumerate() {
            // The documented number of refused system calls is for one pool.
            let own = |sample: &&snapshot::Sample| *label != "kind" || sample.labels[0] == REST;
            let samples = family.samples.iter().filter(own);
            let values: BTreeSet<_> = samples.map(|sample| &sample.labels[at]).collect();
            let most = most.entry(label).or_default();
            *most = values.len().max(*most);
        }
    }
    let text = prometheus_text(&snapshot);
    for label in ["le", "quantile"] {
        let start = format!("{label}=\"");
        let pairs = text.split(['{', ',', '}']);
        let values = pairs.filter_map(|pair| pair.strip_prefix(&start));
        most.insert(label, values.collect::<BTreeSet<_>>().len());
    }
    assert_eq!(most, documented());
    for label in ["pool", "language", "service"] {
        let left_out = snapshot.number("settee_names_left_out", &[label]);
        assert_eq!(left_out, Some(10.0), "{label}");
    }
}

#[test]
fn there_are_no_more_series_than_the_documentation_says() {
    let text = prometheus_text(&crowded());
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    let (_, promise) = DOCUMENT.split_once("at most ").expect("a promise");
    let most = promise.split(' ').next().expect("a number");
    let most: usize = most.replace(',', "").parse().expect("a number");
    assert!(series <= most && series + 1000 > most, "{series}");
}
