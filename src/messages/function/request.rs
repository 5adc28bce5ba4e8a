//! A function call with its options.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{FunctionCall, FunctionName};
use crate::messages::arguments::{Arguments, Parsed};
use crate::messages::client_error::ErrorReply;
use crate::query_server::call::Subject;
use crate::query_server::known_ddocs::KnownDdocs;
use crate::query_server::request_id::RequestId;
use crate::query_server::run_time::RunTime;

/// Options of a function call.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// Whether to report logs, errors with positions, and the cost.
    pub report: bool,
    /// Which time counts as its run time.
    pub(crate) run_time: RunTime,
    /// The client's request id, if given.
    pub(crate) request_id: Option<RequestId>,
    /// The length of its arguments, in bytes of JSON.
    pub(crate) argument_bytes: usize,
    /// The database in its arguments.
    pub(crate) db: Option<Arc<str>>,
}

impl CallOptions {
    /// Takes the options from a call's remaining arguments, and refuses unknown arguments.
    pub(super) fn last_of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let named = |name: &RawValue| {
            let name: Option<String> = serde_json::from_str(name.get()).ok();
            RequestId::of(name.as_deref())
        };
        let options = Self {
            report: arguments.flag("report")?,
            run_time: RunTime::default(),
            request_id: arguments.get("request_id").map(named),
            argument_bytes: arguments.length(),
            db: arguments.optional_database()?,
        };
        arguments.refuse_unknown()?;
        Ok(options)
    }
}

/// A function call and its options.
#[derive(Clone, Debug)]
pub struct FunctionRequest {
    /// The call.
    pub call: FunctionCall,
    /// Its options.
    pub options: CallOptions,
}

impl FunctionRequest {
    /// Parses the arguments of the call `name` from a JSON object.
    ///
    /// # Errors
    /// `bad_request` with the first mistake; the caller's fault.
    pub fn parse(name: FunctionName, json: &str, ddocs: &KnownDdocs) -> Result<Self, ErrorReply> {
        Self::of(name, &Arguments::parse(json)?.with(Some(ddocs)))
    }

    pub(in crate::messages) fn of(name: FunctionName, arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self {
            call: FunctionCall::of(name, arguments)?,
            options: CallOptions::last_of(arguments)?,
        })
    }
}

impl FunctionCall {
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::MapDocs(call) => call.start.at.subject("map_docs"),
            Self::Reduce(call) => call.with.at.subject("reduce"),
            Self::Rereduce(call) => call.with.at.subject("rereduce"),
            Self::Finalize(_) => Subject {
                function: "finalize".to_owned(),
                ..Subject::default()
            },
            Self::IndexDocs(call) => call.at.subject("index_docs"),
            Self::TryCompile(call) => call.at.subject("try_compile"),
            Self::DdocPrompt(call) => {
                let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
                call.at.subject(&path)
            }
            Self::ValidateDocs(call) => call.at.subject(&["validate_doc_update"]),
            Self::FilterDocs(call) => call.at.subject(&["filters", &call.name]),
            Self::FilterView(call) => call.at.subject(&["views", &call.name, "map"]),
            Self::Show(call) => call.at.subject(&["shows", &call.name]),
            Self::List(call) => call.start.at.subject(&["lists", &call.start.name]),
            Self::Update(call) => call.at.subject(&["updates", &call.name]),
            Self::Rewrite(call) => call.at.subject(&["rewrites"]),
        }
    }
}
