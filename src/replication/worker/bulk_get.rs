//! Reads many documents with one request.
//!
//! SUMMARY   What comes back whole and without attachments is put in the batch; everything else is
//!           returned, to be read by itself. What does not pass the filter is neither.
//! PROMISES  No answer, however wrong, loses a revision: what can not be matched with what was
//!           asked is read by itself.
//! SOURCE    `couch_replicator_worker`: `_bulk_get`, and when it is left out.
//! DIFFERS   There, an answer must have the order and the number of what was asked; here, one that
//!           has not is matched by ids and revisions. One that is too long is asked for in halves.

use std::borrow::Cow;
use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use slog::{debug, info};
use tokio::time::Instant;

use super::Worker;
use super::bulk_docs::WriteBatch;
use super::document::Look;
use super::missing::{Wanted, push_json};
use crate::replication::crash::Crash;
use crate::replication::endpoint::{Cause, Reply, Request, StatusCode};

/// The longest answer, in bytes: it is in memory as a whole, once for each worker.
const ANSWER_MAX: usize = 64 << 20;

/// One revision that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked<'a> {
    id: &'a str,
    rev: &'a str,
    ancestors: &'a [String],
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    results: Vec<Found<'a>>,
}

#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    docs: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    ok: Option<&'a RawValue>,
}

