//! The list of all metrics: each one's names, kind, unit and meaning, beside where its values come
//! from. What stands here is what is served, and what `docs/metrics.md` is compared with.
//!
//! SOURCE    CouchDB's names for what CouchDB has; its Prometheus names too.

mod couchdb;
mod own;
mod replicator;
mod services;

use std::sync::Arc;

use super::cells::Times;
use super::language::LanguageMetrics;
use super::snapshot::{Definition, Family, Kind, Sample, Snapshot, Value};
use super::{Inner, all};
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::DaemonStatus;

pub(super) fn gather(inner: &Inner, status: &DaemonStatus) -> Snapshot {
    let pools = all(&inner.pools);
    let languages = all(&inner.languages);
    let mut list = List::default();
    couchdb::totals(&mut list, &pools, &languages, status);
    couchdb::classes(&mut list, &pools, &languages);
    couchdb::http(&mut list, inner);
    replicator::jobs(&mut list, &inner.replication);
    own::service(&mut list, inner);
    own::pools_now(&mut list, status);
    own::pools_so_far(&mut list, &pools);
    own::languages_so_far(&mut list, &languages);
    own::clients(&mut list, inner);
    services::services(&mut list, &all(&inner.services));
    services::services_now(&mut list, status);
    Snapshot {
        families: list.families,
    }
}

#[derive(Default)]
struct List {
    families: Vec<Family>,
}

impl List {
    fn add(&mut self, definition: Definition, samples: impl IntoIterator<Item = Sample>) {
        self.families.push(Family {
            definition,
            samples: samples.into_iter().collect(),
        });
    }

    /// Adds one of CouchDB's, which has no labels, by its path below `couchdb`.
    fn couchdb(
        &mut self,
        kind: Kind,
        path: &[&str],
        unit: &'static str,
        help: &'static str,
        value: impl Into<Value>,
    ) {
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Histogram | Kind::Summary => "_seconds",
        };
        let definition = Definition {
            stats: Some(format!("couchdb.{}", path.join("."))),
            prometheus: format!("couchdb_{}{suffix}", path.join("_")),
            kind,
            unit,
            labels: &[],
            help,
        };
        self.add(definition, [sample(&[], value)]);
    }

    /// Adds a counter of our own: `NAME` in `_stats`, `NAME_total` for Prometheus.
    fn counter(
        &mut self,
        name: &str,
        labels: &'static [&'static str],
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let unit = unit_of(name);
        let names = (name, &*format!("{name}_total"));
        self.own(Kind::Counter, names, unit, labels, help, samples);
    }

    /// Adds a gauge of our own: `NAME` everywhere.
    fn gauge(
        &mut self,
        name: &str,
        labels: &'static [&'static str],
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        self.own(Kind::Gauge, (name, name), "", labels, help, samples);
    }

    /// Adds a gauge of a time, in seconds: `NAME` in `_stats`, `NAME_seconds` for Prometheus.
    fn seconds(
        &mut self,
        name: &str,
        labels: &'static [&'static str],
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let names = (name, &*format!("{name}_seconds"));
        self.own(Kind::Gauge, names, "s", labels, help, samples);
    }

    /// Adds a histogram of times: `NAME_time` in `_stats`, `NAME_seconds` for Prometheus.
    fn times(
        &mut self,
        name: &str,
        labels: &'static [&'static str],
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let names = (&*format!("{name}_time"), &*format!("{name}_seconds"));
        self.own(Kind::Histogram, names, "s", labels, help, samples);
    }

    fn own(
        &mut self,
        kind: Kind,
        (stats, prometheus): (&str, &str),
        unit: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let definition = Definition {
            stats: Some(format!("settee.{stats}")),
            prometheus: format!("settee_{prometheus}"),
            kind,
            unit,
            labels,
            help,
        };
        self.add(definition, samples);
    }
}

fn unit_of(name: &str) -> &'static str {
    if name.ends_with("_bytes") {
        "bytes"
    } else {
        ""
    }
}

/// Returns a sample for each reason of each pool or language.
fn each<'a, T, I>(
    all: &'a [Arc<T>],
    name: fn(&T) -> &str,
    counts: impl Fn(&'a T) -> I,
) -> Vec<Sample>
where
    I: Iterator<Item = (&'static str, u64)>,
{
    let of = |one: &'a Arc<T>| {
        let name = name(one);
        counts(one).map(move |(reason, count)| sample(&[name, reason], count))
    };
    all.iter().flat_map(of).collect()
}

fn sample(labels: &[&str], value: impl Into<Value>) -> Sample {
    Sample {
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        value: value.into(),
    }
}

fn answered(languages: &[Arc<LanguageMetrics>], class: PromptClass) -> Times {
    merged(languages.iter().map(|language| language.answered_by(class)))
}

fn merged(all: impl IntoIterator<Item = Times>) -> Times {
    let mut merged = Times::default();
    all.into_iter().for_each(|times| merged.merge(&times));
    merged
}
