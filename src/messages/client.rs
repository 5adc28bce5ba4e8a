//! The client socket's requests, as a client sends them.
//!
//! SUMMARY   [`Request::parse`] reads one line: which call, with which arguments.
//! PROMISES  Command arrays, design documents and arguments stay the text they came as. Whatever is
//!           wrong is told by its name, with the request's own `id` where it can be found.
//! SOURCE    The calls are couch_proc_manager's, under their names there; those that run functions are
//!           in [`function`](super::function).

use std::time::Duration;

use serde_json::value::RawValue;

use crate::auth::rights::Right;
use crate::config::keys::CALLERS;
use crate::messages::arguments::{Arguments, Parsed, missing, wrong};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::{FunctionCall, FunctionRequest};
use crate::messages::function_costs::CostsQuery;
use crate::messages::job_call::JobCall;
use crate::messages::pools::{AddPool, PoolOrder, ReconfigurePool, RemovePool, UnthrottlePool};
use crate::messages::proc_manager::{TakeFrom, TenantName, Want};
pub(crate) use crate::messages::proc_token::ProcToken;
use crate::query_server::prompt_error::shorten;
use policy::pool::{Lane, RemoveMode, ReturnStatus};

const LANES: [(&str, Lane); 2] = [("interactive", Lane::Interactive), ("bulk", Lane::Bulk)];

const REMOVE_MODES: [(&str, RemoveMode); 2] = [
    ("graceful", RemoveMode::Graceful),
    ("immediate", RemoveMode::Immediate),
];

const RETURN_STATUSES: [(&str, ReturnStatus); 2] =
    [("ok", ReturnStatus::Ok), ("fail", ReturnStatus::Fail)];

/// One request of a client.
#[derive(Debug)]
pub struct Request<'a> {
    /// What the reply is to carry: the JSON text of the request's `id`, `null` without one.
    pub id: &'a str,
    /// What is asked.
    pub call: Call<'a>,
}

/// What a client may ask.
#[derive(Debug)]
pub enum Call<'a> {
    /// Lend a process.
    GetProc {
        /// What for.
        want: Want,
        /// How long to wait; `None` is the configured time.
        timeout: Option<Duration>,
    },
    /// Send a command to a process that is held.
    Prompt {
        /// The process; `None` if the text is not a token.
        proc: Option<ProcToken>,
        /// The command, a JSON array.
        data: &'a str,
        /// How long the answer may take; `None` is the process's own time.
        timeout: Option<Duration>,
        /// Whether the client wants to know what was told before the answer.
        report: bool,
    },
    /// Give a process back.
    RetProc {
        /// The process, as in `Prompt`.
        proc: Option<ProcToken>,
        /// What the client says of it.
        status: ReturnStatus,
    },
    /// Set the timeout of prompts that bring none.
    SetTimeout {
        /// The process, as in `Prompt`.
        proc: Option<ProcToken>,
        /// The timeout.
        timeout: Duration,
    },
    /// Run functions: everything from the process to its return is done inside the call.
    Function(Box<FunctionRequest>),
    /// Show jobs of replications, or tell one what to do.
    Jobs(JobCall),
    /// Turn the connection into a tunnel to one process.
    Attach {
        /// Which process.
        want: Want,
        /// Whether the last line is to tell what became of the process.
        end: bool,
        /// Whether the client hands its pipes over, and shares processes with others.
        descriptors: bool,
    },
    /// Log in; the first call over TCP.
    Auth {
        /// The admin.
        name: String,
        /// The password.
        password: String,
    },
    /// Count processes.
    GetProcCount,
    /// Count processes from before the last reload.
    GetStaleProcCount,
    /// Replace all processes.
    Reload,
    /// Read the configuration again.
    ReloadConfig,
    /// Stop idle processes from before the last reload.
    TerminateStaleProcs,
    /// Tell what the service is doing.
    Status(Option<String>),
    /// Tell which functions cost most lately.
    Functions(CostsQuery),
    /// Tell what processes do now.
    Procs(Option<String>),
    /// End a process: its name, and whether to kill it at once.
    KillProc {
        /// `POOL/NUMBER`.
        name: String,
        /// Whether it is killed at once.
        now: bool,
    },
    /// Add a pool.
    AddPool(AddPool),
    /// Remove a pool.
    RemovePool(RemovePool),
    /// Change settings of a pool.
    ReconfigurePool(ReconfigurePool),
    /// Start processes of a pool again, before the time of its throttle is up.
    UnthrottlePool(UnthrottlePool),
    /// Make a URL that lets a browser in.
    Dashboard,
}

