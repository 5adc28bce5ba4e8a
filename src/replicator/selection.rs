//! Selects jobs for a list or a bulk order: patterns, sorting by trouble, counts by reason.
//!
//! SUMMARY   [`Selection`] is a validated selection; [`JobFacts`] are the facts that it compares.
//! PROMISES  Pure. A job must match one of the names and patterns, if there are any, and every other member.
//! LIMITS    [`PATTERNS_MAX`] patterns of [`PATTERN_BYTES_MAX`] bytes; names without `*` and `?` are limited only by
//!           the request's size.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use settee_client::{JobGroup, JobSelection};

use super::doc_state::DocState;
use policy::schedule::{JobState, WallTime};
use replication::crash::reason_group;

/// Maximum patterns with `*` or `?` in a selection.
const PATTERNS_MAX: usize = 64;

/// Maximum length of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// Maximum returned groups, largest first.
const GROUPS_MAX: usize = 1000;

/// The facts about a job for selections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobFacts<'a> {
    pub id: &'a str,
    /// Its document.
    pub doc: Option<&'a str>,
    /// Its state in lists, or its document's.
    pub state: DocState,
    /// Its source as shown.
    pub source: &'a str,
    /// Its target as shown.
    pub target: &'a str,
    /// The short reason why it does not run.
    pub reason: Option<&'a str>,
    /// The address of its daemon; `None` if there is only one.
    pub daemon: Option<&'a str>,
}

impl JobFacts<'_> {
    /// Returns the document, or the id of a transient job.
    pub fn name(&self) -> &str {
        self.doc.unwrap_or(self.id)
    }
}

/// A validated selection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// The selection without its states and without [`Self::names`].
    asked: JobSelection,
    /// Names without `*` and `?`, and whether a job with that name was found.
    names: BTreeMap<String, bool>,
    states: Option<Vec<JobState>>,
    /// The selected states that only documents without a job have.
    pub doc_states: Vec<DocState>,
}

impl Selection {
    /// Validates a selection.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn new(asked: &JobSelection) -> Result<Self, String> {
        let mut asked = asked.clone();
        let names = asked
            .patterns
            .extract_if(.., |text| !is_pattern(text))
            .map(|name| (name, false))
            .collect();
        if asked.patterns.len() > PATTERNS_MAX {
            return Err(format!("at most {PATTERNS_MAX} patterns may have * or ?"));
        }
        let sides = [&asked.source, &asked.target, &asked.reason, &asked.daemon];
        let longest = sides.into_iter().flatten().chain(&asked.patterns);
        if longest.map(String::len).max() > Some(PATTERN_BYTES_MAX) {
            return Err(format!(
                "a pattern may have at most {PATTERN_BYTES_MAX} bytes"
            ));
        }
        let state = |name: String| {
            DocState::of_name(&name).ok_or_else(|| {
                let known = DocState::names();
                format!("{name:?} is not a state: choose from {known}")
            })
        };
        let mut doc_states = asked
            .states
            .drain(..)
            .map(state)
            .collect::<Result<Vec<_>, _>>()?;
        let states = JobState::ALL
            .into_iter()
            .filter(|one| doc_states.contains(&(*one).into()));
        let states = (!doc_states.is_empty()).then(|| states.collect());
        doc_states.retain(|state| state.of_job().is_none());
        Ok(Self {
            asked,
            names,
            states,
            doc_states,
        })
    }

    /// Returns the selected states of jobs; all if no states are given.
    pub fn states(&self) -> Vec<JobState> {
        self.states
            .clone()
            .unwrap_or_else(|| JobState::ALL.to_vec())
    }

    /// Also selects restartable documents without a job, unless states are given.
    pub fn take_troubled_docs(&mut self) {
        if self.states.is_none() {
            self.doc_states = DocState::TROUBLED.to_vec();
        }
    }

    /// Returns whether jobs are selected by state alone, or not restricted at all.
    pub fn is_of_states(&self) -> bool {
        self.doc_states.is_empty() && self.names.is_empty() && self.asked.is_empty()
    }

    /// Returns whether a job matches, apart from its state; records which names exist.
    pub fn fits(&mut self, job: &JobFacts<'_>) -> bool {
        let Self { asked, names, .. } = self;
        let patterns = &asked.patterns;
        let mut is_named = names.is_empty() && patterns.is_empty();
        for name in [Some(job.id), job.doc].into_iter().flatten() {
            if let Some(is_known) = names.get_mut(name) {
                (*is_known, is_named) = (true, true);
            }
            is_named |= patterns.iter().any(|pattern| fits(pattern, name));
        }
        let fits_url = |pattern: &Option<String>, url: &str| {
            let Some(pattern) = pattern else { return true };
            fits(pattern, url) || fits(pattern, url.trim_end_matches('/'))
        };
        let fits_some = |pattern: &Option<String>, text: Option<&str>| {
            let Some(pattern) = pattern else { return true };
            text.is_some_and(|text| fits(pattern, text))
        };
        is_named
            && fits_url(&asked.source, job.source)
            && fits_url(&asked.target, job.target)
            && (fits_some(&asked.reason, job.reason)
                || fits_some(&asked.reason, job.reason.map(reason_group)))
            && fits_some(&asked.daemon, job.daemon)
    }

    /// Returns the names that match no job.
    pub fn into_missing(self) -> Vec<String> {
        self.names
            .into_iter()
            .filter(|(_, is_known)| !is_known)
            .map(|(name, _)| name)
            .collect()
    }
}

