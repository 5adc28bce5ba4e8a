//! A job's life, from its addition to the end of its runs, and its reports.

use super::*;

#[actix_rt::test]
async fn a_job_starts_and_reports_its_progress() {
    let mut world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    run.job.do_send(Do::News(JobNews::Started(progress(1))));
    run.job.do_send(Do::News(JobNews::Progress(progress(7))));
    assert!(matches!(world.next_event().await.1, Happening::Triggered));
    eventually("its progress is known", || async {
        world
            .job("a")
            .await
            .progress
            .is_some_and(|last| last.stats.docs_written == 7)
    })
    .await;
    let job = world.job("a").await;
    assert_eq!(job.shown.summary.state, JobState::Running);
    assert_eq!((job.shown.run, job.shown.why_not), (Some(Run(1)), None));
    assert_eq!(world.types("a").await, ["started", "added"]);
}

#[actix_rt::test]
async fn a_completed_job_is_removed_and_reports_its_result() {
    let mut world = World::start(|_| {}).await;
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(permanent("a"), id("a"));
    order.waiter = Some(waiter);
    assert_eq!(world.ask(order).await, Ok(Added::New));
    world.begun(1).await.job.do_send(Do::End(normal(3)));
    let Ok(JobEnd::Normal(completed)) = within("its end", outcome).await else {
        panic!("expected a completed job");
    };
    assert_eq!(completed.progress.stats.docs_written, 3);
    assert!(matches!(world.next_event().await.1, Happening::Triggered));
    let ended = world.next_event().await.1;
    assert!(matches!(ended, Happening::Ended(JobEnd::Normal(_))));
    assert!(world.ask(GetJob { id: id("a") }).await.is_none());
}

