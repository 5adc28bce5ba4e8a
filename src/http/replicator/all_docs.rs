//! `_all_docs` of the replicator database.
//!
//! SOURCE    chttpd_db: all_docs_view/4; couch_mrview_http: parse_params/4.

use std::ops::Bound;

use actix_web::web::Payload;
use serde_json::{Value, json};

use super::super::answer::{self, Answer, Refusal};
use super::super::params::Params;
use super::{Call, changes};
use crate::replicator::Page;
use crate::replicator::document::shown;
use crate::replicator::members::DocMembers;
use store::Document;

/// Documents read at a time.
const BATCH: usize = 256;

/// `GET` and `POST /_replicator/_all_docs`.
pub(crate) async fn all_docs(call: Call, payload: Payload) -> Answer {
    let params = call.all_params(payload).await?;
    let include_docs = params.boolean("include_docs", false)?;
    match params.json(&["keys"])? {
        Some(Value::Array(keys)) => by_keys(&call, &params, &keys, include_docs).await,
        Some(_) => Err(Refusal::bad_request("`keys` parameter must be an array.")),
        None => by_range(&call, &params, include_docs).await,
    }
}

async fn by_range(call: &Call, params: &Params, include_docs: bool) -> Answer {
    let store = &call.database().store;
    // Skipped documents are counted, not read.
    store.open().await?;
    let page = call.database().states.lock().page_of_all(&page(params)?);
    let mut rows = Vec::with_capacity(page.ids.len());
    for ids in page.ids.chunks(BATCH) {
        let ids = ids.iter().map(ToString::to_string).collect();
        let there = store
            .documents(ids)
            .await?
            .into_iter()
            .flatten()
            .filter(|document| !document.deleted);
        rows.extend(there.map(|document| row(call, &document, include_docs)));
    }
    let mut answer = DocMembers::default()
        .with("total_rows", page.total)
        .with("offset", page.offset)
        .with("rows", rows);
    if params.boolean("update_seq", false)? {
        let info = store.info().await?;
        answer.set("update_seq", changes::seq(info.update_seq, &info.mark));
    }
    answer::ok(&answer)
}

/// Rows are in the order of the keys, or reversed. The row of an unknown document has an error, that of a deleted one
/// its revision.
async fn by_keys(call: &Call, params: &Params, keys: &[Value], include_docs: bool) -> Answer {
    let ids = keys
        .iter()
        .map(|key| key.as_str().unwrap_or_default().to_owned());
    let documents = call.database().store.documents(ids.collect()).await?;
    let total = call.database().store.info().await?.documents;
    let mut rows: Vec<DocMembers> = keys
        .iter()
        .zip(&documents)
        .map(|(key, document)| match document {
            Some(document) if document.deleted => {
                let value = json!({"rev": document.revision.to_string(), "deleted": true});
                let mut row = head(&document.id).with("value", value);
                if include_docs {
                    row.set("doc", Value::Null);
                }
                row
            }
            Some(document) => row(call, document, include_docs),
            None => DocMembers::default()
                .with("key", key)
                .with("error", "not_found"),
        })
        .collect();
    if params.boolean("descending", false)? {
        rows.reverse();
    }
    let skip = params.count("skip")?.unwrap_or(0);
    let rows: Vec<DocMembers> = rows.into_iter().skip(skip).take(params.limit()?).collect();
    let answer = DocMembers::default()
        .with("total_rows", total)
        .with("offset", Value::Null)
        .with("rows", rows);
    answer::ok(&answer)
}

fn head(id: &str) -> DocMembers {
    DocMembers::default().with("id", id).with("key", id)
}

fn row(call: &Call, document: &Document, include_docs: bool) -> DocMembers {
    let whole = shown(document, &call.person);
    let mut row = head(&document.id).with("value", json!({"rev": whole.get("_rev")}));
    if include_docs {
        row.set("doc", whole);
    }
    row
}

/// Returns the page that the parameters select.
pub(crate) fn page(params: &Params) -> Result<Page, Refusal> {
    let descending = params.boolean("descending", false)?;
    let inclusive = params.boolean("inclusive_end", true)?;
    let mut start = bound(params.json(&["startkey", "start_key"])?);
    let mut end = bound(params.json(&["endkey", "end_key"])?);
    if let Some(key) = params.json(&["key"])? {
        start = bound(Some(key));
        end = start.clone();
    } else if !inclusive && let Bound::Included(id) = end {
        end = Bound::Excluded(id);
    }
    Ok(Page {
        start,
        end,
        descending,
        skip: params.count("skip")?.unwrap_or(0),
        limit: params.limit()?,
    })
}

/// Ids are strings: in CouchDB's order of keys null, booleans and numbers precede them, lists and objects follow.
fn bound(key: Option<Value>) -> Bound<String> {
    match key {
        None => Bound::Unbounded,
        Some(Value::String(id)) => Bound::Included(id),
        Some(Value::Array(_) | Value::Object(_)) => Bound::Included("\u{10ffff}".repeat(4)),
        Some(_) => Bound::Included(String::new()),
    }
}
