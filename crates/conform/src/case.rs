//! One case: from its line to typed steps.
//!
//! SUMMARY   [`Case::parse`] reads a case for one language, with `$repeat` and `$source` replaced.

use serde_json::{Map, Value};

/// Maximum length of a string made by `$repeat`, in bytes: a case must not exhaust the host.
const REPEATED_BYTES_MAX: u64 = 64 << 20;

/// A case, ready to play.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name, unique in the suite.
    pub id: String,
    /// The ability that it requires, for example `ddoc.shows`.
    pub ability: String,
    /// The tested behaviour, in one sentence.
    pub why: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The accepted exit statuses; empty: any.
    pub exit: Vec<i32>,
    /// Whether the order of keys counts.
    pub ordered: bool,
    /// Whether log lines are skipped.
    pub skip_logs: bool,
}

/// One step of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Sends bytes.
    Send {
        /// Including the line feed.
        bytes: Vec<u8>,
        /// Whether the input is closed after them.
        closes: bool,
    },
    /// The next line is matching JSON.
    Out(Value),
    /// The next line is exactly this.
    OutRaw(String),
    /// The output ends by itself, possibly after a matching line.
    Closed {
        /// The optional line before the end.
        may_say: Option<Value>,
    },
}

/// An unreadable case: a mistake in the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("case {id}: {what}")]
pub struct CaseError {
    /// The case, if known.
    pub id: String,
    /// The problem.
    pub what: String,
}

impl Case {
    /// Reads a case for a language; `None` if it is for others.
    ///
    /// # Errors
    /// The line is not a case.
    pub fn parse(line: &str, language: &str) -> Result<Option<Self>, CaseError> {
        let value: Value = serde_json::from_str(line).map_err(|error| CaseError {
            id: line.chars().take(60).collect(),
            what: error.to_string(),
        })?;
        let id = text(&value, "id").unwrap_or_default();
        let wrong = |what: String| CaseError {
            id: id.clone(),
            what,
        };
        let steps = value["steps"]
            .as_array()
            .ok_or_else(|| wrong("it has no steps".into()))?;
        let mut played = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let step = match expand(step, language) {
                Ok(step) => step,
                Err(Absent::Source) => return Ok(None),
                Err(Absent::Wrong(what)) => return Err(wrong(what.into())),
            };
            let step = step.as_object().and_then(Step::of);
            played.push(step.ok_or_else(|| wrong(format!("step {} is invalid", index + 1)))?);
        }
        let member = |name| text(&value, name).ok_or_else(|| wrong(format!("it has no {name}")));
        Ok(Some(Self {
            ability: member("category")?.replacen("ddoc-", "ddoc.", 1),
            why: member("why")?,
            steps: played,
            exit: statuses(&value["exit"]).ok_or_else(|| wrong("its exit is invalid".into()))?,
            ordered: value["compare"]["key_order"] == "exact",
            skip_logs: value["compare"]["logs"] == "ignored",
            id: member("id")?,
        }))
    }
}

