//! `POST /_query/NAME`: function calls over HTTP, one per request.
//!
//! SUMMARY   The body has the arguments of the same call on the client socket; the answer is `{"ok": VALUE}`, with a
//!           report if requested.
//! SOURCE    couch_query_servers; chttpd for the codes of a validate function that refuses.

use std::sync::Arc;

use actix_web::web::{Payload, to};
use actix_web::{HttpMessage, HttpRequest, Route};
use bytes::Bytes;
use serde_json::{Value, json};

use super::access::User;
use super::answer::{self, Answer, HttpResult, Refusal};
use super::params::{Params, query_parse_error};
use super::request::require_json;
use super::{Shared, body};
use crate::aside::aside;
use crate::functions::served::{Served, members};
use crate::messages::function::{CallOptions, FunctionCall, FunctionName, FunctionRequest};
use crate::query_server::request_id::RequestId;
use crate::query_server::run_time::RunTime;

/// The largest overhead of a call's value besides its text: a pointer in a list that may be half empty, and the
/// smallest allocation. Documents and rows, of which a call may have many, take less.
const RAW_VALUE_BYTES: usize = 64;

/// `POST /_query/NAME` with one JSON object as body.
pub(super) fn route(name: &str) -> Route {
    let name: FunctionName = name
        .parse()
        .expect("HTTP: a route has a handler, or is a function's");
    to(move |request, payload, shared, user| call(name, request, payload, shared, user))
}

/// `GET /_query/limits`.
pub(super) async fn limits(shared: Shared) -> Answer {
    let line_max = shared.config.borrow().server.line_max;
    let body_max = body::bytes_max(&shared);
    answer::ok(&json!({
        "ok": {"line_max": line_max, "body_max": body_max, "ddoc_sha256": true},
    }))
}

async fn call(
    name: FunctionName,
    request: HttpRequest,
    payload: Payload,
    shared: Shared,
    user: User,
) -> Answer {
    require_json(&request)?;
    let body = body::read(&request, payload, &shared).await?;
    let ddocs = Arc::clone(&shared.ddocs);
    let parse = move |text: &str| Ok(FunctionRequest::parse(name, text, &ddocs)?);
    let mut call = body.parse(RAW_VALUE_BYTES, parse).await?;
    call.options = options(call.options, &request)?;
    let validates = match &call.call {
        FunctionCall::DdocPrompt(call) => call.path == ["validate_doc_update"],
        _ => false,
    };
    let Served {
        value, finished, ..
    } = shared.pool.run(call, user.principal()).await?;
    let report = finished.report();
    let refusal = match &value {
        Ok(value) => refusal_of(value).filter(|_| validates),
        Err(error) => Some(error.clone().into()),
    };
    if let Some(refusal) = refusal {
        return Err(refusal.with_members(&report));
    }
    let members = report.map(|report| members(&report)).unwrap_or_default();
    let value = value?;
    let length = value.len();
    let join = move || [b"{\"ok\":", &*value, &members, b"}\n"].concat();
    let text = aside(length, join).await.map_err(body::no_thread)?;
    answer::raw(text.into())
}

/// Adds the options in the URL and the headers to those in a body.
fn options(in_body: CallOptions, request: &HttpRequest) -> HttpResult<CallOptions> {
    let params = Params::of(request)?;
    check_database(params.get("db"), in_body.db.as_deref())?;
    Ok(CallOptions {
        report: params.boolean("report", in_body.report)?,
        request_id: request.extensions().get::<RequestId>().cloned(),
        ..in_body
    })
}

/// Checks that the parameter `db` of a URL, by which a proxy chooses a daemon, names the database of the body.
fn check_database(in_path: Option<&str>, in_body: Option<&str>) -> HttpResult<()> {
    match (in_path, in_body) {
        (Some(path), Some(body)) if path != body => Err(query_parse_error(format!(
            "`db` is {path:?} in the URL and {body:?} in the body: name the same database in both"
        ))),
        (Some(path), None) => Err(query_parse_error(format!(
            "`db` is {path:?} in the URL and missing in the body: name the database in the body, too"
        ))),
        _ => Ok(()),
    }
}

/// Like [`options`], for a stream.
pub(super) fn stream_options(
    in_body: CallOptions,
    request: &HttpRequest,
) -> HttpResult<CallOptions> {
    Ok(CallOptions {
        run_time: RunTime::Work,
        ..options(in_body, request)?
    })
}

/// Returns the refusal of a validate function, if it refuses.
fn refusal_of(answer: &Bytes) -> Option<Refusal> {
    // Acceptance is 1 or true, which needs no parsing.
    if !answer.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let answer: Value = serde_json::from_slice(answer).ok()?;
    if let Some(reason) = answer.get("forbidden") {
        return Some(Refusal::forbidden(reason.clone()));
    }
    Some(Refusal::of(
        "unauthorized",
        answer.get("unauthorized")?.clone(),
    ))
}
