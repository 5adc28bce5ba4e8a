//! Reads many documents with one request.
//!
//! SUMMARY   Documents without attachments are put in the batch; all others are returned, to read one by one.
//!           Documents rejected by the filter are dropped.
//! PROMISES  No malformed answer loses a revision: revisions not in the answer are read individually.
//! SOURCE    `couch_replicator_worker`: `_bulk_get`, and when it is not used.
//! DIFFERS   In CouchDB, an answer must match the request by order and number; here, documents are matched by id and
//!           revision. If an answer is too long, the request is split in halves.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use slog::{debug, info};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::Worker;
use super::bulk_docs::WriteBatch;
use super::document::DocMeta;
use super::missing::{Wanted, revisions};
use super::open_revs::OpenRevs;
use crate::crash::Crash;
use crate::endpoint::{Cause, Endpoint, Reply, Request, RequestFailed, StatusCode};
use crate::offload::offload;

/// Maximum length of an answer, in bytes: each worker holds one in memory.
const ANSWER_MAX: usize = 64 << 20;
/// Maximum ancestors listed for each revision. They only matter for attachments, and documents with attachments are
/// read individually.
const ANCESTORS_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RevRequest<'a> {
    pub id: &'a str,
    pub rev: &'a str,
    /// Revisions that the target has.
    pub atts_since: &'a [String],
}

#[derive(Deserialize)]
struct BulkGetAnswer<'a> {
    #[serde(borrow)]
    results: Vec<Results<'a>>,
}

#[derive(Deserialize)]
struct Results<'a> {
    #[serde(borrow, default)]
    docs: Vec<BulkGetEntry<'a>>,
}

#[derive(Deserialize)]
struct BulkGetEntry<'a> {
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
}

/// A wanted document in an answer.
#[derive(Debug)]
pub(crate) struct Found {
    pub id: String,
    /// Its position in the answer.
    place: Range<usize>,
    /// The wanted revisions that it satisfies.
    pub answers: Vec<String>,
    /// Whether it has no attachments.
    is_plain: bool,
}

impl Found {
    /// Returns its text.
    pub fn text<'a>(&self, answer: &'a Bytes) -> &'a str {
        str::from_utf8(answer.get(self.place.clone()).unwrap_or_default()).unwrap_or_default()
    }
}

/// Wanted revisions that have not arrived yet, by document.
#[derive(Debug)]
pub(crate) struct OpenDocs(FxHashMap<String, OpenRevs>);

impl OpenDocs {
    pub fn of(wanted: &[Wanted]) -> Self {
        let of_one = |wanted: &Wanted| (wanted.id.clone(), OpenRevs::of(&wanted.revs));
        Self(wanted.iter().map(of_one).collect())
    }

    pub(super) fn is_open(&self, id: &str, rev: &str) -> bool {
        self.0.get(id).is_some_and(|open| open.is_open(rev))
    }

    pub(super) fn close(&mut self, id: &str, rev: &str) -> bool {
        self.0.get_mut(id).is_some_and(|open| open.close(rev))
    }

    /// Marks a document's revisions as read. Returns whether any of them was open.
    pub fn close_all(&mut self, found: &Found) -> bool {
        let close = |was_open, rev: &String| self.close(&found.id, rev) || was_open;
        found.answers.iter().fold(false, close)
    }

    /// Finds wanted documents in an answer; `None` if it is malformed.
    pub fn find(&self, answer: &[u8]) -> Option<Vec<Found>> {
        let BulkGetAnswer { results } = serde_json::from_slice(answer).ok()?;
        let found = results
            .iter()
            .flat_map(|result| &result.docs)
            .filter_map(|entry| {
                let text = entry.ok?.get();
                let meta = DocMeta::read(text.as_bytes())?;
                let is_plain = meta.attachments.is_none();
                let answers = self.0.get(&*meta.id)?.answered_by(&meta);
                if answers.is_empty() {
                    return None;
                }
                // The raw value is a slice of the answer.
                let at = text.as_ptr() as usize - answer.as_ptr() as usize;
                Some(Found {
                    id: meta.id.into_owned(),
                    place: at..at + text.len(),
                    answers,
                    is_plain,
                })
            });
        Some(found.collect())
    }

    /// Returns the wanted revisions that have not arrived.
    pub fn left(&self, mut wanted: Vec<Wanted>) -> Vec<Wanted> {
        wanted.retain_mut(|Wanted { id, revs, .. }| {
            revs.retain(|rev| self.is_open(id, rev));
            !revs.is_empty()
        });
        wanted
    }
}

