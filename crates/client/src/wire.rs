//! Requests and replies as lines.
//!
//! SOURCE    The client socket: `{"id":ID,"call":NAME,...}` and `{"id":ID,"ok":VALUE}` or
//!           `{"id":ID,"error":{...}}`, one JSON object a line.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::{ClientError, ServiceError};
use super::milliseconds;

/// A process that this connection holds.
#[derive(Clone, Debug, Deserialize)]
pub struct Borrowed {
    /// The token that identifies it in prompts and its return.
    pub proc: String,
    /// Its pool; `None` if the service is too old to report it.
    pub pool: Option<String>,
    /// Its language, in the service's spelling.
    pub lang: String,
    /// Its process id; `None` if it runs inside the service.
    pub os_pid: Option<u32>,
    /// The argument for the first prompt, `reset`; `None` after `attach`.
    pub config: Option<Box<RawValue>>,
}

/// A notice that the service has revoked a process of this connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProcDown {
    /// The token under which it was held.
    pub down: String,
    /// Why, for programs: `pool_removed`, `memory_exceeded`, `killed`, `shutting_down`.
    #[serde(default)]
    pub name: String,
    /// The reason, for display.
    #[serde(default)]
    pub reason: String,
}

/// The result of a document's import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Its id.
    pub id: String,
    /// `created`, or `unchanged` if it existed already; `None` if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<String>,
    /// Why it was refused, for programs: `conflict`, `forbidden`, `doc_validation` ..
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Why it was refused, for display.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The arguments of a prompt.
#[derive(Serialize)]
pub(super) struct Prompting<'a, C> {
    proc: &'a str,
    data: &'a C,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

impl<'a, C> Prompting<'a, C> {
    pub(super) fn new(proc: &'a str, data: &'a C, timeout: Option<Duration>) -> Self {
        let timeout_ms = timeout.map(milliseconds);
        Self {
            proc,
            data,
            timeout_ms,
        }
    }
}

/// Whether a returned process may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReturnStatus {
    /// It may be used again.
    Ok,
    /// It must not be used again.
    Fail,
}

/// The content of a reply: the value as JSON text, or the service's error.
pub(super) type Outcome = Result<Box<RawValue>, ClientError>;

/// Writes a request as one line with its line feed.
pub(super) fn request(
    id: u64,
    call: &str,
    arguments: &impl Serialize,
) -> Result<Vec<u8>, ClientError> {
    #[derive(Serialize)]
    struct Request<'a, A> {
        id: u64,
        call: &'a str,
        #[serde(flatten)]
        arguments: &'a A,
    }
    let mut line = serde_json::to_vec(&Request {
        id,
        call,
        arguments,
    })
    .map_err(no_json)?;
    line.push(b'\n');
    Ok(line)
}

pub(super) fn no_json(error: serde_json::Error) -> ClientError {
    ClientError::Protocol(format!("cannot encode the request as JSON: {error}"))
}

/// Parses a notice; `None` for any other line.
pub(super) fn notice(line: &[u8]) -> Option<ProcDown> {
    line.starts_with(b"{\"down\"")
        .then(|| serde_json::from_slice(line).ok())
        .flatten()
}

/// Parses a reply: the request's id, `None` if the service could not read it, and the outcome.
pub(super) fn reply(line: &[u8]) -> Result<(Option<u64>, Outcome), ClientError> {
    #[derive(Deserialize)]
    struct Reply {
        id: Option<u64>,
        #[serde(default, deserialize_with = "present")]
        ok: Option<Box<RawValue>>,
        error: Option<Box<ServiceError>>,
    }
    let no_reply = |why: String| {
        let excerpt = String::from_utf8_lossy(&line[..line.len().min(EXCERPT_BYTES)]);
        ClientError::Protocol(format!("'{excerpt}' is not a reply: {why}"))
    };
    let reply: Reply = serde_json::from_slice(line).map_err(|error| no_reply(error.to_string()))?;
    match (reply.ok, reply.error) {
        (_, Some(error)) => Ok((reply.id, Err(ClientError::Service(error)))),
        (Some(value), None) => Ok((reply.id, Ok(value))),
        (None, None) => Err(no_reply("it has neither 'ok' nor 'error'".into())),
    }
}

/// Maximum bytes of an invalid reply quoted in an error.
const EXCERPT_BYTES: usize = 100;

/// Reads a member that is present, even as `null`.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// Reads the value of a call.
pub(super) fn typed<T: DeserializeOwned>(call: &str, value: &RawValue) -> Result<T, ClientError> {
    serde_json::from_str(value.get())
        .map_err(|error| ClientError::Protocol(format!("the value of '{call}': {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_one_line_with_its_arguments_beside_the_call() {
        let line = request(7, "ret_proc", &json!({"proc": "0.1.2"})).unwrap();
        assert_eq!(
            line,
            b"{\"id\":7,\"call\":\"ret_proc\",\"proc\":\"0.1.2\"}\n"
        );
    }

    #[test]
    fn a_notice_is_distinguished_from_a_reply() {
        let line = br#"{"down":"1.2.3","name":"pool_removed","reason":"gone"}"#;
        let down = notice(line).unwrap();
        assert_eq!(
            (&*down.down, &*down.name, &*down.reason),
            ("1.2.3", "pool_removed", "gone")
        );
        assert_eq!(notice(br#"{"id":1,"ok":{"down":"1.2.3"}}"#), None);
    }

    #[test]
    fn a_value_of_null_is_a_value() {
        let (id, outcome) = reply(br#"{"id":1,"ok":null}"#).unwrap();
        assert_eq!((id, outcome.unwrap().get()), (Some(1), "null"));
    }

    #[test]
    fn an_error_keeps_what_the_service_said() {
        let line = br#"{"id":null,"error":{"name":"x","reason":{"a":1},"phase":"prompt",
            "fault":"client","retry":false,"exit":"exited with status 1","status":1,"more":[]}}"#;
        let (id, outcome) = reply(line).unwrap();
        let Err(ClientError::Service(error)) = outcome else {
            panic!("not an error");
        };
        assert_eq!(id, None);
        assert_eq!(error.to_string(), r#"x: {"a":1}"#);
        assert_eq!((error.status, error.retry), (Some(1), false));
    }

    #[test]
    fn an_invalid_reply_is_reported_with_an_excerpt() {
        for line in [
            "",
            "HTTP/1.1 400 Bad Request",
            "[]",
            r#"{"id":1}"#,
            "\u{fffd}",
        ] {
            let error = reply(line.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("is not a reply"), "{error}");
        }
    }
}
