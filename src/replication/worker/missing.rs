//! Which revisions the target misses.
//!
//! SOURCE    `couch_replicator_worker:find_missing`; `POST _revs_diff`.
//! DIFFERS   Whatever the answer names beyond what was asked is ignored.

use std::borrow::Cow;
use std::fmt;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use tokio::time::Instant;

use super::Worker;
use crate::replication::changes::feed::Row;
use crate::replication::crash::{Answered, Crash};
use crate::replication::endpoint::{Request, StatusCode};

/// Revisions of a document that are to be replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its id.
    pub id: String,
    /// The revisions, at least one.
    pub revs: Vec<String>,
    /// Revisions that the target has, and that may be their ancestors.
    pub ancestors: Vec<String>,
}

/// What the target says of one document.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Diff<'a> {
    #[serde(borrow)]
    missing: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    possible_ancestors: Vec<Cow<'a, str>>,
}

impl Worker {
    /// Asks the target, unless that has proved useless.
    pub(super) async fn missing(&self, rows: Vec<Row>) -> Result<Vec<Wanted>, Crash> {
        let asked = by_document(rows);
        let count = revisions(&asked);
        if count == 0 {
            return Ok(asked);
        }
        let asks = self.averages.borrow().revs_diff.is_worth(Instant::now());
        let wanted = match asks {
            true => self.revs_diff(asked, count).await?,
            false => asked,
        };
        self.tally.count(|stats| {
            stats.missing_checked += count as u64;
            if self.filter.is_none() {
                stats.missing_found += revisions(&wanted) as u64;
            }
        });
        Ok(wanted)
    }

    async fn revs_diff(&self, asked: Vec<Wanted>, count: usize) -> Result<Vec<Wanted>, Crash> {
        let request = Request::post("_revs_diff").json(question(&asked));
        let reply = self.target.request(request).await?;
        let answered = || Answered::new(reply.status.as_u16(), &reply.body);
        if reply.status != StatusCode::OK {
            return Err(Crash::RevsDiffFailed(answered()));
        }
        let Some((wanted, in_vain)) = pick(asked, &reply.body) else {
            return Err(Crash::RevsDiffFailed(answered()));
        };
        let mut averages = self.averages.borrow_mut();
        averages.revs_diff.count(in_vain, count, Instant::now());
        Ok(wanted)
    }
}

/// Puts together what rows tell of the same document, each revision once.
fn by_document(rows: Vec<Row>) -> Vec<Wanted> {
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    let mut wanted: Vec<Wanted> = Vec::with_capacity(rows.len());
    for row in rows.into_iter().filter(|row| !row.revs.is_empty()) {
        match places.get(&row.id) {
            Some(place) => {
                let revs = &mut wanted[*place].revs;
                for rev in row.revs {
                    if !revs.contains(&rev) {
                        revs.push(rev);
                    }
                }
            }
            None => {
                places.insert(row.id.clone(), wanted.len());
                wanted.push(Wanted {
                    id: row.id,
                    revs: row.revs,
                    ancestors: Vec::new(),
                });
            }
        }
    }
    wanted
}

fn revisions(wanted: &[Wanted]) -> usize {
    wanted.iter().map(|wanted| wanted.revs.len()).sum()
}

/// `{"id":["rev",..],..}`
fn question(asked: &[Wanted]) -> Vec<u8> {
    let mut body = Vec::with_capacity(asked.len() * 64);
    for (index, wanted) in asked.iter().enumerate() {
        body.push(if index == 0 { b'{' } else { b',' });
        push_json(&mut body, &wanted.id);
        body.push(b':');
        push_json(&mut body, &wanted.revs);
    }
    body.push(b'}');
    body
}

/// Appends a value as JSON.
pub(super) fn push_json<T: serde::Serialize + ?Sized>(body: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(body, value).expect("texts are JSON, and memory takes them");
}

/// Keeps what is missing. Also tells how many revisions are missing that have no ancestor to name;
/// `None` if the answer is none.
fn pick(mut asked: Vec<Wanted>, answer: &[u8]) -> Option<(Vec<Wanted>, usize)> {
    let Diffs(diffs) = serde_json::from_slice(answer).ok()?;
    let mut in_vain = 0;
    asked.retain_mut(|wanted| {
        let Some(diff) = diffs.get(wanted.id.as_str()) else {
            return false;
        };
        wanted
            .revs
            .retain(|rev| diff.missing.iter().any(|missing| missing == rev));
        if diff.possible_ancestors.is_empty() {
            in_vain += wanted.revs.len();
        }
        let ancestors = diff.possible_ancestors.iter();
        wanted.ancestors = ancestors.map(|rev| rev.clone().into_owned()).collect();
        !wanted.revs.is_empty()
    });
    Some((asked, in_vain))
}

/// An answer, by id.
struct Diffs<'a>(FxHashMap<Cow<'a, str>, Diff<'a>>);

/// A text that is borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Diffs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;

        impl<'de> Visitor<'de> for Reading {
            type Value = FxHashMap<Cow<'de, str>, Diff<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of missing revisions")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
                let mut diffs = FxHashMap::default();
                while let Some((Text(id), diff)) = members.next_entry()? {
                    diffs.insert(id, diff);
                }
                Ok(diffs)
            }
        }

        deserializer.deserialize_map(Reading).map(Diffs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::seq::Seq;

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
    fn what_is_missing_is_kept_with_its_ancestors() {
        let asked = by_document(vec![
            row("a/\u{e9}", &["1-x", "2-x"]),
            row("b", &["3-b"]),
            row("c", &["1-c"]),
        ]);
        let answer = "{\"a\\/\\u00e9\":{\"missing\":[\"2-x\",\"9-never asked\"],\"possible_ancestors\":[\"1-a\"]},\
            \"c\":{\"missing\":[\"1-c\"]},\"d\":{\"missing\":[\"1-d\"]}}";
        let (wanted, in_vain) = pick(asked, answer.as_bytes()).unwrap();
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
        assert_eq!((wanted.as_slice(), in_vain), (&expected[..], 1));
    }

    #[test]
    fn an_answer_that_is_none_is_noticed() {
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
