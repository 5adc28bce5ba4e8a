//! `/_scheduler`: jobs, and documents with their states.
//!
//! SOURCE    couch_replicator_httpd: handle_scheduler_req/1.
//! DIFFERS   `POST /_scheduler/jobs/ID/_pause`, `_resume`, `_restart` and `_priority` are our own.

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, web};
use serde_json::{Value, json};

use super::access::Visitor;
use super::answer::{self, Answer, Refusal};
use super::params::Params;
use super::replicator::owners::{check_job, owns_document, owns_job};
use super::replicator::{page_of, person};
use super::request::{allow, require_json};
use super::{Shared, body};
use crate::actors::replicator_api::ReplicatorError;
use crate::auth::rights::Right;
use crate::replicator::members::Members;
use crate::replicator::{JobOrder, NAME, PAUSED, STATES};

/// Jobs of a page, unless told.
const LIMIT: u64 = 100;

pub(super) async fn answer(
    path: &[&str],
    request: &HttpRequest,
    payload: web::Payload,
    shared: &Shared,
    visitor: &Visitor,
) -> Answer {
    const GET: &[Method] = &[Method::GET];
    match path {
        ["jobs"] => {
            allow(request, GET)?;
            jobs(request, shared, visitor).await
        }
        ["jobs", id] => {
            allow(request, GET)?;
            check_job(visitor, Right::Look, id, shared).await?;
            Ok(answer::ok(&shared.replications.job(id).await?))
        }
        ["jobs", id, order] => {
            let known = ["_pause", "_resume", "_restart", "_priority"];
            if !known.contains(order) {
                return Err(Refusal::not_found("missing: there is nothing at this path"));
            }
            allow(request, &[Method::POST])?;
            require_json(request)?;
            check_job(visitor, Right::Operate, id, shared).await?;
            let order = self::order(order, request, payload, shared).await?;
            let job = shared
                .replications
                .order(id, order, &person(visitor))
                .await?;
            Ok(answer::ok(&json!({"ok": true, "job": job})))
        }
        ["docs", rest @ ..] => {
            allow(request, GET)?;
            docs(rest, request, shared, visitor).await
        }
        _ => Err(Refusal::not_found("missing: there is nothing at this path")),
    }
}

async fn jobs(request: &HttpRequest, shared: &Shared, visitor: &Visitor) -> Answer {
    let params = Params::of(request)?;
    let limit = bounded(&params, "limit", LIMIT)?;
    let skip = bounded(&params, "skip", 0)?;
    let states = states(params.get("states"), &[PAUSED])?;
    let (total, jobs) = match visitor.may(Right::Look) {
        true => {
            let replications = &shared.replications;
            replications.jobs(size(skip), size(limit), &states).await?
        }
        false => own_jobs(visitor, (size(skip), size(limit)), &states, shared).await?,
    };
    Ok(answer::ok(&json!({
        "total_rows": total,
        "offset": size(skip).min(total),
        "jobs": jobs,
    })))
}

/// Returns how many jobs are the visitor's, and some of them.
async fn own_jobs(
    visitor: &Visitor,
    (skip, limit): (usize, usize),
    states: &[String],
    shared: &Shared,
) -> Result<(usize, Vec<Value>), Refusal> {
    visitor.needs(Right::Replicate)?;
    let mut own = Vec::new();
    for job in shared.replications.jobs(0, usize::MAX, states).await?.1 {
        if owns_job(visitor, &job, shared).await? {
            own.push(job);
        }
    }
    let total = own.len();
    Ok((total, own.into_iter().skip(skip).take(limit).collect()))
}

