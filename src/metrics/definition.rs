//! The definition of a metric, and how metrics are declared.
//!
//! SUMMARY   [`metrics!`] declares a group of metrics, one row each, with the field that counts it if it has
//!           one. [`DEFINITIONS`] are the rows of all groups. The table in `docs/metrics.md` is generated from them.
//! PROMISES  A metric's names, kind, unit, labels and meaning are in one place, next to its field. The documented
//!           metrics are those served, in the same order.

use std::sync::LazyLock;

use strum::IntoStaticStr;

use super::fleet::FleetMetrics;
use super::language::LanguageMetrics;
use super::pool::Counts;
use super::replication::ReplicationMetrics;
use super::service::{self, ServiceMetrics};
use super::store::StoreMetrics;
use super::{ClientMetrics, gather, process};

/// Declares metrics: the fields of a struct, or values without a field that are looked up on demand.
///
/// A row has
///
/// * its meaning, in one sentence without a full stop, in Markdown with links relative to `docs/`;
/// * its kind with its path in `_stats` (empty: absent there) and its Prometheus name, and marks, the methods of
///   [`Definition`]: `unit("s")`, `labels(&["pool"])`;
/// * after `=>` the field that it counts in, of a type that implements [`Counted`](super::cells::Counted). A row
///   without a field gets its values from [`Snapshot::add`](super::snapshot::Snapshot::add).
///
/// Fields exported differently, or not at all, are in `beside`.
macro_rules! metrics {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $room:ident {
            $(
                $(#[doc = $sentence:literal])+
                $kind:ident($stats:literal, $prometheus:literal)$(.$mark:ident($($with:expr)?))*
                    $(=> $field_visibility:vis $field:ident: $type:ty)?;
            )*
        }
        $(beside { $( $(#[$other_attribute:meta])* $other_visibility:vis $other:ident: $other_type:ty; )* })?
    ) => {
        $(#[$attribute])*
        $visibility struct $room {
            $($( #[doc = $prometheus] $field_visibility $field: $type, )?)*
            $($( $(#[$other_attribute])* $other_visibility $other: $other_type, )*)?
        }

        impl $room {
            $crate::metrics::definition::metrics! {
                /// Its metrics.
                pub(in crate::metrics) const ROWS;
                $( $(#[doc = $sentence])+ $kind($stats, $prometheus)$(.$mark($($with)?))*; )*
            }

            /// Adds a sample of each metric with a field, as named in `rows`; `labels` precede those of the field.
            pub(in crate::metrics) fn add_fields(
                &self,
                rows: &'static [$crate::metrics::Definition],
                to: &mut $crate::metrics::Snapshot,
                labels: &[&str],
            ) {
                let mut rows = rows.iter();
                $(
                    let _row = rows.next();
                    $(
                        if let Some(row) = _row {
                            $crate::metrics::cells::Counted::samples(&self.$field, &mut |own, value| {
                                to.add(row.prometheus, &[labels, own].concat(), value);
                            });
                        }
                    )?
                )*
            }

            /// Adds the counts of a former instance.
            #[allow(dead_code, reason = "only metrics by name have former instances")]
            pub(in crate::metrics) fn absorb_fields(&self, gone: &Self) {
                $($( $crate::metrics::names::Absorb::absorb(&self.$field, &gone.$field); )?)*
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis const $rows:ident;
        $(
            $(#[doc = $sentence:literal])+
            $kind:ident($stats:literal, $prometheus:literal)$(.$mark:ident($($with:expr)?))*;
        )*
    ) => {
        $(#[$attribute])*
        $visibility const $rows: &'static [$crate::metrics::Definition] = &[
            $(
                $crate::metrics::Definition::$kind($stats, $prometheus)
                    $(.$mark($($with)?))*
                    .means(concat!($($sentence),+)),
            )*
        ];
    };
}
pub(super) use metrics;

/// All metrics, in the order of serving and documentation.
pub(super) static DEFINITIONS: LazyLock<Vec<&Definition>> = LazyLock::new(|| {
    let rooms = [
        gather::QUERY_SERVERS,
        gather::HTTP,
        ReplicationMetrics::ROWS,
        StoreMetrics::ROWS,
        FleetMetrics::ROWS,
        gather::UPTIME,
        process::ROWS,
        gather::PROGRAM,
        gather::POOLS_NOW,
        Counts::ROWS,
        LanguageMetrics::ROWS,
        ClientMetrics::ROWS,
        service::CONNECTIONS,
        ServiceMetrics::ROWS,
        gather::SERVICES_NOW,
    ];
    rooms.into_iter().flatten().collect()
});

/// The definition of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its path in `_stats`, with dots; the values of its labels follow. `None`: absent there.
    pub stats: Option<&'static str>,
    /// Its Prometheus name.
    pub prometheus: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// The unit of its values; empty for plain numbers.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its meaning, in one sentence without a full stop.
    pub help: &'static str,
}

impl Definition {
    const fn new(stats: &'static str, prometheus: &'static str, kind: Kind) -> Self {
        Self {
            stats: if stats.is_empty() { None } else { Some(stats) },
            prometheus,
            kind,
            unit: "",
            labels: &[],
            help: "",
        }
    }

    pub(super) const fn counter(stats: &'static str, prometheus: &'static str) -> Self {
        Self::new(stats, prometheus, Kind::Counter)
    }

    pub(super) const fn gauge(stats: &'static str, prometheus: &'static str) -> Self {
        Self::new(stats, prometheus, Kind::Gauge)
    }

    pub(super) const fn histogram(stats: &'static str, prometheus: &'static str) -> Self {
        Self::new(stats, prometheus, Kind::Histogram)
    }

    pub(super) const fn summary(stats: &'static str, prometheus: &'static str) -> Self {
        Self::new(stats, prometheus, Kind::Summary)
    }

    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub(super) const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// Takes the lines of its comment, which all begin with a space.
    pub(super) const fn means(mut self, comment: &'static str) -> Self {
        self.help = comment.trim_ascii();
        self
    }

    /// Returns its row of the table in `docs/metrics.md`.
    #[cfg(test)]
    pub(super) fn row(&self) -> String {
        let stats = self
            .stats
            .map_or_else(String::new, |name| format!(" `{name}`"));
        let mut kind = vec![self.kind.prometheus().to_owned()];
        kind.extend((!self.unit.is_empty()).then(|| self.unit.to_owned()));
        let labels: Vec<String> = self.labels.iter().map(|name| format!("`{name}`")).collect();
        kind.extend((!labels.is_empty()).then(|| format!("by {}", labels.join(" and "))));
        let (name, kind, help) = (self.prometheus, kind.join(", "), self.help);
        format!("|{stats} | `{name}` | {kind} | {help} |\n")
    }
}

/// How the values of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// They only grow.
    Counter,
    /// They rise and fall.
    Gauge,
    /// Times, counted by length.
    Histogram,
    /// Times, shown by their quantiles as CouchDB does.
    Summary,
}

impl Kind {
    /// Returns the Prometheus type.
    pub fn prometheus(self) -> &'static str {
        self.into()
    }

    /// Returns the type in `_stats`, which has no summaries.
    pub fn stats(self) -> &'static str {
        match self {
            Self::Summary => Self::Histogram.into(),
            kind => kind.into(),
        }
    }
}
