//! `/_replicator`: the replicator database over HTTP.
//!
//! SUMMARY   The handler of each route; the database itself is [`crate::replicator::Database`].
//! SOURCE    chttpd_db.
//! DIFFERS   It cannot be deleted, has no views and no attachments, and one revision of each document: it cannot be
//!           the source or target of a replication.

mod all_docs;
mod changes;
mod docs;
pub(super) mod owners;

use std::rc::Rc;

use actix_web::http::{Method, StatusCode};
use actix_web::web::Payload;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, dev};
use data_encoding::HEXLOWER;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::access::{User, Visitor};
use super::answer::{self, Answer, HttpResult, Refusal};
use super::params::Params;
use super::request::{IsJson, segments};
use super::{Shared, body};
use crate::audit::PendingOrder;
use crate::auth::rights::Right;
use crate::config::password::random;
use crate::replicator::document::{DocumentError, Incoming, Person, kind_of};
use crate::replicator::{Database, NAME};
pub(super) use all_docs::{all_docs, page as page_of};
pub(super) use changes::changes;
pub(super) use docs::{bulk_docs, delete, get, put};
use store::StoreError;

/// A request to the database, with everything needed to answer it.
pub(super) struct Call {
    request: HttpRequest,
    shared: Shared,
    visitor: User,
    person: Person,
    params: Params,
}

impl FromRequest for Call {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let given = <(Shared, User, Params)>::from_request(request, payload);
        let request = request.clone();
        async move {
            let (shared, visitor, params) = given.await?;
            Ok(Self {
                request,
                shared,
                person: person(&visitor),
                visitor,
                params,
            })
        }
        .boxed_local()
    }
}

impl Call {
    fn database(&self) -> &Database {
        self.shared.replications.database()
    }

    /// Returns the order of a request that changes something.
    fn order(&self) -> Option<Rc<PendingOrder>> {
        self.request.extensions().get().cloned()
    }

    /// Returns the query's parameters, and with `POST` those of the body.
    async fn all_params(&self, payload: Payload) -> HttpResult<Params> {
        let params = self.params.clone();
        match *self.request.method() {
            Method::POST => Ok(params.with_body(&json_body(self, payload).await?)),
            _ => Ok(params),
        }
    }

    /// Returns the id of the path's document, if the visitor has any right to it.
    async fn document(&self) -> HttpResult<String> {
        let id = segments(self.request.path())?.split_off(1).join("/");
        check_id(self, &id)?;
        // No document can have such an id; a writer gets the reason.
        if matches!(kind_of(&id), Err(DocumentError::IllegalId(_)))
            && self.request.method() != Method::PUT
        {
            return Err(missing());
        }
        owners::check(self, &id).await?;
        Ok(id)
    }
}

/// Refuses ids of design documents and checkpoints, which begin with `_`, unless the sender is an administrator.
fn check_id(call: &Call, id: &str) -> HttpResult<()> {
    if id.starts_with('_') {
        call.visitor.needs(Right::Administer)
    } else {
        Ok(())
    }
}

/// Refuses requests that need more than one revision of a document.
pub(super) async fn revisions() -> Answer {
    Err(one_revision())
}

/// Answers paths below a document, which do not exist.
pub(super) async fn no_such_path() -> Answer {
    Err(missing())
}

/// The refusal of requests that need more than one revision of a document.
fn one_revision() -> Refusal {
    Refusal::of(
        "not_implemented",
        "documents of _replicator have one revision each, and the database is not replicated: \
         `settee jobs export` and `settee jobs import` copy its documents",
    )
}

/// Refuses copies that have another database's revisions.
fn refuse_copies(call: &Call, body: &Value) -> HttpResult<()> {
    let are_copies =
        body["new_edits"] == Value::Bool(false) || !call.params.boolean("new_edits", true)?;
    if !are_copies {
        Ok(())
    } else if call.person.is_admin {
        Err(one_revision())
    } else {
        Err(Refusal::forbidden(
            "new_edits=false requires the role admin",
        ))
    }
}

