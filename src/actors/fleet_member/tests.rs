//! Members of one fleet in one process, each with its own scheduler and documents, and scripted jobs. The database is
//! in memory, with a clock advanced by the tests.

pub(crate) mod fake_fleet;

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::json;
use serde_json::value::RawValue;
use slog::Discard;

use super::*;
use crate::actors::job_supervisor;
use crate::actors::replicator_documents::DocumentsOptions;
use crate::actors::replicator_documents::tests::{options, scheduler};
use crate::messages::replication_job::{
    Completed, JobEnd, JobEvent, JobNews, JobProgress, NewRun, StopJob,
};
use crate::messages::replication_scheduler::{ADDS_MAX, Happening, ReplicationEvent};
use crate::otp::Pid;
use crate::replicator::document::members;
use crate::replicator::table::RowState;
use crate::replicator::{DocStates, state};
use fake_fleet::{FakeConnection, FakeFleet};
use policy::schedule::Settings;
use replication::counters::Stats;
use replication::seq::Seq;
use store::{Document, Edit, Store, StorePlace};
use test_support::eventually;

/// An action of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RunAction {
    Begin,
    /// Under this epoch.
    Checkpoint(u64),
    End,
}

/// The actions of runs: the daemon, the document, the action.
type RunActions = Arc<Mutex<Vec<(&'static str, String, RunAction)>>>;

/// A run that writes a checkpoint when stopped, if its lease allows.
struct FakeJob {
    run: NewRun,
    daemon: &'static str,
    actions: RunActions,
    runs: Runs,
}

/// Started runs, with the addresses for completing them.
type Runs = Arc<Mutex<Vec<(NewRun, Addr<FakeJob>)>>>;

/// Completes a run.
#[derive(Message)]
#[rtype(result = "()")]
struct Complete;

impl Handler<Complete> for FakeJob {
    type Result = ();

    fn handle(&mut self, _: Complete, ctx: &mut Self::Context) {
        self.end(JobEnd::Normal(completed()), ctx);
    }
}

impl FakeJob {
    fn note(&self, action: RunAction) {
        let doc = self.run.replication.doc.as_ref().unwrap().id.clone();
        self.actions
            .lock()
            .unwrap()
            .push((self.daemon, doc, action));
    }

    fn end(&self, end: JobEnd, ctx: &mut Context<Self>) {
        let (run, news) = (self.run.number, JobNews::Ended(end));
        self.run.events.do_send(JobEvent { run, news });
        ctx.stop();
    }
}

impl Actor for FakeJob {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let begun = (self.run.clone(), ctx.address());
        self.runs.lock().unwrap().push(begun);
        self.note(RunAction::Begin);
    }
}

impl Drop for FakeJob {
    fn drop(&mut self) {
        self.note(RunAction::End);
    }
}

impl Handler<StopJob> for FakeJob {
    type Result = ();

    fn handle(&mut self, _: StopJob, ctx: &mut Self::Context) {
        if let (Some(_), Some(epoch)) = (self.run.guard.left(), self.run.guard.epoch()) {
            self.note(RunAction::Checkpoint(epoch));
        }
        self.end(JobEnd::Stopped, ctx);
    }
}

/// The result of a completed run.
pub(crate) fn completed() -> Arc<Completed> {
    let seq = Seq::zero;
    Arc::new(Completed {
        result: RawValue::from_string("{}".to_owned()).unwrap(),
        progress: JobProgress {
            stats: Stats::default(),
            bytes_written: 0,
            source_seq: seq(),
            through_seq: seq(),
            checkpointed_source_seq: seq(),
            changes_pending: Some(0),
            own_feed: None,
        },
    })
}

/// The database, and the actions of runs.
struct World {
    store: Store,
    clock: BootClock,
    fleet: FakeFleet,
    actions: RunActions,
    log: Logger,
}

/// One daemon.
struct Member {
    name: &'static str,
    states: Arc<DocStates>,
    connection: Arc<FakeConnection>,
    documents: Addr<ReplicatorDocuments>,
    member: Addr<FleetMember>,
    servers: broadcast::Sender<ServerReach>,
    pid: Pid,
    runs: Runs,
}

