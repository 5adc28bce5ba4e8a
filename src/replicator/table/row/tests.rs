//! Tests of [`super`]: the effect of each event, in order and out of order.

use serde_json::{Value, json};

use super::*;
use crate::replicator::table::DocTable;
use crate::replicator::table::tests::replication;
use replication::spec::DocRef;

const NOW: WallTime = WallTime::from_micros(7);

fn id(base: &str) -> ReplicationId {
    base.parse().unwrap()
}

/// A table, and the attempt of the latest action.
#[derive(Default)]
struct Fixture {
    table: DocTable,
    last: Option<Attempt>,
}

impl Fixture {
    fn handle(&mut self, event: Event) -> Vec<String> {
        let actions = self.table.handle("d", event, NOW);
        let shorten = |action: RowAction| match action {
            RowAction::Identify { attempt, .. } => {
                self.last = Some(attempt);
                "identify".to_owned()
            }
            RowAction::Schedule { job, .. } => format!("schedule {job}"),
            RowAction::RemoveJob(job) => format!("remove {job}"),
            RowAction::WriteFailed { reason, .. } => format!("failed: {reason}"),
            RowAction::WriteError { .. } => "error".to_owned(),
            RowAction::Wake { least, most, .. } => {
                format!("wake {}..{}", least.as_secs(), most.as_secs())
            }
        };
        actions.into_iter().map(shorten).collect()
    }

    fn wish(&mut self, wish: Wish) -> Vec<String> {
        self.handle(Event::Changed(wish))
    }

    fn run(&mut self, more: Value) -> Vec<String> {
        self.wish(Wish::Run(replication("d", &more)))
    }

    fn identified(&mut self, result: Result<&str, &str>) -> Vec<String> {
        self.handle(Event::Identified {
            attempt: self.last.unwrap(),
            result: result
                .map(id)
                .map_err(|text| NotYet::new(text, "few words")),
        })
    }

    fn scheduled(&mut self, result: Result<(), Taken>) -> Vec<String> {
        self.handle(Event::Scheduled {
            attempt: self.last.unwrap(),
            job: id("abc"),
            result,
        })
    }

    fn due(&mut self) -> Vec<String> {
        self.handle(Event::Due(self.last.unwrap()))
    }

    /// Takes the document up to a running job.
    fn started(more: Value) -> Self {
        let mut fixture = Self::default();
        fixture.run(more);
        fixture.identified(Ok("abc"));
        fixture.scheduled(Ok(()));
        fixture
    }

    fn state(&self) -> Option<RowState> {
        self.table.row("d").map(|row| row.state)
    }
}

fn filtered() -> Value {
    json!({"filter": "ddoc/name"})
}

#[test]
fn a_document_gets_an_id_and_then_a_job() {
    let mut fixture = Fixture::default();
    assert_eq!(fixture.run(json!({})), ["identify"]);
    assert_eq!(fixture.state(), Some(RowState::Initializing));
    assert_eq!(fixture.identified(Ok("abc")), ["schedule abc"]);
    assert_eq!(fixture.scheduled(Ok(())), [""; 0]);
    assert_eq!(fixture.state(), Some(RowState::Scheduled));
}

#[test]
fn an_unreadable_document_is_marked_failed_and_its_job_removed() {
    let mut fixture = Fixture::default();
    let broken = || Wish::Broken {
        reason: "why".to_owned(),
        replication: None,
    };
    assert_eq!(fixture.wish(broken()), ["failed: why"]);
    let mut fixture = Fixture::started(json!({}));
    assert_eq!(fixture.wish(broken()), ["remove abc", "failed: why"]);
    assert_eq!(fixture.state(), None);
}

#[test]
fn an_edit_that_does_not_touch_the_replication_leaves_its_job_alone() {
    let mut fixture = Fixture::started(json!({}));
    assert_eq!(fixture.run(json!({"note": "x"})), [""; 0]);
    assert_eq!(
        fixture.run(json!({"continuous": true})),
        ["remove abc", "identify"]
    );
}

#[test]
fn a_document_that_is_deleted_completed_or_failed_has_no_job_and_no_row() {
    let mut fixture = Fixture::started(json!({}));
    assert_eq!(fixture.wish(Wish::Nothing), ["remove abc"]);
    assert_eq!(fixture.state(), None);
    assert_eq!(fixture.wish(Wish::Nothing), [""; 0]);
    let mut fixture = Fixture::started(json!({}));
    let completed = |job| Event::Completed(id(job));
    fixture.handle(completed("other"));
    assert!(fixture.state().is_some());
    assert_eq!(fixture.handle(completed("abc")), [""; 0]);
    assert_eq!(fixture.state(), None);
}