/// CouchDB's own words for these two.
fn bounded(params: &Params, name: &str, default: u64) -> Result<u64, Refusal> {
    let refuse = |reason: String| Err(Refusal::bad_request(reason));
    match params.get(name).map(str::parse::<i128>) {
        None => Ok(default),
        Some(Ok(number)) if number >= 0 => Ok(u64::try_from(number).unwrap_or(u64::MAX)),
        Some(Ok(_)) => refuse(format!("{name} not in range of [0,infinity]")),
        Some(Err(_)) => refuse(format!("{name} must be an integer")),
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

async fn order(
    name: &str,
    request: &HttpRequest,
    payload: web::Payload,
    shared: &Shared,
) -> Result<JobOrder, Refusal> {
    Ok(match name {
        "_pause" => JobOrder::Pause,
        "_resume" => JobOrder::Resume,
        "_restart" => JobOrder::Restart,
        _ => {
            let body = body::read_at_most(body::ORDER_BYTES_MAX, request, payload, shared).await?;
            let value: Value = serde_json::from_str(body.text()?).unwrap_or_default();
            let level = value["priority"]
                .as_i64()
                .and_then(|level| i8::try_from(level).ok());
            JobOrder::Priority(level.ok_or_else(|| {
                Refusal::bad_request(
                    "the body must be {\"priority\": N}, a whole number from -128 to 127: the \
                     higher, the sooner its turn",
                )
            })?)
        }
    })
}

/// What a path below `docs` names. Names of databases may have slashes, also bare ones.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    All,
    Database(String),
    Document(String, String),
}

/// Takes a path apart.
///
/// # Errors
/// No part of it is the name of a replicator database.
fn place(path: &[&str]) -> Result<Place, Refusal> {
    let marks = |part: &&str| *part == NAME || part.ends_with("/_replicator");
    match path {
        [] => return Ok(Place::All),
        [.., last] if marks(last) => return Ok(Place::Database(path.join("/"))),
        [database @ .., id] => {
            if database.last().is_some_and(marks) {
                return Ok(Place::Document(database.join("/"), (*id).to_owned()));
            }
        }
    }
    Err(Refusal::bad_request("Invalid path"))
}

async fn docs(path: &[&str], request: &HttpRequest, shared: &Shared, visitor: &Visitor) -> Answer {
    let sees_all = visitor.may(Right::Inspect);
    if !sees_all {
        visitor.needs(Right::Replicate)?;
    }
    match place(path)? {
        Place::Document(database, id) if database == NAME => {
            if !sees_all && !owns_document(visitor, &id, shared).await? {
                return Err(ReplicatorError::Missing.into());
            }
            Ok(answer::ok(&shared.replications.doc(&id).await?))
        }
        Place::All => list(request, shared, visitor).await,
        Place::Database(database) if database == NAME => list(request, shared, visitor).await,
        Place::Database(_) | Place::Document(..) => {
            Err(Refusal::not_found("Database does not exist."))
        }
    }
}

async fn list(request: &HttpRequest, shared: &Shared, visitor: &Visitor) -> Answer {
    let params = Params::of(request)?;
    let states = states(params.get("states"), &[])?;
    let mut page = page_of(&params)?;
    let sees_all = visitor.may(Right::Inspect);
    let (skip, limit) = (page.skip, page.limit);
    if !sees_all {
        (page.skip, page.limit) = (0, usize::MAX);
    }
    let (mut total, mut offset, mut docs) = shared.replications.docs(page, &states).await?;
    if !sees_all {
        let mut own = Vec::new();
        for doc in docs {
            let id = Members::parse(doc.get())
                .ok()
                .and_then(|doc| doc.text("doc_id"));
            if owns_document(visitor, &id.unwrap_or_default(), shared).await? {
                own.push(doc);
            }
        }
        total = own.len();
        offset = total.min(skip);
        docs = own.into_iter().skip(skip).take(limit).collect();
    }
    let listing = Members::default()
        .with("total_rows", total)
        .with("offset", offset)
        .with("docs", docs);
    Ok(answer::ok(&listing))
}

/// Reads names of states; `more` may be asked for as well.
fn states(text: Option<&str>, more: &[&str]) -> Result<Vec<String>, Refusal> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let known = [STATES, more].concat();
    let choice = known.join(",");
    let refuse = |reason: String| {
        Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "query_parse_error",
            reason,
        ))
    };
    let words = text.split(',').map(|word| word.trim().to_ascii_lowercase());
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return refuse(format!("States must be one or more of {choice}"));
    }
    let is_unknown = |word: &&String| !known.contains(&word.as_str());
    let unknown: Vec<&str> = words
        .iter()
        .filter(is_unknown)
        .map(String::as_str)
        .collect();
    match unknown.is_empty() {
        true => Ok(words),
        false => refuse(format!(
            "Unknown states {}. Choose from: {choice}",
            unknown.join(",")
        )),
    }
}

