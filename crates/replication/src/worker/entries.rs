//! Matches the entries of a `_bulk_docs` response to documents.
//!
//! SUMMARY   [`verdicts`] returns the outcome of each document of a request.
//! PROMISES  If a response lists only failures, as CouchDB's do, the other documents were written. If it also lists
//!           written ones, or has an error without a document, documents that it does not name are unclear.

use rustc_hash::FxHashMap;

use super::document::DocMeta;
use super::verdict::{Outcome, Verdict, WriteEntry, of_entry};

/// Returns each document's outcome; `None` if the text is not a response to `_bulk_docs`. After an `aborted` request,
/// only the documents listed as written were written.
pub(super) fn verdicts(answer: &[u8], documents: &[String], aborted: bool) -> Option<Vec<Outcome>> {
    let entries: Vec<WriteEntry<'_>> = serde_json::from_slice(answer).ok()?;
    let mut outcomes: Vec<Option<Outcome>> = vec![None; documents.len()];
    let mut names_all = aborted;
    let mut stray = String::new();
    if !entries.is_empty() {
        let metas: Vec<Option<DocMeta<'_>>> = documents
            .iter()
            .map(|text| DocMeta::read(text.as_bytes()))
            .collect();
        let places = Places::new(&entries, &metas);
        for (nth, entry) in entries.iter().enumerate() {
            let said = of_entry(entry);
            let is_written = said.verdict == Verdict::Written;
            let place = places.of(nth, entry, &outcomes);
            names_all |= is_written || place.is_none();
            if place.is_none() && !is_written {
                let Outcome { error, reason, .. } = &said;
                stray = format!(", and has an error for an unknown one: {error}: {reason}");
            }
            // Of several entries for a document, the worst counts.
            let outcome = place.and_then(|place| outcomes.get_mut(place));
            if let Some(outcome) = outcome.filter(|known| !is_written || known.is_none()) {
                *outcome = Some(said);
            }
        }
    }
    let unnamed = || {
        if names_all {
            Outcome::new(
                Verdict::Unclear,
                "unknown",
                format!("the answer does not name it{stray}"),
            )
        } else {
            Outcome::new(Verdict::Written, "", String::new())
        }
    };
    Some(
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(unnamed))
            .collect(),
    )
}

/// The positions of documents in a request.
struct Places<'a> {
    /// Whether there is one entry for each document, in the same order.
    is_positional: bool,
    by_rev: FxHashMap<(&'a str, &'a str), usize>,
    by_id: FxHashMap<&'a str, Vec<usize>>,
}

impl<'a> Places<'a> {
    fn new(entries: &[WriteEntry<'_>], metas: &'a [Option<DocMeta<'_>>]) -> Self {
        let mut places = Self {
            is_positional: entries.len() == metas.len(),
            by_rev: FxHashMap::default(),
            by_id: FxHashMap::default(),
        };
        for (place, meta) in metas.iter().enumerate() {
            if let Some(meta) = meta {
                places.by_rev.insert((&meta.id, &meta.rev), place);
                places.by_id.entry(&meta.id).or_default().push(place);
            }
        }
        let fits = |(entry, meta): (&WriteEntry<'_>, &Option<DocMeta<'_>>)| match (&entry.id, meta)
        {
            (Some(id), Some(meta)) => *id == meta.id,
            _ => true,
        };
        places.is_positional &= entries.iter().zip(metas).all(fits);
        places
    }

    fn of(
        &self,
        nth: usize,
        entry: &WriteEntry<'_>,
        outcomes: &[Option<Outcome>],
    ) -> Option<usize> {
        let id = entry.id.as_deref();
        let by_rev = id
            .zip(entry.rev.as_deref())
            .and_then(|named| self.by_rev.get(&named).copied());
        let by_place = || self.is_positional.then_some(nth);
        let by_id = || {
            let mut places = self.by_id.get(id?)?.iter().copied();
            places.find(|place| outcomes[*place].is_none())
        };
        by_rev.or_else(by_place).or_else(by_id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const REVS: [(&str, &str); 4] = [("a", "1-x"), ("a", "1-y"), ("b", "1-x"), ("c", "1-x")];

    /// `w`ritten, `r`efused or `u`nclear, for each document.
    fn summary(answer: &Value, aborted: bool) -> String {
        let text = |(id, rev): &(&str, &str)| {
            json!({"_id": id, "_rev": rev, "_revisions": {"start": 1, "ids": ["x"]}}).to_string()
        };
        let texts: Vec<String> = REVS.iter().map(text).collect();
        let verdicts = verdicts(answer.to_string().as_bytes(), &texts, aborted).unwrap();
        let letter = |outcome: Outcome| match outcome.verdict {
            Verdict::Written => 'w',
            Verdict::Refused => 'r',
            _ => 'u',
        };
        verdicts.into_iter().map(letter).collect()
    }

    #[test]
    fn each_entry_is_about_the_document_that_it_names() {
        let refused = |id, rev| json!({"id": id, "rev": rev, "error": "forbidden"});
        let written = |id| json!({"ok": true, "id": id});
        for (answer, expected) in [
            (json!([]), "wwww"),
            (json!([refused("a", "1-y")]), "wrww"),
            (json!([refused("c", "1-x"), refused("a", "1-x")]), "rwwr"),
            (json!([{"id": "b", "error": "timeout"}]), "wwuw"),
            (
                json!([{"id": "a", "error": "forbidden"}, {"id": "a", "error": "forbidden"}]),
                "rrww",
            ),
            (
                json!([written("a"), written("a"), written("b"), written("c")]),
                "wwww",
            ),
            (
                json!([{"ok": true}, {"error": "forbidden"}, {"ok": true}, {"error": "x"}]),
                "wrwu",
            ),
            (
                json!([written("c"), written("b"), written("a"), written("a")]),
                "wwww",
            ),
            // Too few, too many, others.
            (json!([written("a"), refused("b", "1-x")]), "wuru"),
            (json!([written("z")]), "uuuu"),
            (json!([refused("z", "1-x")]), "uuuu"),
            (json!([{"error": "forbidden"}]), "uuuu"),
            (
                json!([refused("a", "1-x"), {"id": "a", "rev": "1-x", "ok": true}]),
                "ruuu",
            ),
            (json!([{"id": "a", "ok": false}]), "uwww"),
        ] {
            assert_eq!(summary(&answer, false), expected, "{answer}");
        }
        assert_eq!(summary(&json!([refused("b", "1-x")]), true), "uuru");
    }

    #[test]
    fn an_answer_without_a_list_of_entries_is_invalid() {
        for answer in [
            "",
            "{}",
            "<html>",
            "[1]",
            "[{\"id\":1}]",
            "[{\"status\":\"x\"}]",
        ] {
            assert_eq!(
                verdicts(answer.as_bytes(), &["{}".to_owned()], false),
                None,
                "{answer}"
            );
        }
    }
}