#[actix_rt::test]
async fn a_crashed_job_is_retried_after_its_back_off() {
    let mut world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    run.job.do_send(Do::News(JobNews::Progress(progress(5))));
    run.job.do_send(Do::End(crash()));
    world.next_event().await;
    let Happening::Crashed(crash) = world.next_event().await.1 else {
        panic!("expected a crash");
    };
    assert_eq!(crash.to_string(), "worker_died: x");
    let job = world.job("a").await;
    assert_eq!(job.shown.summary.error_count, 1);
    assert_eq!(job.shown.summary.state, JobState::Crashing);
    let why = job
        .shown
        .why_not
        .map(|why| why.to_string())
        .unwrap_or_default();
    assert!(
        why.starts_with("backing off until 20") && why.ends_with("after 1 crash: worker_died: x")
    );
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(world.jobs.begun.borrow().len(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let again = world.begun(2).await;
    assert_eq!(again.order.earlier.docs_written, 5, "the count continues");
    assert_eq!(
        world.types("a").await,
        ["started", "crashed", "started", "added"]
    );
}

#[actix_rt::test]
async fn every_kind_of_crash_is_counted_once() {
    let world = World::start(|settings| settings.backoff.base = Duration::from_secs(3600)).await;
    for (name, end) in [("a", Do::Vanish), ("b", Do::Panic), ("c", Do::End(crash()))] {
        world.add_and_run(name).await.job.do_send(end);
        world.history(name, &["crashed", "started", "added"]).await;
    }
    world.jobs.start.set(Starting::Fails);
    assert_eq!(world.add("d").await, Ok(Added::New));
    world.history("d", &["crashed", "started", "added"]).await;
    world.jobs.start.set(Starting::Panics);
    assert_eq!(world.add("e").await, Ok(Added::New));
    world.history("e", &["crashed", "started", "added"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let counts = world.counts().await;
    assert_eq!((counts.totals.starts, counts.totals.crashes), (5, 5));
    assert_eq!((counts.census.crashed, counts.census.running), (5, 0));
    let error = |job: JobInfo| {
        job.shown
            .summary
            .error
            .map(|reason| reason.text.to_string())
    };
    assert_eq!(
        error(world.job("b").await),
        Some("job_died: panicked".into())
    );
    assert_eq!(
        error(world.job("d").await),
        Some("job_died: refused".into())
    );
}

#[actix_rt::test]
async fn a_crashed_job_without_a_document_is_removed() {
    let world = World::start(|_| {}).await;
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(replication("a", None), id("a"));
    order.waiter = Some(waiter);
    assert_eq!(world.ask(order).await, Ok(Added::New));
    world.begun(1).await.job.do_send(Do::End(crash()));
    let Ok(JobEnd::Crashed(crash)) = within("its end", outcome).await else {
        panic!("expected a crash");
    };
    assert_eq!(crash.name(), "worker_died");
    assert!(world.ask(GetJob { id: id("a") }).await.is_none());
}

#[actix_rt::test]
async fn only_its_user_and_administrators_may_replace_a_transient_job() {
    let world = World::start(|_| {}).await;
    let add = |user: &str, roles: &[&str], since_seq: Option<Seq>| {
        let mut asked = replication("a", None);
        asked.user.name = Some(user.to_owned());
        asked.user.roles = roles.iter().map(ToString::to_string).collect();
        asked.options.since_seq = since_seq;
        world.ask(AddJob::new(asked, id("a")))
    };
    let (id, by, other) = (id("a"), None, Some(Seq::zero()));
    let taken = AddJobError::Taken { id, by };
    assert_eq!(add("ann", &[], None).await, Ok(Added::New));
    assert_eq!(add("ben", &[], other.clone()).await, Err(taken));
    assert_eq!(add("ben", &["_admin"], other).await, Ok(Added::Replaced));
}

#[actix_rt::test]
async fn adding_the_same_job_again_does_not_disturb_its_run() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    assert_eq!(world.add("a").await, Ok(Added::Unchanged));
    let mut other = permanent("a");
    other.options.since_seq = Some(Seq::zero());
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(permanent("a"), id("a"));
    order.waiter = Some(waiter);
    assert_eq!(world.ask(order).await, Ok(Added::Unchanged));
    // A different job under the same id replaces the first, once its run has ended.
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    assert_eq!(
        world.ask(AddJob::new(other, id("a"))).await,
        Ok(Added::Replaced)
    );
    assert!(matches!(
        within("its end", outcome).await,
        Ok(JobEnd::Stopped)
    ));
    assert_eq!(
        world.begun(2).await.order.replication.options.since_seq,
        Some(Seq::zero())
    );
    assert_eq!(world.types("a").await, ["started", "added"]);
}

#[actix_rt::test]
async fn a_job_with_the_id_of_another_documents_job_is_refused() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    let other = world.ask(AddJob::new(permanent("b"), id("a"))).await;
    assert_eq!(
        other.map_err(|error| error.to_string()),
        Err(
            "Replication `a+continuous` already started, triggered by document `a` from db \
             `_replicator`"
                .into()
        )
    );
    world
        .ask(AddJob::new(replication("t", None), id("t")))
        .await
        .expect("the job is new");
    let other = world.ask(AddJob::new(permanent("t"), id("t"))).await;
    assert!(matches!(other, Err(AddJobError::Taken { by: None, .. })));
}

#[actix_rt::test]
async fn a_rate_limited_job_makes_fewer_requests() {
    let world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    assert_eq!(run.order.replication.options.tuning.worker_processes, 20);
    run.job.do_send(Do::End(JobEnd::Crashed(Crash::MaxBackoff)));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let again = world.begun(2).await;
    assert_eq!(again.order.replication.options.tuning.worker_processes, 2);
    assert_eq!(
        world
            .job("a")
            .await
            .replication
            .options
            .tuning
            .worker_processes,
        20,
        "as requested"
    );
}

#[actix_rt::test]
async fn jobs_are_listed_by_id_and_by_state() {
    let world = World::start(|settings| settings.max_jobs = 3).await;
    for name in ["c", "a", "b"] {
        world.add(name).await.expect("the job is new");
    }
    let list = |skip, limit, states: &[JobState]| {
        let states = states.to_vec();
        world.ask(GetJobs {
            after: None,
            skip,
            limit,
            states,
        })
    };
    let names = |list: JobList| -> (usize, Vec<String>) {
        (
            list.total,
            list.jobs.into_iter().map(|job| job.id.base).collect(),
        )
    };
    assert_eq!(
        names(list(0, 9, &JobState::ALL).await),
        (3, vec!["a".into(), "b".into(), "c".into()])
    );
    assert_eq!(
        names(list(1, 1, &JobState::ALL).await),
        (3, vec!["b".into()])
    );
    let runs = (2, vec!["a".into(), "c".into()]);
    assert_eq!(names(list(0, 9, &[JobState::Running]).await), runs);
    let waiting = [JobState::Pending, JobState::Crashing];
    assert_eq!(names(list(0, 9, &waiting).await), (1, vec!["b".into()]));
    assert_eq!(names(list(0, 9, &[]).await), (0, vec![]));
    let second = list(1, 1, &[JobState::Running]).await;
    assert_eq!(names(second), (2, vec!["c".into()]));
    let by_id = world
        .ask(GetJobsById {
            ids: vec![id("x"), id("c")],
        })
        .await;
    assert!(by_id[0].is_none() && by_id[1].is_some());
}

#[actix_rt::test]
async fn events_are_counted() {
    let world = World::start(|settings| settings.backoff.base = Duration::from_secs(60)).await;
    world.add_and_run("a").await.job.do_send(Do::End(crash()));
    world.history("a", &["crashed", "started", "added"]).await;
    world.add_and_run("b").await;
    world.add("b").await.expect("the job is the same");
    world.order("b", JobOrder::Pause).await;
    world.history("b", &["stopped", "started", "added"]).await;
    world.add_and_run("c").await;
    world.ask(remove("c")).await;
    let snapshot = world.metrics.snapshot(&Default::default());
    let number =
        |name: &str| snapshot.number(&format!("couchdb_couch_replicator_jobs_{name}"), &[]);
    for (name, expected) in [
        ("adds_total", 3.0),
        ("duplicate_adds_total", 1.0),
        ("removes_total", 1.0),
        ("starts_total", 3.0),
        ("stops_total", 1.0),
        ("crashes_total", 1.0),
        ("total", 2.0),
        ("running", 0.0),
        ("pending", 1.0),
        ("crashed", 1.0),
    ] {
        assert_eq!(number(name), Some(expected), "{name}");
    }
    assert_eq!(
        snapshot.number("settee_replication_jobs_paused", &[]),
        Some(1.0)
    );
}

#[actix_rt::test]
async fn a_job_with_pending_changes_and_no_progress_is_stalled() {
    let world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    assert_eq!(world.add("other").await, Ok(Added::New));
    let left = |left| JobProgress {
        changes_pending: Some(left),
        ..progress(1)
    };
    run.job.do_send(Do::News(JobNews::Started(left(5))));
    tokio::time::sleep(STALLED_AFTER - Duration::from_secs(1)).await;
    assert_eq!(world.ask(GetRunTroubles).await.stalled, Stalled::default());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stalled = Stalled {
        count: 1,
        example: "a".into(),
    };
    assert_eq!(world.ask(GetRunTroubles).await.stalled, stalled);
    run.job.do_send(Do::News(JobNews::Progress(left(4))));
    eventually("the job makes progress", || async {
        world.ask(GetRunTroubles).await.stalled == Stalled::default()
    })
    .await;
    // A job without pending changes is not stalled.
    run.job.do_send(Do::News(JobNews::Progress(left(0))));
    tokio::time::sleep(STALLED_AFTER * 2).await;
    assert_eq!(world.ask(GetRunTroubles).await.stalled, Stalled::default());
}

#[actix_rt::test]
async fn a_slow_server_is_reported_with_the_number_of_its_running_jobs() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    let server: Arc<str> = "http://127.0.0.1:5984".into();
    let troubles = || world.ask(GetRunTroubles);
    assert_eq!(troubles().await.slow, []);
    for _ in 0..3 {
        world.http.note_wait(&server, Duration::from_secs(7));
        world
            .http
            .note_wait(&"http://other.example".into(), Duration::from_secs(8));
    }
    let slow = troubles().await.slow.into_iter();
    let slow: Vec<_> = slow
        .map(|(slow, jobs)| (slow.server.to_string(), jobs))
        .collect();
    assert_eq!(
        slow,
        [
            (server.to_string(), 1),
            ("http://other.example".to_owned(), 0)
        ]
    );
}
