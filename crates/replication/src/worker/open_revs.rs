//! Wanted revisions of one document that have not arrived yet.
//!
//! PROMISES  A document satisfies its own revision and wanted ones among its ancestors, but no others: with `latest`,
//!           a source sends a newer revision instead of one that is no longer a leaf. A document takes time linear in
//!           its list of ancestors at most, however many revisions are wanted.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::document::{Branch, DocMeta};

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRevs {
    /// By generation: the part after the dash. Malformed revisions have generation 0.
    hashes: BTreeMap<u64, FxHashSet<String>>,
}

impl OpenRevs {
    /// Starts with the wanted revisions.
    pub fn of<'a>(revs: impl IntoIterator<Item = &'a String>) -> Self {
        let mut open = Self::default();
        for rev in revs {
            let (generation, hash) = split(rev);
            open.hashes
                .entry(generation)
                .or_default()
                .insert(hash.to_owned());
        }
        open
    }

    /// Returns whether all have arrived.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns whether a revision is wanted and has not arrived yet.
    pub fn is_open(&self, rev: &str) -> bool {
        let (generation, hash) = split(rev);
        let hashes = self.hashes.get(&generation);
        hashes.is_some_and(|hashes| hashes.contains(hash))
    }

    /// Records a revision that arrived. Returns whether it was open.
    pub fn close(&mut self, rev: &str) -> bool {
        let (generation, hash) = split(rev);
        let Some(hashes) = self.hashes.get_mut(&generation) else {
            return false;
        };
        let was_open = hashes.remove(hash);
        if hashes.is_empty() {
            self.hashes.remove(&generation);
        }
        was_open
    }

    /// Returns the open revisions that a document satisfies.
    pub fn answered_by(&self, meta: &DocMeta<'_>) -> Vec<String> {
        let rev = &*meta.rev;
        let mut answered = Vec::new();
        if self.is_open(rev) {
            answered.push(rev.to_owned());
        }
        let (newest, hash) = split(rev);
        let mut older = self.hashes.range(1..newest.max(1)).peekable();
        if older.peek().is_none() {
            return answered;
        }
        // Other servers' lists may have another form.
        let branch: Option<Branch<'_>> = meta
            .revisions
            .and_then(|raw| serde_json::from_str(raw.get()).ok());
        let Some(branch) =
            branch.filter(|branch| (branch.start, branch.id(newest)) == (newest, Some(hash)))
        else {
            return answered;
        };
        for (generation, hashes) in older {
            if let Some(hash) = branch.id(*generation)
                && hashes.contains(hash)
            {
                answered.push(format!("{generation}-{hash}"));
            }
        }
        answered
    }
}

fn split(rev: &str) -> (u64, &str) {
    rev.split_once('-')
        .filter(|(number, _)| !number.starts_with(['0', '+']))
        .and_then(|(number, hash)| Some((number.parse().ok()?, hash)))
        .unwrap_or((0, rev))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(revs: &[&str]) -> OpenRevs {
        OpenRevs::of(&revs.iter().map(|rev| (*rev).to_owned()).collect::<Vec<_>>())
    }

    fn answered(open: &OpenRevs, rev: &str, start: u64, ids: &[&str]) -> Vec<String> {
        let text = serde_json::json!({"_id": "a", "_rev": rev, "_revisions": {"start": start, "ids": ids}}).to_string();
        open.answered_by(&DocMeta::read(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_document_answers_for_itself_and_its_ancestors_alone() {
        let open = open(&["1-a", "1-b", "3-c", "4-d", "odd", "01-x"]);
        assert_eq!(answered(&open, "3-c", 3, &["c", "x", "a"]), ["3-c", "1-a"]);
        assert_eq!(answered(&open, "9-z", 9, &["z"; 9]), [""; 0]);
        assert_eq!(answered(&open, "5-e", 5, &["e", "d", "c"]), ["3-c", "4-d"]);
        assert_eq!(answered(&open, "1-z", 1, &["z"]), [""; 0]);
        assert_eq!(answered(&open, "odd", 1, &["z"]), ["odd"]);
        assert_eq!(
            answered(&open, "5-e", 5, &["z", "d"]),
            [""; 0],
            "the history of another"
        );
        assert_eq!(answered(&open, "5-e", 2, &["e", "a"]), [""; 0]);
    }

    #[test]
    fn an_answered_revision_is_no_longer_open() {
        let mut open = open(&["1-a", "2-b"]);
        assert!(open.close("1-a") && !open.close("1-a") && !open.close("9-x"));
        assert!(!open.is_open("1-a") && open.is_open("2-b") && !open.is_empty());
        assert!(open.close("2-b") && open.is_empty());
    }

    /// Comparing all pairs would take hours.
    #[test]
    fn a_document_may_have_very_many_leaves() {
        let revs: Vec<String> = (0..500_000).map(|n| format!("2-{n:032x}")).collect();
        let mut open = OpenRevs::of(&revs);
        for rev in &revs {
            let text = format!(
                r#"{{"_id":"a","_rev":"{rev}","_revisions":{{"start":2,"ids":["{}","b"]}}}}"#,
                &rev[2..]
            );
            let answered = open.answered_by(&DocMeta::read(text.as_bytes()).unwrap());
            assert!(answered == [&**rev] && open.close(rev));
        }
        assert!(open.is_empty());
    }
}
