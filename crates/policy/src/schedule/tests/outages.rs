//! Unreachable servers: which are probed, when, and which jobs start early.

use super::super::outage::{
    PROBE_INTERVAL, PROBES_MAX, SPREAD_EACH, SPREAD_MAX, UNREACHABLE_AFTER,
};
use super::*;
use test_support::TestRandom;

const SERVER: &str = "http://db.example:5984";
const OTHER: &str = "http://other.example:5984";

fn unreachable(one: &str, other: &str) -> End {
    End::Unreachable(reason("no connection"), [one.into(), other.into()])
}

fn probes(actions: &[ScheduleAction]) -> Vec<String> {
    let server = |action: &ScheduleAction| match action {
        ScheduleAction::Probe { server, .. } => Some(server.to_string()),
        _ => None,
    };
    actions.iter().filter_map(server).collect()
}

fn probed(server: &str, answers: bool) -> Event {
    let server = server.into();
    Event::Probed { server, answers }
}

/// Running jobs that have each failed so often that their next back-off takes hours.
fn worn(ids: &[&str], settings: Settings) -> World {
    let mut world = World::with(settings, []);
    ids.iter().for_each(|id| {
        world.on(Event::Add(new_job(id)));
    });
    for _ in 0..8 {
        ids.iter().for_each(|id| {
            world.end(id, crash("x"));
        });
        let wait = Duration::from_secs(30_720);
        world.advance(wait);
    }
    assert_eq!(world.running().len(), ids.len());
    world
}

fn without_charges() -> Settings {
    Settings {
        interval: Duration::ZERO,
        ..Settings::default()
    }
}

#[test]
fn jobs_of_an_unreachable_server_are_retried_as_soon_as_it_answers() {
    let mut world = worn(&["a", "b"], without_charges());
    assert_eq!(
        probes(world.end("a", unreachable(SERVER, SERVER))),
        [SERVER]
    );
    assert_eq!(probes(world.end("b", unreachable(SERVER, SERVER))), [""; 0]);
    world.on(probed(SERVER, false));
    let why = world.why_not("a");
    assert!(
        why.contains(", or until the server answers again, after 9 crashes: "),
        "{why}"
    );
    assert_eq!(probes(world.advance(PROBE_INTERVAL / 2)), [""; 0]);
    assert_eq!(probes(world.advance(PROBE_INTERVAL / 2)), [SERVER]);
    world.on(probed(SERVER, true));
    world.advance(SPREAD_EACH);
    assert_eq!(world.running(), ["a", "b"]);
    assert_eq!(world.scheduler.next_wake(), None);
}

#[test]
fn an_unreachable_server_is_back_when_a_run_reaches_it_even_if_no_job_waits_for_it() {
    let back = |actions: &[ScheduleAction]| {
        let is = |action: &&ScheduleAction| matches!(action, ScheduleAction::ServerBack { .. });
        actions.iter().filter(is).count()
    };
    let reached = || Event::Reached([SERVER, OTHER].map(Into::into));
    let mut world = worn(&["a"], without_charges());
    world.end("a", unreachable(SERVER, OTHER));
    world.on(probed(OTHER, true));
    assert_eq!(back(world.on(reached())), 0);
    while !world.scheduler.has_unreachable() {
        world.on(probed(SERVER, false));
        world.advance(PROBE_INTERVAL);
    }
    // Another daemon owns its document from now on.
    world.on(Event::Lose { id: "a".into() });
    world.on(probed(SERVER, false));
    assert_eq!(probes(world.advance(PROBE_INTERVAL)), [""; 0]);
    assert_eq!(back(world.on(reached())), 1);
    assert_eq!(back(world.on(reached())), 0);
    assert!(!world.scheduler.has_unreachable());
}

#[test]
fn jobs_keep_their_backoff_when_the_first_probe_of_their_server_is_answered() {
    let mut world = worn(&["a"], without_charges());
    world.end("a", unreachable(SERVER, OTHER));
    world.on(probed(SERVER, true));
    world.on(probed(OTHER, true));
    assert_eq!(probes(world.advance(PROBE_INTERVAL * 2)), [""; 0]);
    assert_eq!(world.stopped(), ["a"]);
}

#[test]
fn a_job_is_not_said_to_wait_for_servers_that_answered_their_first_probes() {
    let mut world = worn(&["a"], without_charges());
    world.end("a", unreachable(SERVER, OTHER));
    for (server, may_be_down) in [(SERVER, true), (OTHER, false)] {
        world.on(probed(server, true));
        let why = world.why_not("a");
        assert_eq!(why.contains("answers again"), may_be_down, "{why}");
    }
}

