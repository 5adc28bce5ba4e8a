//! Writes a snapshot in Prometheus' text format.
//!
//! SOURCE    The exposition format, version 0.0.4; the names are those of CouchDB's `_prometheus`.
//! DIFFERS   Lines end with only a line feed; the sum of a summary is in seconds, as its name implies (CouchDB's is
//!           in milliseconds).

use super::cells::Times;
use super::definition::{Definition, Kind};
use super::snapshot::{Family, Snapshot, Value};

/// The media type of [`prometheus_text`].
pub(crate) const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The quantiles of a summary, as CouchDB shows them.
const QUANTILES: [&str; 6] = ["0.5", "0.75", "0.9", "0.95", "0.99", "0.999"];

/// A label's name and its value.
type Label<'a> = (&'a str, &'a str);

/// Returns the text of everything, one sample a line.
pub fn prometheus_text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for family in &snapshot.families {
        write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &Family) {
    let definition = family.definition;
    let name = definition.prometheus;
    let unit = match definition.unit() {
        "µs" => ", in microseconds",
        _ => "",
    };
    let kind = definition.kind.prometheus();
    let help = definition.help;
    *text += &format!("# HELP {name} {help}{unit}\n# TYPE {name} {kind}\n");
    for sample in &family.samples {
        let labels: Vec<_> = definition
            .labels
            .iter()
            .copied()
            .zip(sample.labels.iter().map(String::as_str))
            .collect();
        match &sample.value {
            Value::Number(number) => *text += &format!("{name}{} {number}\n", set(&labels)),
            Value::Real(real) => *text += &format!("{name}{} {real}\n", set(&labels)),
            Value::Times(times) => write_times(text, definition, &labels, times),
        }
    }
}

/// Writes times as a histogram or as a summary.
fn write_times(text: &mut String, definition: &Definition, labels: &[Label<'_>], times: &Times) {
    let name = definition.prometheus;
    if definition.kind == Kind::Summary {
        for quantile in QUANTILES {
            let value = times.quantile(quantile.parse().unwrap_or_default());
            let labels = set(&[labels, &[("quantile", quantile)]].concat());
            *text += &format!("{name}{labels} {value}\n");
        }
    } else {
        let bounds = times
            .cumulative()
            .map(|(bound, count)| (bound.to_string(), count));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), times.count())]) {
            let labels = set(&[labels, &[("le", &bound)]].concat());
            *text += &format!("{name}_bucket{labels} {count}\n");
        }
    }
    let (labels, sum, count) = (set(labels), times.sum().as_secs_f64(), times.count());
    *text += &format!("{name}_sum{labels} {sum}\n{name}_count{labels} {count}\n");
}

/// Returns labels as written after a name.
fn set(labels: &[Label<'_>]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels = labels.iter().map(|(name, value)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
}