impl World {
    /// Starts with this many documents.
    async fn of(documents: usize) -> Self {
        let log = Logger::root(Discard, o!());
        let store = Store::start(StorePlace::Memory, Arc::new(()), Arc::new(()), &log).unwrap();
        let clock = BootClock::default();
        let world = Self {
            fleet: FakeFleet::new(store.clone(), clock.clone()),
            store,
            clock,
            actions: RunActions::default(),
            log,
        };
        for number in 0..documents {
            world.write(&format!("d{number:02}"), number).await;
        }
        world
    }

    /// Writes a document that requests the replication with a number.
    async fn write(&self, id: &str, number: usize) {
        let (source, target) = (format!("http://s/{number}"), format!("http://t/{number}"));
        let edit = Edit {
            id: id.to_owned(),
            expected: None,
            deleted: false,
            body: json!({"source": source, "target": target}).to_string(),
        };
        self.store.edit(vec![edit]).await.unwrap()[0]
            .clone()
            .unwrap();
    }

    fn start(&self, name: &'static str) -> Member {
        let (runs, log) = (Runs::default(), self.log.clone());
        let states: Arc<DocStates> = Arc::default();
        let (actions, started) = (Arc::clone(&self.actions), Arc::clone(&runs));
        let jobs = move |run: NewRun| {
            Ok(job_supervisor::run(FakeJob {
                run,
                daemon: name,
                actions: Arc::clone(&actions),
                runs: Arc::clone(&started),
            }))
        };
        let scheduler = scheduler(Settings::default(), Box::new(jobs), &states);
        let connection = self.fleet.connect();
        let options = DocumentsOptions {
            fleet: Some(connection.clone()),
            scheduler: RegisteredName::new(scheduler),
            ..options(self.store.clone(), Arc::clone(&states))
        };
        let documents = ReplicatorDocuments::new(options, PidGuard::new()).start();
        let servers = broadcast::Sender::new(9);
        let options = FleetMemberOptions {
            drain: Drain::default(),
            fleet: connection.clone(),
            name: DaemonName {
                address: name.into(),
                version: "0".into(),
            },
            documents: RegisteredName::new(documents.clone()),
            clock: self.clock.clone(),
            epoch: Default::default(),
            servers: servers.clone(),
            metrics: Default::default(),
            log,
        };
        let pid_guard = PidGuard::new();
        Member {
            name,
            states,
            connection,
            documents,
            servers,
            pid: pid_guard.pid(),
            member: FleetMember::new(options, pid_guard).start(),
            runs,
        }
    }

    fn actions(&self) -> Vec<(&'static str, String, RunAction)> {
        self.actions.lock().unwrap().clone()
    }

    /// Returns the number of runs in progress.
    fn running(&self, member: &Member) -> usize {
        let count = |wanted: RunAction| {
            let actions = self.actions();
            let of_it = |(daemon, _, action): &&(&str, String, RunAction)| {
                *daemon == member.name && *action == wanted
            };
            actions.iter().filter(of_it).count()
        };
        count(RunAction::Begin) - count(RunAction::End)
    }

    async fn until_running(&self, member: &Member, count: usize) {
        let what = format!("{} runs {count}", member.name);
        eventually(&what, || async { self.running(member) == count }).await;
    }

    /// Asserts that no document had two runs at a time.
    fn assert_one_run_each(&self) {
        let mut running: BTreeMap<String, &str> = BTreeMap::new();
        for (daemon, doc, action) in self.actions() {
            match action {
                RunAction::Begin => {
                    let before = running.insert(doc.clone(), daemon);
                    assert_eq!(before, None, "{doc} has two runs");
                }
                RunAction::End => assert_eq!(running.remove(&doc), Some(daemon)),
                RunAction::Checkpoint(_) => assert_eq!(running.get(&doc), Some(&daemon)),
            }
        }
    }