#[test]
fn changed_settings_do_not_cancel_the_early_starts_after_an_outage() {
    let ids = ["a", "b"];
    let mut world = worn(&ids, without_charges());
    for id in ids {
        world.end(id, unreachable(SERVER, SERVER));
    }
    world.on(probed(SERVER, false));
    world.advance(PROBE_INTERVAL);
    world.on(probed(SERVER, true));
    world.configure(|settings| settings.max_churn += 1);
    world.advance(SPREAD_MAX);
    assert_eq!(world.running(), ids);
}

#[test]
fn the_loss_and_the_return_of_a_server_are_reported_once_with_its_waiting_jobs() {
    let reports = |actions: &[ScheduleAction]| {
        let report = |action: &ScheduleAction| match action {
            ScheduleAction::ServerLost { server, jobs } => Some(format!("lost {server} {jobs}")),
            ScheduleAction::ServerBack { server, jobs } => Some(format!("back {server} {jobs}")),
            _ => None,
        };
        actions.iter().filter_map(report).collect::<Vec<_>>()
    };
    let mut world = worn(&["a", "b"], without_charges());
    let mut all = world.end("a", unreachable(SERVER, OTHER)).to_vec();
    all.extend_from_slice(world.on(probed(OTHER, true)));
    all.extend_from_slice(world.on(probed(SERVER, false)));
    all.extend_from_slice(world.end("b", unreachable(SERVER, OTHER)));
    all.extend_from_slice(world.on(probed(OTHER, true)));
    for _ in 0..3 {
        all.extend_from_slice(world.advance(PROBE_INTERVAL));
        all.extend_from_slice(world.on(probed(SERVER, false)));
    }
    all.extend_from_slice(world.advance(PROBE_INTERVAL));
    all.extend_from_slice(world.on(probed(SERVER, true)));
    let (lost, back) = (format!("lost {SERVER} 1"), format!("back {SERVER} 2"));
    assert_eq!(reports(&all), [lost, back]);
}

#[test]
fn a_long_lost_server_is_reported_at_each_probe_until_it_answers() {
    let reports = |actions: &[ScheduleAction]| {
        let is_it = |action: &&ScheduleAction| matches!(action, ScheduleAction::ServerUnreachable { server } if **server == *SERVER);
        actions.iter().filter(is_it).count()
    };
    let mut world = worn(&["a"], without_charges());
    world.end("a", unreachable(SERVER, SERVER));
    let mut lost_for = Duration::ZERO;
    while lost_for < UNREACHABLE_AFTER * 2 {
        let expected = usize::from(lost_for >= UNREACHABLE_AFTER);
        assert_eq!(
            reports(world.on(probed(SERVER, false))),
            expected,
            "{lost_for:?}"
        );
        world.advance(PROBE_INTERVAL);
        lost_for += PROBE_INTERVAL;
    }
    world.on(probed(SERVER, true));
    world.end("a", unreachable(SERVER, SERVER));
    assert_eq!(
        reports(world.on(probed(SERVER, false))),
        0,
        "it had answered"
    );
}

#[test]
fn a_job_is_retried_when_its_lost_source_or_target_answers_again() {
    for back in [SERVER, OTHER] {
        let mut world = worn(&["a"], without_charges());
        let mut asked = probes(world.end("a", unreachable(SERVER, OTHER)));
        asked.sort();
        assert_eq!(asked, [SERVER, OTHER]);
        for server in [SERVER, OTHER] {
            world.on(probed(server, server != back));
        }
        assert_eq!(probes(world.advance(PROBE_INTERVAL)), [back]);
        world.on(probed(back, true));
        assert_eq!(world.running(), ["a"]);
    }
}

#[test]
fn other_crashes_keep_their_backoff_when_the_server_answers() {
    let mut world = worn(&["a", "b"], without_charges());
    world.end("a", unreachable(SERVER, SERVER));
    world.end("b", crash("db_not_found"));
    world.on(probed(SERVER, false));
    world.advance(PROBE_INTERVAL);
    world.on(probed(SERVER, true));
    assert_eq!(
        (world.running(), world.stopped()),
        (vec!["a".into()], vec!["b".into()])
    );
}

#[test]
fn a_job_paused_or_removed_meanwhile_is_not_started_and_its_server_is_not_probed() {
    let mut world = worn(&["a", "b"], without_charges());
    world.end("a", unreachable(SERVER, SERVER));
    world.end("b", unreachable(SERVER, SERVER));
    world.on(probed(SERVER, false));
    let (id, by) = ("a".into(), "ann".into());
    world.on(Event::Pause { id, by });
    world.on(Event::Remove { id: "b".into() });
    assert_eq!(probes(world.advance(PROBE_INTERVAL)), [""; 0]);
    assert_eq!(world.running(), [""; 0]);
    assert_eq!(world.scheduler.next_wake(), None, "no timer is left");
}