/// Returns whether a name contains wildcards.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns whether a text matches a pattern, in which `*` matches any text and `?` one character.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // The pattern after the latest `*`, and the text after what this `*` matches so far.
    let mut again: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let here = (pattern.clone(), text.clone());
        match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = here.1;
                again = Some((pattern.clone(), text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => {
                let Some((behind, mut from)) = again.take() else {
                    return false;
                };
                if from.next().is_none() {
                    return false;
                }
                (pattern, text) = (behind.clone(), from.clone());
                again = Some((behind, from));
            }
        }
    }
}

/// Sorts jobs by trouble: crashing ones first, then those that cannot start yet or failed for good, paused, pending
/// and running ones, and completed ones last; within a state, those longest in it first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Trouble(u8, WallTime, Box<str>);

impl Trouble {
    /// Returns the sort key of a job that has been in its state since this time.
    pub fn of(job: &JobFacts<'_>, since: WallTime) -> Self {
        Self(job.state.trouble(), since, job.name().into())
    }
}

/// Counts of jobs by state and by reason.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The number of jobs.
    pub total: usize,
    /// The number of jobs by state.
    pub states: BTreeMap<&'static str, usize>,
    groups: FxHashMap<Option<Box<str>>, JobGroup>,
}

impl Groups {
    /// Counts a job.
    pub fn add(&mut self, job: &JobFacts<'_>) {
        self.total += 1;
        *self.states.entry(job.state.name()).or_default() += 1;
        let reason = job.reason.map(reason_group);
        let group = self
            .groups
            .entry(reason.map(Box::from))
            .or_insert_with(|| JobGroup {
                reason: reason.map(str::to_owned),
                example: job.name().to_owned(),
                ..JobGroup::default()
            });
        group.count += 1;
        *group.states.entry(job.state.name().to_owned()).or_default() += 1;
    }

