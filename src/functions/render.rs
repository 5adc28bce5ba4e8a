//! Shows and updates: make a response from a document and a request.
//!
//! SOURCE    couch_mrview_show: handle_doc_show/5, send_doc_update_response/6.
//! DIFFERS   An unexpected answer is an error that quotes it. The caller, who has the database, writes the
//!           document of an update.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::decode::{broken, document_place, elements, is_word};
use super::response::Response;
use super::scrub::scrub;
use super::{FunctionResult, QueryServers};
use crate::messages::function::Render;

/// The status of a response to an update with a document to write.
const CREATED: u16 = 201;

/// The status of a response to an update without a document to write.
const OK: u16 = 200;

/// An update function's answer; serialized as `[DOC or null, RESPONSE]`.
#[derive(Clone, Debug, Serialize)]
pub struct Updated(
    /// The document to write, if there is one.
    pub Option<Box<RawValue>>,
    /// The response to send once the document is written; it always has a `code`.
    pub Response,
);

impl QueryServers {
    /// Renders a document (`show`).
    ///
    /// # Errors
    /// See [`FunctionError`](super::FunctionError).
    pub async fn show(&self, call: &Render) -> FunctionResult<Response> {
        self.render(call, "shows", read_response).await
    }

    /// Creates or changes a document (`update`). The caller writes it.
    ///
    /// # Errors
    /// See [`FunctionError`](super::FunctionError).
    pub async fn update(&self, call: &Render) -> FunctionResult<Updated> {
        self.render(call, "updates", read_updated).await
    }

    async fn render<T>(
        &self,
        call: &Render,
        kind: &str,
        read: impl FnOnce(Bytes) -> FunctionResult<T>,
    ) -> FunctionResult<T> {
        let args = (&call.doc, &*scrub(&call.req));
        let path = [kind, &call.name];
        self.call_ddoc(&call.at, &path, args, read)
            .await
            .map_err(|error| match &call.doc {
                Some(doc) => error.at(document_place(doc.get())),
                None => error,
            })
    }
}

/// Reads `["resp", RESPONSE]`.
fn read_response(answer: Bytes) -> FunctionResult<Response> {
    match elements(&answer).as_deref() {
        Some([word, response]) if is_word(word, "resp") => Response::check(response),
        _ => Err(broken(&answer, "[\"resp\", {..}]")),
    }
}

/// Reads `["up", DOC or null, RESPONSE]`.
fn read_updated(answer: Bytes) -> FunctionResult<Updated> {
    match elements(&answer).as_deref() {
        Some([word, doc, response]) if is_word(word, "up") => {
            // Anything but an object is not written, as in the reference.
            let doc = Some(*doc).filter(|doc| doc.get().starts_with('{'));
            let code = if doc.is_some() { CREATED } else { OK };
            let response = Response::check(response)?.or_code(code);
            Ok(Updated(doc.map(RawValue::to_owned), response))
        }
        _ => Err(broken(&answer, "[\"up\", DOC or null, {..}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::client_error::ErrorReply;
    use crate::messages::process::Fault;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn updated(answer: &'static str) -> String {
        serde_json::to_string(&read_updated(bytes(answer)).unwrap()).unwrap()
    }

    #[test]
    fn a_valid_response_is_passed_on_unchanged() {
        for response in [
            "{}",
            r#"{"body":"a","code":302,"headers":{"A":"b"}}"#,
            r#"{"base64":"YWI=","headers":{}}"#,
            r#"{"json":{"a": 1.0},"stop":true}"#,
            r#"{"body":"\ud83d"}"#,
        ] {
            let answer = Bytes::from(format!("[\"resp\",{response}]"));
            assert_eq!(read_response(answer).unwrap().json.get(), response);
        }
    }

    #[test]
    fn an_error_names_the_invalid_member_of_a_response() {
        for (response, named) in [
            (r#"{"status":200}"#, "'status'"),
            (r#"{"code":"200"}"#, "'code'"),
            (r#"{"code":1e99}"#, "'code'"),
            (r#"{"code":42}"#, "'code'"),
            (r#"{"body":{}}"#, "'body'"),
            (r#"{"base64":"%"}"#, "'base64'"),
            (r#"{"headers":{"A":5}}"#, "'headers'"),
            (r#"["x"]"#, "must be an object"),
        ] {
            let answer = Bytes::from(format!("[\"resp\",{response}]"));
            let error = read_response(answer).unwrap_err();
            let reply = ErrorReply::from(error);
            assert_eq!(reply.name, "external_response_error");
            assert!(reply.reason.get().contains(named), "{}", reply.reason);
        }
    }

    #[test]
    fn an_update_without_a_code_gets_201_with_a_document_and_200_otherwise() {
        assert_eq!(
            updated(r#"["up",{"_id":"a","n":1.0},{"body":"made"}]"#),
            r#"[{"_id":"a","n":1.0},{"code":201,"body":"made"}]"#
        );
        assert_eq!(updated(r#"["up",null,{}]"#), r#"[null,{"code":200}]"#);
        assert_eq!(
            updated(r#"["up",null,{"code":302}]"#),
            r#"[null,{"code":302}]"#
        );
    }

    #[test]
    fn an_unexpected_answer_breaks_the_protocol() {
        for answer in ["true", r#"["up",null,{}]"#, r#"["resp"]"#, r#"{"resp":{}}"#] {
            let error = read_response(bytes(answer)).unwrap_err();
            assert!(error.to_string().contains(answer), "{error}");
            assert_eq!(ErrorReply::from(error).fault, Fault::QueryServer);
        }
        assert!(read_updated(bytes(r#"["resp",{}]"#)).is_err());
    }
}
