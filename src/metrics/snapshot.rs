//! The counts as data: a list of families, each with its definition and samples.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::cells::Times;
use super::definition::{DEFINITIONS, Definition};

/// Prometheus name -> index in the list of all metrics.
static PLACES: LazyLock<FxHashMap<&str, usize>> = LazyLock::new(|| {
    DEFINITIONS
        .iter()
        .map(|definition| definition.prometheus)
        .zip(0..)
        .collect()
});

/// All counts at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// One entry for each metric, in a fixed order, even without a sample.
    pub families: Vec<Family>,
}

impl Snapshot {
    /// Begins with all metrics, without samples.
    pub(super) fn new() -> Self {
        let empty = |definition: &&'static Definition| Family {
            definition,
            samples: Vec::new(),
        };
        Self {
            families: DEFINITIONS.iter().map(empty).collect(),
        }
    }

    /// Adds a sample of a listed metric, with the values of its labels.
    pub(super) fn add(&mut self, prometheus: &str, labels: &[&str], value: impl Into<Value>) {
        let place = PLACES
            .get(prometheus)
            .copied()
            .expect("metrics: every metric that is counted is declared");
        self.families[place].samples.push(Sample {
            labels: labels.iter().map(ToString::to_string).collect(),
            value: value.into(),
        });
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its definition.
    pub definition: &'static Definition,
    /// Its values, one for each combination of labels.
    pub samples: Vec<Sample>,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The values of its labels, in the definition's order.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Number(u64),
    /// Any other number.
    Real(f64),
    /// A histogram of times.
    Times(Box<Times>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<Times> for Value {
    fn from(times: Times) -> Self {
        Self::Times(Box::new(times))
    }
}