    fn checkpoints(&self, member: &Member) -> usize {
        let actions = self.actions();
        let of_it = |(daemon, _, action): &&(&str, String, RunAction)| {
            *daemon == member.name && matches!(action, RunAction::Checkpoint(_))
        };
        actions.iter().filter(of_it).count()
    }

    async fn document(&self, id: &str) -> Document {
        self.store.document(id).await.unwrap().unwrap()
    }

    async fn state_of(&self, id: &str) -> Option<String> {
        members(&self.document(id).await).text(state::STATE)
    }
}

impl Member {
    /// Returns the epoch of its latest run.
    fn epoch(&self) -> Epoch {
        Epoch(self.last_run().guard.epoch().unwrap())
    }

    fn last_run(&self) -> NewRun {
        self.runs.lock().unwrap().last().unwrap().0.clone()
    }

    /// Returns how long its runs may still begin checkpoints, as the member knows it.
    fn lease_left(&self) -> Duration {
        let runs = self.runs.lock().unwrap();
        let left = runs.iter().filter_map(|(run, _)| run.guard.left());
        left.max().unwrap_or_default()
    }

    /// Waits until it has handled all earlier messages.
    async fn flush(&self) {
        for _ in 0..3 {
            let nothing = OwnedChanges(Vec::new());
            self.documents.send(nothing).await.unwrap();
        }
    }
}

#[actix_rt::test]
async fn a_second_daemon_gets_its_share_and_each_handed_over_run_writes_a_checkpoint() {
    let world = World::of(20).await;
    let one = world.start("one");
    world.until_running(&one, 20).await;
    let two = world.start("two");
    world.until_running(&two, 10).await;
    world.until_running(&one, 10).await;
    world.assert_one_run_each();
    assert_eq!((world.checkpoints(&one), world.checkpoints(&two)), (10, 0));
    let owned = world.fleet.owned();
    assert_eq!(owned.into_values().collect::<Vec<_>>(), [10, 10]);
}

#[actix_rt::test]
async fn jobs_found_at_start_are_recorded_once_each_in_a_few_requests() {
    let world = World::of(600).await;
    let one = world.start("one");
    eventually("all jobs are recorded", || async {
        one.connection.noted().iter().sum::<usize>() == 600
    })
    .await;
    // Documents claimed while updates are read may come in any request.
    let requests = one.connection.noted();
    assert!(requests.len() <= 6, "{requests:?}");
}

#[actix_rt::test]
async fn each_batch_of_documents_is_read_after_the_jobs_of_the_previous_one_are_added() {
    let world = World::of(1000).await;
    let one = world.start("one");
    one.connection.hold_notes(true);
    let read = || {
        let states = one.states.lock();
        let is_read = |number: &usize| states.row(&format!("d{number:02}")).is_some();
        (0..1000).filter(is_read).count()
    };
    eventually("some documents are read", || async { read() >= ADDS_MAX }).await;
    // All requests to the store so far are answered and processed.
    for _ in 0..10 {
        world.document("d00").await;
        one.flush().await;
    }
    // Some of the documents read were claimed, others arrived as updates.
    assert!(read() <= 2 * ADDS_MAX, "{}", read());
    one.connection.hold_notes(false);
    eventually("all jobs are recorded", || async {
        one.connection.noted().iter().sum::<usize>() == 1000
    })
    .await;
}

#[actix_rt::test]
async fn jobs_of_a_disconnected_daemon_end_without_checkpoints_before_another_runs_them() {
    let world = World::of(20).await;
    let (one, two) = (world.start("one"), world.start("two"));
    world.until_running(&two, 10).await;
    world.until_running(&one, 10).await;
    let (cut_off, other) = (one.epoch(), two.epoch());
    // Handovers while both daemons started may have written checkpoints.
    let before = world.checkpoints(&one);
    one.connection.cut();
    while world.fleet.lease_left(cut_off) > Duration::ZERO {
        world.clock.set_forward(Duration::from_secs(1));
        eventually("the other one has renewed its lease", || async {
            two.lease_left() > Duration::from_secs(5)
        })
        .await;
        if one.lease_left().is_zero() {
            // Others must not claim anything yet.
            world.until_running(&one, 0).await;
        }
    }
    world.until_running(&two, 20).await;
    assert_eq!(world.running(&one), 0);
    world.assert_one_run_each();
    assert_eq!(world.checkpoints(&one), before);
    assert!(one.last_run().guard.left().is_none());
    assert_eq!(world.fleet.owned(), [(other, 20)].into());
}

