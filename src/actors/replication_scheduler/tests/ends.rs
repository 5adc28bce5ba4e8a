//! How runs end: removed, killed, orphaned, or at shutdown.

use super::*;

#[actix_rt::test]
async fn a_removal_is_answered_once_the_run_has_ended() {
    let mut world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    world.add_and_run("a").await;
    let before = Instant::now();
    assert!(world.ask(remove("a")).await);
    assert!(before.elapsed() >= Duration::from_secs(3));
    assert!(!world.ask(remove("a")).await);
    world.next_event().await;
    assert!(matches!(
        world.next_event().await.1,
        Happening::Ended(JobEnd::Stopped)
    ));
    assert_eq!(world.counts().await.census, Default::default());
}

/// Removes or loses a running job, and returns the seconds until the answer.
async fn seconds_to_end(stopping: Stopping, is_lost: bool) -> u64 {
    let world = World::start(|_| {}).await;
    world.stop_jobs(stopping);
    world.add_and_run("a").await;
    let before = Instant::now();
    assert!(match is_lost {
        true => world.ask(lose("a")).await,
        false => world.ask(remove("a")).await,
    });
    before.elapsed().as_secs()
}

#[actix_rt::test]
async fn a_document_cannot_remove_the_job_of_another_document() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    let (other, none) = (Some(doc("other")), None);
    for doc in [other, none] {
        let id = id("a");
        assert!(!world.ask(RemoveJob { id, doc }).await);
    }
    let (id, doc) = (id("a"), doc("other"));
    assert!(!world.ask(LoseJob { id, doc }).await);
    assert_eq!(world.counts().await.census.running, 1);
    assert!(world.ask(remove("a")).await);
}

#[actix_rt::test]
async fn a_job_that_does_not_stop_is_killed_after_five_seconds() {
    assert_eq!(seconds_to_end(Stopping::Never, false).await, 5);
}

#[actix_rt::test]
async fn a_job_that_cannot_be_killed_is_left_behind() {
    assert_eq!(seconds_to_end(Stopping::Unkillable, false).await, 6);
}

#[actix_rt::test]
async fn a_lost_job_that_cannot_be_killed_is_left_behind_after_a_second() {
    assert_eq!(seconds_to_end(Stopping::Unkillable, true).await, 1);
}

#[actix_rt::test]
async fn a_lost_job_is_killed_at_once_without_a_request_to_stop() {
    let mut world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    world.add_and_run("a").await;
    let before = Instant::now();
    assert!(world.ask(lose("a")).await);
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(!world.ask(lose("a")).await);
    world.next_event().await;
    assert!(matches!(
        world.next_event().await.1,
        Happening::Ended(JobEnd::Stopped)
    ));
    let counts = world.counts().await;
    assert_eq!(counts.census, Default::default());
    assert_eq!(counts.totals.crashes, 0, "a kill is not a crash");
    assert_eq!(world.jobs.asked.get(), 0);
}

#[actix_rt::test]
async fn a_run_that_is_stopping_is_killed_when_its_job_is_lost() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::Never);
    world.add_and_run("a").await;
    world.add_and_run("b").await;
    let before = Instant::now();
    world.order("a", JobOrder::Pause).await;
    let removal = world.scheduler.send(remove("b"));
    assert!(world.ask(lose("a")).await);
    assert!(world.ask(lose("b")).await);
    assert!(
        within("the removal's answer", removal).await.unwrap(),
        "the removal is answered too"
    );
    assert!(before.elapsed() < Duration::from_secs(1));
    assert_eq!(world.counts().await.census, Default::default());
}

#[actix_rt::test]
async fn a_lost_job_that_is_added_again_starts_once_its_killed_run_has_ended() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::Unkillable);
    let left = world.add_and_run("a").await;
    world.scheduler.do_send(lose("a"));
    assert_eq!(world.add("a").await, Ok(Added::New));
    world.add_and_run_others().await;
    assert_eq!(world.runs_of("a"), 1);
    assert!(world.ask(lose("a")).await, "a re-added job can be lost");
    assert_eq!(world.add("a").await, Ok(Added::New));
    left.job.do_send(Do::Vanish);
    eventually("a second run", || async { world.runs_of("a") == 2 }).await;
}