impl Worker {
    /// Puts what can be had in the batch, and returns what is left to be read by itself.
    pub(super) async fn read_bulk(
        &self,
        wanted: Vec<Wanted>,
        batch: &mut WriteBatch,
    ) -> Result<Vec<Wanted>, Crash> {
        let asks = || self.averages.borrow().bulk_get.is_worth(Instant::now());
        if !self.use_bulk_get || wanted.is_empty() || !asks() {
            return Ok(wanted);
        }
        let mut asked: Vec<Asked<'_>> = wanted.iter().flat_map(revisions_of).collect();
        asked.sort_unstable_by_key(|asked| (asked.id, asked.rev));
        let mut had = vec![false; asked.len()];
        // Halves of what was too long, the first of them last.
        let mut ranges: Vec<Range<usize>> = std::iter::once(0..asked.len()).collect();
        while let Some(range) = ranges.pop() {
            let part = &asked[range.clone()];
            match self.bulk_get(part).await {
                Ok(reply) => {
                    self.take(part, &reply, &mut had[range], batch).await?;
                }
                Err(Cause::TooLong(_)) if part.len() > 1 => {
                    let middle = range.start + part.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
                // Whatever is wrong shows, if it matters, when documents are read one by one.
                Err(cause) => debug!(self.log, "documents are read one by one"; "error" => %cause),
            }
        }
        let usable = had.iter().filter(|had| **had).count();
        self.count_bulk(usable, had.len());
        let had: Vec<(&str, &str)> = asked
            .iter()
            .zip(&had)
            .filter(|(_, had)| **had)
            .map(|(asked, _)| (asked.id, asked.rev))
            .collect();
        Ok(left(&wanted, &had))
    }

    async fn bulk_get(&self, asked: &[Asked<'_>]) -> Result<Reply, Cause> {
        let request = Request::post("_bulk_get")
            .query("latest", "true")
            .query("revs", "true")
            .query("attachments", "false")
            .reply_bytes_max(ANSWER_MAX)
            .json(question(asked));
        let reply = self
            .source
            .request(request)
            .await
            .map_err(|failed| failed.cause)?;
        match reply.status {
            StatusCode::OK => Ok(reply),
            status => Err(Cause::Status(status)),
        }
    }

    async fn take(
        &self,
        asked: &[Asked<'_>],
        reply: &Reply,
        had: &mut [bool],
        batch: &mut WriteBatch,
    ) -> Result<(), Crash> {
        let Ok(answer) = serde_json::from_slice::<Answer<'_>>(&reply.body) else {
            info!(self.log, "the answer to _bulk_get is not understood");
            return Ok(());
        };
        // For the filter, attachments matter not.
        let is_enough = match self.filter {
            Some(_) => whole,
            None => plain,
        };
        let documents = usable(asked, &answer, is_enough);
        let with_ids: Vec<(&str, &RawValue)> = documents
            .iter()
            .map(|(index, document)| (asked[*index].id, *document))
            .collect();
        let passing = self.passing(&with_ids).await?;
        for ((index, document), passes) in documents.into_iter().zip(passing) {
            if had[index] {
                continue;
            }
            if !passes {
                had[index] = true;
            } else if plain(document).is_some() {
                had[index] = true;
                self.count_read();
                self.add(batch, document.get()).await?;
            }
        }
        Ok(())
    }

    fn count_bulk(&self, usable: usize, asked: usize) {
        self.tally.count(|stats| {
            stats.bulk_get_attempts += asked as u64;
            stats.bulk_get_docs += usable as u64;
        });
        let mut averages = self.averages.borrow_mut();
        averages
            .bulk_get
            .count(asked - usable, asked, Instant::now());
    }
}

fn revisions_of(wanted: &Wanted) -> impl Iterator<Item = Asked<'_>> {
    wanted.revs.iter().map(|rev| Asked {
        id: &wanted.id,
        rev,
        ancestors: &wanted.ancestors,
    })
}

fn question(asked: &[Asked<'_>]) -> Vec<u8> {
    let mut body = Vec::with_capacity(asked.len() * 96);
    body.extend_from_slice(b"{\"docs\":[");
    for (index, asked) in asked.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(b"{\"id\":");
        push_json(&mut body, asked.id);
        body.extend_from_slice(b",\"rev\":");
        push_json(&mut body, asked.rev);
        body.extend_from_slice(b",\"atts_since\":");
        push_json(&mut body, asked.ancestors);
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
    body
}

/// Finds the documents that can be used, each with the place of what it answers.
fn usable<'a>(
    asked: &[Asked<'_>],
    answer: &Answer<'a>,
    is_enough: fn(&RawValue) -> Option<Look<'_>>,
) -> Vec<(usize, &'a RawValue)> {
    let results = &answer.results;
    let is_this =
        |result: &Found<'_>, asked: &Asked<'_>| result.id == asked.id && result.docs.len() == 1;
    let positional = results.len() == asked.len()
        && results
            .iter()
            .zip(asked)
            .all(|(result, asked)| is_this(result, asked));
    if positional {
        // `latest` may have brought a newer revision in place of the one asked for.
        let documents = results.iter().zip(asked).enumerate();
        return documents
            .filter_map(|(index, (result, asked))| {
                let document = result.docs[0].ok?;
                let look = is_enough(document)?;
                (look.id == asked.id).then_some((index, document))
            })
            .collect();
    }
    let places: FxHashMap<(&str, &str), usize> = asked
        .iter()
        .enumerate()
        .map(|(index, asked)| ((asked.id, asked.rev), index))
        .collect();
    let documents = results.iter().flat_map(|result| &result.docs);
    documents
        .filter_map(|entry| {
            let document = entry.ok?;
            let look = is_enough(document)?;
            let place = places.get(&(&*look.id, look.rev()))?;
            Some((*place, document))
        })
        .collect()
}

/// Looks at a document that has no attachments.
fn plain(document: &RawValue) -> Option<Look<'_>> {
    whole(document).filter(|look| !look.has_attachments())
}

/// Looks at a document, whose attachments may be elsewhere.
fn whole(document: &RawValue) -> Option<Look<'_>> {
    Look::at(document.get().as_bytes())
}

