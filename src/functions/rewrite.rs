//! `rewrites`: rewrites a request.
//!
//! SOURCE    couch_query_servers: rewrite/3.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::decode::{decode, elements, excerpt, is_word, single_member, text};
use super::scrub::{scrub, without};
use super::{FunctionError, FunctionResult, QueryServers};
use crate::messages::function::{Json, Rewrite};

/// Members of a request that are not sent to a rewrite function.
const NOT_GIVEN: [&str; 4] = ["info", "form", "uuid", "id"];

impl QueryServers {
    /// Rewrites a request (`rewrite`). `None`: no rule matches.
    ///
    /// The result is checked: `method`, `path` and `body` are strings, `headers` and `query` are objects of strings,
    /// `code` is from 200 to 599. Each may be missing.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn rewrite(&self, call: &Rewrite) -> FunctionResult<Option<Json>> {
        let scrubbed = scrub(&call.req);
        let args = [&*without(&scrubbed, &NOT_GIVEN)];
        let read = |answer| read_rewritten(&answer);
        self.call_ddoc(&call.at, &["rewrites"], args, read).await
    }
}

/// Parses `["ok", REWRITTEN]`, `["no_dispatch_rule"]`, or an object that refuses.
fn read_rewritten(answer: &Bytes) -> FunctionResult<Option<Json>> {
    match elements(answer).as_deref() {
        Some([word, rewritten]) if is_word(word, "ok") => check(rewritten).map(Some),
        Some([word]) if is_word(word, "no_dispatch_rule") => Ok(None),
        _ => Err(refusal(text(answer))),
    }
}

/// Returns the error of an answer that is a refusal, or unknown.
fn refusal(json: &str) -> FunctionError {
    let refused = single_member(json).and_then(|(name, reason)| {
        let mut names = ["forbidden", "unauthorized"].into_iter();
        let name = names.find(|known| *known == name)?;
        Some(FunctionError::thrown(name, reason.get()))
    });
    refused.unwrap_or_else(|| {
        let reason = format!("the rewrite function answered {}", excerpt(json));
        FunctionError::refused("unknown_error", reason)
    })
}

fn check(rewritten: &RawValue) -> FunctionResult<Json> {
    let bad = |reason| Err(FunctionError::refused("rewrite_error", reason));
    let json = rewritten.get();
    let Some(members) = decode::<BTreeMap<String, Box<RawValue>>>(json) else {
        return bad(format!("bad rewrite: {}", excerpt(json)));
    };
    for (name, value) in &members {
        let json = value.get();
        let is_right = match name.as_str() {
            "method" | "path" | "body" => decode::<String>(json).is_some(),
            "headers" | "query" => decode::<BTreeMap<String, String>>(json).is_some(),
            "code" => decode(json).is_some_and(|code| (200..600_u64).contains(&code)),
            // The caller ignores unknown members, as the reference does.
            _ => true,
        };
        if !is_right {
            return bad(format!("bad {name}"));
        }
    }
    Ok(rewritten.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::client_error::ErrorReply;

    fn read(answer: &'static str) -> Result<Option<String>, (String, String)> {
        let rewritten = read_rewritten(&Bytes::from_static(answer.as_bytes()));
        match rewritten {
            Ok(json) => Ok(json.map(|json| json.get().to_owned())),
            Err(error) => {
                let reply = ErrorReply::from(error);
                Err((reply.name, reply.reason.get().to_owned()))
            }
        }
    }

    #[test]
    fn a_rewritten_request_is_passed_on_unchanged() {
        for rewritten in [
            r#"{"path":"a/b","method":"GET"}"#,
            r#"{"path":"a","query":{"key":"1"},"headers":{"X":"y"},"body":"b","code":200}"#,
            "{}",
        ] {
            let answer: &'static str = format!("[\"ok\",{rewritten}]").leak();
            assert_eq!(read(answer), Ok(Some(rewritten.to_owned())));
        }
        assert_eq!(read(r#"["no_dispatch_rule"]"#), Ok(None));
    }

    #[test]
    fn members_of_a_wrong_type_are_reported_by_name() {
        for (rewritten, named) in [
            (r#"{"method":1}"#, "bad method"),
            (r#"{"path":["a"]}"#, "bad path"),
            (r#"{"body":{}}"#, "bad body"),
            (r#"{"headers":{"a":1}}"#, "bad headers"),
            (r#"{"query":"a=b"}"#, "bad query"),
            (r#"{"code":600}"#, "bad code"),
            (r#"{"code":"200"}"#, "bad code"),
            ("7", "bad rewrite: 7"),
        ] {
            let answer: &'static str = format!("[\"ok\",{rewritten}]").leak();
            let (name, reason) = read(answer).unwrap_err();
            assert_eq!(name, "rewrite_error");
            assert!(reason.contains(named), "{reason}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_name_and_other_answers_are_unknown_errors() {
        let error = |name: &str, reason: &str| Err((name.to_owned(), reason.to_owned()));
        assert_eq!(read(r#"{"forbidden":"no"}"#), error("forbidden", "\"no\""));
        assert_eq!(
            read(r#"{"unauthorized":[1]}"#),
            error("unauthorized", "[1]")
        );
        for answer in ["7", "[\"ok\"]", r#"{"a":1}"#, r#"{"forbidden":1,"a":2}"#] {
            assert_eq!(read(answer).unwrap_err().0, "unknown_error", "{answer}");
        }
    }
}
