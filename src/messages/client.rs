//! The client socket's requests, as a client sends them.
//!
//! SUMMARY   [`Request::parse`] takes one line apart: which call, with which arguments.
//! PROMISES  Command arrays, design documents and arguments stay the text they came as. Whatever is
//!           wrong is told by its name, with the request's own `id` where it can be found.
//! SOURCE    The calls are couch_proc_manager's, under their names there; those that run functions are
//!           in [`function`](super::function).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::auth::rights::Right;
use crate::config::keys::CALLERS;
use crate::messages::arguments::{
    Parsed, array, database, design_document, language, missing, required, shorten, string,
    take_from, timeout, wrong,
};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::FunctionCall;
use crate::messages::job_call::JobCall;
use crate::messages::proc_manager::{TakeFrom, Want};
pub(crate) use crate::messages::proc_token::ProcToken;
use policy::pool::{Lane, RemoveMode, ReturnStatus};

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
        /// The process; `None` when the text is no token of anybody's.
        proc: Option<ProcToken>,
        /// The command, a JSON array.
        data: &'a str,
        /// How long the answer may take; `None` is the process's own time.
        timeout: Option<Duration>,
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
    Function(Box<FunctionCall>),
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
    /// Add a pool.
    AddPool(NamedPool),
    /// Remove a pool.
    RemovePool {
        /// Its name.
        name: String,
        /// How.
        mode: RemoveMode,
        /// Whether only to tell what would change.
        dry_run: bool,
    },
    /// Change settings of a pool.
    ReconfigurePool(NamedPool),
    /// Start processes of a pool again, before the time of its throttle is up.
    UnthrottlePool(String),
    /// Make a URL that lets a browser in.
    Dashboard,
}

impl Call<'_> {
    /// Returns what it takes to be carried out; none for what is about a process that is held, and
    /// for logging in.
    pub fn takes(&self) -> Option<Right> {
        Some(match self {
            Self::Prompt { .. }
            | Self::RetProc { .. }
            | Self::SetTimeout { .. }
            | Self::Auth { .. } => return None,
            Self::GetProc { .. } | Self::Attach { .. } | Self::Function(_) => Right::Call,
            Self::Jobs(JobCall::Order { .. }) => Right::Operate,
            Self::Jobs(JobCall::List { .. } | JobCall::Show { .. })
            | Self::GetProcCount
            | Self::GetStaleProcCount
            | Self::Status(_) => Right::Look,
            Self::AddPool(pool) | Self::ReconfigurePool(pool) if pool.lets_in() => {
                Right::Administer
            }
            Self::Reload
            | Self::TerminateStaleProcs
            | Self::AddPool(_)
            | Self::RemovePool { .. }
            | Self::ReconfigurePool(_)
            | Self::UnthrottlePool(_) => Right::Operate,
            Self::ReloadConfig
            | Self::Dashboard
            | Self::Jobs(JobCall::Export { .. } | JobCall::Import { .. }) => Right::Administer,
        })
    }
}

/// A pool and settings of it, as a request brings them.
#[derive(Clone, Debug)]
pub struct NamedPool {
    /// Its name.
    pub name: String,
    /// The members of the request that are neither its own nor the name: keys of a section
    /// `[pools.NAME]`.
    pub settings: Map<String, Value>,
    /// Whether only to tell what would change.
    pub dry_run: bool,
}

impl NamedPool {
    /// Returns whether it says who may use the pool.
    pub(crate) fn lets_in(&self) -> bool {
        self.settings.contains_key(CALLERS)
    }

    /// Takes it out of a request.
    fn parse(text: &str) -> Parsed<Self> {
        let mut settings: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| ErrorReply::bad_request(format!("bad request: {error}")))?;
        for member in ["id", "call"] {
            settings.remove(member);
        }
        let name = match (settings.remove("name"), settings.remove("pool")) {
            (Some(name), None) | (None, Some(name)) => name,
            (Some(_), Some(_)) => return Err(wrong("pool", "left out when there is a 'name'")),
            (None, None) => return Err(missing("name")),
        };
        let dry_run = match settings.remove("dry_run") {
            None => false,
            Some(Value::Bool(dry_run)) => dry_run,
            Some(_) => return Err(wrong("dry_run", "true or false")),
        };
        match name {
            Value::String(name) => Ok(Self {
                name,
                settings,
                dry_run,
            }),
            _ => Err(wrong("name", "a string")),
        }
    }
}

