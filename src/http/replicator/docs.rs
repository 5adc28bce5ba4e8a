//! Documents of the replicator database: read, written, deleted, individually and in bulk.
//!
//! SOURCE    chttpd_db: db_doc_req/3, db_req/2 for `_bulk_docs`.
//! LIMITS    Attachments are refused.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::{self, Answer, Refusal};
use super::super::request::{content_type, text};
use super::{Call, missing, one_revision};
use crate::audit::Done;
use crate::replicator::document::{DocKind, Incoming, invalid_rev, kind_of, shown};
use crate::replicator::members::DocMembers;
use crate::replicator::{NAME, Written};
use store::{Document, Revision};

/// `GET`.
pub(super) async fn get(call: &Call, id: &str) -> Answer {
    if kind_of(id)? == DocKind::Local {
        let local = call.database().local(id).await?;
        return Ok(answer::ok(&local.ok_or_else(missing)?));
    }
    if call.params.get("open_revs").is_some() {
        return Err(one_revision());
    }
    let document = call
        .database()
        .store()
        .document(id)
        .await?
        .ok_or_else(missing)?;
    let whole = shown(&document, &call.person);
    let rev = whole.text("_rev").unwrap_or_default();
    check_revision(call, &document, &rev)?;
    let etag = etag(&rev);
    if text(&call.request, header::IF_NONE_MATCH) == Some(&etag) {
        let mut response = HttpResponse::NotModified();
        return Ok(response.insert_header((header::ETAG, etag)).finish());
    }
    Ok(with_etag(answer::ok(&whole), &etag))
}

/// Accepts only the latest revision as `rev`, which is required to read a deleted document.
fn check_revision(call: &Call, document: &Document, own: &str) -> Result<(), Refusal> {
    match call.params.get("rev").map(str::parse::<Revision>) {
        Some(Err(_)) => Err(invalid_rev().into()),
        Some(Ok(rev)) if rev.to_string() == own => Ok(()),
        Some(Ok(_)) => Err(missing()),
        None if document.deleted => Err(Refusal::not_found("deleted")),
        None => Ok(()),
    }
}

/// `PUT`.
pub(super) async fn put(call: &Call, id: &str, body: &RawValue) -> Answer {
    kind_of(id)?;
    let incoming = Incoming::of(body.get())?;
    write(call, id, incoming).await
}

/// Refuses a multipart document with attachments.
///
/// # Errors
/// The body of the request is multipart.
pub(super) fn refuse_parts(request: &HttpRequest) -> Result<(), Refusal> {
    if content_type(request).starts_with("multipart/") {
        Err(Refusal::bad_content_type("application/json")
            .because("attachments are not kept in the replicator database: Content-Type must be application/json"))
    } else {
        Ok(())
    }
}

/// `DELETE`.
pub(super) async fn delete(call: &Call, id: &str) -> Answer {
    if kind_of(id)? == DocKind::Local {
        call.database().local(id).await?.ok_or_else(missing)?;
    } else {
        let found = call.database().store().document(id).await?;
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
    let written = written(call, id, deletion).await?;
    let etag = etag(&written.rev);
    Ok(with_etag(answer::ok(&success(&written)), &etag))
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
    let mut response = with_etag(answer::with_status(status, &value), &etag);
    if let Ok(location) = location(call, &written.id).parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn written(call: &Call, id: &str, mut incoming: Incoming) -> Result<Written, Refusal> {
    incoming.rev = rev_of(call, incoming.rev)?;
    incoming.id = Some(id.to_owned());
    let order = call.order();
    if let Some(order) = &order {
        order.on(id);
    }
    let before = incoming.rev.clone();
    let results = call.database().write(vec![incoming], &call.person).await?;
    let result = results.into_iter().next().ok_or_else(missing)?;
    let written = result.map_err(|(_, error)| Refusal::from(error))?;
    if let Some(order) = order {
        let before = before.map_or(Value::Null, |rev| json!({"rev": rev}));
        order.did(Done::after(1, before));
    }
    Ok(written)
}

/// Returns the revision from the body, the query or a header, if any; all that are given must agree.
fn rev_of(call: &Call, of_body: Option<String>) -> Result<Option<String>, Refusal> {
    let of_query = call.params.get("rev").map(str::to_owned);
    let of_header =
        text(&call.request, header::IF_MATCH).map(|etag| etag.trim_matches('"').to_owned());
    let mut revs = [of_body, of_query, of_header].into_iter().flatten();
    let first = revs.next();
    if revs.any(|rev| Some(&rev) != first.as_ref()) {
        let reason = "Document rev from request body and query string have different values";
        return Err(Refusal::bad_request(reason));
    }
    Ok(first)
}

/// `POST _bulk_docs`.
pub(super) async fn bulk(call: &Call, body: &RawValue) -> Answer {
    let body = DocMembers::parse(body.get());
    let body = body.map_err(|_| Refusal::bad_request("Request body must be a JSON object"))?;
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
        one.id.get_or_insert_with(super::new_id);
        incoming.push(one);
    }
    let results = call.database().write(incoming, &call.person).await?;
    let rows: Vec<Value> = results
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
    Ok(answer::with_status(StatusCode::CREATED, &rows))
}

fn success(written: &Written) -> Value {
    json!({"ok": true, "id": written.id, "rev": written.rev})
}

fn etag(rev: &str) -> String {
    format!("\"{rev}\"")
}

fn with_etag(mut response: HttpResponse, etag: &str) -> HttpResponse {
    if let Ok(etag) = etag.parse() {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

fn location(call: &Call, id: &str) -> String {
    let host = call.request.connection_info().host().to_owned();
    let id = replication::endpoint::encode_doc_id(id);
    format!("http://{host}/{NAME}/{id}")
}
