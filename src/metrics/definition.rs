//! The list of all metrics: the table in `docs/metrics.md`.
//!
//! PROMISES  What is documented is what is served, in the order of the table.

use std::sync::LazyLock;

use strum::{EnumString, IntoStaticStr};

/// Ends with the table.
pub(super) const DOCUMENT: &str = include_str!("../../docs/metrics.md");

/// All metrics, in the order of the table.
pub(super) static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let (_, table) = DOCUMENT
        .split_once("## Metrics\n")
        .expect("metrics: the document has a table of metrics");
    // A blank line and the head of the table.
    table.lines().skip(3).map(Definition::of_row).collect()
});

/// What a metric is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its path in `_stats`, with dots; the values of its labels follow. None: it is not there.
    pub stats: Option<&'static str>,
    /// Its name in the Prometheus form.
    pub prometheus: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// What they count; empty for plain numbers.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: Vec<&'static str>,
    /// What it means, in one sentence without a full stop.
    pub help: &'static str,
}

impl Definition {
    fn of_row(row: &'static str) -> Self {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let mut cell = || cells.next().expect("metrics: a row has six cells");
        let code = |cell: &'static str| cell.trim_matches('`');
        let some = |cell: &&'static str| !cell.is_empty();
        Self {
            stats: Some(code(cell())).filter(some),
            prometheus: code(cell()),
            kind: cell().parse().expect("metrics: a row has a known kind"),
            unit: cell(),
            labels: cell().split(", ").filter(some).map(code).collect(),
            help: cell(),
        }
    }
}

/// How the values of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// They only grow.
    Counter,
    /// They go up and down.
    Gauge,
    /// Times, counted by length.
    Histogram,
    /// Times, shown by their quantiles as CouchDB does.
    Summary,
}

impl Kind {
    /// Returns the type in the Prometheus form.
    pub fn prometheus(self) -> &'static str {
        self.into()
    }

    /// Returns the type in `_stats`, which knows no summaries.
    pub fn stats(self) -> &'static str {
        match self {
            Self::Summary => Self::Histogram.into(),
            kind => kind.into(),
        }
    }
}