#[actix_rt::test]
async fn all_runs_are_stopped_concurrently_at_shutdown() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    for name in ["a", "b", "c"] {
        world.add_and_run(name).await;
    }
    world.stop_jobs(Stopping::Never);
    world.add_and_run("d").await;
    let before = Instant::now();
    let downs = Probe::start();
    let _watch = world.pid.watch(downs.recipient());
    world.scheduler.do_send(Stop { now: false });
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.counts().await.census.running, 1);
    assert!(matches!(
        world.add("e").await,
        Err(AddJobError::ShuttingDown)
    ));
    let mut downs = downs;
    assert_eq!(downs.next().await.reason, ExitReason::Shutdown);
    let took = before.elapsed();
    assert!(
        took >= SHUTDOWN_MAX && took < SHUTDOWN_MAX + Duration::from_secs(1),
        "{took:?}"
    );
}

#[actix_rt::test]
async fn jobs_end_when_their_scheduler_panics() {
    let world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    let (jobs, job) = (world.jobs.clone(), run.job.clone());
    world.scheduler.do_send(Doom);
    eventually("the job is gone", || async { !job.connected() }).await;
    assert_eq!(jobs.begun.borrow().len(), 1);
}

#[derive(Message)]
#[rtype(result = "()")]
struct Doom;

impl Handler<Doom> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, _: Doom, _: &mut Self::Context) {
        panic!("scripted panic");
    }
}

#[actix_rt::test]
async fn a_run_that_is_left_behind_delays_the_next_run_of_its_replication() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::Unkillable);
    let left = world.add_and_run("a").await;
    assert!(world.ask(remove("a")).await);
    world.stop_jobs(Stopping::AtOnce);
    assert_eq!(world.add("a").await, Ok(Added::New));
    world.add_and_run_others().await;
    assert!(left.job.connected(), "the first run is still alive");
    assert_eq!(world.runs_of("a"), 1, "no second run starts");
    left.job.do_send(Do::Vanish);
    eventually("a second run", || async { world.runs_of("a") == 2 }).await;
    world.history("a", &["started", "added"]).await;
}

#[actix_rt::test]
async fn the_successor_of_a_failed_scheduler_waits_for_its_runs_to_end() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    let before = Instant::now();
    let old = world.add_and_run("a").await;
    world.scheduler.do_send(Doom);
    eventually("the scheduler ends", || async { !world.pid.is_alive() }).await;
    let next = world.successor().await;
    assert_eq!(next.add("a").await, Ok(Added::New));
    next.add_and_run_others().await;
    assert!(old.job.connected() && next.runs_of("a") == 1);
    eventually("the next run starts", || async { next.runs_of("a") == 2 }).await;
    assert!(!old.job.connected(), "the old run ended first");
    assert!(before.elapsed() >= Duration::from_secs(3));
    assert_eq!(next.counts().await.census.running, 2);
}

#[actix_rt::test]
async fn a_run_that_waits_for_an_earlier_run_is_stopped_like_any_other() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::Unkillable);
    let left = world.add_and_run("a").await;
    assert!(world.ask(remove("a")).await);
    world.stop_jobs(Stopping::AtOnce);
    assert_eq!(world.add("a").await, Ok(Added::New));
    world.order("a", JobOrder::Pause).await;
    world.history("a", &["stopped", "started", "added"]).await;
    world.order("a", JobOrder::Resume).await;
    assert!(world.ask(remove("a")).await);
    left.job.do_send(Do::Vanish);
    eventually("the first run ends", || async { !left.job.connected() }).await;
    assert_eq!(world.runs_of("a"), 1);
    let before = Instant::now();
    world.ask(Stop { now: false }).await;
    eventually("the scheduler ends", || async { !world.pid.is_alive() }).await;
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[actix_rt::test]
async fn a_scheduler_and_its_runs_end_with_the_job_supervisor() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::Never);
    let run = world.add_and_run("a").await;
    world.stop_jobs(Stopping::PanicsOnKill);
    world.add_and_run("b").await;
    world.scheduler.do_send(remove("b"));
    eventually("the scheduler ends", || async { !world.pid.is_alive() }).await;
    eventually("the run ends", || async { !run.job.connected() }).await;
}
