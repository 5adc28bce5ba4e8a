//! `validate_doc_update`: whether documents may be written.
//!
//! SOURCE    couch_query_servers: validate_doc_update/5.
//! DIFFERS   One call validates many documents, pipelined over one process that is taught once. Answers that crash
//!           the reference (two members, a number, an array) are errors that quote them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};

use super::decode::{decode, document_place, elements, excerpt, single_member, text};
use super::{FunctionError, FunctionResult, QueryServers};
use crate::messages::client_error::Place;
use crate::messages::function::{Edit, Json, ValidateDocs};
use json::{JsonList, JsonListBuilder};

/// The path of the function.
const PATH: [&str; 1] = ["validate_doc_update"];

/// The reference's error name for unintelligible answers.
const UNKNOWN: &str = "unknown_error";

impl QueryServers {
    /// Validates documents (`validate_docs`); returns a verdict for each, in order: `true` if it may be written,
    /// `{"forbidden": REASON}` if no user may write it (403), `{"unauthorized": REASON}` if this user may not (401).
    ///
    /// # Errors
    /// See [`FunctionError`]; it names the first document whose answer is not a verdict.
    pub async fn validate_docs(&self, call: &ValidateDocs) -> FunctionResult<JsonList> {
        let at = &call.at;
        let edit =
            |json| Edit::parse(json).expect("CL-4: a call's documents were checked to be edits");
        let commands = call.docs.iter().map(edit).map(|edit| {
            let args = (edit.new_doc, edit.old_doc, &call.user_ctx, &call.sec_obj);
            at.command(&PATH, args)
        });
        let mut verdicts = JsonListBuilder::default();
        let take = |_, answer: Bytes| {
            verdicts.push(&read_verdict(&answer)?);
            Ok(())
        };
        let place = |index: usize| match call.docs.get(index).map(edit) {
            Some(edit) => document_place(edit.new_doc.get()),
            None => Place::default(),
        };
        self.prompt_all(at.want(), commands, take, place)
            .await
            .map_err(|error| error.at(at.place(&PATH)))?;
        Ok(verdicts.finish())
    }
}

/// Parses one answer. The process has already counted a rejection in its metrics.
fn read_verdict(answer: &Bytes) -> FunctionResult<Json> {
    let json = text(answer);
    if json == "true" || decode::<f64>(json) == Some(1.0) {
        return Ok(RawValue::TRUE.to_owned());
    }
    match single_member(json) {
        Some((name, reason)) if name == "forbidden" || name == "unauthorized" => {
            Ok(to_raw_value(&BTreeMap::from([(name, reason)]))
                .expect("JSON: strings can always be written"))
        }
        Some((_, reason)) => Err(FunctionError::thrown(UNKNOWN, reason.get())),
        None if json.starts_with('"') => Err(FunctionError::thrown(UNKNOWN, json)),
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
            Err(FunctionError::refused(UNKNOWN, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::FunctionErrorKind;

    fn read(answer: &'static str) -> Result<String, (String, String)> {
        let verdict = read_verdict(&Bytes::from_static(answer.as_bytes()));
        match verdict {
            Ok(verdict) => Ok(verdict.get().to_owned()),
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
    fn an_answer_that_crashes_the_reference_is_an_error_that_describes_it() {
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
