//! Documents of the replicator database: read, written, deleted, individually and in bulk.
//!
//! SOURCE    chttpd_db: db_doc_req/3, db_req/2 for `_bulk_docs`.
//! LIMITS    Attachments are refused.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use actix_web::web::Payload;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::{self, Answer, HttpResult, Refusal};
use super::super::guard::is_encrypted;
use super::super::request::{IsJson, content_type, text};
use super::{Call, check_bulk, missing, new_id, one_revision, owners, raw_body, refuse_copies};
use crate::audit::Done;
use crate::replicator::document::{DocKind, Incoming, invalid_rev, kind_of, shown};
use crate::replicator::members::DocMembers;
use crate::replicator::{NAME, Written};
use store::{Document, Revision};

/// `GET /_replicator/ID`, including design documents and checkpoints.
pub(crate) async fn get(call: Call) -> Answer {
    let id = call.document().await?;
    if kind_of(&id)? == DocKind::Local {
        return answer::ok(&call.database().local(&id).await?.ok_or_else(missing)?);
    }
    if call.params.get("open_revs").is_some() {
        return Err(one_revision());
    }
    let document = call
        .database()
        .store
        .document(&id)
        .await?
        .ok_or_else(missing)?;
    let whole = shown(&document, &call.person);
    let rev = whole.text("_rev").unwrap_or_default();
    check_revision(&call, &document, &rev)?;
    let etag = etag(&rev);
    if text(call.request.head(), header::IF_NONE_MATCH) == Some(&etag) {
        let mut response = HttpResponse::NotModified();
        return Ok(response.insert_header((header::ETAG, etag)).finish());
    }
    with_etag(answer::ok(&whole), &etag)
}

/// Accepts only the latest revision as `rev`, which is required to read a deleted document.
fn check_revision(call: &Call, document: &Document, own: &str) -> HttpResult<()> {
    match call.params.get("rev").map(str::parse::<Revision>) {
        Some(Err(_)) => Err(invalid_rev().into()),
        Some(Ok(rev)) if rev.to_string() == own => Ok(()),
        Some(Ok(_)) => Err(missing()),
        None if document.deleted => Err(Refusal::not_found("deleted")),
        None => Ok(()),
    }
}

/// `PUT /_replicator/ID`, including design documents and checkpoints. Multipart documents with attachments are refused.
pub(crate) async fn put(call: Call, payload: Payload) -> Answer {
    let id = call.document().await?;
    if content_type(call.request.head()).starts_with("multipart/") {
        let reason = "attachments are not kept in the replicator database: Content-Type must be application/json";
        return Err(Refusal::bad_content_type("application/json").with_member("reason", reason));
    }
    let (raw, body) = raw_body(&call, payload).await?;
    refuse_copies(&call, &body)?;
    owners::check_user(&call, &body)?;
    drop(body);
    kind_of(&id)?;
    write(&call, &id, Incoming::of(raw.get())?).await
}

/// `DELETE /_replicator/ID`, including design documents and checkpoints.
pub(crate) async fn delete(call: Call) -> Answer {
    let id = call.document().await?;
    refuse_copies(&call, &Value::Null)?;
    if kind_of(&id)? == DocKind::Local {
        call.database().local(&id).await?.ok_or_else(missing)?;
    } else {
        let found = call.database().store.document(&id).await?;
        if found.ok_or_else(missing)?.deleted {
            return Err(Refusal::not_found("deleted"));
        }
    }
    let deletion = Incoming {
        id: None,
        rev: None,
        deleted: true,
        members: DocMembers::default(),
    };
    let written = written(&call, &id, deletion).await?;
    with_etag(answer::ok(&success(&written)), &etag(&written.rev))
}

