//! Values in a snapshot of metrics.

use settee::metrics::{Snapshot, Value};

/// Returns the value of a counter or a gauge, or a histogram's count, by Prometheus name and the values of labels.
pub fn number(snapshot: &Snapshot, prometheus: &str, labels: &[&str]) -> Option<f64> {
    let mut families = snapshot.families.iter();
    let family = families.find(|family| family.definition.prometheus == prometheus)?;
    let sample = family
        .samples
        .iter()
        .find(|sample| sample.labels == labels)?;
    Some(match &sample.value {
        Value::Number(number) => *number as f64,
        Value::Real(real) => *real,
        Value::Times(times) => times.count() as f64,
    })
}