#[actix_rt::test]
async fn a_daemon_that_shuts_down_stops_its_jobs_with_checkpoints_and_releases_all() {
    let world = World::of(20).await;
    let (one, two) = (world.start("one"), world.start("two"));
    world.until_running(&two, 10).await;
    world.until_running(&one, 10).await;
    let before = world.checkpoints(&one);
    one.member.do_send(Stop { now: false });
    world.until_running(&two, 20).await;
    eventually("the daemon has stopped", || async { !one.pid.is_alive() }).await;
    world.assert_one_run_each();
    assert_eq!(world.checkpoints(&one), before + 10);
    assert_eq!(world.fleet.owned(), [(two.epoch(), 20)].into());
}

#[actix_rt::test]
async fn a_disconnected_daemon_still_shuts_down_and_leaves_no_lease() {
    let world = World::of(3).await;
    let one = world.start("one");
    world.until_running(&one, 3).await;
    one.connection.cut();
    one.member.do_send(Stop { now: true });
    eventually("the daemon has stopped", || async { !one.pid.is_alive() }).await;
    assert!(one.last_run().guard.left().is_none());
    assert_eq!(world.checkpoints(&one), 3);
}

#[actix_rt::test]
async fn a_document_whose_replication_has_completed_is_released() {
    let world = World::of(2).await;
    let one = world.start("one");
    world.until_running(&one, 2).await;
    let (run, job) = one.runs.lock().unwrap()[0].clone();
    let doc = run.replication.doc.as_ref().unwrap().id.clone();
    job.do_send(Complete);
    eventually("the outcome is written", || async {
        world.state_of(&doc).await.as_deref() == Some(state::COMPLETED)
    })
    .await;
    eventually("the document is released", || async {
        world.fleet.owned() == [(one.epoch(), 1)].into()
    })
    .await;
    assert!(run.guard.left().is_none(), "the claim has ended");
}

#[actix_rt::test]
async fn documents_of_a_server_that_one_daemon_cannot_reach_move_to_another_until_it_can() {
    let world = World::of(10).await;
    let (one, two) = (world.start("one"), world.start("two"));
    world.until_running(&two, 5).await;
    world.until_running(&one, 5).await;
    let before = world.checkpoints(&one);
    let report = |answers| {
        let server = "http://s".into();
        one.servers.send(ServerReach { server, answers }).unwrap();
    };
    report(false);
    world.clock.set_forward(Duration::from_secs(10));
    world.until_running(&one, 0).await;
    world.until_running(&two, 10).await;
    assert_eq!(world.checkpoints(&one), before + 5);
    report(true);
    for daemon in [&one, &two] {
        world.clock.set_forward(Duration::from_secs(10));
        world.until_running(daemon, 5).await;
    }
    world.assert_one_run_each();
}

#[actix_rt::test]
async fn the_outcome_of_a_lost_claim_is_not_written() {
    let world = World::of(1).await;
    let one = world.start("one");
    world.until_running(&one, 1).await;
    let run = one.last_run();
    one.connection.cut();
    world.clock.set_forward(Duration::from_secs(25));
    world.until_running(&one, 0).await;
    one.documents.do_send(ReplicationEvent {
        id: run.id.clone(),
        replication: Arc::clone(&run.replication),
        refused: Vec::new(),
        what: Happening::Ended(JobEnd::Normal(completed())),
    });
    one.flush().await;
    assert_eq!(world.state_of("d00").await, None);
    // Neither is the outcome of a document that another daemon owns.
    let two = world.start("two");
    world.clock.set_forward(Duration::from_secs(6));
    world.until_running(&two, 1).await;
    one.documents.do_send(ReplicationEvent {
        id: run.id.clone(),
        replication: run.replication,
        refused: Vec::new(),
        what: Happening::Ended(JobEnd::Normal(completed())),
    });
    one.flush().await;
    assert_eq!(world.state_of("d00").await, None);
}

