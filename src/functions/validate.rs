//! `validate_doc_update`: may these documents be written?
//!
//! SOURCE    couch_query_servers: validate_doc_update/5.
//! DIFFERS   Many documents in one call, pipelined over one process that was taught once. Answers
//!           that crash the reference (two members, a number, an array) are errors that name them.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::acquire::give_back;
use super::decode::{decode, document_id, elements, excerpt, text};
use super::pipeline::pipeline;
use super::{FunctionError, FunctionErrorKind, QueryServers};
use crate::messages::function::{Edit, ValidateDocs};
use crate::messages::process::Fault;
use crate::query_server::prompt;

/// What a validation function says of a document.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may be written.
    Accepted,
    /// It may not, whoever writes it (403): why, as JSON.
    Forbidden(Box<RawValue>),
    /// It may not by this user (401): why, as JSON.
    Unauthorized(Box<RawValue>),
}

impl Serialize for Verdict {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (name, reason) = match self {
            Self::Accepted => return to.serialize_bool(true),
            Self::Forbidden(reason) => ("forbidden", reason),
            Self::Unauthorized(reason) => ("unauthorized", reason),
        };
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry(name, reason)?;
        map.end()
    }
}

impl QueryServers {
    /// Asks about documents (`validate_docs`); the verdicts are in their order.
    ///
    /// # Errors
    /// See [`FunctionError`]; about the first document that the function neither accepts nor
    /// refuses as it may.
    pub async fn validate_docs(&self, call: &ValidateDocs) -> Result<Vec<Verdict>, FunctionError> {
        let at = &call.at;
        let place = || at.place("validate_doc_update".into());
        let name = |index: usize, error: FunctionError| {
            let mut place = place();
            place.doc = call
                .docs
                .get(index)
                .and_then(|doc| document_id(&doc.new_doc));
            error.at(place)
        };
        let mut verdicts = Vec::with_capacity(call.docs.len());
        let Some((first, rest)) = call.docs.split_first() else {
            return Ok(verdicts);
        };
        let begun = self
            .prompt_clean(&at.want(), command(call, first), at.timeout)
            .await;
        let (lease, answer) = begun.map_err(|error| error.at(place()))?;
        let mut take = |_, answer: Bytes| -> Result<(), FunctionError> {
            verdicts.push(read_verdict(&answer)?);
            Ok(())
        };
        let first = answer.map_err(FunctionError::from);
        let first = first.and_then(|answer| take(0, answer));
        let mut result = first.map_err(|error| name(0, error));
        if result.is_ok() {
            let commands = rest.iter().map(|edit| command(call, edit));
            let rest = pipeline(&lease, commands, at.timeout, take).await;
            result = rest.map_err(|(index, error)| name(index + 1, error));
        }
        give_back(lease, &result).await;
        result.map(|()| verdicts)
    }
}

fn command(call: &ValidateDocs, edit: &Edit) -> Bytes {
    let args = (&edit.new_doc, &edit.old_doc, &call.user_ctx, &call.sec_obj);
    prompt::line(&("ddoc", &*call.at.ddoc.key.id, ["validate_doc_update"], args))
}

/// Judges one answer. Rejections are counted by the process that answers.
fn read_verdict(answer: &Bytes) -> Result<Verdict, FunctionError> {
    let json = text(answer);
    if json == "true" || decode::<f64>(json) == Some(1.0) {
        return Ok(Verdict::Accepted);
    }
    let unknown = |raw_reason: String| {
        let reason = decode::<String>(&raw_reason).unwrap_or_else(|| raw_reason.clone());
        Err(bad_verdict(reason, Some(raw_reason)))
    };
    match single_member(json) {
        Some((name, reason)) if name == "forbidden" => Ok(Verdict::Forbidden(reason)),
        Some((name, reason)) if name == "unauthorized" => Ok(Verdict::Unauthorized(reason)),
        Some((_, reason)) => unknown(reason.get().to_owned()),
        None if json.starts_with('"') => unknown(json.to_owned()),
        None => {
            let kind = match json.as_bytes().first() {
                Some(b'{') => "an object that has not exactly one member",
                Some(b'[') if elements(answer).is_some() => "an array",
                Some(b'n') => "null",
                Some(b'f') => "false",
                _ => "a number",
            };
            let reason = format!(
                "the validation function threw {kind}: {}; it may throw {{\"forbidden\": TEXT}} or \
                 {{\"unauthorized\": TEXT}}",
                excerpt(json)
            );
            Err(bad_verdict(reason, None))
        }
    }
}

/// The reference's name for what it cannot make sense of.
fn bad_verdict(reason: String, raw_reason: Option<String>) -> FunctionError {
    FunctionErrorKind::Answer {
        name: "unknown_error",
        reason,
        raw_reason,
        fault: Fault::Client,
    }
    .into()
}

/// Returns the member of an object that has exactly one.
fn single_member(json: &str) -> Option<(String, Box<RawValue>)> {
    type Members = std::collections::BTreeMap<String, Box<RawValue>>;
    let mut members = Some(json)
        .filter(|json| json.starts_with('{'))
        .and_then(decode::<Members>)?;
    let first = members.pop_first()?;
    members.is_empty().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &'static str) -> Result<String, (String, String)> {
        let verdict = read_verdict(&Bytes::from_static(answer.as_bytes()));
        match verdict {
            Ok(verdict) => Ok(serde_json::to_string(&verdict).unwrap()),
            Err(error) => match error.kind {
                FunctionErrorKind::Answer { name, reason, .. } => Err((name.into(), reason)),
                other => panic!("{other}"),
            },
        }
    }

    #[test]
    fn one_and_true_accept_and_the_two_known_objects_refuse() {
        for accepted in ["1", "true", " 1 ", "1.0"] {
            assert_eq!(read(accepted).as_deref(), Ok("true"));
        }
        for refused in [r#"{"forbidden":"no"}"#, r#"{"unauthorized":{"a": 1.0}}"#] {
            assert_eq!(read(refused).as_deref(), Ok(refused));
        }
    }

    #[test]
    fn another_object_of_one_member_and_a_string_are_unknown_errors_with_their_text() {
        let unknown = |text: &str| Err(("unknown_error".to_owned(), text.to_owned()));
        assert_eq!(read(r#"{"teapot":"short"}"#), unknown("short"));
        assert_eq!(read(r#""just a text""#), unknown("just a text"));
        assert_eq!(read(r#"{"teapot":[1]}"#), unknown("[1]"));
    }

    #[test]
    fn what_crashes_the_reference_is_an_error_that_names_what_came() {
        for (answer, named) in [
            (
                r#"{"forbidden":"a","unauthorized":"b"}"#,
                "not exactly one member",
            ),
            ("{}", "not exactly one member"),
            ("2", "a number: 2"),
            ("0", "a number: 0"),
            ("[1,2]", "an array: [1,2]"),
            ("null", "null"),
            ("false", "false"),
        ] {
            let (name, reason) = read(answer).unwrap_err();
            assert_eq!(name, "unknown_error");
            assert!(reason.contains(named), "{reason}");
        }
    }
}
