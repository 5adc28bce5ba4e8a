//! Finds the revisions that the target lacks.
//!
//! SOURCE    `couch_replicator_worker:find_missing`; `POST _revs_diff`.
//! DIFFERS   Ignores anything in the answer that was not requested.

use json::object::RawObject;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::Worker;
use super::document::Text;
use crate::changes::feed::Row;
use crate::crash::{Answered, Crash};
use crate::endpoint::{Endpoint, Request, StatusCode};
use crate::offload::offload;

/// Revisions of a document to replicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub id: String,
    /// The revisions, at least one.
    pub revs: Vec<String>,
    /// Revisions at the target that may be their ancestors.
    pub ancestors: Vec<String>,
}

/// The target's answer for one document.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Diff<'a> {
    #[serde(borrow)]
    missing: Vec<Text<'a>>,
    #[serde(borrow)]
    possible_ancestors: Vec<Text<'a>>,
}

impl Wanted {
    pub fn new(id: impl Into<String>, revs: Vec<String>) -> Self {
        Self {
            id: id.into(),
            revs,
            ancestors: Vec::new(),
        }
    }
}

impl Worker {
    /// Returns the revisions that the target lacks, or all if querying the target has proved useless.
    pub(super) async fn missing(&self, rows: Vec<Row>) -> Result<Vec<Wanted>, Crash> {
        let asked = by_document(rows);
        // With very many leaves, each step takes long.
        yield_now().await;
        let count = revisions(&asked);
        if count == 0 {
            return Ok(asked);
        }
        let asks = self.averages.borrow().revs_diff.is_worth(Instant::now());
        let wanted = if asks {
            let (wanted, wasted) = revs_diff(&self.target, asked).await?;
            let mut averages = self.averages.borrow_mut();
            averages.revs_diff.count(wasted, count, Instant::now());
            wanted
        } else {
            asked
        };
        self.run_counters.count(|stats| {
            stats.missing_checked += count as u64;
            if self.filter.is_none() {
                stats.missing_found += revisions(&wanted) as u64;
            }
        });
        Ok(wanted)
    }
}

/// Queries a target for missing revisions. Also returns the number of those without an ancestor at the target.
pub(crate) async fn revs_diff(
    target: &Endpoint,
    asked: Vec<Wanted>,
) -> Result<(Vec<Wanted>, usize), Crash> {
    let question = question(&asked);
    yield_now().await;
    let reply = target
        .request(Request::post("_revs_diff").json(question))
        .await?;
    let failed = || Crash::RevsDiffFailed(Answered::of(&reply));
    if reply.status != StatusCode::OK {
        return Err(failed());
    }
    let body = reply.body.clone();
    offload(body.len(), move || pick(asked, &body))
        .await
        .ok_or_else(failed)
}

/// Merges rows of the same document; each revision occurs once.
pub(crate) fn by_document(rows: Vec<Row>) -> Vec<Wanted> {
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    let mut wanted: Vec<Wanted> = Vec::with_capacity(rows.len());
    for row in rows.into_iter().filter(|row| !row.revs.is_empty()) {
        match places.get(&row.id) {
            Some(place) => wanted[*place].revs.extend(row.revs),
            None => {
                places.insert(row.id.clone(), wanted.len());
                wanted.push(Wanted::new(row.id, row.revs));
            }
        }
    }
    for Wanted { revs, .. } in wanted.iter_mut().filter(|wanted| wanted.revs.len() > 1) {
        let mut seen = FxHashSet::default();
        revs.retain(|rev| seen.insert(rev.clone()));
    }
    wanted
}

pub(crate) fn revisions(wanted: &[Wanted]) -> usize {
    wanted.iter().map(|wanted| wanted.revs.len()).sum()
}

/// Returns the body of the query: `{"id":["rev",..],..}`
fn question(asked: &[Wanted]) -> Vec<u8> {
    let mut question = RawObject::default();
    for wanted in asked {
        question.push(&*wanted.id, &wanted.revs);
    }
    serde_json::to_vec(&question).expect("RP-2: strings can be written as JSON")
}

