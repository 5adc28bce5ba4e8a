//! Tests of [`super`]: the content of lists, and random events against a simple model.

use futures_util::FutureExt;
use serde_json::json;
use store::Watcher;
use test_support::TestRandom;

use super::*;
use crate::otp::BootClock;
use crate::replicator::DocStates;
use crate::replicator::document::parse;
use crate::replicator::lease::{DocLease, EpochLease};
use crate::replicator::members::DocMembers;
use policy::ownership::{Claim, Epoch, Request};
use replication::id::ReplicationId;
use replication::spec::Replication;

/// Returns a document's replication.
pub(super) fn replication(doc: &str, more: &serde_json::Value) -> Arc<Replication> {
    let mut body = json!({"source": "http://s/a", "target": "http://t/b"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let body = DocMembers::parse(&body.to_string()).unwrap();
    Arc::new(
        parse(
            doc,
            &body,
            &crate::replicator::defaults(&Default::default()),
        )
        .unwrap(),
    )
}

fn attempt(actions: &[RowAction]) -> Attempt {
    let of = |action: &RowAction| match action {
        RowAction::Identify { attempt, .. } => Some(*attempt),
        _ => None,
    };
    actions.iter().find_map(of).unwrap()
}

impl DocTable {
    /// Takes a document to a state, through the preceding ones.
    pub(crate) fn set_row(&mut self, id: &str, state: Option<RowState>) {
        let now = WallTime::ZERO;
        self.handle(id, Event::Changed(Wish::Nothing), now);
        let Some(state) = state else { return };
        let run = Event::Changed(Wish::Run(replication(id, &json!({}))));
        let attempt = attempt(&self.handle(id, run, now));
        let job: ReplicationId = "abc".parse().unwrap();
        let result = match state {
            RowState::Initializing => return,
            RowState::Error => Err(NotYet::new("no", "no")),
            RowState::Scheduled => Ok(job.clone()),
        };
        let identified = Event::Identified { attempt, result };
        self.handle(id, identified, now);
        if state == RowState::Scheduled {
            let result = Ok(());
            let scheduled = Event::Scheduled {
                attempt,
                job,
                result,
            };
            self.handle(id, scheduled, now);
        }
    }
}

fn ids(states: &DocStates, of: &[&str]) -> Vec<String> {
    let of: Vec<DocState> = of
        .iter()
        .filter_map(|name| DocState::of_name(name))
        .collect();
    let page = states.lock().page(&Page::default(), &of);
    page.ids.iter().map(ToString::to_string).collect()
}

#[test]
fn a_document_has_the_state_of_its_job_its_row_or_its_body() {
    let states = DocStates::default();
    let class = |id, body: &str| states.class(id, body);
    let completed = class("c", r#"{"_replication_state":"completed"}"#);
    let failed = class("f", r#"{"note":1,"_replication_state":"failed"}"#);
    let free = class("a", r#"{"_replication_state":"triggered"}"#);
    let design = class("_design/d", r#"{"_replication_state":"failed"}"#);
    let documents = [
        ("a", free),
        ("b", free),
        ("c", completed),
        ("f", failed),
        ("_design/d", design),
    ];
    states.opened(documents.map(|(id, class)| (id.to_owned(), class)).into());
    let asks = |id, body: &str| states.class(id, body) == 0;
    assert!(asks("a", "{}") && asks("a", r#"{"_replication_state":"triggered"}"#));
    assert!(!asks("c", r#"{"_replication_state":"completed"}"#) && !asks("_design/d", "{}"));
    assert_eq!(ids(&states, &[]), ["a", "b", "c", "f"]);
    assert_eq!(ids(&states, &["initializing"]), ["a", "b"]);
    assert_eq!(ids(&states, &["failed", "completed"]), ["c", "f"]);
    assert_eq!(
        states.lock().page(&Page::default(), &[]).total,
        5,
        "design documents too"
    );
    let (job, other): (JobId, JobId) = ("job".into(), "other".into());
    states.lock().set_row("a", Some(RowState::Scheduled));
    assert_eq!(ids(&states, &["pending"]), ["a"]);
    states.lock().set_job("a", &job, Some(JobState::Crashing));
    states.lock().set_job("a", &other, None);
    assert_eq!(
        ids(&states, &["crashing"]),
        ["a"],
        "another job's end is ignored"
    );
    states.lock().set_job("a", &job, None);
    states.lock().set_row("b", Some(RowState::Error));
    assert_eq!(ids(&states, &["error", "pending"]), ["a", "b"]);
    states.written(vec![("a".to_owned(), None), ("b".to_owned(), Some(failed))]);
    states.lock().set_row("b", None);
    assert_eq!(ids(&states, &["failed"]), ["b", "f"]);
    assert_eq!(ids(&states, &["pending"]), [""; 0], "a is deleted");
    states.written(vec![("a".to_owned(), Some(free))]);
    assert_eq!(ids(&states, &["pending"]), ["a"], "a's row survives");
    states.lock().forget_jobs();
    assert_eq!(ids(&states, &["initializing"]), ["a"]);
}

#[test]
fn the_offset_is_the_number_of_rows_before_the_page() {
    let states = DocStates::default();
    let documents = (0..10).map(|n| (format!("d{n}"), 0));
    states.opened(documents.collect());
    let page = |start: Bound<&str>, descending, skip| Page {
        start: start.map(str::to_owned),
        descending,
        skip,
        limit: 1,
        ..Page::default()
    };
    for (start, descending, skip, offset, id) in [
        (Bound::Unbounded, false, 0, 0, Some("d0")),
        (Bound::Unbounded, true, 2, 2, Some("d7")),
        (Bound::Included("d3"), false, 2, 5, Some("d5")),
        (Bound::Excluded("d3"), false, 0, 4, Some("d4")),
        (Bound::Included("d3"), true, 1, 7, Some("d2")),
        (Bound::Unbounded, false, 99, 10, None),
    ] {
        let found = states.lock().page(&page(start, descending, skip), &[]);
        assert_eq!(
            (found.total, found.offset),
            (10, offset),
            "{start:?} {skip}"
        );
        assert_eq!(found.ids.first().map(|id| &**id), id);
    }
}

#[test]
fn lists_are_loading_until_the_state_of_each_document_is_known() {
    let states = DocStates::default();
    let class = |id, body: &str| states.class(id, body);
    assert_eq!(states.lock().loading(), None, "no store is awaited");
    states.lock().await_store();
    assert_eq!(states.lock().loading(), Some(0));
    let documents = [
        ("a", 0),
        ("b", 0),
        ("c", class("c", r#"{"_replication_state":"completed"}"#)),
        ("d", 0),
        ("_design/d", class("_design/d", "{}")),
    ];
    states.opened(documents.map(|(id, class)| (id.to_owned(), class)).into());
    assert_eq!(states.lock().loading(), Some(3));
    states.lock().set_row("a", Some(RowState::Initializing));
    assert_eq!(states.lock().loading(), Some(3), "a has no job yet");
    states.lock().set_row("a", Some(RowState::Scheduled));
    states.lock().set_row("b", Some(RowState::Error));
    states.written(vec![("later".to_owned(), Some(0))]);
    assert_eq!(states.lock().loading(), Some(1));
    let mut loaded = Box::pin(states.loaded());
    assert_eq!((&mut loaded).now_or_never(), None);
    states.written(vec![("d".to_owned(), None)]);
    assert_eq!(loaded.now_or_never(), Some(()), "d was deleted");
    assert_eq!(states.lock().loading(), None);
    states.lock().forget_jobs();
    assert_eq!(states.lock().loading(), Some(3), "documents are read again");
}

#[test]
fn a_page_follows_the_parameters_of_all_docs() {
    let states = DocStates::default();
    let documents = ["a", "b", "c", "d", "e"].map(|id| (id.to_owned(), 0));
    states.opened(documents.into());
    let ids = |page: Page| {
        let page = states.lock().page_of_all(&page);
        (page.ids.concat(), page.total)
    };
    let included = |id: &str| Bound::Included(id.to_owned());
    let page = Page::default();
    assert_eq!(ids(page.clone()), ("abcde".into(), 5));
    let from = Page {
        start: included("b"),
        end: included("d"),
        skip: 1,
        limit: 1,
        ..page.clone()
    };
    assert_eq!(ids(from), ("c".into(), 5));
    let down = Page {
        start: included("d"),
        end: Bound::Excluded("b".to_owned()),
        descending: true,
        ..page.clone()
    };
    assert_eq!(ids(down), ("dc".into(), 5));
    let none = Page {
        start: included("d"),
        end: included("b"),
        ..page.clone()
    };
    assert_eq!(ids(none), (String::new(), 5));
    let empty = Page { limit: 0, ..page };
    assert_eq!(ids(empty), (String::new(), 5));
}

/// The model's state of a document.
#[derive(Clone, Debug, Default)]
struct Plain {
    stored: Option<Class>,
    row: Option<RowState>,
    attempt: Option<Attempt>,
    job: Option<JobState>,
    claim: Option<(Claim, bool)>,
    seen: bool,
    under_way: Vec<ClaimWork>,
}

impl Plain {
    fn state(&self) -> Option<DocState> {
        let stored = DocState::of_class(self.stored?);
        match (self.row, self.job) {
            (Some(_), Some(job)) => Some(job.into()),
            (Some(row), None) => Some(row.shown()),
            (None, _) => stored,
        }
    }
}

/// The table of some documents, and the model.
struct Pair {
    table: DocTable,
    plain: Vec<Plain>,
    lease: Arc<EpochLease>,
    claims: u64,
}

impl Pair {
    fn event(&mut self, at: usize, event: Event) -> Vec<RowAction> {
        let actions = self.table.handle(&name(at), event, WallTime::ZERO);
        for action in &actions {
            if let RowAction::Identify { attempt, .. } = action {
                self.plain[at].attempt = Some(*attempt);
            }
        }
        actions
    }

    /// Applies a random event to a document.
    #[expect(clippy::too_many_lines, reason = "one arm for each event")]
    fn step(&mut self, random: &mut TestRandom) {
        let at = random.below(self.plain.len());
        let doc = name(at);
        let job: JobId = format!("job of {doc}").into();
        let id: ReplicationId = doc.parse().unwrap();
        match random.below(13) {
            0 => {
                let class = *random.one_of(&[None, Some(0), Some(0), Some(5), Some(6)]);
                self.table.written(vec![(doc, class)]);
                self.plain[at].stored = class;
            }
            1 | 2 => {
                let number = random.below(3);
                let asked = replication(&doc, &json!({"target": format!("http://t/{number}")}));
                let is_same = |row: &Row| row.replication.same_as(&asked);
                let is_new = !self.table.row(&doc).is_some_and(is_same);
                let actions = self.event(at, Event::Changed(Wish::Run(asked)));
                assert_eq!(actions.is_empty(), !is_new);
                if is_new {
                    self.plain[at].row = Some(RowState::Initializing);
                }
            }
            3 => {
                self.event(at, Event::Changed(Wish::Nothing));
                (self.plain[at].row, self.plain[at].attempt) = (None, None);
            }
            4 | 5 => {
                let Some(attempt) = self.plain[at].attempt else {
                    return;
                };
                let is_known = random.below(3) > 0;
                let result = is_known
                    .then(|| id.clone())
                    .ok_or_else(|| NotYet::new("no", "no"));
                self.event(at, Event::Identified { attempt, result });
                if !is_known {
                    self.plain[at].row = Some(RowState::Error);
                    return;
                }
                let (job, result) = (id, Ok(()));
                self.event(
                    at,
                    Event::Scheduled {
                        attempt,
                        job,
                        result,
                    },
                );
                self.plain[at].row = Some(RowState::Scheduled);
            }
            6 => {
                let actions = self.event(at, Event::Due(Attempt(u64::MAX)));
                assert!(actions.is_empty(), "no row has this attempt");
            }
            7 => {
                let state =
                    *random.one_of(&[Some(JobState::Running), Some(JobState::Crashing), None]);
                self.table.set_job(&doc, &job, state);
                self.plain[at].job = state;
            }
            8 => {
                self.claims += 1;
                let claim = Request(self.claims);
                let lease = DocLease::new(Arc::clone(&self.lease), claim, false);
                self.table.claimed(&doc, lease);
                let plain = &mut self.plain[at];
                (plain.claim, plain.seen) = (Some((claim, false)), false);
            }
            9 => {
                let claim = Request(self.claims.saturating_sub(random.below(4) as u64));
                let plain = &mut self.plain[at];
                let is_it = plain.claim.is_some_and(|(own, _)| own == claim);
                if random.below(2) == 0 {
                    assert_eq!(self.table.lost(&doc, claim), is_it);
                    plain.claim = plain.claim.filter(|_| !is_it);
                } else {
                    let begins = is_it && plain.claim != Some((claim, true));
                    assert_eq!(self.table.give_back(&doc, claim), begins);
                    plain.claim = plain.claim.map(|(own, is)| (own, is || is_it));
                }
            }
            10 => {
                let plain = &mut self.plain[at];
                let begun = self.table.begin(&doc);
                assert_eq!(
                    begun.as_ref().map(|work| work.claim),
                    plain.claim.map(|(own, _)| own)
                );
                plain.under_way.extend(begun);
            }
            11 => {
                let plain = &mut self.plain[at];
                if let Some(work) = plain.under_way.pop() {
                    self.table.end(&work);
                }
            }
            _ => {
                let plain = &mut self.plain[at];
                let may = matches!(plain.claim, Some((_, false)));
                let sees = self.table.see(&doc, self.claims + 1);
                assert!(may || !sees);
                plain.seen |= sees;
            }
        }
        self.settle(at);
    }

    /// Checks that a claim is released exactly if it is stopping or seen, and its document has no row and no work.
    fn settle(&mut self, at: usize) {
        let plain = &mut self.plain[at];
        let is_under_way = |claim| plain.under_way.iter().any(|work| work.claim == claim);
        let settles = plain.claim.filter(|(claim, is_stopping)| {
            let is_over = *is_stopping || plain.seen;
            plain.row.is_none() && is_over && !is_under_way(*claim)
        });
        let settled = self.table.settle(&name(at)).map(|work| work.claim);
        assert_eq!(settled, settles.map(|(claim, _)| claim), "{plain:?}");
        if settled.is_some() {
            plain.claim = None;
        }
    }

    /// Compares lists, counts and ownership with the model.
    fn check(&self) {
        let there: Vec<&Plain> = self
            .plain
            .iter()
            .filter(|one| one.stored.is_some())
            .collect();
        assert_eq!(self.table.page_of_all(&Page::default()).total, there.len());
        for state in DocState::OF_DOCS {
            let of = |(at, one): (usize, &Plain)| (one.state() == Some(state)).then(|| name(at));
            let expected: Vec<String> = self.plain.iter().enumerate().filter_map(of).collect();
            let page = self.table.page(&Page::default(), &[state]);
            let listed: Vec<String> = page.ids.iter().map(ToString::to_string).collect();
            assert_eq!(listed, expected, "{state:?}");
        }
        for (at, plain) in self.plain.iter().enumerate() {
            let row = self.table.row(&name(at));
            assert_eq!(row.map(|row| row.state), plain.row);
            let may_act = plain.claim.filter(|(_, is_stopping)| !is_stopping);
            let lease = self.table.lease(&name(at)).map(|lease| lease.claim);
            assert_eq!(lease, may_act.map(|(claim, _)| claim));
        }
        let rows = self.plain.iter().filter(|one| one.row.is_some()).count();
        assert_eq!(self.table.rows, rows);
        let owned = self.plain.iter().filter(|one| one.claim.is_some()).count();
        assert_eq!(self.table.all_owned().len(), owned);
        let nothing = |one: &Known| one.is_gone();
        assert!(
            !self.table.known.values().any(nothing),
            "gone documents are forgotten"
        );
        let awaited = self
            .table
            .known
            .values()
            .filter(|one| one.is_awaited)
            .count();
        assert_eq!(self.table.unread, awaited);
    }
}

fn name(at: usize) -> String {
    format!("d{at}")
}

#[test]
fn the_table_agrees_with_a_plain_model_of_each_document() {
    let mut random = TestRandom::for_test("the_table_agrees_with_a_plain_model_of_each_document");
    for _ in 0..200 {
        let mut pair = Pair {
            table: DocTable::default(),
            plain: vec![Plain::default(); 6],
            lease: Arc::new(EpochLease::new(Epoch(1), BootClock::default())),
            claims: 0,
        };
        for _ in 0..200 {
            pair.step(&mut random);
            match random.below(40) {
                0 => {
                    pair.table.forget_jobs();
                    for one in &mut pair.plain {
                        (one.row, one.attempt, one.job, one.seen) = (None, None, None, false);
                    }
                }
                1 => {
                    pair.table.forget_rows();
                    for one in &mut pair.plain {
                        (one.row, one.attempt, one.claim) = (None, None, None);
                    }
                }
                _ => {}
            }
            pair.check();
        }
    }
}