/// Refuses documents of other users and reserved ids, unless the sender is an administrator.
async fn check_bulk(call: &Call, body: &Value) -> HttpResult<()> {
    refuse_copies(call, body)?;
    if call.person.is_admin {
        return Ok(());
    }
    for document in body["docs"].as_array().into_iter().flatten() {
        owners::check_user(call, document)?;
        let id = document["_id"].as_str().unwrap_or_default();
        if id.starts_with('_') {
            return Err(Refusal::forbidden(format!("{id} requires the role admin")));
        }
        owners::check(call, id).await?;
    }
    Ok(())
}

/// Returns the visitor as the reader or writer of documents.
pub(super) fn person(visitor: &Visitor) -> Person {
    Person {
        name: visitor.name.clone(),
        is_admin: visitor.rights.is_admin(),
    }
}

/// `PUT /_replicator`.
pub(super) async fn create() -> Answer {
    Err(Refusal::of(
        "file_exists",
        "The database could not be created, the file already exists.",
    ))
}

/// `POST /_replicator`.
pub(super) async fn post(_: IsJson, call: Call, payload: Payload) -> Answer {
    let (raw, body) = raw_body(&call, payload).await?;
    refuse_copies(&call, &body)?;
    owners::check_user(&call, &body)?;
    let mut incoming = Incoming::of(raw.get())?;
    let id = incoming.id.take().unwrap_or_else(new_id);
    check_id(&call, &id)?;
    owners::check(&call, &id).await?;
    docs::write(&call, &id, incoming).await
}

/// The permissions of a CouchDB with default settings.
fn own_security() -> Value {
    let admins = json!({"roles": ["_admin"]});
    json!({"members": admins, "admins": admins})
}

/// `GET /_replicator/_security`.
pub(super) async fn security() -> Answer {
    answer::ok(&own_security())
}

/// `PUT /_replicator/_security`: a change is refused, because it would have no effect.
pub(super) async fn set_security(_: IsJson, call: Call, payload: Payload) -> Answer {
    if json_body(&call, payload).await? == own_security() {
        answer::done()
    } else {
        Err(Refusal::of(
            "not_implemented",
            "_security does not control access to this database: name users and their roles in [admins] and \
             [users.NAME] of the configuration",
        ))
    }
}

/// `GET /_replicator`.
pub(super) async fn info(call: Call) -> Answer {
    let store = &call.database().store;
    let info = store.info().await?;
    answer::ok(&json!({
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
    }))
}

/// Reads a JSON body.
async fn json_body(call: &Call, payload: Payload) -> HttpResult<Value> {
    body::read(&call.request, payload, &call.shared)
        .await?
        .json()
        .await
}

/// Reads a JSON body with documents, and returns its text and its value. Refuses JSON that [`Value`] cannot hold: an
/// out-of-range number, or very deep nesting.
async fn raw_body(call: &Call, payload: Payload) -> HttpResult<(Box<RawValue>, Value)> {
    let body = body::read(&call.request, payload, &call.shared).await?;
    body.parse(2 * size_of::<Value>(), |text| {
        Ok((serde_json::from_str(text)?, serde_json::from_str(text)?))
    })
    .await
}

/// Generates an id for a document without one.
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
            StoreError::Failed(_) => Self::of("store_failed", reason),
            StoreError::Unstorable(_) => Self::bad_request(reason),
            StoreError::Closed => super::routes::shutting_down(),
        }
    }
}

impl From<DocumentError> for Refusal {
    fn from(error: DocumentError) -> Self {
        let (name, reason) = (error.name(), error.to_string());
        match error {
            DocumentError::IllegalId(_) | DocumentError::Special(_) => {
                Self::new(StatusCode::BAD_REQUEST, name, reason)
            }
            _ => Self::of(name, reason),
        }
    }
}