/// Returns the missing revisions, and the number of those without a listed ancestor; `None` if the answer is
/// malformed.
fn pick(mut asked: Vec<Wanted>, answer: &[u8]) -> Option<(Vec<Wanted>, usize)> {
    let answer: RawObject<'_> = serde_json::from_slice(answer).ok()?;
    let mut diffs: FxHashMap<&str, Diff<'_>> = FxHashMap::default();
    for (id, diff) in answer.iter() {
        let diff: Diff<'_> = serde_json::from_str(diff.get()).ok()?;
        // A document listed twice lacks the revisions of both entries.
        let known = diffs.entry(id).or_default();
        known.missing.extend(diff.missing);
        known.possible_ancestors.extend(diff.possible_ancestors);
    }
    let mut wasted = 0;
    asked.retain_mut(|wanted| {
        let Some(diff) = diffs.get(wanted.id.as_str()) else {
            return false;
        };
        let missing: FxHashSet<&str> = diff.missing.iter().map(|Text(rev)| &**rev).collect();
        wanted.revs.retain(|rev| missing.contains(&**rev));
        if diff.possible_ancestors.is_empty() {
            wasted += wanted.revs.len();
        }
        wanted.ancestors = diff
            .possible_ancestors
            .iter()
            .map(|Text(rev)| rev.clone().into_owned())
            .collect();
        !wanted.revs.is_empty()
    });
    Some((asked, wasted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::Seq;

    fn row(id: &str, revs: &[&str]) -> Row {
        Row {
            seq: Seq::zero(),
            id: id.to_owned(),
            revs: revs.iter().map(|rev| (*rev).to_owned()).collect(),
        }
    }

    #[test]
    fn a_document_is_asked_for_once_however_often_it_changed() {
        let rows = vec![
            row("a", &["1-x"]),
            row("\"\u{e9}", &["1-y", "1-z"]),
            row("none", &[]),
            row("a", &["1-x", "2-x"]),
        ];
        let asked = by_document(rows);
        let text = String::from_utf8(question(&asked)).unwrap();
        assert_eq!(
            text,
            "{\"a\":[\"1-x\",\"2-x\"],\"\\\"\u{e9}\":[\"1-y\",\"1-z\"]}"
        );
        assert_eq!(revisions(&asked), 4);
    }

    #[test]
    fn missing_revisions_are_kept_with_their_ancestors() {
        let asked = by_document(vec![
            row("a/\u{e9}", &["1-x", "2-x"]),
            row("b", &["3-b"]),
            row("c", &["1-c"]),
        ]);
        let answer = "{\"a\\/\\u00e9\":{\"missing\":[\"2-x\",\"9-never asked\"],\"possible_ancestors\":[\"1-a\"]},\
            \"c\":{\"missing\":[\"1-c\"]},\"d\":{\"missing\":[\"1-d\"]}}";
        let (wanted, wasted) = pick(asked, answer.as_bytes()).unwrap();
        let expected = [
            Wanted {
                id: "a/\u{e9}".into(),
                revs: vec!["2-x".into()],
                ancestors: vec!["1-a".into()],
            },
            Wanted {
                id: "c".into(),
                revs: vec!["1-c".into()],
                ancestors: vec![],
            },
        ];
        assert_eq!((wanted.as_slice(), wasted), (&expected[..], 1));
    }

    #[test]
    fn a_revision_named_twice_is_missing_once() {
        let asked = by_document(vec![row("a", &["1-x", "1-y", "1-x"])]);
        assert_eq!(revisions(&asked), 2);
        let answer = r#"{"a":{"missing":["1-x"]},"a":{"missing":[]},"a":{"missing":["1-x"]}}"#;
        let (wanted, _) = pick(asked, answer.as_bytes()).unwrap();
        assert_eq!(wanted[0].revs, ["1-x"]);
    }

    /// Comparing all pairs would take hours.
    #[test]
    fn a_document_may_have_very_many_leaves() {
        let revs: Vec<String> = (0..500_000).map(|n| format!("1-{n:032x}")).collect();
        let texts: Vec<&str> = revs.iter().map(String::as_str).collect();
        let asked = by_document(vec![row("a", &texts), row("a", &texts)]);
        assert_eq!(revisions(&asked), revs.len());
        let answer = serde_json::json!({"a": {"missing": revs}}).to_string();
        let (wanted, wasted) = pick(asked, answer.as_bytes()).unwrap();
        assert_eq!((wanted[0].revs.len(), wasted), (revs.len(), revs.len()));
    }

    #[test]
    fn an_invalid_answer_is_noticed() {
        for answer in [
            "",
            "[]",
            "<html>",
            "{\"a\":[\"1-x\"]}",
            "{\"a\":{\"missing\":{}}}",
        ] {
            let asked = by_document(vec![row("a", &["1-x"])]);
            assert!(pick(asked, answer.as_bytes()).is_none(), "{answer}");
        }
    }
}