/// All members that some call has; the others are passed over.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    call: Option<&'a RawValue>,
    #[serde(borrow)]
    lang: Option<&'a RawValue>,
    #[serde(borrow)]
    ddoc: Option<&'a RawValue>,
    #[serde(borrow)]
    db: Option<&'a RawValue>,
    #[serde(borrow)]
    pool: Option<&'a RawValue>,
    #[serde(borrow)]
    group: Option<&'a RawValue>,
    #[serde(borrow)]
    timeout_ms: Option<&'a RawValue>,
    #[serde(borrow, rename = "proc")]
    proc_token: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    end: Option<&'a RawValue>,
    #[serde(borrow)]
    descriptors: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    password: Option<&'a RawValue>,
    #[serde(borrow)]
    mode: Option<&'a RawValue>,
    dry_run: Option<bool>,
    #[serde(borrow)]
    any: Option<&'a RawValue>,
    #[serde(borrow)]
    lane: Option<&'a RawValue>,
}

/// A request that is none: what is wrong, for whom.
#[derive(Debug)]
pub struct BadRequest<'a> {
    /// As in [`Request::id`].
    pub id: &'a str,
    /// What the reply says.
    pub error: ErrorReply,
}

impl<'a> Request<'a> {
    /// Takes a line apart.
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
        let members: Members<'a> = serde_json::from_str(text).map_err(|error| {
            nameless(match serde_json::from_str::<&RawValue>(text) {
                Ok(_) if text.trim_start().starts_with('{') => format!("bad request: {error}"),
                Ok(_) => "a request is a JSON object".to_owned(),
                Err(error) => format!("the line is not JSON: {error}"),
            })
        })?;
        let id = members.id.map_or("null", RawValue::get);
        match members.call(text) {
            Ok(call) => Ok(Self { id, call }),
            Err(error) => Err(BadRequest { id, error }),
        }
    }
}

