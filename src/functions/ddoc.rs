//! Functions of design documents, addressed by path.
//!
//! SOURCE    couch_query_servers: ddoc_prompt/4.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::scrub::scrub;
use super::{FunctionResult, QueryServers};
use crate::messages::client_error::Place;
use crate::messages::function::{DdocPrompt, InDdoc};
use crate::query_server::prompt;

impl InDdoc {
    /// Names a function of this design document for errors.
    pub(super) fn place(&self, path: &[&str]) -> Place {
        Place {
            db: Some(self.db.clone()),
            ddoc: Some(self.ddoc.key.id.clone()),
            function: Some(path.join("/")),
            ..Place::default()
        }
    }

    /// Returns the command that calls a function: `["ddoc", ID, PATH, ARGS]`.
    pub(super) fn command(&self, path: &[&str], args: impl Serialize) -> Bytes {
        prompt::line(&("ddoc", &*self.ddoc.key.id, path, args))
    }
}

impl QueryServers {
    /// Prompts a function of a design document and returns its answer unchanged (`ddoc_prompt`). Removes credentials
    /// from the request among its arguments.
    ///
    /// # Errors
    /// See [`FunctionError`](super::FunctionError).
    pub async fn ddoc_prompt(&self, call: &DdocPrompt) -> FunctionResult<Bytes> {
        let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
        let args = match path.first().and_then(|kind| request_among(kind)) {
            Some(index) => scrub_argument(&call.args, index),
            None => Cow::Borrowed(&*call.args),
        };
        self.call_ddoc(&call.at, &path, &args, Ok).await
    }

    /// Calls a function of a design document and parses its answer with `read`. Errors name the function.
    pub(super) async fn call_ddoc<T>(
        &self,
        at: &InDdoc,
        path: &[&str],
        args: impl Serialize,
        read: impl FnOnce(Bytes) -> FunctionResult<T>,
    ) -> FunctionResult<T> {
        self.prompt_once(at.want(), at.command(path, args), read)
            .await
            .map_err(|error| error.at(at.place(path)))
    }
}

/// Returns the index of the argument that is a request, for a kind of function that has one.
fn request_among(kind: &str) -> Option<usize> {
    match kind {
        "rewrites" => Some(0),
        "shows" | "updates" | "lists" | "filters" => Some(1),
        _ => None,
    }
}

fn scrub_argument(args: &RawValue, index: usize) -> Cow<'_, RawValue> {
    let scrubbed = || {
        let mut all: Vec<&RawValue> = serde_json::from_str(args.get()).ok()?;
        let Cow::Owned(req) = scrub(all.get(index).copied()?) else {
            return None;
        };
        all[index] = &req;
        Some(to_raw_value(&all).expect("PM-10: JSON texts can be written"))
    };
    scrubbed().map_or(Cow::Borrowed(args), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_is_scrubbed_and_only_where_it_has_secrets() {
        let scrubbed = |args: &str| {
            let args: Box<RawValue> = serde_json::from_str(args).unwrap();
            scrub_argument(&args, 1).get().to_owned()
        };
        assert_eq!(
            scrubbed(r#"[ {"cookie": "oat"}, {"cookie":{"a":"b"},"n":1.0} ]"#),
            r#"[{"cookie": "oat"},{"cookie":{},"n":1.0}]"#
        );
        for same in [
            r#"[ {"cookie": "oat"}, {"n": 1.0} ]"#,
            r#"[{"cookie":1}]"#,
            "[]",
        ] {
            assert_eq!(scrubbed(same), same);
        }
    }
}