    /// Returns the groups, largest first, at most [`GROUPS_MAX`].
    pub fn into_groups(self) -> Vec<JobGroup> {
        let mut groups: Vec<_> = self.groups.into_values().collect();
        groups.sort_unstable_by_key(|group| (Reverse(group.count), group.reason.clone()));
        groups.truncate(GROUPS_MAX);
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(doc: &'a str, state: DocState, reason: Option<&'a str>) -> JobFacts<'a> {
        JobFacts {
            id: "8f5b+continuous",
            doc: Some(doc),
            state,
            source: "http://db1.example/shop/",
            target: "http://db2.example/shop/",
            reason,
            daemon: Some("one.example:5984"),
        }
    }

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_one_character() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("?", "\u{e9}", true),
            ("customer-*", "customer-152", true),
            ("customer-?", "customer-15", false),
            ("*-1?2", "customer-1-152", true),
            ("a*b*c", "abbbcbc", true),
            ("a*b*c", "abbbcb", false),
            ("*aab", "aaaaab", true),
            ("*\u{e9}*", "caf\u{e9}s", true),
            ("[a]", "a", false),
            ("a", "ab", false),
            ("ab", "a", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn matching_agrees_with_trying_every_split(
            pattern in "[ab*?]{0,8}",
            text in "[ab]{0,8}",
        ) {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern.first(), text.first()) {
                    (None, None) => true,
                    (Some(b'*'), _) => (0..=text.len()).any(|at| slow(&pattern[1..], &text[at..])),
                    (Some(b'?'), Some(_)) => slow(&pattern[1..], &text[1..]),
                    (Some(a), Some(b)) if a == b => slow(&pattern[1..], &text[1..]),
                    _ => false,
                }
            }
            assert_eq!(fits(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn a_job_matches_every_member_of_a_selection_and_unknown_names_are_reported() {
        let job = facts("customer-7", DocState::Crashing, Some("database missing"));
        let select = |change: fn(&mut JobSelection)| {
            let mut asked = JobSelection::default();
            change(&mut asked);
            let mut selection = Selection::new(&asked).unwrap();
            (selection.fits(&job), selection.into_missing())
        };
        let none = Vec::<String>::new();
        assert_eq!(select(|_| {}), (true, none.clone()));
        assert_eq!(
            select(|s| s.patterns = vec!["customer-7".into(), "x".into()]),
            (true, vec!["x".to_owned()])
        );
        assert!(select(|s| s.patterns = vec!["8f5b*".into()]).0);
        assert!(!select(|s| s.patterns = vec!["8f5b".into()]).0);
        assert!(select(|s| s.source = Some("http://db1.*".into())).0);
        assert!(select(|s| s.target = Some("http://db2.example/shop".into())).0);
        assert!(!select(|s| s.target = Some("http://db1.*".into())).0);
        assert!(select(|s| s.reason = Some("database *".into())).0);
        assert!(!select(|s| s.reason = Some("name *".into())).0);
        assert!(select(|s| s.daemon = Some("one.*".into())).0);
        assert!(!select(|s| s.daemon = Some("two.*".into())).0);
        let of = |states: &[&str]| {
            let states = states.iter().map(ToString::to_string).collect();
            Selection::new(&JobSelection {
                states,
                ..JobSelection::default()
            })
        };
        assert_eq!(of(&["paused"]).unwrap().states(), [JobState::Paused]);
        assert_eq!(of(&["completed"]).unwrap().states(), []);
        assert_eq!(
            of(&["completed"]).unwrap().doc_states,
            [DocState::Completed]
        );
        assert_eq!(of(&[]).unwrap().states(), JobState::ALL);
        assert!(of(&["odd"]).unwrap_err().starts_with("\"odd\" is not a "));
    }

    #[test]
    fn reasons_that_differ_only_by_document_are_one_group_and_match_its_reason() {
        let reason = "document write failed: compilation_error";
        let mut groups = Groups::default();
        let texts = ["a", "b"].map(|id| format!("{reason}: document '{id}'"));
        for text in &texts {
            groups.add(&facts("customer-7", DocState::Crashing, Some(text)));
        }
        let groups = groups.into_groups();
        assert_eq!(groups.len(), 1);
        assert_eq!(
            (groups[0].reason.as_deref(), groups[0].count),
            (Some(reason), 2)
        );
        for pattern in [reason, &texts[0], "document write *"] {
            let asked = JobSelection {
                reason: Some(pattern.to_owned()),
                ..JobSelection::default()
            };
            let mut selection = Selection::new(&asked).unwrap();
            let job = facts("customer-7", DocState::Crashing, Some(&texts[0]));
            assert!(selection.fits(&job), "{pattern}");
        }
    }

    #[test]
    fn jobs_in_trouble_come_first_and_equal_reasons_are_counted_together() {
        let jobs = [
            ("a", DocState::Running, None, 1),
            ("b", DocState::Crashing, Some("database missing"), 9),
            ("c", DocState::Crashing, Some("database missing"), 3),
            ("d", DocState::Paused, Some("paused by ann"), 1),
            ("e", DocState::Pending, Some("database missing"), 1),
        ];
        let mut groups = Groups::default();
        let mut order: Vec<Trouble> = Vec::new();
        for (doc, state, reason, since) in jobs {
            let job = facts(doc, state, reason);
            groups.add(&job);
            order.push(Trouble::of(&job, WallTime::from_micros(since)));
        }
        order.sort();
        let names: Vec<&str> = order.iter().map(|place| &*place.2).collect();
        assert_eq!(names, ["c", "b", "d", "e", "a"]);
        assert_eq!((groups.total, groups.states["crashing"]), (5, 2));
        let groups = groups.into_groups();
        let first = &groups[0];
        assert_eq!(
            (first.reason.as_deref(), first.count, &*first.example),
            (Some("database missing"), 3, "b")
        );
        assert_eq!((first.states["crashing"], first.states["pending"]), (2, 1));
        assert_eq!(groups.len(), 3);
    }
}