impl Call<'_> {
    /// Returns the right that it takes; none for calls about a process that is held, and for logging in.
    pub fn takes(&self) -> Option<Right> {
        Some(match self {
            Self::Prompt { .. }
            | Self::RetProc { .. }
            | Self::SetTimeout { .. }
            | Self::Auth { .. } => return None,
            Self::GetProc { .. } | Self::Attach { .. } | Self::Function(_) => Right::Call,
            Self::Jobs(call) => call.takes(),
            Self::GetProcCount
            | Self::GetStaleProcCount
            | Self::Status(_)
            | Self::Functions(_)
            | Self::Procs(_) => Right::Look,
            Self::AddPool(AddPool(order)) | Self::ReconfigurePool(ReconfigurePool(order))
                if order.settings.contains_key(CALLERS) =>
            {
                // It says who may use the pool.
                Right::Administer
            }
            Self::Reload
            | Self::TerminateStaleProcs
            | Self::KillProc { .. }
            | Self::AddPool(_)
            | Self::RemovePool(_)
            | Self::ReconfigurePool(_)
            | Self::UnthrottlePool(_) => Right::Operate,
            Self::ReloadConfig | Self::Dashboard => Right::Administer,
        })
    }
}

/// A pool and settings of it: the members that are not the call's own are keys of a section `[pools.NAME]`.
fn pool_order(arguments: &Arguments<'_>) -> Parsed<PoolOrder> {
    let own = |name: &str| ["id", "call", "name", "pool", "dry_run"].contains(&name);
    let settings = arguments.iter().filter(|(name, _)| !own(name));
    let settings = settings.map(|(name, value)| match serde_json::from_str(value.get()) {
        Ok(value) => Ok((name.to_owned(), value)),
        Err(error) => Err(ErrorReply::bad_request(format!("'{name}': {error}"))),
    });
    let settings = settings.collect::<Parsed<_>>()?;
    if arguments.get("name").is_some() && arguments.get("pool").is_some() {
        return Err(wrong("pool", "left out when there is a 'name'"));
    }
    Ok(PoolOrder {
        name: pool_name(arguments)?,
        settings,
        dry_run: arguments.flag("dry_run")?,
    })
}

/// The pool that a call is about, which may also be named by `pool`.
fn pool_name(arguments: &Arguments<'_>) -> Parsed<String> {
    let pool = arguments
        .get("pool")
        .filter(|_| arguments.get("name").is_none());
    arguments.string(if pool.is_some() { "pool" } else { "name" })
}

/// A line that is not a valid request.
#[derive(Debug)]
pub struct BadRequest<'a> {
    /// As in [`Request::id`].
    pub id: &'a str,
    /// What the reply says.
    pub error: ErrorReply,
}

impl<'a> Request<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// [`BadRequest`] with the first thing that is wrong; the client's fault.
    pub fn parse(line: &'a [u8]) -> Result<Self, BadRequest<'a>> {
        let nameless = |reason: String| BadRequest {
            id: "null",
            error: ErrorReply::bad_request(reason),
        };
        let text =
            std::str::from_utf8(line).map_err(|_| nameless("the line is not UTF-8".to_owned()))?;
        let arguments: Arguments<'a> = serde_json::from_str(text).map_err(|error| {
            nameless(if !error.is_data() {
                format!("the line is not JSON: {error}")
            } else if text.trim_start().starts_with('{') {
                format!("bad request: {error}")
            } else {
                "a request is a JSON object".to_owned()
            })
        })?;
        let id = arguments.get("id").map_or("null", RawValue::get);
        match Call::of(&arguments) {
            Ok(call) => Ok(Self { id, call }),
            Err(error) => Err(BadRequest { id, error }),
        }
    }
}

