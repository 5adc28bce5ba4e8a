//! A job's past, which the daemon that owns its document leaves to the next owner, as JSON text.
//!
//! ```json
//! {"asked": "5f0c..", "not_before": 0, "history": [{"at": 1790000000000000, "type": "crashed",
//!  "reason": "..", "short": "..", "rate_limited": false}, {"at": 1789999999000000, "type": "started"}],
//!  "refused": [{"id": "a", "rev": "1-x", "error": "forbidden", "reason": ".."}]}
//! ```
//!
//! SUMMARY   `asked` is the digest of the replication that the past belongs to: after an edit, the document's job
//!           starts without a past. `history` has the newest event first, `refused` the latest document last. Times
//!           are microseconds since 1970.
//! LIMITS    [`ENTRIES_MAX`] events, [`REFUSED_MAX`] documents, [`BYTES_MAX`] bytes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use policy::schedule::{Earlier, History, HistoryEntry, HistoryEvent, Reason, WallTime};
use replication::refused::RefusedDoc;

/// Maximum events of a past; older ones are dropped.
pub(crate) const ENTRIES_MAX: usize = 100;

/// Maximum number of remembered documents that were not replicated.
pub(crate) const REFUSED_MAX: usize = 20;

/// Maximum bytes of these documents in a text. One that does not fit is dropped; only an id or error name
/// of several kilobytes can be that long.
const REFUSED_BYTES_MAX: usize = 128 * 1024;

/// Maximum length of a text that is read, in bytes; [`text`] stays below.
const BYTES_MAX: usize = 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// Its history.
    pub earlier: Earlier,
    /// The latest documents that were not replicated, newest last.
    pub refused: Vec<Arc<RefusedDoc>>,
}

/// Returns the text of a past.
pub(crate) fn text(asked: &str, past: &Past) -> String {
    let history: Vec<Value> = past
        .earlier
        .history
        .iter()
        .take(ENTRIES_MAX)
        .map(written)
        .collect();
    let not_before = past.earlier.not_before.as_micros();
    let mut value = json!({"asked": asked, "not_before": not_before, "history": history});
    if !past.refused.is_empty() {
        value["refused"] = refused(&past.refused);
    }
    value.to_string()
}

fn refused(docs: &[Arc<RefusedDoc>]) -> Value {
    let mut left = REFUSED_BYTES_MAX;
    let latest = docs.iter().rev().take(REFUSED_MAX).map(|doc| json!(**doc));
    let mut written: Vec<Value> = latest
        .filter(|doc| {
            let rest = left.checked_sub(doc.to_string().len());
            left = rest.unwrap_or(left);
            rest.is_some()
        })
        .collect();
    written.reverse();
    written.into()
}

fn written(entry: &HistoryEntry) -> Value {
    let (at, name) = (entry.at.as_micros(), entry.what.name());
    match &entry.what {
        HistoryEvent::Crashed(reason) => json!({
            "at": at, "type": name, "reason": reason.text, "short": reason.short,
            "rate_limited": reason.rate_limited,
        }),
        HistoryEvent::Added | HistoryEvent::Started | HistoryEvent::Stopped => {
            json!({"at": at, "type": name})
        }
    }
}

/// Reads the past of a job with this digest. Invalid text, or text with another digest, yields an empty past.
pub(crate) fn read(text: &str, asked: &str) -> Past {
    if text.len() > BYTES_MAX {
        return Past::default();
    }
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    if value["asked"] != asked {
        return Past::default();
    }
    let refused = value["refused"]
        .as_array()
        .into_iter()
        .flatten()
        .take(REFUSED_MAX);
    Past {
        earlier: earlier(&value).unwrap_or_default(),
        refused: refused
            .filter_map(|doc| RefusedDoc::deserialize(doc).ok().map(Arc::new))
            .collect(),
    }
}

