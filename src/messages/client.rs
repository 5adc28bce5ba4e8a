//! The client socket's requests, as a client sends them.
//!
//! SUMMARY   [`Request::parse`] takes one line apart: which call, with which arguments.
//! PROMISES  Command arrays, design documents and arguments stay the text they came as. Whatever is
//!           wrong is told by its name, with the request's own `id` where it can be found.
//! SOURCE    The calls are couch_proc_manager's and couch_query_servers', under their names there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::Want;
use crate::policy::pool::{PoolId, ProcId, ReturnStatus, Token};
use crate::query_server::ddoc::Ddoc;
use crate::query_server::language::LanguageName;

/// The longest timeout that a client may ask for: a year, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// A process as a client names it: `POOL.NUMBER.TOKEN`, opaque to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcToken {
    /// The process.
    pub proc: ProcId,
    /// The assignment.
    pub token: Token,
}

impl fmt::Display for ProcToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.proc, self.token.0)
    }
}

impl FromStr for ProcToken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text
            .split('.')
            .map(|part| part.parse::<u64>().map_err(drop));
        let mut next = || numbers.next().unwrap_or(Err(()));
        let pool = PoolId(u32::try_from(next()?).map_err(drop)?);
        let number = next()?;
        let token = Token(next()?);
        if numbers.next().is_some() {
            return Err(());
        }
        Ok(Self {
            proc: ProcId { pool, number },
            token,
        })
    }
}

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
    /// Call a function of a design document.
    DdocPrompt {
        /// The database.
        db: String,
        /// The design document.
        ddoc: Arc<Ddoc>,
        /// The function in it: a JSON array of strings.
        path: &'a RawValue,
        /// Its arguments: a JSON array.
        args: &'a RawValue,
        /// For the process and for the answer, each.
        timeout: Option<Duration>,
    },
    /// Turn the connection into a tunnel to one process.
    Attach(LanguageName),
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
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
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
        match members.call() {
            Ok(call) => Ok(Self { id, call }),
            Err(error) => Err(BadRequest { id, error }),
        }
    }
}

type Parsed<T> = Result<T, ErrorReply>;

impl<'a> Members<'a> {
    fn call(&self) -> Parsed<Call<'a>> {
        let name = string("call", required("call", self.call)?)?;
        Ok(match name.as_str() {
            "get_proc" => Call::GetProc {
                want: self.want()?,
                timeout: self.timeout()?,
            },
            "prompt" => Call::Prompt {
                proc: self.proc_token()?,
                data: array("data", required("data", self.data)?)?.get(),
                timeout: self.timeout()?,
            },
            "ret_proc" => Call::RetProc {
                proc: self.proc_token()?,
                status: self.return_status()?,
            },
            "set_timeout" => Call::SetTimeout {
                proc: self.proc_token()?,
                timeout: self.timeout()?.ok_or_else(|| missing("timeout_ms"))?,
            },
            "ddoc_prompt" => Call::DdocPrompt {
                db: self.db()?,
                ddoc: self.ddoc()?,
                path: path(required("path", self.path)?)?,
                args: array("args", required("args", self.args)?)?,
                timeout: self.timeout()?,
            },
            "attach" => Call::Attach(language(required("lang", self.lang)?)?),
            "get_proc_count" => Call::GetProcCount,
            "get_stale_proc_count" => Call::GetStaleProcCount,
            "reload" => Call::Reload,
            "reload_config" => Call::ReloadConfig,
            "terminate_stale_procs" => Call::TerminateStaleProcs,
            "status" => Call::Status(self.pool.map(|pool| string("pool", pool)).transpose()?),
            unknown => {
                let reason = format!("there is no call named '{}'", shorten(unknown));
                return Err(ErrorReply::bad_request(reason));
            }
        })
    }

    fn want(&self) -> Parsed<Want> {
        let want = match (self.lang, self.ddoc) {
            (Some(lang), None) => Want::Language(language(lang)?),
            (None, Some(_)) => Want::Ddoc {
                ddoc: self.ddoc()?,
                db: Arc::from(self.db()?),
            },
            (None, None) => return Err(missing("lang' or 'ddoc")),
            (Some(_), Some(_)) => {
                return Err(wrong(
                    "lang",
                    "left out when there is a 'ddoc', which has one",
                ));
            }
        };
        if let Some(group) = self.group {
            let name = string("group", group)?;
            return Err(ErrorReply::not_found(format!(
                "there is no group of pools named '{}'",
                shorten(&name)
            )));
        }
        match self.pool.map(|pool| string("pool", pool)).transpose()? {
            // Every language has a pool of its own name.
            Some(pool) if LanguageName::new(&pool) != *want.language() => {
                Err(ErrorReply::not_found(format!(
                    "there is no pool named '{}' for the language '{}'",
                    shorten(&pool),
                    shorten(want.language().as_str()),
                )))
            }
            _ => Ok(want),
        }
    }

    fn ddoc(&self) -> Parsed<Arc<Ddoc>> {
        let json = required("ddoc", self.ddoc)?.get();
        match Ddoc::parse(json) {
            Ok(ddoc) => Ok(Arc::new(ddoc)),
            Err(error) => Err(ErrorReply::bad_request(error.to_string())),
        }
    }

    fn db(&self) -> Parsed<String> {
        match string("db", required("db", self.db)?)? {
            name if name.is_empty() => Err(wrong("db", "the name of a database")),
            name => Ok(name),
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

    fn timeout(&self) -> Parsed<Option<Duration>> {
        let Some(timeout) = self.timeout_ms else {
            return Ok(None);
        };
        match timeout.get().parse::<u64>() {
            Ok(ms) if (1..=TIMEOUT_MS_MAX).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
            _ => Err(wrong(
                "timeout_ms",
                "a whole number of milliseconds, from 1 to a year",
            )),
        }
    }
}

fn required<'a>(name: &str, value: Option<&'a RawValue>) -> Parsed<&'a RawValue> {
    value.ok_or_else(|| missing(name))
}

fn string(name: &str, value: &RawValue) -> Parsed<String> {
    serde_json::from_str(value.get()).map_err(|_| wrong(name, "a string"))
}

fn language(value: &RawValue) -> Parsed<LanguageName> {
    match string("lang", value)? {
        name if name.is_empty() => Err(wrong("lang", "the name of a language")),
        name => Ok(LanguageName::new(&name)),
    }
}

fn array<'a>(name: &str, value: &'a RawValue) -> Parsed<&'a RawValue> {
    if value.get().starts_with('[') {
        Ok(value)
    } else {
        Err(wrong(name, "an array"))
    }
}

fn path(value: &RawValue) -> Parsed<&RawValue> {
    match serde_json::from_str::<Vec<String>>(value.get()) {
        Ok(steps) if !steps.is_empty() => Ok(value),
        _ => Err(wrong("path", "an array of strings, at least one")),
    }
}

fn missing(name: &str) -> ErrorReply {
    ErrorReply::bad_request(format!("'{name}' is missing"))
}

fn wrong(name: &str, must_be: &str) -> ErrorReply {
    ErrorReply::bad_request(format!("'{name}' must be {must_be}"))
}

/// How much of a name that nobody knows an error quotes, in characters.
const QUOTED_CHARACTERS: usize = 100;

fn shorten(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS).collect()
}
