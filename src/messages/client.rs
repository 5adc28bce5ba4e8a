//! The requests on the client socket, as sent.
//!
//! SUMMARY   [`Request::parse`] parses one line: the call and its arguments.
//! PROMISES  The text of command arrays, design documents and arguments is kept. An error names the wrong member, and
//!           has the request's `id` if it is readable.
//! SOURCE    The calls are couch_proc_manager's, under the same names; those that run functions are in
//!           [`function`](super::function).

use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::messages::arguments::{Arguments, Parsed, missing, wrong};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::FunctionRequest;
use crate::messages::proc_manager::{TakeFrom, TenantName, Want};
pub(crate) use crate::messages::proc_token::ProcToken;
use crate::operations::{CallName, NAME_BYTES_MAX, check_name};
use crate::query_server::known_ddocs::KnownDdocs;
use crate::query_server::prompt_error::shorten;
use policy::pool::{Lane, ReturnStatus};

const LANES: [(&str, Lane); 2] = [("interactive", Lane::Interactive), ("bulk", Lane::Bulk)];

const RETURN_STATUSES: [(&str, ReturnStatus); 2] =
    [("ok", ReturnStatus::Ok), ("fail", ReturnStatus::Fail)];

/// One request of a client.
#[derive(Debug)]
pub struct Request {
    /// The `id` of the reply: the JSON text of the request's `id`, or `null`.
    pub id: Box<str>,
    /// The call's name.
    pub name: CallName,
    /// The call with its arguments.
    pub call: Call,
}

/// The calls that a client may make.
#[derive(Debug)]
pub enum Call {
    /// Lend a process.
    GetProc {
        /// The requirements.
        want: Want,
        /// How long to wait; `None`: as configured.
        timeout: Option<Duration>,
    },
    /// Send a command to a borrowed process.
    Prompt {
        /// The process; `None` if the text is not a token.
        proc: Option<ProcToken>,
        /// The command, a JSON array.
        data: Bytes,
        /// How long the answer may take; `None`: the process's own timeout.
        timeout: Option<Duration>,
        /// Whether the client wants the log lines and errors reported before the answer.
        report: bool,
    },
    /// Return a process.
    RetProc {
        /// The process, as in `Prompt`.
        proc: Option<ProcToken>,
        /// Whether the client found it usable.
        status: ReturnStatus,
    },
    /// Set the default timeout of prompts.
    SetTimeout {
        /// The process, as in `Prompt`.
        proc: Option<ProcToken>,
        /// The timeout.
        timeout: Duration,
    },
    /// Run functions; the call itself borrows and returns the process.
    Function(Box<FunctionRequest>),
    /// Cancel a call of functions.
    Cancel {
        /// The JSON text of the `id` of its request.
        request: Box<str>,
    },
    /// Turn the connection into a tunnel to one process.
    Attach {
        /// The requirements for the process.
        want: Want,
        /// Whether the last line reports how the process ended.
        end: bool,
        /// Whether the client hands over its pipes, and shares processes with others.
        descriptors: bool,
    },
    /// Return the line limit.
    Limits,
    /// Log in; the first call over TCP.
    Auth {
        /// The user.
        name: String,
        /// The password.
        password: String,
    },
}

/// A line that is not a valid request.
#[derive(Debug)]
pub struct BadRequest {
    /// As in [`Request::id`].
    pub id: Box<str>,
    /// The error of the reply.
    pub error: ErrorReply,
}

impl Request {
    /// Parses a line. If `ddocs` is given, design documents may be named by their digests.
    ///
    /// # Errors
    /// [`BadRequest`] with the first error, which is the client's fault.
    pub(crate) fn parse(line: &Bytes, ddocs: Option<&KnownDdocs>) -> Result<Self, BadRequest> {
        let nameless = |reason: String| BadRequest {
            id: "null".into(),
            error: ErrorReply::bad_request(reason),
        };
        let text =
            std::str::from_utf8(line).map_err(|_| nameless("the line is not UTF-8".to_owned()))?;
        let arguments: Arguments<'_> = serde_json::from_str(text).map_err(|error| {
            nameless(if !error.is_data() {
                format!("the line is not JSON: {error}")
            } else if text.trim_start().starts_with('{') {
                format!("bad request: {error}")
            } else {
                "a request is a JSON object".to_owned()
            })
        })?;
        let arguments = arguments.with(ddocs);
        let id = arguments.get("id").map_or("null", RawValue::get);
        check_name("id", id, NAME_BYTES_MAX).map_err(nameless)?;
        let name = call_name(&arguments);
        let call = name.and_then(|name| {
            let call = Call::of(name, &arguments, line)?;
            arguments.refuse_unknown()?;
            Ok((name, call))
        });
        let id = id.into();
        match call {
            Ok((name, call)) => Ok(Self { id, name, call }),
            Err(error) => Err(BadRequest { id, error }),
        }
    }
}