#[test]
fn late_results_change_nothing() {
    let mut fixture = Fixture::default();
    fixture.run(json!({}));
    let late = fixture.last;
    fixture.run(json!({"continuous": true}));
    let current = std::mem::replace(&mut fixture.last, late);
    assert_eq!(fixture.identified(Ok("abc")), [""; 0]);
    assert_eq!(
        fixture.scheduled(Ok(())),
        ["remove abc"],
        "the job is obsolete"
    );
    assert_eq!(fixture.scheduled(Err(Taken::Transient)), [""; 0]);
    assert_eq!(fixture.due(), [""; 0]);
    fixture.last = current;
    assert_eq!(fixture.identified(Ok("def")), ["schedule def"]);
    assert_eq!(fixture.wish(Wish::Nothing), ["remove def"]);
    let mut fixture = Fixture::default();
    fixture.run(json!({}));
    let late = fixture.last;
    fixture.table.forget_jobs();
    fixture.run(json!({}));
    fixture.last = late;
    assert_eq!(
        fixture.identified(Ok("abc")),
        [""; 0],
        "attempt numbers are not reused"
    );
}

#[test]
fn a_temporary_error_is_retried_after_a_growing_random_delay() {
    let mut fixture = Fixture::default();
    fixture.run(filtered());
    for most in [64, 128, 256] {
        let wake = format!("wake 1..{most}");
        assert_eq!(fixture.identified(Err("no")), ["error", wake.as_str()]);
        assert_eq!(fixture.state(), Some(RowState::Error));
        assert_eq!(fixture.due(), ["identify"]);
    }
    for _ in 0..20 {
        fixture.identified(Err("no"));
        fixture.due();
    }
    let longest = fixture.identified(Err("no"));
    assert_eq!(longest[1], format!("wake 1..{}", 64 << 12));
    assert_eq!(fixture.table.row("d").unwrap().errors, 24);
    fixture.identified(Ok("abc"));
    fixture.scheduled(Ok(()));
    assert_eq!(fixture.table.row("d").unwrap().errors, 0);
}

#[test]
fn a_rewritten_document_that_could_not_start_is_retried_at_once() {
    let mut fixture = Fixture::default();
    let written = |fixture: &mut Fixture| fixture.handle(Event::Written);
    fixture.run(filtered());
    assert_eq!(written(&mut fixture), [""; 0], "an attempt is in progress");
    fixture.identified(Err("no"));
    let late = fixture.last;
    fixture.identified(Err("no"));
    assert_eq!(
        fixture.run(filtered()),
        [""; 0],
        "the replication is unchanged"
    );
    assert_eq!(written(&mut fixture), ["identify"]);
    assert!(fixture.last > late, "a new attempt began");
    let again = fixture.identified(Err("no"));
    assert_eq!(again, ["error", "wake 1..64"], "the failure count is reset");
    written(&mut fixture);
    fixture.identified(Ok("abc"));
    fixture.scheduled(Ok(()));
    assert_eq!(written(&mut fixture), [""; 0], "the document has a job");
}

#[test]
fn a_document_waits_for_a_transient_job_with_the_same_id() {
    let mut fixture = Fixture::default();
    fixture.run(json!({}));
    fixture.identified(Ok("abc"));
    let actions = fixture.scheduled(Err(Taken::Transient));
    assert_eq!(actions, ["error", "wake 1..64"]);
    let info = fixture.table.row("d").unwrap().info.clone().unwrap();
    assert!(info.starts_with("Replication `abc` specified by document `d` already running"));
}

#[test]
fn another_documents_job_of_the_same_id_is_a_permanent_failure() {
    let mut fixture = Fixture::default();
    fixture.run(json!({}));
    fixture.identified(Ok("abc"));
    let other = DocRef {
        database: "_replicator".to_owned(),
        id: "rep1".to_owned(),
    };
    let expected = "failed: Replication `abc` specified by document `d` already \
                    started, triggered by document `rep1` from db `_replicator`";
    assert_eq!(fixture.scheduled(Err(Taken::Document(other))), [expected]);
    assert_eq!(fixture.state(), None);
}

#[test]
fn filter_code_is_polled_and_a_changed_id_replaces_the_job() {
    let mut fixture = Fixture::default();
    fixture.run(filtered());
    fixture.identified(Ok("abc"));
    assert_eq!(fixture.scheduled(Ok(())), ["wake 61..61"]);
    assert_eq!(fixture.due(), ["identify"]);
    assert_eq!(fixture.state(), Some(RowState::Scheduled));
    assert_eq!(fixture.identified(Ok("abc")), ["schedule abc"]);
    assert_eq!(fixture.scheduled(Ok(())), ["wake 61..61"]);
    fixture.due();
    assert_eq!(
        fixture.identified(Ok("def")),
        ["remove abc", "schedule def"]
    );
    let info = fixture.table.row("d").unwrap().info.clone();
    assert_eq!(info.as_deref(), Some("Replication id changed: abc -> def"));
}
