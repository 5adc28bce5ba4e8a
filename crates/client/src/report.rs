//! The service's report about a call that requested one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Client;
use super::connection::Reply;
use super::error::{ClientError, ServiceError};
use super::wire::Prompting;

/// The outcome of a call, and its report.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The value, or the service's error.
    pub outcome: Result<Box<RawValue>, Box<ServiceError>>,
    /// The report.
    pub report: Report,
}

/// A report of a call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The call's id in the service's log.
    pub request_id: Option<String>,
    /// The pool that served it.
    pub pool: Option<String>,
    /// Messages logged by functions, query server and service, in order.
    pub logs: Vec<LogLine>,
    /// Number of further lines, which were dropped.
    pub logs_dropped: u64,
    /// Errors of functions: objects with `function`, `doc`, `name`, `message`, `line`, `column` and so on.
    pub errors: Vec<Value>,
    /// Number of further errors, which were dropped.
    pub errors_dropped: u64,
    /// The known costs: times in `.._us`, memory in `.._bytes`.
    pub cost: Value,
}

/// A line of a call's log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LogLine {
    /// `info` for a function's own; `warning` or `error` for one of the query server or the service.
    pub level: String,
    /// The text.
    pub message: String,
}

impl Client {
    /// Runs functions like [`Self::function`], and requests a report.
    ///
    /// # Errors
    /// See [`ClientError`]; an error of the service is the outcome.
    pub async fn function_reported(
        &self,
        call: &'static str,
        arguments: &impl Serialize,
    ) -> Result<Reported, ClientError> {
        #[derive(Serialize)]
        struct Asking<'a, A> {
            report: bool,
            #[serde(flatten)]
            arguments: &'a A,
        }
        let report = true;
        let Reply { outcome, line } = self
            .connection
            .reply(call, &Asking { report, arguments })
            .await?;
        let outcome = match outcome {
            Ok(value) => Ok(value),
            Err(ClientError::Service(error)) => Err(error),
            Err(error) => return Err(error),
        };
        let report = serde_json::from_slice(&line)
            .map_err(|error| ClientError::Protocol(format!("a report: {error}")))?;
        Ok(Reported { outcome, report })
    }

    /// Like [`Self::prompt`], with the process's output before its answer: `logs` and `errors` of the report. The
    /// `reset` before it must request errors (`"report": true` in its configuration).
    ///
    /// # Errors
    /// See [`ClientError`]; an error of the service is the outcome.
    pub async fn prompt_reported(
        &self,
        proc: &str,
        command: &impl Serialize,
        timeout: Option<Duration>,
    ) -> Result<Reported, ClientError> {
        self.function_reported("prompt", &Prompting::new(proc, command, timeout))
            .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::UnixStream;

    use super::*;

    /// Answers one request with these members, and returns it.
    async fn asked(members: Value) -> (Value, Reported) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let client = Client::on(ours);
        let serve = async {
            let mut theirs = BufReader::new(theirs);
            let mut line = String::new();
            theirs.read_line(&mut line).await.unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let mut reply = members;
            reply["id"] = request["id"].clone();
            let reply = format!("{reply}\n");
            theirs.write_all(reply.as_bytes()).await.unwrap();
            request
        };
        let arguments = json!({"fun": "function() {}"});
        let (request, reported) =
            tokio::join!(serve, client.function_reported("try_compile", &arguments));
        (request, reported.unwrap())
    }

    #[tokio::test]
    async fn a_call_with_a_report_has_its_value_and_what_happened() {
        let members = json!({"ok": true, "request_id": "r", "pool": "javascript", "logs_dropped": 2,
            "logs": [{"level": "info", "message": "hello"}], "cost": {"run_us": 7}});
        let (request, reported) = asked(members).await;
        assert_eq!(request["report"], true);
        assert_eq!(request["fun"], "function() {}");
        assert_eq!(reported.outcome.unwrap().get(), "true");
        let expected = Report {
            request_id: Some("r".into()),
            pool: Some("javascript".into()),
            logs: vec![LogLine {
                level: "info".into(),
                message: "hello".into(),
            }],
            logs_dropped: 2,
            cost: json!({"run_us": 7}),
            ..Report::default()
        };
        assert_eq!(reported.report, expected);
    }

    #[tokio::test]
    async fn an_error_of_the_service_has_a_report_too() {
        let members = json!({"error": {"name": "compilation_error", "fault": "client"},
            "errors": [{"function": 0, "line": 3}], "errors_dropped": 1});
        let (_, reported) = asked(members).await;
        assert_eq!(reported.outcome.unwrap_err().name, "compilation_error");
        assert_eq!(reported.report.errors, [json!({"function": 0, "line": 3})]);
        assert_eq!(reported.report.errors_dropped, 1);
    }
}