impl<'a> Members<'a> {
    /// `text` is the whole request, which the arguments of a function call are taken from.
    fn call(&self, text: &str) -> Parsed<Call<'a>> {
        let name = string("call", required("call", self.call)?)?;
        Ok(match name.as_str() {
            "get_proc" => Call::GetProc {
                want: self.want()?,
                timeout: timeout(self.timeout_ms)?,
            },
            "prompt" => Call::Prompt {
                proc: self.proc_token()?,
                data: array("data", required("data", self.data)?)?.get(),
                timeout: timeout(self.timeout_ms)?,
            },
            "ret_proc" => Call::RetProc {
                proc: self.proc_token()?,
                status: self.return_status()?,
            },
            "set_timeout" => Call::SetTimeout {
                proc: self.proc_token()?,
                timeout: timeout(self.timeout_ms)?.ok_or_else(|| missing("timeout_ms"))?,
            },
            "attach" if self.lang.or(self.pool).or(self.group).is_none() => {
                return Err(missing("lang', 'pool' or 'group"));
            }
            "attach" => Call::Attach {
                want: self.want_with(None)?,
                end: self.end.is_some_and(|end| end.get() == "true"),
                descriptors: self.descriptors.is_some_and(|yes| yes.get() == "true"),
            },
            "auth" => Call::Auth {
                name: string("name", required("name", self.name)?)?,
                password: string("password", required("password", self.password)?)?,
            },
            "get_proc_count" => Call::GetProcCount,
            "get_stale_proc_count" => Call::GetStaleProcCount,
            "reload" => Call::Reload,
            "reload_config" => Call::ReloadConfig,
            "terminate_stale_procs" => Call::TerminateStaleProcs,
            "status" => Call::Status(self.pool.map(|pool| string("pool", pool)).transpose()?),
            "add_pool" => Call::AddPool(NamedPool::parse(text)?),
            "reconfigure_pool" => Call::ReconfigurePool(NamedPool::parse(text)?),
            "remove_pool" => Call::RemovePool {
                name: self.pool_name()?,
                mode: self.remove_mode()?,
                dry_run: self.dry_run.unwrap_or_default(),
            },
            "dashboard" => Call::Dashboard,
            "unthrottle_pool" => Call::UnthrottlePool(self.pool_name()?),
            job if JobCall::NAMES.contains(&job) => Call::Jobs(JobCall::parse(job, text)?),
            function if FunctionCall::NAMES.contains(&function) => {
                Call::Function(Box::new(FunctionCall::parse(function, text)?))
            }
            unknown => {
                let reason = format!("there is no call named '{}'", shorten(unknown));
                return Err(ErrorReply::bad_request(reason));
            }
        })
    }

    fn want(&self) -> Parsed<Want> {
        self.want_with(self.ddoc)
    }

    /// `attach` passes a `ddoc` over, as every member that it does not have.
    fn want_with(&self, ddoc: Option<&RawValue>) -> Parsed<Want> {
        let from = match self.any {
            Some(any) if any.get() == "true" && self.pool.or(self.group).is_none() => TakeFrom::Any,
            Some(any) if any.get() != "false" => {
                return Err(wrong("any", "true, without a 'pool' or a 'group'"));
            }
            _ => take_from(self.pool, self.group)?,
        };
        let want = match (self.lang, ddoc) {
            (Some(lang), None) => Want::language(language(lang)?).from(from),
            (None, Some(_)) => {
                let ddoc = design_document(ddoc)?;
                Want::ddoc(Arc::from(database(self.db)?), ddoc).from(from)
            }
            (None, None) if matches!(from, TakeFrom::Pool(_) | TakeFrom::Group(_)) => {
                Want::any_from(from)
            }
            (None, None) => return Err(missing("lang' or 'ddoc")),
            (Some(_), Some(_)) => {
                return Err(wrong(
                    "lang",
                    "left out when there is a 'ddoc', which has one",
                ));
            }
        };
        match self
            .lane
            .map(|lane| string("lane", lane))
            .transpose()?
            .as_deref()
        {
            None => Ok(want),
            Some("interactive") => Ok(want.in_lane(Lane::Interactive)),
            Some("bulk") => Ok(want.in_lane(Lane::Bulk)),
            Some(_) => Err(wrong("lane", "\"interactive\" or \"bulk\"")),
        }
    }

    /// The pool that a call is about, which may also be named by `pool`.
    fn pool_name(&self) -> Parsed<String> {
        string("name", required("name", self.name.or(self.pool))?)
    }

    fn remove_mode(&self) -> Parsed<RemoveMode> {
        match self
            .mode
            .map(|mode| string("mode", mode))
            .transpose()?
            .as_deref()
        {
            None | Some("graceful") => Ok(RemoveMode::Graceful),
            Some("immediate") => Ok(RemoveMode::Immediate),
            Some(_) => Err(wrong("mode", "\"graceful\" or \"immediate\"")),
        }
    }

    /// A text that is no token can be nobody's process, which is not an error of form.
    fn proc_token(&self) -> Parsed<Option<ProcToken>> {
        let text = string("proc", required("proc", self.proc_token)?)?;
        Ok(text.parse().ok())
    }

    fn return_status(&self) -> Parsed<ReturnStatus> {
        let Some(status) = self.status else {
            return Ok(ReturnStatus::Ok);
        };
        match string("status", status)?.as_str() {
            "ok" => Ok(ReturnStatus::Ok),
            "fail" => Ok(ReturnStatus::Fail),
            _ => Err(wrong("status", "\"ok\" or \"fail\"")),
        }
    }
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
    fn what_is_wrong_is_told_with_the_id_of_the_request() {
        let bad = Request::parse(br#"{"id":[7],"call":"ret_proc"}"#).unwrap_err();
        assert_eq!(bad.id, "[7]");
        assert_eq!(bad.error.reason.get(), "\"'proc' is missing\"");
        let bad = Request::parse(b"\xff").unwrap_err();
        assert_eq!(bad.id, "null");
    }
}
