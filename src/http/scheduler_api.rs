//! `/_scheduler`: jobs, and documents with their states.
//!
//! SOURCE    couch_replicator_httpd: handle_scheduler_req/1.
//! DIFFERS   CouchDB has no `POST /_scheduler/jobs/ID/_pause`, `_resume`, `_restart` and `_priority`.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Path, to};
use serde_json::json;
use settee_client::{BulkOrder, BulkOrderName, JobSelection, JobsQuery, JobsSort};

use super::access::{Order, User, Visitor};
use super::answer::{self, Answer, HttpResult, Refusal};
use super::body::{AtMost, ORDER_BYTES_MAX};
use super::params::{Params, query_parse_error};
use super::replicator::owners::owns_document;
use super::replicator::{page_of, person};
use super::request::{IsJson, segments};
use super::{HttpContext, Shared};
use crate::actors::replicator_api::{ReplicatorError, Whose};
use crate::audit::{Done, selected};
use crate::auth::rights::Right;
use crate::messages::arguments::{Arguments, is_object};
use crate::operations::{Route, Who};
use crate::replicator::members::DocMembers;
use crate::replicator::{DocState, JobOrder, NAME};

/// Jobs on a page by default.
const LIMIT: usize = 100;

/// Returns whose jobs a visitor may see or order: all users' if the visitor has the right, otherwise only their own.
fn whose(user: &Visitor, who: Who) -> HttpResult<Whose> {
    user.check(who)?;
    Ok(match who.right() {
        Some(right) if !user.rights.has(right) => Whose::Of(user.name.clone().unwrap_or_default()),
        _ => Whose::All,
    })
}

/// Returns the right needed to list all users' jobs. Listing documents needs a higher right than listing jobs.
fn right_to_list(states: &[DocState]) -> Right {
    if states.iter().all(|state| state.of_job().is_some()) {
        Right::Look
    } else {
        Right::Inspect
    }
}

/// Returns the right needed to order all users' jobs.
fn right_to_order(order: BulkOrderName) -> Right {
    match order {
        BulkOrderName::Cancel | BulkOrderName::Delete => Right::Administer,
        BulkOrderName::Restart
        | BulkOrderName::Pause
        | BulkOrderName::Resume
        | BulkOrderName::Priority => Right::Operate,
    }
}

/// `GET /_scheduler/jobs`. A visitor who may not see all jobs sees their own.
pub(super) async fn jobs(params: Params, shared: Shared, user: User) -> Answer {
    let text = |name| params.get(name).map(str::to_owned);
    let sort = match params.get("sort") {
        None | Some("id") => JobsSort::Id,
        Some("trouble") => JobsSort::Trouble,
        Some(_) => return Err(Refusal::bad_request("sort must be id or trouble")),
    };
    let groups = match params.get("group_by") {
        None => false,
        Some("reason") => true,
        Some(_) => return Err(Refusal::bad_request("group_by must be reason")),
    };
    let states = states(params.get("states"), &[DocState::Paused])?;
    let right = right_to_list(&states);
    let query = JobsQuery {
        select: JobSelection {
            patterns: params.all("match").map(str::to_owned).collect(),
            states: states.iter().map(|state| state.name().to_owned()).collect(),
            source: text("source"),
            target: text("target"),
            reason: text("reason"),
            daemon: text("daemon"),
            all: false,
        },
        sort,
        groups,
        skip: bounded(&params, "skip", 0)?,
        limit: bounded(&params, "limit", LIMIT)?,
    };
    let whose = whose(&user, Who::AllOrOwn(right))?;
    answer::ok(&shared.replications.list(&query, &whose).await?)
}

/// `POST /_scheduler/_bulk`.
pub(super) async fn bulk(
    _: IsJson,
    body: AtMost<ORDER_BYTES_MAX>,
    shared: Shared,
    user: User,
    pending: Order,
) -> Answer {
    let order = bulk_order(body.0.text()?)?;
    pending.on(selected(&order.select));
    if order.dry_run {
        pending.forget();
    }
    let whose = whose(&user, Who::AllOrOwn(right_to_order(order.order)))?;
    let person = person(&user);
    let ordered = shared
        .replications
        .order_jobs(&order, &whose, &person)
        .await?;
    pending.did(Done::of_jobs(&order, &ordered));
    answer::ok(&ordered)
}

fn bulk_order(body: &str) -> HttpResult<BulkOrder> {
    let members = ["order", "priority", "select", "dry_run", "expect"];
    let selects = [
        "match", "states", "source", "target", "reason", "daemon", "all",
    ];
    if let Some(select) = Arguments::of_order(body, &members)?
        .get("select")
        .filter(|select| is_object(select))
    {
        Arguments::of_order(select.get(), &selects)?;
    }
    serde_json::from_str(body).map_err(|error| Refusal::bad_request(format!("the body: {error}")))
}

