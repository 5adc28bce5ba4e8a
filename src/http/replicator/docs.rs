//! Documents of the replicator database: read, written, deleted, one by one and many at a time.
//!
//! SOURCE    chttpd_db: db_doc_req/3, db_req/2 for `_bulk_docs`.
//! LIMITS    Attachments are refused by name.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::{self, Answer, Refusal};
use super::super::request::{content_type, text};
use super::revisions::{Wants, open_revs, parse_rev};
use super::{Call, missing};
use crate::replicator::document::{Incoming, Sort, sort_of};
use crate::replicator::members::Members;
use crate::replicator::seen::{SeenLeaf, choose, seen};
use crate::replicator::{NAME, Refused, Written};
use crate::store::StoreError;

/// `GET`.
pub(super) async fn get(call: &Call<'_>, id: &str) -> Answer {
    if sort_of(id)? == Sort::Local {
        let local = call.database.local(id).await?;
        return Ok(answer::ok(&local.ok_or_else(missing)?));
    }
    let trees = call.database.store().trees(vec![id.to_owned()]).await?;
    let tree = trees.first().ok_or_else(missing)?;
    let leaves = seen(tree, &call.person);
    if let Some(wanted) = call.params.get("open_revs") {
        return open_revs(call, id, &leaves, wanted);
    }
    let leaf = one(call, &leaves)?;
    let whole = Wants::of(&call.params)?.whole(id, leaf, &leaves);
    let etag = etag(&leaf.revision().to_string());
    if text(call.request, header::IF_NONE_MATCH) == Some(&etag) {
        let mut response = HttpResponse::NotModified();
        return Ok(response.insert_header((header::ETAG, etag)).finish());
    }
    Ok(with_etag(answer::ok(&whole), &etag))
}

/// Returns the leaf that is asked for: the winner, unless a revision is named.
fn one<'a>(call: &Call<'_>, leaves: &'a [SeenLeaf]) -> Result<&'a SeenLeaf, Refusal> {
    if let Some(rev) = call.params.get("rev") {
        let latest = call.params.boolean("latest", false)?;
        let chosen = choose(leaves, parse_rev(rev)?, latest);
        return chosen.into_iter().next().ok_or_else(missing);
    }
    match leaves.first() {
        None => Err(missing()),
        Some(winner) if winner.deleted => Err(Refusal::not_found("deleted")),
        Some(winner) => Ok(winner),
    }
}

/// `PUT`.
pub(super) async fn put(call: &Call<'_>, id: &str, body: &RawValue) -> Answer {
    sort_of(id)?;
    let incoming = Incoming::of(body.get())?;
    write(call, id, incoming).await
}

/// Refuses a document with attachments, which comes in parts. A replication goes on without it.
///
/// # Errors
/// It is one.
pub(super) fn refuse_parts(request: &HttpRequest) -> Result<(), Refusal> {
    match content_type(request).starts_with("multipart/") {
        true => Err(Refusal::bad_content_type("application/json")
            .because("attachments are not kept in the replicator database: Content-Type must be application/json")),
        false => Ok(()),
    }
}

/// `DELETE`.
pub(super) async fn delete(call: &Call<'_>, id: &str) -> Answer {
    let is_local = sort_of(id)? == Sort::Local;
    let known = match is_local {
        true => call.database.local(id).await?.is_some(),
        false => {
            let found = call
                .database
                .store()
                .document(id)
                .await?
                .ok_or_else(missing)?;
            if found.deleted {
                return Err(Refusal::not_found("deleted"));
            }
            true
        }
    };
    if !known {
        return Err(missing());
    }
    let deletion = Incoming {
        id: None,
        rev: None,
        revisions: None,
        deleted: true,
        members: Members::default(),
    };
    let written = written(call, id, deletion).await?;
    let etag = etag(&written.rev);
    Ok(with_etag(answer::ok(&success(&written)), &etag))
}

/// Writes a document and says so: 201, or 202 with `batch=ok`, which waits all the same.
pub(super) async fn write(call: &Call<'_>, id: &str, incoming: Incoming) -> Answer {
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

async fn written(call: &Call<'_>, id: &str, mut incoming: Incoming) -> Result<Written, Refusal> {
    incoming.rev = rev_of(call, incoming.rev)?;
    incoming.id = Some(id.to_owned());
    let is_copy = !call.params.boolean("new_edits", true)?;
    let results = written_all(call, vec![incoming], is_copy).await?;
    let result = results.into_iter().next().ok_or_else(missing)?;
    result.map_err(|(_, error)| error.into())
}

/// The revision stands in the body, the query or a header; those that are there must agree.
fn rev_of(call: &Call<'_>, of_body: Option<String>) -> Result<Option<String>, Refusal> {
    let of_query = call.params.get("rev").map(str::to_owned);
    let of_header =
        text(call.request, header::IF_MATCH).map(|etag| etag.trim_matches('"').to_owned());
    let mut revs = [of_body, of_query, of_header].into_iter().flatten();
    let first = revs.next();
    if revs.any(|rev| Some(&rev) != first.as_ref()) {
        let reason = "Document rev from request body and query string have different values";
        return Err(Refusal::bad_request(reason));
    }
    Ok(first)
}

/// Writes documents: as new revisions, or as copies of what another database has.
async fn written_all(
    call: &Call<'_>,
    documents: Vec<Incoming>,
    are_copies: bool,
) -> Result<Vec<Result<Written, Refused>>, StoreError> {
    match are_copies {
        true => call.database.merge(documents).await,
        false => call.database.write(documents, &call.person).await,
    }
}

/// `POST _bulk_docs`. Of copies only those are told that were not taken.
pub(super) async fn bulk(call: &Call<'_>, body: &RawValue) -> Answer {
    let body = Members::parse(body.get());
    let body = body.map_err(|_| Refusal::bad_request("Request body must be a JSON object"))?;
    let are_copies = body.get("new_edits") == Some(Value::Bool(false));
    let docs = body
        .raw("docs")
        .map(|docs| serde_json::from_str(docs.get()));
    let Some(Ok(docs)) = docs else {
        return Err(Refusal::bad_request(
            "POST body must include `docs` parameter.",
        ));
    };
    let docs: Vec<&RawValue> = docs;
    let mut rows = Vec::new();
    let mut incoming = Vec::with_capacity(docs.len());
    for doc in docs {
        let mut one = match Incoming::of(doc.get()) {
            Ok(one) => one,
            // A replication goes on without it.
            Err(error) if are_copies => {
                let id = Members::parse(doc.get())
                    .ok()
                    .and_then(|doc| doc.get("_id"));
                rows.push(json!({"id": id, "error": error.name(), "reason": error.to_string()}));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        one.id.get_or_insert_with(super::new_id);
        incoming.push(one);
    }
    for result in written_all(call, incoming, are_copies).await? {
        match result {
            Ok(_) if are_copies => {}
            Ok(written) => rows.push(success(&written)),
            Err((id, error)) => {
                rows.push(json!({"id": id, "error": error.name(), "reason": error.to_string()}));
            }
        }
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

fn location(call: &Call<'_>, id: &str) -> String {
    let host = call.request.connection_info().host().to_owned();
    let id = replication::endpoint::encode_doc_id(id);
    format!("http://{host}/{NAME}/{id}")
}
