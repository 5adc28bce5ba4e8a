//! `/_replicator`: the replicator database over HTTP.
//!
//! SUMMARY   Which handler answers which path of the database; the database itself is
//!           [`crate::replicator::Database`].
//! SOURCE    chttpd_db.
//! DIFFERS   It cannot be deleted, has no views and no attachments, and one revision of each document: it is
//!           neither the source nor the target of a replication.

mod all_docs;
mod changes;
mod docs;
pub(super) mod owners;

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, web};
use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::access::Visitor;
use super::answer::{self, Answer, Refusal};
use super::params::Params;
use super::request::{allow, require_json};
use super::{HttpContext, body};
use crate::auth::rights::Right;
use crate::config::password::random;
use crate::replicator::document::{DocumentError, Incoming, Person, kind_of};
use crate::replicator::{Database, NAME};
use crate::store::StoreError;
pub(super) use all_docs::page as page_of;

/// A request to the database, with what every answer needs.
struct Call<'a> {
    request: &'a HttpRequest,
    shared: &'a web::Data<HttpContext>,
    database: &'a Database,
    person: Person,
    params: Params,
}

impl Call<'_> {
    /// Returns the parameters of the query, and with `POST` those of the body.
    async fn all_params(&self, payload: web::Payload) -> Result<Params, Refusal> {
        let params = self.params.clone();
        match *self.request.method() {
            Method::POST => Ok(params.with_body(&json_body(self, payload).await?)),
            _ => Ok(params),
        }
    }
}

pub(super) async fn answer(
    path: &[&str],
    request: &HttpRequest,
    payload: web::Payload,
    shared: &web::Data<HttpContext>,
    visitor: &Visitor,
) -> Answer {
    let call = Call {
        request,
        shared,
        database: shared.replications.database(),
        person: person(visitor),
        params: Params::of(request)?,
    };
    const POST: &[Method] = &[Method::POST];
    const BOTH: &[Method] = &[Method::GET, Method::POST];
    let id = match path {
        [] => {
            allow(request, &[Method::GET, Method::PUT, Method::POST])?;
            return database(&call, payload, visitor).await;
        }
        ["_all_docs"] => {
            allow(request, BOTH)?;
            visitor.needs(Right::Administer)?;
            return all_docs::answer(&call, payload).await;
        }
        ["_changes"] => {
            allow(request, BOTH)?;
            visitor.needs(Right::Administer)?;
            return changes::answer(&call, payload).await;
        }
        ["_bulk_docs"] => {
            allow(request, POST)?;
            visitor.needs(Right::Replicate)?;
            require_json(request)?;
            let (raw, body) = raw_body(&call, payload).await?;
            check_bulk(&call, &body).await?;
            drop(body);
            return docs::bulk(&call, &raw).await;
        }
        ["_bulk_get" | "_revs_diff" | "_missing_revs" | "_revs_limit" | "_ensure_full_commit"] => {
            visitor.needs(Right::Administer)?;
            return Err(one_revision());
        }
        ["_security"] => {
            allow(request, &[Method::GET, Method::PUT])?;
            visitor.needs(Right::Administer)?;
            return security(&call, payload).await;
        }
        [kind @ ("_design" | "_local"), name] => format!("{kind}/{name}"),
        [name] => (*name).to_owned(),
        [_, ..] => return Err(missing()),
    };
    allow(request, &[Method::GET, Method::PUT, Method::DELETE])?;
    // Design documents and checkpoints take an administrator.
    visitor.needs(match id.starts_with('_') {
        true => Right::Administer,
        false => Right::Replicate,
    })?;
    // It cannot be there; a writer is told why.
    let cannot_be = matches!(kind_of(&id), Err(DocumentError::IllegalId(_)));
    if cannot_be && request.method() != Method::PUT {
        return Err(missing());
    }
    owners::check(&call, &id).await?;
    match *request.method() {
        Method::PUT => {
            docs::refuse_parts(request)?;
            let (raw, body) = raw_body(&call, payload).await?;
            refuse_copies(&call, &body)?;
            owners::check_user(&call, &body)?;
            drop(body);
            docs::put(&call, &id, &raw).await
        }
        Method::DELETE => {
            refuse_copies(&call, &Value::Null)?;
            docs::delete(&call, &id).await
        }
        _ => docs::get(&call, &id).await,
    }
}

/// Refuses what takes more than one revision of a document.
fn one_revision() -> Refusal {
    Refusal::new(
        StatusCode::NOT_IMPLEMENTED,
        "not_implemented",
        "documents of _replicator have one revision each, and the database is not replicated: \
         `settee jobs export` and `settee jobs import` copy its documents",
    )
}

/// Refuses copies with the revisions of another database.
fn refuse_copies(call: &Call<'_>, body: &Value) -> Result<(), Refusal> {
    let are_copies =
        body["new_edits"] == Value::Bool(false) || !call.params.boolean("new_edits", true)?;
    match are_copies {
        true if call.person.is_admin => Err(one_revision()),
        true => Err(Refusal::forbidden("new_edits=false takes the role admin")),
        false => Ok(()),
    }
}