/// `GET /_scheduler/jobs/NAME`: a job, by its id or its document's id.
pub(super) async fn job(name: Path<String>, shared: Shared, user: User) -> Answer {
    let whose = whose(&user, Route::Job.who())?;
    answer::ok(&shared.replications.job(&name, &whose).await?)
}

/// `POST /_scheduler/jobs/NAME/ORDER`; `order` reads the order from the body.
pub(super) fn order(route: Route, order: fn(&str) -> HttpResult<JobOrder>) -> actix_web::Route {
    to(
        move |_: IsJson, name: Path<String>, body, shared, user, pending| async move {
            let (body, pending): (AtMost<ORDER_BYTES_MAX>, Order) = (body, pending);
            let (shared, user): (Shared, User) = (shared, user);
            let order = order(body.0.text()?)?;
            let (whose, person) = (whose(&user, route.who())?, person(&user));
            let ordered = shared
                .replications
                .order(&name, order, &whose, &person)
                .await?;
            pending.did(Done::of_job(&ordered.before, order));
            answer::ok(&json!({"ok": true, "job": ordered.job}))
        },
    )
}

/// Parses an order that sets a job's priority.
pub(super) fn priority(body: &str) -> HttpResult<JobOrder> {
    let order = Arguments::of_order(body, &["priority"])?;
    let what = "a whole number from -128 to 127: the higher, the sooner its turn";
    Ok(JobOrder::Priority(order.require("priority", what)?))
}

/// Parses a number that is not negative. The errors are worded as in CouchDB.
fn bounded(params: &Params, name: &str, default: usize) -> HttpResult<usize> {
    let refuse = |reason: String| Err(Refusal::bad_request(reason));
    match params.get(name).map(str::parse::<i128>) {
        None => Ok(default),
        Some(Ok(number)) if number >= 0 => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        Some(Ok(_)) => refuse(format!("{name} not in range of [0,infinity]")),
        Some(Err(_)) => refuse(format!("{name} must be an integer")),
    }
}

/// Returns the database and the document that the parts of a path after `docs` name. Names of databases may have
/// slashes, even unescaped.
///
/// # Errors
/// No part of it names a replicator database.
fn docs_path<'a>(path: &[&'a str]) -> HttpResult<(String, Option<&'a str>)> {
    let marks = |part: &&str| *part == NAME || part.ends_with("/_replicator");
    match path {
        [] => Ok((NAME.to_owned(), None)),
        [.., last] if marks(last) => Ok((path.join("/"), None)),
        [database @ .., id] if database.last().is_some_and(marks) => {
            Ok((database.join("/"), Some(*id)))
        }
        _ => Err(Refusal::bad_request("Invalid path")),
    }
}

/// `GET /_scheduler/docs`, and paths below it.
pub(super) async fn docs(
    request: HttpRequest,
    params: Params,
    shared: Shared,
    user: User,
) -> Answer {
    let path = segments(request.path())?;
    let path: Vec<&str> = path.iter().skip(2).map(String::as_str).collect();
    let (database, id) = docs_path(&path)?;
    if database != NAME {
        return Err(Refusal::not_found("Database does not exist."));
    }
    let Some(id) = id else {
        return list(params, &shared, &user).await;
    };
    if !sees_all(&user)? && !owns_document(&user, id, &shared).await? {
        return Err(ReplicatorError::Missing.into());
    }
    answer::ok(&shared.replications.doc(id).await?)
}

/// Returns whether a visitor may see all users' documents.
fn sees_all(user: &Visitor) -> HttpResult<bool> {
    Ok(matches!(whose(user, Route::Docs.who())?, Whose::All))
}

async fn list(params: Params, shared: &HttpContext, user: &Visitor) -> Answer {
    let states = states(params.get("states"), &[])?;
    let mut wanted = page_of(&params)?;
    let (skip, limit) = (wanted.skip, wanted.limit);
    let sees_all = sees_all(user)?;
    if !sees_all {
        (wanted.skip, wanted.limit) = (0, usize::MAX);
    }
    let (mut total, mut offset, mut docs) = shared.replications.docs(wanted, &states).await?;
    if !sees_all {
        let mut own = Vec::new();
        for doc in docs {
            let id = DocMembers::parse(doc.get())
                .ok()
                .and_then(|doc| doc.text("doc_id"));
            if owns_document(user, &id.unwrap_or_default(), shared).await? {
                own.push(doc);
            }
        }
        total = own.len();
        offset = total.min(skip);
        docs = own.into_iter().skip(skip).take(limit).collect();
    }
    let mut listing = DocMembers::default()
        .with("total_rows", total)
        .with("offset", offset)
        .with("docs", docs);
    if let Some(age) = shared.replications.age_s() {
        listing.set("age_s", age);
    }
    if shared.replications.is_loading() {
        listing.set("loading", true);
    }
    answer::ok(&listing)
}