/// What was wanted without what was had, which is sorted.
fn left(wanted: &[Wanted], had: &[(&str, &str)]) -> Vec<Wanted> {
    let left = wanted.iter().filter_map(|wanted| {
        let is_left = |rev: &&String| had.binary_search(&(&wanted.id, rev)).is_err();
        let revs: Vec<String> = wanted.revs.iter().filter(is_left).cloned().collect();
        (!revs.is_empty()).then(|| Wanted {
            id: wanted.id.clone(),
            revs,
            ancestors: wanted.ancestors.clone(),
        })
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(list: &[(&'static str, &'static str)]) -> Vec<Asked<'static>> {
        list.iter()
            .map(|(id, rev)| Asked {
                id,
                rev,
                ancestors: &[],
            })
            .collect()
    }

    fn document(id: &str, rev: &str) -> String {
        format!(
            r#"{{"ok":{{"_id":"{id}","_rev":"{rev}","_revisions":{{"start":1,"ids":["x"]}}}}}}"#
        )
    }

    fn found(asked: &[Asked<'_>], results: &[(&str, &[String])]) -> Vec<usize> {
        let results: Vec<String> = results
            .iter()
            .map(|(id, docs)| format!(r#"{{"id":"{id}","docs":[{}]}}"#, docs.join(",")))
            .collect();
        let text = format!(r#"{{"results":[{}]}}"#, results.join(","));
        let answer: Answer<'_> = serde_json::from_str(&text).unwrap();
        usable(asked, &answer, plain)
            .into_iter()
            .map(|(index, _)| index)
            .collect()
    }

    #[test]
    fn answers_are_taken_by_their_place() {
        let asked = asked(&[("a", "1-x"), ("b", "1-x"), ("c", "1-x"), ("d", "1-x")]);
        let with_attachment =
            r#"{"ok":{"_id":"d","_rev":"1-x","_revisions":{},"_attachments":{"x":{"stub":true}}}}"#;
        let results: [(&str, &[String]); 4] = [
            ("a", &[document("a", "2-newer")]),
            (
                "b",
                &[
                    r#"{"error":{"id":"b","rev":"1-x","error":"not_found","reason":"missing"}}"#
                        .into(),
                ],
            ),
            ("c", &[r#"{"missing":"1-x"}"#.into()]),
            ("d", &[with_attachment.into()]),
        ];
        assert_eq!(found(&asked, &results), [0]);
    }

    #[test]
    fn answers_in_another_order_or_number_are_matched_by_revision() {
        let asked = asked(&[("a", "1-x"), ("a", "1-y"), ("b", "1-x")]);
        let both = [document("a", "1-y"), document("a", "1-x")];
        assert_eq!(
            found(&asked, &[("a", &both), ("b", &[document("b", "2-newer")])]),
            [1, 0]
        );
        let swapped: [(&str, &[String]); 3] = [
            ("b", &[document("b", "1-x")]),
            ("a", &[document("a", "1-x")]),
            ("x", &[document("a", "1-y")]),
        ];
        assert_eq!(found(&asked, &swapped), [2, 0, 1]);
    }

    #[test]
    fn a_document_in_the_wrong_place_is_not_used() {
        let asked = asked(&[("a", "1-x")]);
        assert!(found(&asked, &[("a", &[document("b", "1-x")])]).is_empty());
    }

    #[test]
    fn what_is_not_had_is_left_with_its_ancestors() {
        let wanted = [Wanted {
            id: "a".into(),
            revs: vec!["1-x".into(), "1-y".into()],
            ancestors: vec!["0-z".into()],
        }];
        let rest = left(&wanted, &[("a", "1-x")]);
        assert_eq!(
            (&rest[0].revs[..], &rest[0].ancestors[..]),
            (&["1-y".to_owned()][..], &["0-z".to_owned()][..])
        );
        assert!(left(&wanted, &[("a", "1-x"), ("a", "1-y")]).is_empty());
        let asked: Vec<Asked<'_>> = wanted.iter().flat_map(revisions_of).collect();
        assert_eq!(
            String::from_utf8(question(&asked)).unwrap(),
            r#"{"docs":[{"id":"a","rev":"1-x","atts_since":["0-z"]},{"id":"a","rev":"1-y","atts_since":["0-z"]}]}"#
        );
    }
}