#[test]
fn starts_of_thousands_of_waiting_jobs_are_spread_over_ten_seconds() {
    let (jobs, mut now) = (20_000, NOW);
    let mut scheduler = Scheduler::new(Settings {
        max_jobs: jobs + 1,
        ..without_charges()
    });
    let mut on = |event: Event, after: Duration| {
        now = now + after;
        let mut actions = Vec::new();
        scheduler.handle(event, now, &mut actions);
        actions
    };
    for n in 0..jobs {
        on(Event::Add(new_job(&n.to_string())), Duration::ZERO);
    }
    for n in 0..jobs as u64 {
        let (run, end) = (Run(n + 1), unreachable(SERVER, OTHER));
        on(Event::Exited { run, end }, Duration::ZERO);
    }
    on(probed(OTHER, true), Duration::ZERO);
    on(probed(SERVER, false), Duration::ZERO);
    on(Event::Tick, PROBE_INTERVAL);
    let starts = |actions: &[ScheduleAction]| {
        let is_start = |action: &&ScheduleAction| matches!(action, ScheduleAction::Start { .. });
        actions.iter().filter(is_start).count()
    };
    let mut all = starts(&on(probed(SERVER, true), Duration::ZERO));
    for _ in 0..10 {
        let some = starts(&on(Event::Tick, SPREAD_MAX / 10));
        assert!((1_000..=3_000).contains(&some), "{some}");
        all += some;
    }
    assert_eq!(all, jobs);
}

#[test]
fn no_server_is_probed_under_the_first_rules_or_after_shutdown() {
    let mut world = World::new(RuleSet::First, []);
    world.on(Event::Add(new_job("a")));
    assert_eq!(probes(world.end("a", unreachable(SERVER, OTHER))), [""; 0]);
    let mut world = worn(&["a"], without_charges());
    world.end("a", unreachable(SERVER, SERVER));
    world.on(Event::Shutdown);
    world.on(probed(SERVER, false));
    assert_eq!(probes(world.advance(PROBE_INTERVAL)), [""; 0]);
}

/// Servers go down and recover, and jobs notice: a job that could not reach a recovered server runs soon, and probes
/// stay within their limits. A server recovers only after a probe has found it down.
#[test]
fn in_random_outages_every_job_runs_soon_after_its_servers_are_back() {
    let mut random =
        TestRandom::for_test("in_random_outages_every_job_runs_soon_after_its_servers_are_back");
    for _ in 0..40 {
        let servers: Vec<Server> = (0..PROBES_MAX * 2)
            .map(|n| format!("http://h{n}").into())
            .collect();
        let settings = Settings {
            max_jobs: 1_000,
            ..without_charges()
        };
        let mut world = World::with(settings, []);
        let jobs: Vec<(String, [Server; 2])> = (0..60)
            .map(|n| {
                let ends = [random.one_of(&servers), random.one_of(&servers)].map(Server::clone);
                (format!("{n:02}"), ends)
            })
            .collect();
        for (id, _) in &jobs {
            world.on(Event::Add(new_job(id)));
        }
        let mut down = vec![false; servers.len()];
        let mut asked: Vec<Server> = Vec::new();
        let mut unseen: Vec<Server> = Vec::new();
        let is_down = |down: &[bool], server: &Server| {
            down[servers.iter().position(|known| known == server).unwrap()]
        };
        // From step 300 on, servers only recover.
        for step in 0..400 {
            for (is_down, server) in down.iter_mut().zip(&servers) {
                let turns = random.below(40) == 0 || (*is_down && step >= 300);
                if turns && !unseen.contains(server) {
                    *is_down = !*is_down && step < 300;
                }
            }
            let mut actions = Vec::new();
            for (id, ends) in &jobs {
                let runs = world
                    .scheduler
                    .job(id)
                    .is_some_and(|job| job.shown.run.is_some());
                if runs && ends.iter().any(|server| is_down(&down, server)) {
                    let away = ends.iter().filter(|server| is_down(&down, server));
                    unseen.extend(away.cloned());
                    let end = End::Unreachable(reason("x"), ends.clone());
                    actions.extend_from_slice(world.end(id, end));
                }
            }
            // Some probes are answered now, others later.
            let (now, later): (Vec<_>, Vec<_>) = asked.drain(..).partition(|_| random.below(3) > 0);
            asked = later;
            for server in now {
                let answers = !is_down(&down, &server);
                unseen.retain(|away| *away != server);
                actions.extend_from_slice(world.on(probed(&server, answers)));
            }
            actions.extend_from_slice(world.advance(Duration::from_secs(1)));
            for server in probes(&actions) {
                let server: Server = server.into();
                assert!(!asked.contains(&server), "one probe at a time");
                asked.push(server);
            }
            assert!(asked.len() <= PROBES_MAX);
        }
        assert_eq!(world.stopped(), [""; 0]);
    }
}
