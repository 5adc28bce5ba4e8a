//! The metrics of replications: CouchDB's names for what CouchDB has.

use super::super::replication::ReplicationMetrics;
use super::super::snapshot::{Definition, Kind};
use super::{List, sample};

/// What CouchDB counts of jobs.
pub(super) fn jobs(list: &mut List, metrics: &ReplicationMetrics) {
    let counters = [
        ("adds", &metrics.adds, "Replication jobs that were added"),
        (
            "duplicate_adds",
            &metrics.duplicate_adds,
            "Replication jobs that were added again unchanged",
        ),
        (
            "removes",
            &metrics.removes,
            "Replication jobs that were removed or replaced",
        ),
        ("starts", &metrics.starts, "Replication jobs started"),
        (
            "stops",
            &metrics.stops,
            "Replication jobs stopped, to let others run or because they were paused",
        ),
        (
            "crashes",
            &metrics.crashes,
            "Replication jobs that failed and are tried again",
        ),
    ];
    for (name, counter, help) in counters {
        add(
            list,
            Kind::Counter,
            &format!("jobs.{name}"),
            help,
            counter.get(),
        );
    }
    let gauges = [
        ("total", &metrics.total, "Replication jobs that there are"),
        ("running", &metrics.running, "Replication jobs that run"),
        (
            "pending",
            &metrics.pending,
            "Replication jobs that wait for their turn, paused ones included",
        ),
        (
            "crashed",
            &metrics.crashed,
            "Replication jobs that do not run and failed last",
        ),
    ];
    for (name, gauge, help) in gauges {
        add(
            list,
            Kind::Gauge,
            &format!("jobs.{name}"),
            help,
            gauge.get(),
        );
    }
    for (name, help, count) in metrics.work() {
        add(list, Kind::Counter, name, help, count);
    }
    own(list, metrics);
}

/// What it does not.
fn own(list: &mut List, metrics: &ReplicationMetrics) {
    list.counter(
        "replication_jobs_completed",
        &[],
        "Replication jobs that did their work",
        [sample(&[], metrics.completions.get())],
    );
    list.counter(
        "replication_jobs_failed",
        &[],
        "Replication jobs without a document that failed and are gone",
        [sample(&[], metrics.failures.get())],
    );
    list.gauge(
        "replication_jobs_paused",
        &[],
        "Replication jobs that are paused",
        [sample(&[], metrics.paused.get())],
    );
}

fn add(list: &mut List, kind: Kind, name: &str, help: &'static str, value: u64) {
    let suffix = if kind == Kind::Counter { "_total" } else { "" };
    let definition = Definition {
        stats: Some(format!("couch_replicator.{name}")),
        prometheus: format!(
            "couchdb_couch_replicator_{}{suffix}",
            name.replace('.', "_")
        ),
        kind,
        unit: "",
        labels: &[],
        help,
    };
    list.add(definition, [sample(&[], value)]);
}
