//! `_stats`: sum, count, minimum, maximum and sum of squares of numbers or arrays of numbers.
//!
//! SOURCE    couch_query_servers: builtin_stats/2.
//! DIFFERS   Arrays of unequal length, which crash the reference, are an error. Errors quote values
//!           as JSON, not as Erlang terms.

use serde_json::{Value, json};

use super::{InvalidValue, Number};

/// The members of an object that is a result already, in the order of the output.
const FIELDS: [&str; 5] = ["sum", "count", "min", "max", "sumsqr"];

/// The statistics of some numbers.
#[derive(Clone, Copy, Debug)]
struct Stats {
    sum: Number,
    count: Number,
    min: Number,
    max: Number,
    sumsqr: Number,
}

impl Stats {
    fn of_number(number: Number) -> Self {
        Self {
            sum: number,
            count: Number::Integer(1),
            min: number,
            max: number,
            sumsqr: number.square(),
        }
    }

    /// Reads a result of an earlier reduction, or of the user's own making.
    fn of_object(value: &Value) -> Result<Self, InvalidValue> {
        let mut numbers = [Number::Integer(0); FIELDS.len()];
        for (name, number) in FIELDS.iter().zip(&mut numbers) {
            let field = value.get(name).ok_or_else(|| {
                InvalidValue(format!(
                    "user _stats input missing required field {name} ({value})"
                ))
            })?;
            *number = Number::of(field).ok_or_else(|| {
                InvalidValue(format!(
                    "non-numeric _stats input received for {name}: {field}"
                ))
            })?;
        }
        let [sum, count, min, max, sumsqr] = numbers;
        Ok(Self {
            sum,
            count,
            min,
            max,
            sumsqr,
        })
    }

    fn merge(self, other: Self) -> Self {
        let pick = |one: Number, two: Number, first: bool| if first { one } else { two };
        Self {
            sum: self.sum.add(other.sum),
            count: self.count.add(other.count),
            min: pick(self.min, other.min, !other.min.is_less(self.min)),
            max: pick(self.max, other.max, !self.max.is_less(other.max)),
            sumsqr: self.sumsqr.add(other.sumsqr),
        }
    }

    fn into_value(self) -> Value {
        let [sum, count, min, max, sumsqr] =
            [self.sum, self.count, self.min, self.max, self.sumsqr].map(Value::from);
        json!({"sum": sum, "count": count, "min": min, "max": max, "sumsqr": sumsqr})
    }
}

/// One value's statistics: of itself, or of each element.
enum Shape {
    One(Stats),
    Many(Vec<Stats>),
}

/// Computes the statistics of values, which are numbers, arrays or earlier results.
pub(super) fn stats(values: impl Iterator<Item = Value>) -> Result<Value, InvalidValue> {
    let mut total: Option<Shape> = None;
    for value in values {
        total = Some(match (total, &value) {
            (None, Value::Array(elements)) => Shape::Many(
                elements
                    .iter()
                    .map(|element| one(element, true))
                    .collect::<Result<_, _>>()?,
            ),
            (None, value) => Shape::One(one(value, true)?),
            (Some(Shape::One(stats)), value) => Shape::One(stats.merge(one(value, false)?)),
            (Some(Shape::Many(stats)), Value::Array(elements)) if stats.len() == elements.len() => {
                let merged = stats
                    .into_iter()
                    .zip(elements)
                    .map(|(stats, element)| Ok(stats.merge(one(element, false)?)));
                Shape::Many(merged.collect::<Result<_, _>>()?)
            }
            (Some(Shape::Many(stats)), value) => {
                return Err(InvalidValue(format!(
                    "The _stats function requires that map values be arrays of one length, here \
                     {}, not '{value}'",
                    stats.len()
                )));
            }
        });
    }
    Ok(match total {
        None => json!({"sum": 0, "count": 0, "min": 0, "max": 0, "sumsqr": 0}),
        Some(Shape::One(stats)) => stats.into_value(),
        Some(Shape::Many(stats)) => stats.into_iter().map(Stats::into_value).collect(),
    })
}

fn one(value: &Value, first: bool) -> Result<Stats, InvalidValue> {
    if let Some(number) = Number::of(value) {
        return Ok(Stats::of_number(number));
    }
    if value.is_object() {
        return Stats::of_object(value);
    }
    Err(InvalidValue(if first {
        format!("non-numeric _stats input: {value}")
    } else {
        format!(
            "The _stats function requires that map values be numbers or arrays of numbers, not \
             '{value}'"
        )
    }))
}