fn call_name(arguments: &Arguments<'_>) -> Parsed<CallName> {
    let name = arguments.string("call")?;
    name.parse().map_err(|_| {
        let name = shorten(&name);
        ErrorReply::bad_request(format!(
            "there is no call named '{name}': docs/socket.md lists them, and the service is managed over HTTP"
        ))
    })
}

impl Call {
    /// Parses the arguments of the call `name` in a line.
    fn of(name: CallName, arguments: &Arguments<'_>, line: &Bytes) -> Parsed<Self> {
        Ok(match name {
            CallName::GetProc => Self::GetProc {
                want: want(arguments, arguments.get("ddoc").is_some())?,
                timeout: arguments.timeout()?,
            },
            CallName::Prompt => Self::Prompt {
                proc: proc_token(arguments)?,
                data: line.slice_ref(arguments.array("data")?.get().as_bytes()),
                timeout: arguments.timeout()?,
                report: arguments.flag("report")?,
            },
            CallName::RetProc => Self::RetProc {
                proc: proc_token(arguments)?,
                status: arguments
                    .either("status", RETURN_STATUSES)?
                    .unwrap_or(ReturnStatus::Ok),
            },
            CallName::SetTimeout => Self::SetTimeout {
                proc: proc_token(arguments)?,
                timeout: arguments.timeout()?.ok_or_else(|| missing("timeout_ms"))?,
            },
            CallName::Cancel => Self::Cancel {
                request: arguments.required("request")?.get().into(),
            },
            CallName::Attach => Self::attach(arguments)?,
            CallName::Limits => Self::Limits,
            CallName::Auth => Self::Auth {
                name: arguments.string("name")?,
                password: arguments.string("password")?,
            },
            // All other calls run functions.
            function => {
                let name: &str = function.into();
                let name = name.parse().map_err(|_| ErrorReply::internal())?;
                Self::Function(Box::new(FunctionRequest::of(name, arguments)?))
            }
        })
    }

    fn attach(arguments: &Arguments<'_>) -> Parsed<Self> {
        let names = ["lang", "pool", "group"];
        if names.iter().all(|name| arguments.get(name).is_none()) {
            return Err(missing("lang', 'pool' or 'group"));
        }
        Ok(Self::Attach {
            want: want(arguments, false)?,
            end: arguments.flag("end")?,
            descriptors: arguments.flag("descriptors")?,
        })
    }
}

/// The requirements for a process.
fn want(arguments: &Arguments<'_>, has_ddoc: bool) -> Parsed<Want> {
    let names_pool = arguments.names_pool();
    let from = match arguments.get("any").map(RawValue::get) {
        None | Some("false") => arguments.take_from()?,
        Some("true") if !names_pool => TakeFrom::Any,
        Some(_) => return Err(wrong("any", "true, without a 'pool' or a 'group'")),
    };
    let want = match (arguments.get("lang").is_some(), has_ddoc) {
        (true, true) => {
            return Err(wrong(
                "lang",
                "left out when there is a 'ddoc', which has one",
            ));
        }
        (true, false) => Want::language(arguments.language()?),
        (false, true) => {
            let db = arguments.database()?;
            let ddoc = arguments.design_document(&db)?;
            Want::ddoc(db, ddoc)
        }
        (false, false) if names_pool => Want::any_from(TakeFrom::Own),
        (false, false) => return Err(missing("lang' or 'ddoc")),
    };
    let lane = arguments.either("lane", LANES)?.unwrap_or(want.lane);
    let tenant = TenantName::from(arguments.optional_database()?);
    Ok(Want {
        from,
        lane,
        tenant,
        ..want
    })
}

