//! A snapshot in the text form that Prometheus reads.
//!
//! SOURCE    The exposition format, version 0.0.4; CouchDB's `_prometheus` for the names that
//!           CouchDB has.
//! DIFFERS   Lines end with a line feed alone; the sum of a summary is in seconds, as its name says
//!           (CouchDB's is in milliseconds).

use std::fmt::Write as _;

use super::cells::Times;
use super::snapshot::{Family, Kind, Sample, Snapshot, Value};

/// The media type of [`prometheus_text`].
pub(crate) const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The quantiles of a summary, as CouchDB shows them.
const QUANTILES: [&str; 6] = ["0.5", "0.75", "0.9", "0.95", "0.99", "0.999"];

/// Writes everything, one sample a line.
pub fn prometheus_text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for family in &snapshot.families {
        write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &Family) {
    let definition = &family.definition;
    let name = &definition.prometheus;
    let unit = match definition.unit {
        "µs" => ", in microseconds",
        _ => "",
    };
    let kind = definition.kind.prometheus();
    line(
        text,
        format_args!("# HELP {name} {}{unit}", definition.help),
    );
    line(text, format_args!("# TYPE {name} {kind}"));
    for sample in &family.samples {
        let labels = pairs(definition.labels, sample);
        match &sample.value {
            Value::Number(number) => line(text, format_args!("{name}{} {number}", set(&labels))),
            Value::Real(real) => line(text, format_args!("{name}{} {real}", set(&labels))),
            Value::Times(times) if definition.kind == Kind::Summary => {
                write_summary(text, name, &labels, times);
            }
            Value::Times(times) => write_histogram(text, name, &labels, times),
        }
    }
}

fn write_histogram(text: &mut String, name: &str, labels: &[String], times: &Times) {
    for (bound, count) in times.cumulative() {
        let labels = with(labels, "le", &bound.to_string());
        line(text, format_args!("{name}_bucket{} {count}", set(&labels)));
    }
    let labels_inf = with(labels, "le", "+Inf");
    let count = times.count();
    line(
        text,
        format_args!("{name}_bucket{} {count}", set(&labels_inf)),
    );
    write_sum_and_count(text, name, labels, times);
}

fn write_summary(text: &mut String, name: &str, labels: &[String], times: &Times) {
    for quantile in QUANTILES {
        let share: f64 = quantile.parse().unwrap_or_default();
        let value = times.quantile(share);
        let labels = with(labels, "quantile", quantile);
        line(text, format_args!("{name}{} {value}", set(&labels)));
    }
    write_sum_and_count(text, name, labels, times);
}

fn write_sum_and_count(text: &mut String, name: &str, labels: &[String], times: &Times) {
    let (labels, sum) = (set(labels), times.sum().as_secs_f64());
    line(text, format_args!("{name}_sum{labels} {sum}"));
    line(text, format_args!("{name}_count{labels} {}", times.count()));
}

/// Returns `name="value"` for each label.
fn pairs(names: &[&str], sample: &Sample) -> Vec<String> {
    let labels = names.iter().zip(&sample.labels);
    labels.map(|(name, value)| pair(name, value)).collect()
}

fn with(labels: &[String], name: &str, value: &str) -> Vec<String> {
    let mut labels = labels.to_vec();
    labels.push(pair(name, value));
    labels
}

fn pair(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn set(labels: &[String]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    format!("{{{}}}", labels.join(","))
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("a String takes any text");
}
