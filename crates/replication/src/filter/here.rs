//! A filter that the source does not run: documents are read first and then filtered.
//!
//! SUMMARY   [`FilterHere::open`] makes one when a run begins, from the source's design document at that time;
//!           [`FilterHere::passing`] filters documents.
//! PROMISES  A run uses the filter function whose code is part of the replication's id. A batch has at most
//!           [`DOCS_MAX`] documents and, unless it is a single document, [`BYTES_MAX`] bytes.
//! SOURCE    couch_changes: filter/3 - each changed leaf is filtered separately, including deletions and design
//!           documents. If a function fails, the replication fails, as the feed does in CouchDB.
//! DIFFERS   The request that a function sees has no headers and no peer, because no client sent it.

use std::ops::Range;

use percent_encoding::percent_decode_str;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::code::{code_of, fetch_ddoc};
use super::{Filter, FilterAt, FilterFunction, FilterKind, FilterPool, FilterRun, param_text};
use crate::crash::Crash;
use crate::endpoint::Endpoint;
use crate::id::{Identity, ReplicationId, replication_id};
use crate::spec::{Members, Replication};
use mango::Selector;

/// Maximum number of documents in a batch.
const DOCS_MAX: usize = 100;
/// Maximum number of bytes of documents in a batch, unless it is a single document.
const BYTES_MAX: usize = 1 << 20;

/// See the module's documentation.
pub enum FilterHere {
    /// A selector, which needs no process.
    Selector(Box<Selector>),
    /// The filter `_design`, which passes design documents by their ids.
    Design,
    /// A function of the source, run in the pool.
    Function(FilterRun),
}

impl FilterHere {
    /// Makes the filter of a replication with the id `id`; `None` if it needs none, or the source runs it.
    ///
    /// # Errors
    /// [`Crash::FilterFailed`]: the filter is invalid or missing, or its function is not the one that `id` was computed
    /// from. Another crash if the design document cannot be read.
    pub async fn open(
        replication: &Replication,
        id: &ReplicationId,
        identity: &Identity,
        source: &Endpoint,
        pool: &FilterPool,
    ) -> Result<Option<Self>, Crash> {
        let options = &replication.options;
        if options.filter_at == FilterAt::Source {
            return Ok(None);
        }
        let asked = match &options.filter {
            Filter::All | Filter::DocIds(_) => return Ok(None),
            Filter::Selector(selector) => {
                let text = Value::Object(selector.clone()).to_string();
                let selector =
                    Selector::parse(&text).map_err(|error| failed(error.kind.to_string()))?;
                Self::Selector(Box::new(selector))
            }
            Filter::BuiltIn { name, query_params } => {
                let view = query_params.get("view").and_then(Value::as_str);
                match (name.as_str(), view.and_then(|view| view.split_once('/'))) {
                    ("_design", _) => Self::Design,
                    ("_view", Some((ddoc, view))) => {
                        let name = view.to_owned();
                        let ddoc = text_of(source, ddoc).await?;
                        open(pool, source, ddoc, FilterKind::View { name })?
                    }
                    // Refused when the options were read.
                    _ => return Err(failed(format!("Settee has no built-in filter {name}"))),
                }
            }
            Filter::Function {
                ddoc,
                name,
                query_params,
            } => {
                let text = text_of(source, ddoc).await?;
                let code =
                    code_of(&text, ddoc, name, source).map_err(|error| failed(error.text))?;
                if replication_id(replication, identity, Some(&code)) != *id {
                    return Err(failed(format!(
                        "the function {ddoc}/{name} has changed at the source since this replication was made"
                    )));
                }
                let kind = FilterKind::Filter {
                    name: name.clone(),
                    req: request(replication, &format!("{ddoc}/{name}"), query_params),
                };
                open(pool, source, text, kind)?
            }
        };
        Ok(Some(asked))
    }

    /// Filters documents, given with their ids, as JSON texts. Returns for each whether it passes.
    ///
    /// # Errors
    /// [`Crash::FilterFailed`]: the function or selector failed, or no query server answered.
    pub(crate) async fn passing(&self, docs: &[(&str, &str)]) -> Result<Vec<bool>, Crash> {
        let mut passed = Vec::with_capacity(docs.len());
        for question in questions(docs) {
            let asked = question.len();
            let answer = self.ask(&docs[question]).await.map_err(failed)?;
            if answer.len() != asked {
                return Err(failed(format!(
                    "{asked} documents got {} answers",
                    answer.len()
                )));
            }
            passed.extend(answer);
            // A selector never waits: this lets other tasks run.
            yield_now().await;
        }
        Ok(passed)
    }