/// Writes a document and answers 201, 200 for a deletion, or 202 with `batch=ok`, which also waits for the write.
pub(super) async fn write(call: &Call, id: &str, incoming: Incoming) -> Answer {
    let deleted = incoming.deleted;
    let written = written(call, id, incoming).await?;
    let etag = etag(&written.rev);
    let (status, value) = match call.params.get("batch") {
        Some("ok") => (StatusCode::ACCEPTED, json!({"ok": true, "id": written.id})),
        _ if deleted => (StatusCode::OK, success(&written)),
        _ => (StatusCode::CREATED, success(&written)),
    };
    let mut response = with_etag(answer::with_status(status, &value), &etag)?;
    if let Ok(location) = location(call, &written.id).parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn written(call: &Call, id: &str, mut incoming: Incoming) -> HttpResult<Written> {
    incoming.rev = rev_of(call, incoming.rev)?;
    incoming.id = Some(id.to_owned());
    let order = call.order();
    if let Some(order) = &order {
        order.on(id);
    }
    let before = incoming.rev.clone();
    let result = call
        .database()
        .write(vec![incoming], &call.person)
        .await?
        .into_iter()
        .next()
        .ok_or_else(missing)?;
    let written = result.map_err(|(_, error)| Refusal::from(error))?;
    if let Some(order) = order {
        order.did(Done::after(
            1,
            before.map_or(Value::Null, |rev| json!({"rev": rev})),
        ));
    }
    Ok(written)
}

/// Returns the revision from the body, the query or a header, if any; all that are given must agree.
fn rev_of(call: &Call, of_body: Option<String>) -> HttpResult<Option<String>> {
    let of_query = call.params.get("rev").map(str::to_owned);
    let of_header =
        text(call.request.head(), header::IF_MATCH).map(|etag| etag.trim_matches('"').to_owned());
    let mut revs = [of_body, of_query, of_header].into_iter().flatten();
    let first = revs.next();
    if revs.any(|rev| Some(&rev) != first.as_ref()) {
        let reason = "Document rev from request body and query string have different values";
        return Err(Refusal::bad_request(reason));
    }
    Ok(first)
}

/// `POST /_replicator/_bulk_docs`.
pub(crate) async fn bulk_docs(_: IsJson, call: Call, payload: Payload) -> Answer {
    let (raw, body) = raw_body(&call, payload).await?;
    check_bulk(&call, &body).await?;
    drop(body);
    let body = DocMembers::parse(raw.get())
        .map_err(|_| Refusal::bad_request("Request body must be a JSON object"))?;
    let docs = body
        .raw("docs")
        .map(|docs| serde_json::from_str(docs.get()));
    let Some(Ok(docs)) = docs else {
        return Err(Refusal::bad_request(
            "POST body must include `docs` parameter.",
        ));
    };
    let docs: Vec<&RawValue> = docs;
    let mut incoming = Vec::with_capacity(docs.len());
    for doc in docs {
        let mut one = Incoming::of(doc.get())?;
        one.id.get_or_insert_with(new_id);
        incoming.push(one);
    }
    let rows: Vec<Value> = call
        .database()
        .write(incoming, &call.person)
        .await?
        .into_iter()
        .map(|result| match result {
            Ok(written) => success(&written),
            Err((id, error)) => {
                json!({"id": id, "error": error.name(), "reason": error.to_string()})
            }
        })
        .collect();
    if let Some(order) = call.order() {
        order.did(Done::of_documents(&rows));
    }
    answer::with_status(StatusCode::CREATED, &rows)
}

fn success(written: &Written) -> Value {
    json!({"ok": true, "id": written.id, "rev": written.rev})
}

fn etag(rev: &str) -> String {
    format!("\"{rev}\"")
}

fn with_etag(answer: Answer, etag: &str) -> Answer {
    let mut response = answer?;
    if let Ok(etag) = etag.parse() {
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}

fn location(call: &Call, id: &str) -> String {
    let scheme = if is_encrypted(&call.request) {
        "https"
    } else {
        "http"
    };
    let host = call.request.connection_info().host().to_owned();
    let id = replication::endpoint::encode_doc_id(id);
    format!("{scheme}://{host}/{NAME}/{id}")
}