fn earlier(value: &Value) -> Option<Earlier> {
    // Successive reasons are usually equal, and then share one allocation.
    let mut last: Option<Arc<Reason>> = None;
    let entries = value["history"]
        .as_array()?
        .iter()
        .take(ENTRIES_MAX)
        .map(|value| entry(value, &mut last));
    Some(Earlier {
        history: History::of(entries.collect::<Option<Vec<_>>>()?),
        not_before: WallTime::from_micros(value["not_before"].as_u64()?),
    })
}

fn entry(value: &Value, last: &mut Option<Arc<Reason>>) -> Option<HistoryEntry> {
    let name = value["type"].as_str()?;
    let plain = [
        HistoryEvent::Added,
        HistoryEvent::Started,
        HistoryEvent::Stopped,
    ];
    let what = match plain.into_iter().find(|what| what.name() == name) {
        Some(what) => what,
        None if name == "crashed" => HistoryEvent::Crashed(crash(value, last)?),
        None => return None,
    };
    Some(HistoryEntry {
        at: WallTime::from_micros(value["at"].as_u64()?),
        what,
    })
}

fn crash(value: &Value, last: &mut Option<Arc<Reason>>) -> Option<Arc<Reason>> {
    let (text, short) = (value["reason"].as_str()?, value["short"].as_str()?);
    let reason = Reason::with_short(text, short, value["rate_limited"].as_bool()?);
    let reason = last
        .take_if(|last| **last == reason)
        .unwrap_or_else(|| Arc::new(reason));
    *last = Some(Arc::clone(&reason));
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::TestRandom;

    fn random_past(random: &mut TestRandom, count: usize) -> Past {
        let reasons = ["", "x", "\"\u{0}\u{7f}\n\\", "\u{e9}\u{1f600}"];
        let mut entry = |_| {
            let text = random.one_of(&reasons).repeat(random.below(300));
            let short = *random.one_of(&reasons);
            let reason = Reason::with_short(&text, short, random.below(2) == 0);
            let what = match random.below(4) {
                0 => HistoryEvent::Added,
                1 => HistoryEvent::Started,
                2 => HistoryEvent::Stopped,
                _ => HistoryEvent::Crashed(reason.into()),
            };
            let at = WallTime::from_micros(random.below(usize::MAX) as u64);
            HistoryEntry { at, what }
        };
        let history = History::of((0..count).map(&mut entry).collect::<Vec<_>>());
        let not_before = WallTime::from_micros(random.below(usize::MAX) as u64);
        let refused = (0..random.below(REFUSED_MAX + 1)).map(|n| {
            let rev = (random.below(2) == 0).then(|| "1-x".to_owned());
            let reason = random.one_of(&reasons).repeat(random.below(300));
            Arc::new(refused(&n.to_string(), rev, &reason))
        });
        Past {
            refused: refused.collect(),
            earlier: Earlier {
                history,
                not_before,
            },
        }
    }

    fn refused(id: &str, rev: Option<String>, reason: &str) -> RefusedDoc {
        RefusedDoc {
            id: id.to_owned(),
            rev,
            error: "forbidden".to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_past_reads_as_it_was_written_unless_another_replication_is_asked_for() {
        let mut random = TestRandom::for_test("a_past_reads_as_it_was_written");
        for count in (0..=ENTRIES_MAX).chain([ENTRIES_MAX; 20]) {
            let past = random_past(&mut random, count);
            let text = text("digest", &past);
            assert_eq!(read(&text, "digest"), past);
            assert_eq!(read(&text, "another"), Past::default());
        }
    }

    #[test]
    fn a_past_has_the_latest_refused_documents_that_fit() {
        let docs = |ids: std::ops::Range<usize>, reason: &str| -> Vec<Arc<RefusedDoc>> {
            let doc = |n: usize| Arc::new(refused(&n.to_string(), None, reason));
            ids.map(doc).collect()
        };
        let kept = |refused: &[Arc<RefusedDoc>]| {
            let past = Past {
                refused: refused.to_vec(),
                ..Past::default()
            };
            read(&text("d", &past), "d").refused
        };
        let many = docs(0..REFUSED_MAX + 5, "no");
        assert_eq!(kept(&many), many[5..]);
        // The longest reasons that a job remembers fit.
        let long = docs(0..REFUSED_MAX, &"\u{0}".repeat(514));
        assert_eq!(kept(&long), long);
        let mut with_one = docs(0..3, "no");
        with_one[1] = Arc::new(refused(&"x".repeat(REFUSED_BYTES_MAX), None, "no"));
        assert_eq!(
            kept(&with_one),
            [Arc::clone(&with_one[0]), Arc::clone(&with_one[2])]
        );
    }

    #[test]
    fn a_past_has_bounds() {
        let reason = Reason::new(&"\u{0}".repeat(10_000), false);
        let crashed = |n| HistoryEntry {
            at: WallTime::from_micros(u64::MAX - n),
            what: HistoryEvent::Crashed(reason.clone().into()),
        };
        let doc = refused(&"x".repeat(REFUSED_BYTES_MAX - 100), None, "no");
        let past = |count| Past {
            earlier: Earlier {
                history: History::of((0..count).map(crashed).collect::<Vec<_>>()),
                not_before: WallTime::from_micros(u64::MAX),
            },
            refused: vec![Arc::new(doc.clone())],
        };
        let asked = "0".repeat(32);
        let longest = text(&asked, &past(10_000));
        assert!(longest.len() <= BYTES_MAX, "{}", longest.len());
        // The newest events remain.
        assert_eq!(read(&longest, &asked), past(ENTRIES_MAX as u64));
        let padded = longest + &" ".repeat(BYTES_MAX);
        assert_eq!(read(&padded, &asked), Past::default());
    }

    #[test]
    fn equal_reasons_are_kept_once() {
        let crashed = json!({"at": 1, "type": "crashed", "reason": "r", "short": "s",
                             "rate_limited": true});
        let started = json!({"at": 1, "type": "started"});
        let history = [crashed.clone(), started, crashed];
        let text = json!({"asked": "d", "not_before": 7, "history": history}).to_string();
        let past = read(&text, "d").earlier;
        let reasons = past.history.iter().filter_map(|entry| match &entry.what {
            HistoryEvent::Crashed(reason) => Some(reason),
            _ => None,
        });
        let reasons: Vec<_> = reasons.collect();
        assert!(Arc::ptr_eq(reasons[0], reasons[1]));
    }

    #[test]
    fn an_unreadable_past_is_ignored() {
        for junk in [
            "",
            "junk",
            "[]",
            r#"{"asked": "d"}"#,
            r#"{"asked": "d", "not_before": 7}"#,
            r#"{"asked": "d", "not_before": "7", "history": []}"#,
            r#"{"asked": "d", "not_before": -1, "history": []}"#,
            r#"{"asked": "d", "not_before": 7, "history": {}}"#,
            r#"{"asked": "d", "not_before": 7, "history": [{}]}"#,
            r#"{"asked": "d", "not_before": 7, "history": [{"at": 1, "type": "eaten", "reason": "r", "short": "s", "rate_limited": true}]}"#,
            r#"{"asked": "d", "not_before": 7, "history": [{"at": 1, "type": "crashed"}]}"#,
            r#"{"asked": "d", "not_before": 7, "history": [{"type": "added"}]}"#,
        ] {
            assert_eq!(read(junk, "d"), Past::default(), "{junk}");
        }
        let right = r#"{"asked": "d", "not_before": 7, "history": [], "refused": [{"id": 1}, {}, 7, {"id": "a", "error": "e", "reason": "r"}]}"#;
        let right = read(right, "d");
        assert_eq!(right.earlier.not_before, WallTime::from_micros(7));
        assert_eq!(right.refused.len(), 1, "unreadable documents are skipped");
    }
}