/// Parses names of states: those of documents, and `more`.
fn states(text: Option<&str>, more: &[DocState]) -> HttpResult<Vec<DocState>> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let known = [&DocState::OF_DOCS, more].concat();
    let choice: Vec<&str> = known.iter().map(|state| state.name()).collect();
    let choice = choice.join(",");
    let words: Vec<String> = text
        .split(',')
        .map(|word| word.trim().to_ascii_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Err(query_parse_error(format!(
            "States must be one or more of {choice}"
        )));
    }
    let (mut found, mut unknown): (Vec<DocState>, Vec<&str>) = Default::default();
    for word in &words {
        match DocState::of_name(word).filter(|state| known.contains(state)) {
            Some(state) => found.push(state),
            None => unknown.push(word),
        }
    }
    if unknown.is_empty() {
        Ok(found)
    } else {
        let unknown = unknown.join(",");
        Err(query_parse_error(format!(
            "Unknown states {unknown}. Choose from: {choice}"
        )))
    }
}

impl From<ReplicatorError> for Refusal {
    fn from(error: ReplicatorError) -> Self {
        let reason = error.to_string();
        match error {
            ReplicatorError::Store(error) => error.into(),
            ReplicatorError::Spec(error) => {
                Self::new(StatusCode::BAD_REQUEST, error.kind.into(), reason)
            }
            ReplicatorError::BareName(_) => {
                Self::new(StatusCode::BAD_REQUEST, "invalid_replication", reason)
            }
            // CouchDB, too, answers its filter_fetch_error with `not_found`.
            ReplicatorError::Filter(_) | ReplicatorError::Missing => Self::not_found(&reason),
            ReplicatorError::Selection(_) => Self::bad_request(reason),
            ReplicatorError::Unexpected { .. }
            | ReplicatorError::Taken(_)
            | ReplicatorError::Unowned => Self::of("conflict", reason),
            ReplicatorError::Crashed(crash) => crashed(&crash.to_string()),
            ReplicatorError::Cancelled => Self::of("cancelled", reason),
            ReplicatorError::ShuttingDown => super::routes::shutting_down(),
        }
    }
}

/// Returns the refusal for a crashed job, whose error is `kind: text`.
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
    fn fewer_roles_may_list_documents_than_jobs() {
        assert_eq!(right_to_list(&[]), Right::Look);
        assert_eq!(right_to_list(&[DocState::Running]), Right::Look);
        let documents = [DocState::Running, DocState::Completed];
        assert_eq!(right_to_list(&documents), Right::Inspect);
    }

    #[test]
    fn names_of_databases_may_have_slashes() {
        let whole = |path: &[&'static str], name: &str| {
            assert_eq!(
                docs_path(path).ok(),
                Some((name.to_owned(), None)),
                "{path:?}"
            );
        };
        whole(&[], "_replicator");
        whole(&["_replicator"], "_replicator");
        whole(&["a", "_replicator"], "a/_replicator");
        whole(&["a", "b", "_replicator"], "a/b/_replicator");
        whole(&["a/_replicator"], "a/_replicator");
        let doc = |path: &[&'static str], name: &str| {
            assert_eq!(
                docs_path(path).ok(),
                Some((name.to_owned(), Some("x"))),
                "{path:?}"
            );
        };
        doc(&["_replicator", "x"], "_replicator");
        doc(&["a", "_replicator", "x"], "a/_replicator");
        doc(&["a/_replicator", "x"], "a/_replicator");
        for wrong in [
            &["a", "b"][..],
            &["foo"],
            &["a", "b", "_replicator", "z", "w"],
            &["_replicator", "z", "w"],
        ] {
            assert!(docs_path(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_of_states_ignore_case_and_unknown_ones_are_reported() {
        let of = |text| states(text, &[]).map_err(|refusal| refusal.reason());
        assert_eq!(of(None), Ok(vec![]));
        assert_eq!(
            of(Some("Running, failed")),
            Ok(vec![DocState::Running, DocState::Failed])
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
    fn a_crash_is_shown_with_its_kind() {
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
            let value: serde_json::Value = serde_json::from_slice(&refusal.line()).unwrap();
            assert_eq!(value["error"], line);
        }
    }
}