#[actix_rt::test]
async fn one_of_two_documents_with_the_same_replication_on_two_daemons_fails() {
    let world = World::of(0).await;
    world.write("a", 1).await;
    world.write("b", 1).await;
    let (_one, _two) = (world.start("one"), world.start("two"));
    let failed = || async {
        let mut failed = Vec::new();
        for id in ["a", "b"] {
            let is_failed = world.state_of(id).await.as_deref() == Some(state::FAILED);
            failed.extend(is_failed.then_some(id));
        }
        failed
    };
    eventually("one fails", || async { !failed().await.is_empty() }).await;
    let failed = failed().await;
    let other = if failed == ["a"] { "b" } else { "a" };
    let body = world.document(failed[0]).await.body;
    let why = format!("already started, triggered by document `{other}`");
    assert!(body.contains(&why), "{body}");
    eventually("the document is released", || async {
        world.fleet.owned().into_values().sum::<usize>() == 1
    })
    .await;
    assert_eq!(world.state_of(other).await, None);
}

#[actix_rt::test]
async fn a_replication_id_held_by_a_missing_document_is_a_temporary_error() {
    let world = World::of(1).await;
    let one = world.start("one");
    world.until_running(&one, 1).await;
    let id = one.last_run().id.to_string();
    one.member.do_send(Stop { now: false });
    eventually("the daemon has stopped", || async { !one.pid.is_alive() }).await;
    world.fleet.note_id(&id, "gone");
    let two = world.start("two");
    eventually("the document is in error", || async {
        let row = two.states.lock().row("d00").cloned();
        row.is_some_and(|row| row.state == RowState::Error && row.info.unwrap().contains("`gone`"))
    })
    .await;
    assert_eq!(world.state_of("d00").await, None);
}

#[actix_rt::test]
async fn a_claim_whose_answer_was_lost_is_found_and_repeated() {
    let world = World::of(5).await;
    let one = world.start("one");
    world.until_running(&one, 5).await;
    one.connection.lose_claims(true);
    world.write("late", 99).await;
    // The next renewal reports one more document.
    world.clock.set_forward(Duration::from_secs(8));
    eventually("the document is claimed", || async {
        world.fleet.owned().into_values().sum::<usize>() == 6
    })
    .await;
    one.connection.lose_claims(false);
    // The next renewal lists the document.
    world.clock.set_forward(Duration::from_secs(8));
    world.until_running(&one, 6).await;
    world.assert_one_run_each();
}

#[actix_rt::test]
async fn a_member_stops_and_ends_its_leases_if_its_documents_actor_stops() {
    let world = World::of(2).await;
    let one = world.start("one");
    world.until_running(&one, 2).await;
    one.documents.do_send(Stop { now: false });
    eventually("the daemon has stopped", || async { !one.pid.is_alive() }).await;
    assert!(one.last_run().guard.left().is_none());
}

#[actix_rt::test]
async fn epochs_whose_answers_were_lost_are_removed_once_one_is_taken() {
    let world = World::of(2).await;
    let one = world.start("one");
    // The daemon has not requested an epoch yet.
    one.connection.lose_epochs(2);
    world.until_running(&one, 2).await;
    assert_eq!(world.fleet.live(), [one.epoch()]);
}

#[actix_rt::test]
async fn a_daemon_that_stops_before_it_learns_its_epoch_leaves_none() {
    let world = World::of(1).await;
    let one = world.start("one");
    one.connection.lose_epochs(usize::MAX);
    eventually("an epoch is taken", || async {
        !world.fleet.live().is_empty()
    })
    .await;
    one.member.do_send(Stop { now: true });
    eventually("the daemon has stopped", || async { !one.pid.is_alive() }).await;
    assert_eq!(world.fleet.live(), []);
}