/// `None` if the text is not a token: the process is unknown, the request not malformed.
fn proc_token(arguments: &Arguments<'_>) -> Parsed<Option<ProcToken>> {
    Ok(arguments.string("proc")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    use crate::operations::Who;
    use crate::query_server::language::LanguageName;

    fn parse(line: &[u8]) -> Result<Request, BadRequest> {
        Request::parse(&Bytes::copy_from_slice(line), None)
    }

    #[test]
    fn the_id_and_the_command_of_a_request_keep_their_text() {
        let line = br#" { "data" : [ "x", 1.0 ] , "proc":"1.2.3", "id" : 1.50 , "call":"prompt"} "#;
        let request = parse(line).unwrap();
        assert_eq!(&*request.id, "1.50");
        let Call::Prompt { data, timeout, .. } = request.call else {
            panic!("not a prompt");
        };
        assert_eq!((&*data, timeout), (&br#"[ "x", 1.0 ]"#[..], None));
    }

    #[test]
    fn unknown_members_are_refused_and_nulls_count_as_absent() {
        let reason = |line: &str| {
            let bad = parse(line.as_bytes()).unwrap_err();
            bad.error.reason.get().to_owned()
        };
        for (line, says) in [
            (
                r#"{"call":"get_proc","lang":"a","dbb":"x"}"#,
                "'dbb': did you mean 'db'?",
            ),
            (
                r#"{"call":"get_proc","lang":"a","timeout":5}"#,
                "'timeout': did you mean 'timeout_ms'?",
            ),
            (
                r#"{"call":"get_proc","lang":"a","pol":"x"}"#,
                "'pol': did you mean 'pool'?",
            ),
            (
                r#"{"call":"ret_proc","proc":"1.2.3","why":1}"#,
                "'why': expected call, id, proc, status",
            ),
            (r#"{"call":"attach","lang":"a","ddoc":{}}"#, "'ddoc'"),
        ] {
            assert!(reason(line).contains(says), "{}", reason(line));
        }
        let line = br#"{"call":"get_proc","lang":"A","db":null,"ddoc":null,"future":null}"#;
        let request = parse(line).unwrap();
        assert_eq!(&*request.id, "null");
        let Call::GetProc { want, .. } = request.call else {
            panic!("not a get_proc");
        };
        assert_eq!(want.spoken().map(LanguageName::as_str), Some("a"));
        assert_eq!(want.from, TakeFrom::Own);
    }

    #[test]
    fn a_database_may_be_named_for_work_without_a_design_document() {
        let tenant = |line: &str| match parse(line.as_bytes()).unwrap().call {
            Call::GetProc { want, .. } | Call::Attach { want, .. } => want.tenant,
            other => panic!("{other:?}"),
        };
        for call in ["get_proc", "attach"] {
            let line = format!(r#"{{"call":"{call}","lang":"a","db":"shop"}}"#);
            assert_eq!(tenant(&line), TenantName::Database("shop".into()));
            let line = format!(r#"{{"call":"{call}","pool":"p"}}"#);
            assert_eq!(tenant(&line), TenantName::Client);
        }
        let bad = parse(br#"{"call":"get_proc","lang":"a","db":7}"#).unwrap_err();
        assert!(bad.error.reason.get().contains("'db'"));
    }

    #[test]
    fn only_auth_cancel_and_calls_on_a_held_process_require_no_right() {
        let calls = CallName::VARIANTS.iter().copied();
        let free: Vec<_> = calls.filter(|call| call.who() == Who::Anybody).collect();
        let held = [
            CallName::Prompt,
            CallName::RetProc,
            CallName::SetTimeout,
            CallName::Cancel,
        ];
        assert_eq!(free, [&held[..], &[CallName::Auth]].concat());
    }

    #[test]
    fn a_call_of_any_name_without_arguments_is_valid_or_a_bad_request() {
        for name in CallName::VARIANTS {
            let name: &str = name.into();
            let line = format!(r#"{{"call":"{name}"}}"#);
            if let Err(bad) = parse(line.as_bytes()) {
                assert_eq!(bad.error.name, "bad_request", "{name}");
            }
        }
    }

    #[test]
    fn an_error_carries_the_id_of_its_request() {
        let bad = parse(br#"{"id":[7],"call":"ret_proc"}"#).unwrap_err();
        assert_eq!(&*bad.id, "[7]");
        assert_eq!(bad.error.reason.get(), "\"'proc' is missing\"");
        let bad = parse(b"\xff").unwrap_err();
        assert_eq!(&*bad.id, "null");
    }
}