/// Refuses documents of other users and reserved ids, unless the sender is an administrator.
async fn check_bulk(call: &Call<'_>, body: &Value) -> Result<(), Refusal> {
    refuse_copies(call, body)?;
    if call.person.is_admin {
        return Ok(());
    }
    for document in body["docs"].as_array().into_iter().flatten() {
        owners::check_user(call, document)?;
        let id = document["_id"].as_str().unwrap_or_default();
        if id.starts_with('_') {
            return Err(Refusal::forbidden(format!("{id} takes the role admin")));
        }
        owners::check(call, id).await?;
    }
    Ok(())
}

/// Returns who reads or writes.
pub(super) fn person(visitor: &Visitor) -> Person {
    Person {
        name: visitor.name.clone(),
        is_admin: visitor.is_admin(),
    }
}

async fn database(call: &Call<'_>, payload: web::Payload, visitor: &Visitor) -> Answer {
    match *call.request.method() {
        Method::PUT => {
            visitor.needs(Right::Replicate)?;
            let reason = "The database could not be created, the file already exists.";
            let status = StatusCode::PRECONDITION_FAILED;
            Err(Refusal::new(status, "file_exists", reason))
        }
        Method::POST => {
            visitor.needs(Right::Replicate)?;
            require_json(call.request)?;
            let (raw, body) = raw_body(call, payload).await?;
            refuse_copies(call, &body)?;
            owners::check_user(call, &body)?;
            let mut incoming = Incoming::of(raw.get())?;
            let id = incoming.id.take().unwrap_or_else(new_id);
            if id.starts_with('_') {
                visitor.needs(Right::Administer)?;
            }
            owners::check(call, &id).await?;
            docs::write(call, &id, incoming).await
        }
        _ => {
            visitor.needs(Right::Replicate)?;
            info(call).await
        }
    }
}

/// Shows who may do what, as a CouchDB does where nobody has changed it. It cannot be changed here: it would
/// have no effect.
async fn security(call: &Call<'_>, payload: web::Payload) -> Answer {
    let admins = json!({"roles": ["_admin"]});
    let security = json!({"members": admins, "admins": admins});
    if *call.request.method() != Method::PUT {
        return Ok(answer::ok(&security));
    }
    require_json(call.request)?;
    let wanted: Value = json_body(call, payload).await?;
    match wanted == security {
        true => Ok(answer::ok(&json!({"ok": true}))),
        false => Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "not_implemented",
            "who may read and write this database is not a matter of _security: name users and \
             their roles in [admins] and [users.NAME] of the configuration",
        )),
    }
}

async fn info(call: &Call<'_>) -> Answer {
    let store = call.database.store();
    let info = store.info().await?;
    Ok(answer::ok(&json!({
        "db_name": NAME,
        "engine": store.place().engine(),
        "doc_count": info.documents,
        "doc_del_count": info.deleted,
        "update_seq": changes::seq(info.update_seq, &info.mark),
        "purge_seq": 0,
        "compact_running": false,
        "sizes": {"active": info.bytes, "external": info.bytes, "file": info.bytes},
        "props": {},
        "disk_format_version": 1,
        "instance_start_time": "0",
    })))
}

/// Reads a body that is JSON.
async fn json_body<T: DeserializeOwned + Send + 'static>(
    call: &Call<'_>,
    payload: web::Payload,
) -> Result<T, Refusal> {
    let body = body::read(call.request, payload, call.shared).await?;
    body.json().await
}

/// Reads a JSON body with documents, and returns its text and its value. Refuses what has no value: a number
/// beyond all bounds, a very deep nesting.
async fn raw_body(
    call: &Call<'_>,
    payload: web::Payload,
) -> Result<(Box<RawValue>, Value), Refusal> {
    let body = body::read(call.request, payload, call.shared).await?;
    let both = |text: &str| Ok((serde_json::from_str(text)?, serde_json::from_str(text)?));
    let parse = move |text: &str| {
        let both: serde_json::Result<_> = both(text);
        both.map_err(|_| Refusal::bad_request("invalid UTF-8 JSON"))
    };
    body.parse(2 * size_of::<Value>(), parse).await
}

/// Makes an id for a document that comes without one.
fn new_id() -> String {
    HEXLOWER.encode(&random::<16>())
}

fn missing() -> Refusal {
    Refusal::not_found("missing")
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let reason = error.to_string();
        match error {
            StoreError::Open(_) => Self::unavailable("store_unavailable", reason),
            StoreError::Failed(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", reason)
            }
            StoreError::Unstorable(_) => Self::bad_request(reason),
            StoreError::Closed => super::routes::shutting_down(),
        }
    }
}

impl From<DocumentError> for Refusal {
    fn from(error: DocumentError) -> Self {
        let status = match &error {
            DocumentError::Forbidden(_) => StatusCode::FORBIDDEN,
            DocumentError::Conflict => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.name(), error.to_string())
    }
}