impl Step {
    fn of(step: &Map<String, Value>) -> Option<Self> {
        let sent = match (step.get("in"), step.get("in_raw")) {
            (Some(value), _) => Some(value.to_string()),
            (None, Some(Value::String(text))) => Some(text.clone()),
            (None, Some(Value::Array(parts))) => {
                let parts: Option<Vec<&str>> = parts.iter().map(Value::as_str).collect();
                Some(parts?.concat())
            }
            (None, Some(_)) => return None,
            (None, None) => None,
        };
        if let Some(text) = sent {
            let eol = step.get("eol").map_or(Some("\n"), Value::as_str)?;
            return Some(Self::Send {
                bytes: (text + eol).into_bytes(),
                closes: eol.is_empty(),
            });
        }
        if let Some(expected) = step.get("out") {
            return Some(Self::Out(expected.clone()));
        }
        if let Some(line) = step.get("out_raw") {
            return Some(Self::OutRaw(line.as_str()?.to_owned()));
        }
        step.contains_key("closed").then(|| Self::Closed {
            may_say: step.get("may_say").cloned(),
        })
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn statuses(exit: &Value) -> Option<Vec<i32>> {
    let status = |value: &Value| value.as_i64().and_then(|status| i32::try_from(status).ok());
    match exit {
        Value::Null => Some(Vec::new()),
        Value::Array(all) => all.iter().map(status).collect(),
        one => status(one).map(|one| vec![one]),
    }
}

/// Why a placeholder has no value.
enum Absent {
    Source,
    Wrong(&'static str),
}

/// Expands placeholders.
fn expand(value: &Value, language: &str) -> Result<Value, Absent> {
    let Value::Object(object) = value else {
        return match value {
            Value::Array(items) => items.iter().map(|item| expand(item, language)).collect(),
            other => Ok(other.clone()),
        };
    };
    if let Some(sources) = object.get("$source") {
        return sources
            .get(language)
            .filter(|source| source.is_string())
            .cloned()
            .ok_or(Absent::Source);
    }
    let Some(repeated) = object.get("$repeat") else {
        return object
            .iter()
            .map(|(key, value)| Ok((key.clone(), expand(value, language)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object);
    };
    let (Some(text), Some(times)) = (
        repeated.as_str(),
        object.get("times").and_then(Value::as_u64),
    ) else {
        return Err(Absent::Wrong(
            "$repeat must be a string, and times a whole number",
        ));
    };
    if (text.len() as u64).saturating_mul(times) > REPEATED_BYTES_MAX {
        return Err(Absent::Wrong("$repeat makes too long a text"));
    }
    Ok(Value::String(text.repeat(times as usize)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(case: &Value) -> Result<Option<Case>, CaseError> {
        Case::parse(&case.to_string(), "perl")
    }

    #[test]
    fn a_case_is_read_with_everything_replaced() {
        let case = json!({
            "id": "a/b", "category": "ddoc-shows", "why": "Why.", "exit": [0, 255],
            "compare": {"logs": "ignored"},
            "steps": [
                {"in": ["add_fun", {"$source": {"perl": "sub {}", "python": "-"}}]},
                {"in_raw": ["<", {"$repeat": "ab", "times": 3}], "eol": ""},
                {"out": [true]}, {"out_raw": "x"}, {"closed": true, "may_say": 1},
            ],
        });
        let case = parse(&case).unwrap().unwrap();
        assert_eq!(
            (case.ability.as_str(), &case.exit[..]),
            ("ddoc.shows", &[0, 255][..])
        );
        assert!(case.skip_logs && !case.ordered);
        let sent = |text: &str, closes| Step::Send {
            bytes: text.into(),
            closes,
        };
        let steps = [
            sent("[\"add_fun\",\"sub {}\"]\n", false),
            sent("<ababab", true),
            Step::Out(json!([true])),
            Step::OutRaw("x".into()),
            Step::Closed {
                may_say: Some(json!(1)),
            },
        ];
        assert_eq!(case.steps, steps);
    }

    #[test]
    fn a_case_without_a_source_in_the_language_is_not_for_it() {
        let case = json!({
            "id": "a", "category": "map", "why": "", "exit": null,
            "steps": [{"in": [{"$source": {"python": "-"}}]}],
        });
        assert_eq!(parse(&case), Ok(None));
    }

    #[test]
    fn a_mistake_in_a_case_is_reported_with_its_name() {
        for (steps, what) in [
            (json!(null), "it has no steps"),
            (json!([{"out": 1}, {"inn": 1}]), "step 2 is invalid"),
            (json!([{"in_raw": 5}]), "step 1 is invalid"),
            (
                json!([{"in": {"$repeat": "x", "times": 1e3}}]),
                "$repeat must be a string, and times a whole number",
            ),
            (
                json!([{"in": {"$repeat": "xx", "times": 1_u64 << 40}}]),
                "$repeat makes too long a text",
            ),
        ] {
            let case = json!({"id": "a", "category": "map", "why": "", "steps": steps});
            assert_eq!(
                parse(&case).unwrap_err().to_string(),
                format!("case a: {what}")
            );
        }
    }
}