impl<'a> Call<'a> {
    fn of(arguments: &Arguments<'a>) -> Parsed<Self> {
        let name = arguments.string("call")?;
        Ok(match name.as_str() {
            "get_proc" => Self::GetProc {
                want: want(arguments, arguments.get("ddoc").is_some())?,
                timeout: arguments.timeout()?,
            },
            "prompt" => Self::Prompt {
                proc: proc_token(arguments)?,
                data: arguments.array("data")?.get(),
                timeout: arguments.timeout()?,
                report: arguments.flag("report")?,
            },
            "ret_proc" => Self::RetProc {
                proc: proc_token(arguments)?,
                status: arguments
                    .either("status", RETURN_STATUSES)?
                    .unwrap_or(ReturnStatus::Ok),
            },
            "set_timeout" => Self::SetTimeout {
                proc: proc_token(arguments)?,
                timeout: arguments.timeout()?.ok_or_else(|| missing("timeout_ms"))?,
            },
            "attach" => {
                let names = ["lang", "pool", "group"];
                if names.iter().all(|name| arguments.get(name).is_none()) {
                    return Err(missing("lang', 'pool' or 'group"));
                }
                Self::Attach {
                    want: want(arguments, false)?,
                    end: arguments.flag("end")?,
                    descriptors: arguments.flag("descriptors")?,
                }
            }
            "auth" => Self::Auth {
                name: arguments.string("name")?,
                password: arguments.string("password")?,
            },
            "get_proc_count" => Self::GetProcCount,
            "get_stale_proc_count" => Self::GetStaleProcCount,
            "reload" => Self::Reload,
            "reload_config" => Self::ReloadConfig,
            "terminate_stale_procs" => Self::TerminateStaleProcs,
            "status" => Self::Status(arguments.text("pool")?),
            "procs" => Self::Procs(arguments.text("pool")?),
            "kill_proc" => Self::KillProc {
                name: arguments.string("name")?,
                now: arguments.flag("now")?,
            },
            "functions" => Self::Functions(costs_query(arguments)?),
            "add_pool" => Self::AddPool(AddPool(pool_order(arguments)?)),
            "reconfigure_pool" => Self::ReconfigurePool(ReconfigurePool(pool_order(arguments)?)),
            "remove_pool" => Self::RemovePool(RemovePool {
                name: pool_name(arguments)?,
                mode: arguments
                    .either("mode", REMOVE_MODES)?
                    .unwrap_or(RemoveMode::Graceful),
                dry_run: arguments.flag("dry_run")?,
            }),
            "dashboard" => Self::Dashboard,
            "unthrottle_pool" => {
                let name = pool_name(arguments)?;
                Self::UnthrottlePool(UnthrottlePool { name })
            }
            job if JobCall::NAMES.contains(&job) => Self::Jobs(JobCall::of(job, arguments)?),
            function if FunctionCall::NAMES.contains(&function) => {
                Self::Function(Box::new(FunctionRequest::of(function, arguments)?))
            }
            unknown => {
                let reason = format!("there is no call named '{}'", shorten(unknown));
                return Err(ErrorReply::bad_request(reason));
            }
        })
    }
}

/// What a process is wanted for. `attach` passes a `ddoc` over, as every member that it does not have.
fn want(arguments: &Arguments<'_>, has_ddoc: bool) -> Parsed<Want> {
    let names_pool = arguments.get("pool").or(arguments.get("group")).is_some();
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
            let ddoc = arguments.design_document()?;
            Want::ddoc(arguments.database()?, ddoc)
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

fn costs_query(arguments: &Arguments<'_>) -> Parsed<CostsQuery> {
    let (period, sort) = (arguments.text("period")?, arguments.text("sort")?);
    let limit = arguments.read("limit", "a number that is not negative")?;
    CostsQuery::of(period.as_deref(), sort.as_deref(), limit).map_err(ErrorReply::bad_request)
}

/// A text that is no token can be nobody's process, which is not an error of form.
fn proc_token(arguments: &Arguments<'_>) -> Parsed<Option<ProcToken>> {
    Ok(arguments.string("proc")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_server::language::LanguageName;

    #[test]
    fn texts_of_a_request_are_not_touched() {
        let line = br#" { "data" : [ "x", 1.0 ] , "proc":"1.2.3", "id" : 1.50 , "call":"prompt"} "#;
        let request = Request::parse(line).unwrap();
        assert_eq!(request.id, "1.50");
        let Call::Prompt { data, timeout, .. } = request.call else {
            panic!("not a prompt");
        };
        assert_eq!((data, timeout), (r#"[ "x", 1.0 ]"#, None));
    }

    #[test]
    fn members_that_no_call_has_and_nulls_are_passed_over() {
        let line = br#"{"call":"get_proc","lang":"A","db":null,"ddoc":null,"future":[1]}"#;
        let request = Request::parse(line).unwrap();
        assert_eq!(request.id, "null");
        let Call::GetProc { want, .. } = request.call else {
            panic!("not a get_proc");
        };
        assert_eq!(want.spoken().map(LanguageName::as_str), Some("a"));
        assert_eq!(want.from, TakeFrom::Own);
    }

    #[test]
    fn a_database_may_be_named_for_work_without_a_design_document() {
        let tenant = |line: &str| match Request::parse(line.as_bytes()).unwrap().call {
            Call::GetProc { want, .. } | Call::Attach { want, .. } => want.tenant,
            other => panic!("{other:?}"),
        };
        for call in ["get_proc", "attach"] {
            let line = format!(r#"{{"call":"{call}","lang":"a","db":"shop"}}"#);
            assert_eq!(tenant(&line), TenantName::Database("shop".into()));
            let line = format!(r#"{{"call":"{call}","pool":"p"}}"#);
            assert_eq!(tenant(&line), TenantName::Client);
        }
        let bad = Request::parse(br#"{"call":"get_proc","lang":"a","db":7}"#).unwrap_err();
        assert!(bad.error.reason.get().contains("'db'"));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_id_of_the_request() {
        let bad = Request::parse(br#"{"id":[7],"call":"ret_proc"}"#).unwrap_err();
        assert_eq!(bad.id, "[7]");
        assert_eq!(bad.error.reason.get(), "\"'proc' is missing\"");
        let bad = Request::parse(b"\xff").unwrap_err();
        assert_eq!(bad.id, "null");
    }
}