    async fn ask(&self, docs: &[(&str, &str)]) -> Result<Vec<bool>, String> {
        match self {
            Self::Design => {
                let is_design = |(id, _): &(&str, _)| id.starts_with("_design/");
                Ok(docs.iter().map(is_design).collect())
            }
            Self::Selector(selector) => {
                let matches = |(id, text): &(&str, &str)| {
                    selector
                        .matches_checked(text)
                        .map_err(|error| format!("document '{id}': {error}"))
                };
                docs.iter().map(matches).collect()
            }
            Self::Function(run) => {
                let read = |(_, text): &(&str, &str)| serde_json::from_str(text);
                let texts: Result<Vec<_>, serde_json::Error> = docs.iter().map(read).collect();
                run(texts.map_err(|error| error.to_string())?).await
            }
        }
    }
}

fn failed(why: impl Into<String>) -> Crash {
    Crash::FilterFailed(why.into())
}

async fn text_of(source: &Endpoint, ddoc: &str) -> Result<String, Crash> {
    fetch_ddoc(source, ddoc)
        .await
        .map_err(|error| match error.why {
            Some(crash) => *crash,
            None => failed(error.text),
        })
}

fn open(
    pool: &FilterPool,
    source: &Endpoint,
    ddoc: String,
    kind: FilterKind,
) -> Result<FilterHere, Crash> {
    let db = source.tag().into();
    pool.open(FilterFunction { db, ddoc, kind })
        .map(FilterHere::Function)
        .map_err(failed)
}

/// Makes the request that a filter function gets: the one that the source would have received.
fn request(replication: &Replication, filter: &str, query_params: &Members) -> Box<RawValue> {
    let url = url::Url::parse(&replication.source.url);
    let path = url.as_ref().map_or("", |url| url.path());
    let raw = path.trim_matches('/');
    let db = percent_decode_str(raw).decode_utf8_lossy();
    let mut query = Members::new();
    query.insert("filter".to_owned(), filter.into());
    for (name, value) in query_params {
        query.insert(name.clone(), param_text(value).into());
    }
    let user = &replication.user;
    let request = json!({
        "info": {"db_name": db},
        "id": null,
        "method": "GET",
        "requested_path": [db, "_changes"],
        "path": [db, "_changes"],
        "raw_path": format!("/{raw}/_changes"),
        "query": query,
        "headers": {},
        "body": "undefined",
        "peer": "",
        "form": {},
        "cookie": {},
        "userCtx": {"db": db, "name": user.name, "roles": user.roles},
        "secObj": {},
    });
    to_raw_value(&request).expect("a JSON value can be written")
}

/// Splits documents into batches.
fn questions(docs: &[(&str, &str)]) -> Vec<Range<usize>> {
    let mut questions = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, (_, text)) in docs.iter().enumerate() {
        let more = text.len();
        if index > start && (index - start == DOCS_MAX || bytes + more > BYTES_MAX) {
            questions.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += more;
    }
    if start < docs.len() {
        questions.push(start..docs.len());
    }
    questions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::replication;

    #[test]
    fn batches_have_bounded_numbers_of_documents_and_bytes() {
        let docs = [("x", "1"); 250];
        assert_eq!(questions(&docs), [0..100, 100..200, 200..250]);
        assert!(questions(&[]).is_empty());
        let sizes = [BYTES_MAX + 9, 1, BYTES_MAX - 10, 2, 30];
        let large = sizes.map(|size| format!("\"{}\"", "x".repeat(size)));
        let docs: Vec<(&str, &str)> = large.iter().map(|text| ("x", &**text)).collect();
        assert_eq!(questions(&docs), [0..1, 1..4, 4..5]);
    }

    #[test]
    fn a_function_sees_the_request_that_the_source_would_have_received() {
        let body = json!({"source": "http://ann:secret@h:1/a%2Fb", "target": "http://t/b",
            "filter": "d/f", "query_params": {"k": "v", "n": [1, "2"]},
            "filter_at": "settee"});
        let mut replication = replication(&body);
        replication.user.name = Some("bob".into());
        let Filter::Function { query_params, .. } = &replication.options.filter else {
            panic!("a function");
        };
        let text = request(&replication, "d/f", query_params);
        let request: Value = serde_json::from_str(text.get()).unwrap();
        assert_eq!(
            request["query"],
            json!({"filter": "d/f", "k": "v", "n": "[1,\"2\"]"})
        );
        assert_eq!(request["path"], json!(["a/b", "_changes"]));
        assert_eq!(request["userCtx"]["name"], json!("bob"));
        assert!(!text.get().contains("secret"));
    }
}
