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
/// * its [`Kind`] with its path in `_stats` (empty: absent there) and its Prometheus name, and its labels, if any:
///   `.labels("pool", "reason")`;
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
                $kind:ident($stats:literal, $prometheus:literal)$(.labels($($label:literal),+))?
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
                pub(crate) const ROWS;
                $( $(#[doc = $sentence])+ $kind($stats, $prometheus)$(.labels($($label),+))?; )*
            }

            /// Adds a sample of each metric with a field, as named in `rows`; `labels` precede those of the field.
            pub(crate) fn add_fields(
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
            pub(crate) fn absorb_fields(&self, gone: &Self) {
                $($( $crate::metrics::cells::Counted::absorb(&self.$field, &gone.$field); )?)*
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis const $rows:ident;
        $(
            $(#[doc = $sentence:literal])+
            $kind:ident($stats:literal, $prometheus:literal)$(.labels($($label:literal),+))?;
        )*
    ) => {
        $(#[$attribute])*
        $visibility const $rows: &'static [$crate::metrics::Definition] = &[
            $(
                $crate::metrics::Definition::new(
                    ($stats, $prometheus),
                    $crate::metrics::Kind::$kind,
                    &[$($($label),+)?],
                    concat!($($sentence),+),
                ),
            )*
        ];
    };
}
pub(super) use metrics;

/// All metrics, in the order of serving and documentation.
pub(super) static DEFINITIONS: LazyLock<Vec<&Definition>> = LazyLock::new(|| {
    [
        gather::QUERY_SERVERS,
        gather::HTTP,
        ReplicationMetrics::ROWS,
        StoreMetrics::ROWS,
        FleetMetrics::ROWS,
        process::ROWS,
        gather::PROGRAM,
        gather::POOLS_NOW,
        Counts::ROWS,
        LanguageMetrics::ROWS,
        ClientMetrics::ROWS,
        service::CONNECTIONS,
        ServiceMetrics::ROWS,
        gather::SERVICES_NOW,
    ]
    .into_iter()
    .flatten()
    .collect()
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
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its meaning, in one sentence without a full stop.
    pub help: &'static str,
}

impl Definition {
    /// `comment` has its meaning, in lines that all begin with a space.
    pub(super) const fn new(
        (stats, prometheus): (&'static str, &'static str),
        kind: Kind,
        labels: &'static [&'static str],
        comment: &'static str,
    ) -> Self {
        Self {
            stats: if stats.is_empty() { None } else { Some(stats) },
            prometheus,
            kind,
            labels,
            help: comment.trim_ascii(),
        }
    }

    /// Returns the unit of its values, by its name; empty for plain numbers.
    pub fn unit(&self) -> &'static str {
        if self.prometheus.contains("_seconds") {
            "s"
        } else if self.prometheus.contains("_bytes") {
            "bytes"
        } else if self.prometheus.contains("_server_time_") {
            "µs"
        } else {
            ""
        }
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
