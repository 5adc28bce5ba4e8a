//! Documents of the replicator database: read, written, deleted, one by one and many at a time.
//!
//! SOURCE    chttpd_db: db_doc_req/3, db_req/2 for `_bulk_docs`.
//! LIMITS    What nobody does with replications is refused by name: `new_edits=false`, attachments.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use serde_json::{Map, Value, json};

use super::super::answer::{self, Answer, Refusal};
use super::super::request::text;
use super::{Call, incoming, missing};
use crate::replicator::document::{Incoming, Sort, invalid_rev, shown, sort_of};
use crate::replicator::{NAME, Written};
use crate::store::{Document, Revision};

/// `GET`.
pub(super) async fn get(call: &Call<'_>, id: &str) -> Answer {
    if sort_of(id)? == Sort::Local {
        let local = call.database.local(id).await?;
        return Ok(answer::ok(&local.ok_or_else(missing)?));
    }
    let found = call.database.store().document(id).await?;
    if let Some(wanted) = call
        .params
        .json(&["open_revs"])
        .or_else(|_| all_revs(call))?
    {
        return open_revs(call, found, &wanted);
    }
    let document = found.ok_or_else(missing)?;
    if let Some(rev) = call.params.get("rev") {
        let rev: Revision = rev.parse().map_err(|_| invalid_rev())?;
        if rev != document.revision {
            return Err(missing());
        }
    } else if document.deleted {
        return Err(Refusal::not_found("deleted"));
    }
    let mut whole = shown(&document, &call.person);
    add_revisions(call, &document, &mut whole)?;
    let etag = etag(whole["_rev"].as_str().unwrap_or_default());
    if text(call.request, header::IF_NONE_MATCH) == Some(&etag) {
        let mut response = HttpResponse::NotModified();
        return Ok(response.insert_header((header::ETAG, etag)).finish());
    }
    Ok(with_etag(answer::ok(&whole), &etag))
}

/// `open_revs=all` is the one value that is no JSON.
fn all_revs(call: &Call<'_>) -> Result<Option<Value>, Refusal> {
    match call.params.get("open_revs") {
        Some("all") => Ok(Some("all".into())),
        _ => Err(Refusal::bad_request("invalid UTF-8 JSON")),
    }
}

fn open_revs(call: &Call<'_>, found: Option<Document>, wanted: &Value) -> Answer {
    let current = found.as_ref().map(|document| document.revision.to_string());
    let known = |rev: &Value| current.as_deref() == rev.as_str();
    let show = |document: &Document| -> Result<Value, Refusal> {
        let mut whole = shown(document, &call.person);
        add_revisions(call, document, &mut whole)?;
        Ok(json!({"ok": whole}))
    };
    let rows: Result<Vec<Value>, Refusal> = match (wanted, &found) {
        (Value::Array(revs), _) => {
            let row = |rev: &Value| match &found {
                Some(document) if known(rev) => show(document),
                _ => Ok(json!({"missing": rev})),
            };
            revs.iter().map(row).collect()
        }
        (_, Some(document)) => Ok(vec![show(document)?]),
        (_, None) => return Err(missing()),
    };
    Ok(answer::ok(&rows?))
}

fn add_revisions(
    call: &Call<'_>,
    document: &Document,
    whole: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    let rev = whole["_rev"].as_str().unwrap_or_default().to_owned();
    if call.params.boolean("revs", false)? {
        let hash = rev.split_once('-').map_or("", |(_, hash)| hash);
        let revisions = json!({"start": document.revision.number, "ids": [hash]});
        whole.insert("_revisions".to_owned(), revisions);
    }
    if call.params.boolean("revs_info", false)? {
        let status = if document.deleted {
            "deleted"
        } else {
            "available"
        };
        let infos = json!([{"rev": rev, "status": status}]);
        whole.insert("_revs_info".to_owned(), infos);
    }
    Ok(())
}

/// `PUT`.
pub(super) async fn put(call: &Call<'_>, id: &str, value: Value) -> Answer {
    sort_of(id)?;
    refuse_replicated(call.params.get("new_edits").map(|text| text != "false"))?;
    let incoming = incoming(value)?;
    write(call, id, incoming).await
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
        deleted: true,
        members: Map::new(),
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
    let results = call.database.write(vec![incoming], &call.person).await?;
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

/// `POST _bulk_docs`.
pub(super) async fn bulk(call: &Call<'_>, body: &Value) -> Answer {
    refuse_replicated(body.get("new_edits").and_then(Value::as_bool))?;
    let Some(docs) = body.get("docs").and_then(Value::as_array) else {
        return Err(Refusal::bad_request(
            "POST body must include `docs` parameter.",
        ));
    };
    let mut incoming = Vec::with_capacity(docs.len());
    for doc in docs {
        let mut one = Incoming::of(doc.clone())?;
        let id = one.id.take().filter(|id| !id.is_empty());
        one.id = Some(id.unwrap_or_else(super::new_id));
        incoming.push(one);
    }
    let results = call.database.write(incoming, &call.person).await?;
    let rows: Vec<Value> = results
        .into_iter()
        .map(|result| match result {
            Ok(written) => success(&written),
            Err((id, error)) => {
                json!({"id": id, "error": error.name(), "reason": error.to_string()})
            }
        })
        .collect();
    Ok(answer::with_status(StatusCode::CREATED, &rows))
}

/// There are no revision trees here, which others' revisions could be put into.
fn refuse_replicated(new_edits: Option<bool>) -> Result<(), Refusal> {
    match new_edits {
        Some(false) => Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "not_implemented",
            "new_edits=false is not done here: write the documents without their revisions",
        )),
        _ => Ok(()),
    }
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
    let id = crate::replication::endpoint::encode_doc_id(id);
    format!("http://{host}/{NAME}/{id}")
}
