//! `_sum`: numbers, arrays of numbers element by element, objects member by member.
//!
//! SOURCE    couch_query_servers: builtin_sum_rows/2, sum_values/2, check_sum_overflow/3.
//! DIFFERS   Mixtures that crash the reference give its error object.

use serde_json::{Map, Value, json};

use super::Number;

/// The start is the reference's; clients look for it.
const BAD_VALUE: &str = "The _sum function requires that map values be numbers, arrays of numbers, \
                         or objects of these, and all of one kind";

/// The name of the error in a sum that went wrong.
const ERROR_NAME: &str = "builtin_reduce_error";

/// When a sum is too long for a reduction (`reduce_limit` and its companions).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumLimit {
    /// Whether it holds.
    pub enforced: bool,
    /// Size up to which a sum is never too long, in bytes of Erlang's external term format.
    pub threshold: u64,
    /// A longer one is too long when its size times this exceeds the input's.
    pub ratio: f64,
}

impl SumLimit {
    pub(super) fn is_on(self) -> bool {
        self.enforced
    }

    /// Replaces a sum that is too long by an error.
    pub(super) fn check(self, sum: Value, input: Option<u64>) -> Value {
        let Some(input) = input else { return sum };
        let output = super::external_size::of_value(&sum);
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
        let shrinks = output as f64 * self.ratio <= input as f64;
        if output <= self.threshold || shrinks {
            return sum;
        }
        let reason = format!(
            "Reduce output must shrink more rapidly: input size: {input} output size: {output} \
             context: "
        );
        json!({"error": ERROR_NAME, "reason": reason})
    }
}

/// Adds up values. A value that cannot be added ends the sum and becomes its result's `caused_by`.
pub(super) fn sum(values: impl Iterator<Item = Value>) -> Value {
    let mut total = Value::from(0);
    for value in values {
        if is_error(&value) {
            return value;
        }
        let sum = if value.get("error").is_some() {
            None
        } else {
            add(total, &value)
        };
        total = match sum {
            Some(total) => total,
            None => return json!({"error": ERROR_NAME, "reason": BAD_VALUE, "caused_by": value}),
        };
    }
    total
}

fn is_error(value: &Value) -> bool {
    value.get("error").and_then(Value::as_str) == Some(ERROR_NAME)
}

fn add(total: Value, value: &Value) -> Option<Value> {
    match (total, value) {
        (Value::Array(total), Value::Array(values)) => add_arrays(total, values),
        (Value::Array(total), Value::Number(_)) => add_to_first(total, value),
        (total @ Value::Number(_), Value::Array(values)) if values.is_empty() => {
            Some(Value::Array(vec![total]))
        }
        (total @ Value::Number(_), Value::Array(values)) => add_to_first(values.clone(), &total),
        (Value::Object(total), Value::Object(members)) => add_objects(total, members),
        (total, Value::Object(_)) if Number::of(&total)?.is_zero() => Some(value.clone()),
        (total, value) => Some(Number::of(&total)?.add(Number::of(value)?).into()),
    }
}

/// A number and an array: the number belongs to the first element.
fn add_to_first(mut values: Vec<Value>, number: &Value) -> Option<Value> {
    match values.first_mut() {
        Some(first) => *first = add(std::mem::take(first), number)?,
        None => values.push(number.clone()),
    }
    Some(Value::Array(values))
}

/// Element by element; the tail of the longer one stays as it is.
fn add_arrays(mut total: Vec<Value>, values: &[Value]) -> Option<Value> {
    for (index, value) in values.iter().enumerate() {
        match total.get_mut(index) {
            Some(sum) => *sum = Number::of(sum)?.add(Number::of(value)?).into(),
            None => total.push(value.clone()),
        }
    }
    Some(Value::Array(total))
}

/// Member by member; the names are in byte order afterwards.
fn add_objects(mut total: Map<String, Value>, members: &Map<String, Value>) -> Option<Value> {
    for (name, value) in members {
        let sum = match total.remove(name) {
            Some(sum) => add(sum, value)?,
            None => value.clone(),
        };
        total.insert(name.clone(), sum);
    }
    total.sort_keys();
    Some(Value::Object(total))
}
