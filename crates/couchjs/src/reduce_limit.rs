//! The reduce limit: results of reduce functions must be smaller than their input.
//!
//! SOURCE    CouchDB's views.js: lengths of JSON texts in UTF-16 units, and strict comparisons. CouchDB sends the
//!           threshold and the ratio since 3.5.1, and names the view; before, its server had [`THRESHOLD_UNITS`] and
//!           [`RATIO`] built in, and its text had no context.

use serde_json::Value;

/// The default threshold, in UTF-16 units.
const THRESHOLD_UNITS: f64 = 4096.0;

/// The default ratio.
const RATIO: f64 = 2.0;

/// The members of the configuration that set the limit.
pub(super) const KEYS: [&str; 3] = [
    "reduce_limit",
    "reduce_limit_threshold",
    "reduce_limit_ratio",
];

/// The verdict on a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The result is small enough, or there is no limit.
    Passes,
    /// The result is too large; the text is logged, the result is sent.
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

/// The limit set by the last `reset`.
#[derive(Debug, Default)]
pub(super) struct ReduceLimit {
    mode: Mode,
    threshold_units: f64,
    ratio: f64,
    /// Whether the text has a context even if a line names none.
    has_context: bool,
}

impl ReduceLimit {
    /// Reads the configuration of a `reset`.
    pub fn new(config: &Value) -> Self {
        let mode = match &config["reduce_limit"] {
            Value::Null | Value::Bool(false) => Mode::Off,
            Value::String(text) if text.is_empty() => Mode::Off,
            Value::String(text) if text == "log" => Mode::Log,
            Value::Number(number) if number.as_f64() == Some(0.0) => Mode::Off,
            _ => Mode::On,
        };
        let number = |key: &str| {
            let number = match &config[key] {
                Value::Number(number) => number.as_f64(),
                Value::String(text) => text.trim().parse().ok(),
                _ => None,
            };
            number.filter(|number| number.is_finite())
        };
        let ratio = number("reduce_limit_ratio");
        // A parent that sends a ratio without a threshold wants no limit.
        let missing = if ratio.is_some() {
            f64::INFINITY
        } else {
            THRESHOLD_UNITS
        };
        ReduceLimit {
            mode,
            threshold_units: number("reduce_limit_threshold").unwrap_or(missing),
            ratio: ratio.unwrap_or(RATIO),
            has_context: KEYS[1..].iter().any(|key| !config[*key].is_null()),
        }
    }

    /// Judges a reduction by two lengths in UTF-16 units: `input` is the length of its line without the functions'
    /// sources, `output` that of the JSON array of its results. `context` names the view, if the line does.
    pub fn judge(&self, input: usize, output: usize, context: Option<&str>) -> Verdict {
        let units = output as f64;
        let is_small = units <= self.threshold_units || units * self.ratio <= input as f64;
        if self.mode == Mode::Off || is_small {
            return Verdict::Passes;
        }
        let context = context.or(self.has_context.then_some(""));
        let context = context.map_or_else(String::new, |context| format!(" context: {context}"));
        let text = format!(
            "Reduce output must shrink more rapidly: input size: {input} output size: {output}{context}"
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
        ReduceLimit::new(&config).judge(input, output, None) == Verdict::Passes
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
    fn without_a_mode_nothing_is_limited() {
        assert!(passes(Value::Null, 0, 9999));
        assert!(passes(json!({}), 0, 9999));
        for off in [json!(false), json!(null), json!(""), json!(0)] {
            let config =
                json!({"reduce_limit": off, "reduce_limit_threshold": 1, "reduce_limit_ratio": 2});
            assert!(passes(config, 0, 9999));
        }
    }

    #[test]
    fn the_default_threshold_is_4096_and_the_default_ratio_2() {
        for nothing in [
            json!(null),
            json!("many"),
            json!(""),
            json!("NaN"),
            json!({}),
            json!([5]),
            json!(true),
        ] {
            for mode in [json!(true), json!("true"), json!("yes"), json!(1)] {
                let neither = json!({"reduce_limit": mode, "reduce_limit_threshold": nothing,
                                     "reduce_limit_ratio": nothing});
                for config in [json!({"reduce_limit": mode}), neither] {
                    assert!(passes(config.clone(), 0, 4096));
                    assert!(!passes(config.clone(), 0, 4097));
                    assert!(passes(config.clone(), 10_000, 5000));
                    assert!(!passes(config, 9_999, 5000));
                }
            }
        }
        let no_ratio = json!({"reduce_limit": true, "reduce_limit_threshold": "10"});
        assert!(passes(no_ratio.clone(), 24, 12));
        assert!(!passes(no_ratio, 23, 12));
    }

    #[test]
    fn a_ratio_without_a_threshold_sets_no_limit() {
        let no_threshold = json!({"reduce_limit": true, "reduce_limit_ratio": 2});
        assert!(passes(no_threshold, 0, 9999));
    }

    #[test]
    fn without_threshold_and_ratio_the_text_has_only_the_context_of_the_line() {
        let text = |config: Value, context| match ReduceLimit::new(&config).judge(5, 5001, context)
        {
            Verdict::Fails(text) => text,
            verdict => panic!("{verdict:?}"),
        };
        let earlier = json!({"reduce_limit": true, "timeout": 5000});
        assert!(text(earlier.clone(), None).ends_with("input size: 5 output size: 5001"));
        assert!(text(earlier, Some("c")).ends_with("output size: 5001 context: c"));
        let later =
            json!({"reduce_limit": true, "reduce_limit_threshold": 5000, "reduce_limit_ratio": 2});
        assert!(text(later, None).ends_with("output size: 5001 context: "));
    }

    #[test]
    fn log_mode_only_warns() {
        let config =
            json!({"reduce_limit": "log", "reduce_limit_threshold": 1, "reduce_limit_ratio": 1});
        let verdict = ReduceLimit::new(&config).judge(5, 6, Some("c"));
        assert!(matches!(verdict, Verdict::Warns(text) if text.ends_with("size: 6 context: c")));
    }
}
