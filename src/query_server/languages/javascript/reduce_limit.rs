//! The reduce limit: results of reduce functions have to be smaller than what they reduce.
//!
//! SOURCE    CouchDB's views.js: lengths are those of the JSON texts in UTF-16 units, both
//!           comparisons are strict, a missing threshold or ratio means no limit.

use serde_json::Value;

/// What a limit says about a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The result is small enough, or nothing limits it.
    Passes,
    /// The result is too large; the text goes to the log, the result to the client.
    Warns(String),
    /// The result is too large; the text is the reason of the error.
    Fails(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Off,
    Log,
    On,
}

/// The limit of the last `reset`.
#[derive(Debug, Default)]
pub(super) struct ReduceLimit {
    mode: Mode,
    threshold_units: Option<f64>,
    ratio: Option<f64>,
}

/// How large a reduction is, in UTF-16 units.
pub(super) struct Sizes {
    /// The input line without the sources of the functions.
    pub(super) input: usize,
    /// The results, as a JSON array.
    pub(super) output: usize,
}

impl ReduceLimit {
    /// Reads the configuration that came with a `reset`.
    pub(super) fn new(config: &Value) -> Self {
        let mode = match &config["reduce_limit"] {
            Value::Null | Value::Bool(false) => Mode::Off,
            Value::String(text) if text.is_empty() => Mode::Off,
            Value::String(text) if text == "log" => Mode::Log,
            Value::Number(number) if number.as_f64() == Some(0.0) => Mode::Off,
            _ => Mode::On,
        };
        let number = |key: &str| match &config[key] {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        ReduceLimit {
            mode,
            threshold_units: number("reduce_limit_threshold"),
            ratio: number("reduce_limit_ratio"),
        }
    }

    /// Judges a result; `context` says which view it belongs to.
    pub(super) fn judge(&self, sizes: &Sizes, context: &str) -> Verdict {
        let (Some(threshold), Some(ratio)) = (self.threshold_units, self.ratio) else {
            return Verdict::Passes;
        };
        let (input, output) = (sizes.input as f64, sizes.output as f64);
        if self.mode == Mode::Off || output <= threshold || output * ratio <= input {
            return Verdict::Passes;
        }
        let text = format!(
            "Reduce output must shrink more rapidly: input size: {} output size: {} context: {}",
            sizes.input, sizes.output, context
        );
        if self.mode == Mode::Log {
            Verdict::Warns(text)
        } else {
            Verdict::Fails(text)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn passes(config: Value, input: usize, output: usize) -> bool {
        ReduceLimit::new(&config).judge(&Sizes { input, output }, "") == Verdict::Passes
    }

    #[test]
    fn both_comparisons_are_strict() {
        let config =
            json!({"reduce_limit": true, "reduce_limit_threshold": 5000, "reduce_limit_ratio": 2});
        assert!(passes(config.clone(), 0, 5000));
        assert!(!passes(config.clone(), 0, 5001));
        assert!(passes(config.clone(), 12_000, 6000));
        assert!(!passes(config, 11_999, 6000));
    }

    #[test]
    fn without_mode_threshold_or_ratio_nothing_is_limited() {
        assert!(passes(Value::Null, 0, 9999));
        assert!(passes(
            json!({"reduce_limit": true, "reduce_limit_ratio": 2}),
            0,
            9999
        ));
        assert!(passes(
            json!({"reduce_limit": true, "reduce_limit_threshold": 1}),
            0,
            9999
        ));
        let off =
            json!({"reduce_limit": false, "reduce_limit_threshold": 1, "reduce_limit_ratio": 2});
        assert!(passes(off, 0, 9999));
    }

    #[test]
    fn log_mode_only_warns() {
        let config =
            json!({"reduce_limit": "log", "reduce_limit_threshold": 1, "reduce_limit_ratio": 1});
        let verdict = ReduceLimit::new(&config).judge(
            &Sizes {
                input: 5,
                output: 6,
            },
            "c",
        );
        assert!(matches!(verdict, Verdict::Warns(text) if text.ends_with("size: 6 context: c")));
    }
}
