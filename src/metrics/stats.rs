//! A snapshot in the form of CouchDB's `_stats`: nested objects, a leaf with `value`, `type`, `desc`.
//!
//! SOURCE    couch_stats and its HTTP handler.
//! DIFFERS   `histogram` shows the counts; CouchDB's is always `[[0,0]]`. Both are in milliseconds.

use serde_json::{Value as Json, json};

use super::cells::{Range, Times};
use super::snapshot::{Snapshot, Value};

/// Returns everything, for `GET /_node/_local/_stats`.
pub fn stats_json(snapshot: &Snapshot) -> Json {
    let mut root = json!({});
    for family in &snapshot.families {
        let definition = family.definition;
        let Some(path) = definition.stats else {
            continue;
        };
        // The path is present even without a sample.
        let place = descend(&mut root, path.split('.'));
        for sample in &family.samples {
            *descend(place, sample.labels.iter().map(String::as_str)) = json!({
                "value": value(&sample.value),
                "type": definition.kind.stats(),
                "desc": definition.help,
            });
        }
    }
    root
}

/// Returns a part of [`stats_json`]: `path` follows `_stats` in the address, such as
/// `/couchdb/query_server/process_starts`. A missing part is `null`, as in CouchDB.
pub fn stats_at<'a>(stats: &'a Json, path: &str) -> &'a Json {
    path.split('/')
        .filter(|step| !step.is_empty())
        .fold(stats, |place, step| place.get(step).unwrap_or(&Json::Null))
}

/// Returns the object at the end of a path, created if missing.
fn descend<'a, 's>(place: &'a mut Json, steps: impl Iterator<Item = &'s str>) -> &'a mut Json {
    steps.fold(place, |place, step| {
        let next = &mut place[step];
        if next.is_null() {
            *next = json!({});
        }
        next
    })
}

fn value(value: &Value) -> Json {
    match value {
        Value::Number(number) => json!(number),
        Value::Real(real) => json!(real),
        Value::Times(times) => figures(times),
    }
}

/// CouchDB's figures of a histogram, computed from the middles of the ranges; but the arithmetic mean is exact,
/// quantiles are interpolated, and `min` and `max` are bounds of ranges.
fn figures(times: &Times) -> Json {
    const MILLISECONDS: f64 = 1e3;
    let count = times.count() as f64;
    let ranges: Vec<Range> = times.occupied().collect();
    let middles = || {
        let middle = |range: &Range| (range.from + range.to) / 2.0 * MILLISECONDS;
        ranges
            .iter()
            .map(move |range| (middle(range), range.count as f64))
    };
    // Without counts everything is 0.
    let over_count = |sum: f64| if count == 0.0 { 0.0 } else { sum / count };
    let mean = over_count(times.sum().as_secs_f64() * MILLISECONDS);
    let center = over_count(middles().map(|(middle, n)| middle * n).sum());
    let moment = |power: i32| {
        over_count(
            middles()
                .map(|(middle, n)| (middle - center).powi(power) * n)
                .sum(),
        )
    };
    let variance = moment(2);
    let deviation = variance.sqrt();
    let standardised = |moment: f64, power: i32| {
        let scale = deviation.powi(power);
        if scale < 1e-12 { 0.0 } else { moment / scale }
    };
    let geometric = over_count(middles().map(|(middle, n)| middle.ln() * n).sum()).exp();
    let inverse: f64 = middles().map(|(middle, n)| n / middle).sum();
    let quantile = |share: f64| times.quantile(share) * MILLISECONDS;
    json!({
        "n": times.count(),
        "min": ranges.first().map_or(0.0, |range| range.from * MILLISECONDS),
        "max": ranges.last().map_or(0.0, |range| range.to * MILLISECONDS),
        "arithmetic_mean": mean,
        "geometric_mean": if count == 0.0 { 0.0 } else { geometric },
        "harmonic_mean": if count == 0.0 { 0.0 } else { count / inverse },
        "median": quantile(0.5),
        "variance": variance,
        "standard_deviation": deviation,
        "skewness": standardised(moment(3), 3),
        "kurtosis": if deviation < 1e-6 { 0.0 } else { standardised(moment(4), 4) - 3.0 },
        "percentile": [
            [50, quantile(0.5)],
            [75, quantile(0.75)],
            [90, quantile(0.9)],
            [95, quantile(0.95)],
            [99, quantile(0.99)],
            [999, quantile(0.999)],
        ],
        "histogram": ranges
            .iter()
            .map(|range| json!([range.to * MILLISECONDS, range.count]))
            .collect::<Vec<_>>(),
    })
}