impl Worker {
    /// Puts available documents in the batch, and returns those to read individually.
    pub(super) async fn read_bulk(
        &self,
        wanted: Vec<Wanted>,
        batch: &mut WriteBatch,
    ) -> Result<Vec<Wanted>, Crash> {
        let asks = || self.averages.borrow().bulk_get.is_worth(Instant::now());
        if !self.use_bulk_get || wanted.is_empty() || !asks() {
            return Ok(wanted);
        }
        let mut open = OpenDocs::of(&wanted);
        // With very many leaves, each step takes long.
        yield_now().await;
        let mut asked: Vec<RevRequest<'_>> = wanted.iter().flat_map(revisions_of).collect();
        asked.sort_unstable_by_key(|asked| (asked.id, asked.rev));
        yield_now().await;
        // The parts that remain to be requested, the next one last.
        let mut ranges: Vec<Range<usize>> = std::iter::once(0..asked.len()).collect();
        while let Some(range) = ranges.pop() {
            let part = &asked[range.clone()];
            match bulk_get(&self.source, part).await {
                Ok(reply) => open = self.take(reply, open, batch).await?,
                Err(cause) if part.len() > 1 && is_too_much(&cause) => {
                    let middle = range.start + part.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
                // A persistent problem makes the individual reads fail as well.
                Err(cause) => debug!(self.log, "documents are read one by one"; "error" => %cause),
            }
        }
        let count = asked.len();
        let left = open.left(wanted);
        let wasted = revisions(&left).min(count);
        self.run_counters.count(|stats| {
            stats.bulk_get_attempts += count as u64;
            stats.bulk_get_docs += (count - wasted) as u64;
        });
        let mut averages = self.averages.borrow_mut();
        averages.bulk_get.count(wasted, count, Instant::now());
        Ok(left)
    }

    /// Adds to the batch the wanted documents of an answer that pass the filter and have no attachments. Returns what
    /// is still open.
    async fn take(
        &self,
        reply: Reply,
        open: OpenDocs,
        batch: &mut WriteBatch,
    ) -> Result<OpenDocs, Crash> {
        let body = reply.body.clone();
        let finding = move || (open.find(&body), open);
        let (found, mut open) = offload(reply.body.len(), finding).await;
        let Some(found) = found else {
            info!(self.log, "the answer to _bulk_get is not understood"; "error" => reply.excerpt());
            return Ok(open);
        };
        let passing = match &self.filter {
            None => vec![true; found.len()],
            Some(filter) => {
                let with_text = found
                    .iter()
                    .map(|found| (&*found.id, found.text(&reply.body)));
                filter.passing(&with_text.collect::<Vec<_>>()).await?
            }
        };
        for (found, passes) in found.into_iter().zip(passing) {
            if passes && !found.is_plain {
                continue;
            }
            if open.close_all(&found) && passes {
                self.count_read();
                self.add(batch, found.text(&reply.body).to_owned()).await?;
            }
        }
        Ok(open)
    }
}

/// Requests revisions, or newer ones instead, with attachments as stubs. Any status but 200 is an error.
pub(crate) async fn bulk_get(
    database: &Endpoint,
    asked: &[RevRequest<'_>],
) -> Result<Reply, Cause> {
    let reply = ask(database, asked, false)
        .await
        .map_err(|failed| failed.cause)?;
    match reply.status {
        StatusCode::OK => Ok(reply),
        status => Err(Cause::Status {
            status,
            said: reply.excerpt(),
        }),
    }
}

/// Requests revisions, or newer ones instead, with attachments inline or as stubs.
pub(crate) async fn ask(
    database: &Endpoint,
    asked: &[RevRequest<'_>],
    attachments: bool,
) -> Result<Reply, RequestFailed> {
    let question = question(asked);
    yield_now().await;
    let request = Request::post("_bulk_get")
        .query("latest", "true")
        .query("revs", "true")
        .query("attachments", attachments.to_string())
        .reply_bytes_max(ANSWER_MAX)
        .json(question);
    database.request(request).await
}

pub(crate) fn revisions_of(wanted: &Wanted) -> impl Iterator<Item = RevRequest<'_>> {
    wanted.revs.iter().map(|rev| RevRequest {
        id: &wanted.id,
        rev,
        atts_since: &wanted.ancestors[..wanted.ancestors.len().min(ANCESTORS_MAX)],
    })
}

fn question(docs: &[RevRequest<'_>]) -> Vec<u8> {
    serde_json::to_vec(&BTreeMap::from([("docs", docs)]))
        .expect("RP-3: strings can be written as JSON")
}

/// Whether a smaller request may help: the answer is too long, or the source rejects requests of this size.
pub(crate) fn is_too_much(cause: &Cause) -> bool {
    match cause {
        Cause::TooLong(_) => true,
        Cause::Status { status, .. } => *status == StatusCode::PAYLOAD_TOO_LARGE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(list: &[(&str, &[&str])]) -> Vec<Wanted> {
        let of_one = |(id, revs): &(&str, &[&str])| Wanted {
            id: (*id).to_owned(),
            revs: revs.iter().map(|rev| (*rev).to_owned()).collect(),
            ancestors: Vec::new(),
        };
        list.iter().map(of_one).collect()
    }

    fn document(id: &str, revs: &[&str]) -> String {
        let (start, _) = revs[0].split_once('-').unwrap();
        let hash = |rev: &&str| format!("\"{}\"", rev.split_once('-').unwrap().1);
        let ids: Vec<String> = revs.iter().map(hash).collect();
        format!(
            r#"{{"ok":{{"_id":"{id}","_rev":"{}","_revisions":{{"start":{start},"ids":[{}]}}}}}}"#,
            revs[0],
            ids.join(",")
        )
    }

    /// Returns the wanted revisions that the results satisfy, and the rest.
    fn found(wanted: &[Wanted], results: &[(&str, &[String])]) -> (Vec<String>, Vec<Wanted>) {
        let results: Vec<String> = results
            .iter()
            .map(|(id, docs)| format!(r#"{{"id":"{id}","docs":[{}]}}"#, docs.join(",")))
            .collect();
        let text = format!(r#"{{"results":[{}]}}"#, results.join(","));
        let mut open = OpenDocs::of(wanted);
        let mut taken = Vec::new();
        for found in open.find(text.as_bytes()).unwrap() {
            let text = Bytes::from(text.clone());
            assert!(DocMeta::read(found.text(&text).as_bytes()).is_some());
            if found.is_plain && open.close_all(&found) {
                taken.extend(found.answers);
            }
        }
        (taken, open.left(wanted.to_vec()))
    }

    #[test]
    fn documents_are_matched_by_revision_whatever_their_order_and_number() {
        let wanted = wanted(&[("a", &["1-x", "1-y"]), ("b", &["1-z"])]);
        let both = [document("a", &["1-y"]), document("a", &["1-x"])];
        let newer = [document("b", &["3-c", "2-b", "1-z"])];
        let (taken, left) = found(&wanted, &[("x", &newer), ("a", &both)]);
        assert_eq!(
            (taken, left.len()),
            (vec!["1-z".into(), "1-y".into(), "1-x".into()], 0)
        );
    }

    #[test]
    fn unanswered_documents_are_left_for_single_reads() {
        let wanted = wanted(&[
            ("a", &["1-x"]),
            ("b", &["1-x"]),
            ("c", &["1-x"]),
            ("d", &["1-x"]),
        ]);
        let with_attachment =
            r#"{"ok":{"_id":"d","_rev":"1-x","_revisions":{},"_attachments":{"x":{"stub":true}}}}"#;
        let error = r#"{"error":{"id":"b","rev":"1-x","error":"not_found","reason":"missing"}}"#;
        let results: [(&str, &[String]); 4] = [
            ("a", &[document("a", &["2-newer", "1-other"])]),
            ("b", &[error.into()]),
            (
                "c",
                &[r#"{"missing":"1-x"}"#.into(), document("b", &["1-y"])],
            ),
            ("d", &[with_attachment.into()]),
        ];
        let (taken, left) = found(&wanted, &results);
        assert_eq!((taken, left), (Vec::new(), wanted));
    }

    #[test]
    fn a_document_that_comes_twice_is_taken_once() {
        let wanted = wanted(&[("a", &["1-x", "2-y"])]);
        let leaf = document("a", &["2-y", "1-x"]);
        let (taken, left) = found(
            &wanted,
            &[
                ("a", std::slice::from_ref(&leaf)),
                ("b", std::slice::from_ref(&leaf)),
            ],
        );
        assert_eq!((taken, left.len()), (vec!["2-y".into(), "1-x".into()], 0));
    }

    #[test]
    fn a_request_names_a_few_ancestors() {
        let mut wanted = wanted(&[("a", &["2-x", "2-y"])]);
        wanted[0].ancestors = vec!["1-z".into()];
        let text = |wanted: &[Wanted]| {
            let asked: Vec<RevRequest<'_>> = wanted.iter().flat_map(revisions_of).collect();
            String::from_utf8(question(&asked)).unwrap()
        };
        assert_eq!(
            text(&wanted),
            r#"{"docs":[{"id":"a","rev":"2-x","atts_since":["1-z"]},{"id":"a","rev":"2-y","atts_since":["1-z"]}]}"#
        );
        // 20,000 leaves, each with 20,000 ancestors, would be 14 GB.
        let many = |hash: &str| (0..20_000).map(|n| format!("1-{n:031}{hash}")).collect();
        (wanted[0].revs, wanted[0].ancestors) = (many("r"), many("a"));
        assert!(text(&wanted).len() < 20 << 20);
    }
}