impl From<ReplicatorError> for Refusal {
    fn from(error: ReplicatorError) -> Self {
        let reason = error.to_string();
        match error {
            ReplicatorError::Store(error) => error.into(),
            ReplicatorError::Spec(error) => {
                Self::new(StatusCode::BAD_REQUEST, error.kind.name(), reason)
            }
            ReplicatorError::BareName(_) => {
                Self::new(StatusCode::BAD_REQUEST, "invalid_replication", reason)
            }
            // CouchDB's name for what its filter_fetch_error becomes.
            ReplicatorError::Filter(_) | ReplicatorError::Missing => Self::not_found(&reason),
            ReplicatorError::Taken(_) => Self::new(StatusCode::CONFLICT, "conflict", reason),
            ReplicatorError::Crashed(crash) => crashed(&crash.to_string()),
            ReplicatorError::Cancelled => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "cancelled", reason)
            }
            ReplicatorError::ShuttingDown => super::routes::shutting_down(),
        }
    }
}

/// An error of a job is `kind: text`.
fn crashed(text: &str) -> Refusal {
    let is_kind =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (kind, reason) = match text.split_once(": ") {
        Some((kind, reason)) if is_kind(kind) => (kind, reason),
        _ if is_kind(text) => (text, text),
        _ => ("replication_failed", text),
    };
    let status = match kind {
        "unauthorized" => StatusCode::UNAUTHORIZED,
        "forbidden" => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refusal::new(status, kind, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_databases_may_have_slashes() {
        let of = |path: &[&str]| place(path).ok();
        let database = |name: &str| Some(Place::Database(name.to_owned()));
        let doc = |name: &str, id: &str| Some(Place::Document(name.to_owned(), id.to_owned()));
        assert_eq!(of(&[]), Some(Place::All));
        assert_eq!(of(&["_replicator"]), database("_replicator"));
        assert_eq!(of(&["a", "_replicator"]), database("a/_replicator"));
        assert_eq!(of(&["a", "b", "_replicator"]), database("a/b/_replicator"));
        assert_eq!(of(&["a/_replicator"]), database("a/_replicator"));
        assert_eq!(of(&["_replicator", "x"]), doc("_replicator", "x"));
        assert_eq!(of(&["a", "_replicator", "x"]), doc("a/_replicator", "x"));
        assert_eq!(of(&["a/_replicator", "x"]), doc("a/_replicator", "x"));
        for wrong in [
            &["a", "b"][..],
            &["foo"],
            &["a", "b", "_replicator", "z", "w"],
            &["_replicator", "z", "w"],
        ] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn states_are_taken_in_any_case_and_unknown_ones_named() {
        let of = |text| states(text, &[]).map_err(|refusal| refusal.reason());
        assert_eq!(of(None), Ok(vec![]));
        assert_eq!(
            of(Some("Running, failed")),
            Ok(vec!["running".into(), "failed".into()])
        );
        assert!(
            of(Some("x,running"))
                .unwrap_err()
                .starts_with("Unknown states x. Choose from: ")
        );
        assert!(
            of(Some(""))
                .unwrap_err()
                .starts_with("States must be one or more of ")
        );
    }

    #[test]
    fn a_crash_is_told_with_its_kind() {
        for (text, status, line) in [
            (
                "unauthorized: unauthorized to access http://h/",
                401,
                "unauthorized",
            ),
            ("forbidden: no", 403, "forbidden"),
            (
                "db_not_found: could not open http://h/",
                500,
                "db_not_found",
            ),
            ("max_backoff", 500, "max_backoff"),
            ("Something else: x", 500, "replication_failed"),
        ] {
            let refusal = crashed(text);
            assert_eq!(refusal.status.as_u16(), status);
            let value: Value = serde_json::from_slice(&refusal.line()).unwrap();
            assert_eq!(value["error"], line);
        }
    }
}
