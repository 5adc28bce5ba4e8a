//! Slots, cycles, settings, and orders for single jobs.

use super::*;

#[actix_rt::test]
async fn stopping_jobs_hold_their_slots_until_they_end() {
    let world = World::start(|settings| settings.max_jobs = 1).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(4)));
    assert_eq!(world.add("a").await, Ok(Added::New));
    world.ask(Reschedule).await;
    world.begun(1).await;
    assert_eq!(world.add("b").await, Ok(Added::New));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(world.jobs.begun.borrow().len(), 1, "a is still stopping");
    assert_eq!(
        world
            .job("a")
            .await
            .shown
            .why_not
            .map(|why| why.to_string()),
        Some("stopping".into())
    );
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.begun(2).await.order.id, id("b"));
    assert_eq!(world.types("a").await, ["stopped", "started", "added"]);
}

#[actix_rt::test]
async fn cycles_run_at_their_interval_and_a_changed_interval_applies_at_once() {
    let world = World::start(|settings| {
        settings.max_jobs = 1;
        settings.interval = Duration::from_secs(3600);
    })
    .await;
    let begun = || world.jobs.begun.borrow().len();
    world.add("a").await.expect("the job is new");
    world.add("b").await.expect("the job is new");
    tokio::time::sleep(Duration::from_secs(3590)).await;
    assert_eq!(begun(), 0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(begun(), 1);
    let settings = Settings {
        max_jobs: 1,
        interval: Duration::from_secs(60),
        ..Settings::default()
    };
    world.ask(Configure(settings)).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(begun(), 2, "the jobs rotate");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(begun(), 4);
}

#[actix_rt::test]
async fn changed_settings_apply_to_running_jobs() {
    let world = World::start(|_| {}).await;
    for name in ["a", "b", "c"] {
        world.add_and_run(name).await;
    }
    let settings = Settings {
        max_jobs: 1,
        max_history: 2,
        max_churn: 0,
        ..Settings::default()
    };
    world.ask(Configure(settings)).await;
    world.ask(Reschedule).await;
    eventually("two are stopped", || async {
        world.counts().await.census.running == 1
    })
    .await;
    assert_eq!(world.types("a").await, ["stopped", "started"]);
    assert_eq!(world.types("c").await, ["started", "added"]);
}

#[actix_rt::test]
async fn a_job_is_paused_resumed_restarted_and_given_a_priority() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    assert!(world.order("a", JobOrder::Pause).await);
    world.history("a", &["stopped", "started", "added"]).await;
    let job = world.job("a").await;
    assert_eq!(job.shown.paused.map(|pause| pause.by), Some("ann".into()));
    assert!(
        job.shown
            .why_not
            .is_some_and(|why| why.to_string().starts_with("paused by ann since 20"))
    );
    assert!(world.order("a", JobOrder::Resume).await);
    world.begun(2).await;
    assert!(world.order("a", JobOrder::Restart).await);
    world.begun(3).await;
    assert_eq!(world.types("a").await, ["started", "added"]);
    assert!(world.order("a", JobOrder::Priority(9)).await);
    assert_eq!(world.job("a").await.shown.level, Level(9));
    assert!(!world.order("b", JobOrder::Pause).await);
    assert!(!world.order("b", JobOrder::Restart).await);
}

#[actix_rt::test]
async fn a_bulk_add_has_an_answer_for_each_job() {
    let world = World::start(|_| {}).await;
    world.add("a").await.unwrap();
    let add = |doc: &str, name: &str| AddJob::new(permanent(doc), id(name));
    let jobs = vec![add("a", "a"), add("b", "b"), add("c", "a"), add("d", "d")];
    let taken = AddJobError::Taken {
        id: id("a"),
        by: permanent("a").doc,
    };
    assert_eq!(
        world.ask(AddJobs(jobs)).await,
        [
            Ok(Added::Unchanged),
            Ok(Added::New),
            Err(taken),
            Ok(Added::New)
        ]
    );
    world.begun(3).await;
}
