//! Remedies: each kind of problem is caused, reported over HTTP, and ends once its printed remedy is followed.
//!
//! SUMMARY   [`ROWS`] has a row for each kind of docs/operations.md. A shell runs the commands that a remedy has in
//!           backquotes, as printed; the test takes the manual steps before them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::replicator::kept::{limit_files, outliving_full_files};
use crate::replicator::world::{SETTINGS, World};
use crate::support::daemon::{configure, directory, wait_until};
use crate::support::http_client::{Web, command};
use crate::support::http_server::Answer;
use crate::support::program::SETTEE;
use crate::support::store::{self, create, put, start_in};

/// The file of the tests that cause problems and follow their remedies.
const HERE: &str = "tests/replication/remedies.rs";

/// The file of the tests of problems that need a person, another machine or minutes.
const FINDINGS: &str = "src/health/findings/tests.rs";

/// Each kind of problem, why it is not caused here (empty if it is), and the file and name of its test.
#[rustfmt::skip]
const ROWS: &[(&str, &str, &str, &str)] = &[
    ("pool_failing", "", HERE, "a_fixed_command_is_retried_by_unthrottle"),
    ("no_pool_works", "", HERE, "a_fixed_command_is_retried_by_unthrottle"),
    ("pool_dying", "", HERE, "the_remedy_for_a_dying_pool_runs_conform_on_its_command"),
    ("pool_crowded", "", HERE, "the_remedy_for_a_crowded_pool_adds_processes"),
    ("pool_exchanging", "a hundred loans, and a minute", FINDINGS, "increases_are_reported_for_a_minute"),
    ("cell_broken", "a kernel without namespaces", FINDINGS, "long_waits_for_a_pool_and_incomplete_cells_are_reported"),
    ("cell_incomplete", "a kernel without layers", FINDINGS, "long_waits_for_a_pool_and_incomplete_cells_are_reported"),
    ("service_closed", "", HERE, "the_remedy_for_a_closed_service_creates_its_pool"),
    ("replications_failing", "", HERE, "replications_that_failed_for_one_reason_are_restarted_by_that_reason"),
    ("replications_stalled", "ten minutes", FINDINGS, "stalled_jobs_are_one_problem_with_an_example"),
    ("server_slow", "a person at another server", FINDINGS, "a_slow_server_is_reported_with_its_answer_time_and_replication_count"),
    ("documents_refused", "", HERE, "refused_documents_are_a_problem_until_acknowledged"),
    ("store_away", "a person at the disk or database", "tests/external/postgres/daemon.rs", "an_unresponsive_database_is_a_problem_until_it_answers_again"),
    ("store_refusing", "", HERE, "a_full_disk_is_a_problem_of_store_and_audit_until_there_is_room"),
    ("store_slow", "a person at the disk or database", FINDINGS, "a_store_that_does_not_answer_is_critical_and_a_slow_or_loading_one_a_warning"),
    ("store_growing", "an hour", FINDINGS, "a_growing_store_is_a_warning_with_its_sizes"),
    ("still_loading", "nothing to do but wait", FINDINGS, "a_store_that_does_not_answer_is_critical_and_a_slow_or_loading_one_a_warning"),
    ("daemon_gone", "a person at another machine", FINDINGS, "a_daemon_with_an_expired_lease_is_gone_unless_it_left_or_restarted"),
    ("actor_failing", "a mistake of ours", FINDINGS, "an_actor_that_fails_repeatedly_is_a_problem_for_a_minute"),
    ("records_dropped", "", HERE, "a_full_disk_is_a_problem_of_store_and_audit_until_there_is_room"),
    ("costs_unsaved", "a minute between two tries", "src/actors/cost_keeper.rs", "costs_that_cannot_be_saved_are_a_problem_until_they_can"),
    ("drained", "", HERE, "a_drained_daemon_accepts_work_again"),
    ("settings_differ", "ten minutes", FINDINGS, "files_that_differ_from_the_running_settings_are_reported_except_http_overrides"),
    ("daemons_differ", "ten minutes and a person", FINDINGS, "daemons_with_another_version_or_other_settings_are_reported_by_name"),
];

#[test]
fn every_kind_of_problem_has_a_row() {
    let page = include_str!("../../docs/operations.md");
    let (_, table) = page.split_once("| kind | critical |").unwrap();
    let rows = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let kinds = rows.filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let kinds: BTreeSet<&str> = kinds.map(|(kind, _)| kind).collect();
    let tried: BTreeSet<&str> = ROWS.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(tried, kinds);
    for (kind, elsewhere, file, test) in ROWS {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tests = fs::read_to_string(root.join(file)).unwrap();
        assert!(
            tests.contains(&format!("fn {test}(")),
            "{kind}: {test}: {elsewhere}"
        );
        assert_eq!(elsewhere.is_empty(), *file == HERE, "{kind}");
    }
}

/// Returns the first problem of a kind, if there is one.
fn problem(web: &Web, kind: &str) -> Option<Value> {
    let health = web.get("/_health").ok();
    let mut problems = health["problems"].as_array().unwrap().iter();
    problems.find(|problem| problem["kind"] == kind).cloned()
}

/// Waits until a problem of a kind is reported, and returns its remedy.
fn remedy_for(web: &Web, kind: &str) -> String {
    let mut found = None;
    wait_until(kind, || {
        found = problem(web, kind);
        found.is_some()
    });
    found.unwrap()["remedy"].as_str().unwrap().to_owned()
}

fn is_over(web: &Web, kind: &str) {
    wait_until(&format!("{kind} is over"), || problem(web, kind).is_none());
}

/// Runs the commands of a remedy in a shell, where `settee` is this program, connected to this service. Returns their
/// outputs.
fn run(web: &Web, remedy: &str) -> Vec<Output> {
    let commands = remedy.split('`').skip(1).step_by(2);
    let outputs = commands.map(|command| {
        let script = format!("settee() {{ \"$0\" \"$@\"; }}; {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, SETTEE]);
        shell.env("SETTEE__SERVER__SOCKET", web.service.socket());
        shell.output().unwrap()
    });
    let outputs: Vec<Output> = outputs.collect();
    assert!(!outputs.is_empty(), "no command: {remedy}");
    outputs
}

/// As [`run`]; each command must succeed.
fn follow(web: &Web, remedy: &str) {
    for output in run(web, remedy) {
        assert!(output.status.success(), "{remedy}: {output:?}");
    }
}

#[test]
fn a_fixed_command_is_retried_by_unthrottle() {
    let directory = directory();
    let server = directory.path().join("scripted.sh");
    fs::write(&server, "exit 3\n").unwrap();
    let config = format!(
        "[query_servers]\njavascript = \"sh {}\"\n\
         [pools.javascript]\ninit_size = 1\n[pools.python]\ninit_size = 1\n",
        server.display()
    );
    let web = Web::start_command(
        directory,
        command(&configure(server.parent().unwrap(), &config)),
    );
    remedy_for(&web, "no_pool_works");
    fs::write(&server, "while read -r line; do echo true; done\n").unwrap();
    follow(&web, &remedy_for(&web, "pool_failing"));
    is_over(&web, "no_pool_works");
    // The other pool may have been retried meanwhile.
    wait_until("all pools work", || {
        let failing = problem(&web, "pool_failing");
        let remedy = failing.iter().filter_map(|one| one["remedy"].as_str());
        remedy.inspect(|remedy| follow(&web, remedy)).count() == 0
    });
    web.service.stop();
}

#[test]
fn the_remedy_for_a_dying_pool_runs_conform_on_its_command() {
    let web = Web::start("");
    let mut client = web.service.connect();
    client.get_proc("python");
    wait_until("a first check", || problem(&web, "pool_dying").is_none());
    for _ in 0..5 {
        let proc = client.get_proc("python");
        let exits = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["exit", 7]});
        client.error(&exits);
    }
    let remedy = remedy_for(&web, "pool_dying");
    let [output] = &run(&web, &remedy)[..] else {
        panic!("{remedy}");
    };
    // The script of these tests implements no functions.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cases = String::from_utf8_lossy(&output.stdout);
    assert!(cases.contains("reset"), "{cases}");
    web.service.stop();
}

#[test]
fn the_remedy_for_a_crowded_pool_adds_processes() {
    let web = Web::start("[pools.one]\nlanguage = \"python\"\nmax = 1\n");
    let mut holder = web.service.connect();
    let borrow = json!({"id": 1, "call": "get_proc", "pool": "one", "timeout_ms": 120_000});
    holder.ok(&borrow);
    let mut waiter = web.service.connect();
    waiter.send(&borrow);
    let remedy = remedy_for(&web, "pool_crowded");
    follow(&web, &remedy);
    assert!(waiter.reply().get("ok").is_some());
    is_over(&web, "pool_crowded");
    web.service.stop();
}

#[test]
fn the_remedy_for_a_closed_service_creates_its_pool() {
    let web = Web::start(
        "[services.js]\nlisten = \"localhost:0\"\npool = \"late\"\nwait_for_pool = true\n",
    );
    let remedy = remedy_for(&web, "service_closed");
    follow(&web, &remedy.replace("LANGUAGE", "javascript"));
    is_over(&web, "service_closed");
    web.service.stop();
}

#[test]
fn replications_that_failed_for_one_reason_are_restarted_by_that_reason() {
    let settings = SETTINGS.replace(
        "backoff_base = 1",
        "backoff_base = 3600\nbackoff_max = 7200",
    );
    let world = World::start_at(|| store::start(&settings));
    world
        .target
        .fault(|_| Some(Answer::error(401, "unauthorized", "It's not you.")));
    create(&world.web, "it's", &world.continuous());
    let remedy = remedy_for(&world.web, "replications_failing");
    world.target.heal();
    follow(&world.web, &remedy);
    is_over(&world.web, "replications_failing");
    world.stop();
}

#[test]
fn refused_documents_are_a_problem_until_acknowledged() {
    let world = World::start();
    world.fill(3);
    world.target.refuse("d00001");
    create(&world.web, "to%20backup", &world.continuous());
    let remedy = remedy_for(&world.web, "documents_refused");
    assert!(
        remedy.contains("documents_refused 'to backup'`"),
        "{remedy}"
    );
    follow(&world.web, &remedy);
    assert!(problem(&world.web, "documents_refused").is_none());
    is_over(&world.web, "documents_refused");
    let again = run(&world.web, &remedy);
    assert_eq!(again[1].status.code(), Some(66), "{again:?}");
    world.stop();
}

#[test]
fn refused_documents_stay_a_problem_across_restarts_until_acknowledged() {
    let world = World::start();
    world.fill(3);
    world.target.refuse("d00001");
    create(&world.web, "backup", &world.continuous());
    remedy_for(&world.web, "documents_refused");
    let World {
        source,
        target,
        web,
        runtime,
    } = world;
    let restarted = |web: Web| start_in(web.service.stop_and_keep(), SETTINGS);
    let web = restarted(web);
    let remedy = remedy_for(&web, "documents_refused");
    let loss = problem(&web, "documents_refused").unwrap();
    assert_eq!(
        (&loss["subject"], &loss["count"]),
        (&json!("backup"), &json!(1))
    );
    let counted = web.get("/metrics").body;
    let total = "settee_replication_documents_refused_total 0";
    assert!(
        counted.contains(total),
        "the counter, and its alerts, start at zero: {counted}"
    );
    // A second loss joins the first one, and each restart keeps both.
    target.refuse("d00009");
    source.put("d00009", None, json!({}));
    let is_both =
        |web: &Web| problem(web, "documents_refused").is_some_and(|loss| loss["count"] == 2);
    wait_until("both losses", || is_both(&web));
    let web = restarted(web);
    wait_until("both losses, after a restart", || is_both(&web));
    follow(&web, &remedy);
    let web = restarted(web);
    let kept = web.get("/_replicator/_local/settee-losses").ok();
    assert_eq!(kept.get("documents_refused"), None, "{kept}");
    // A later loss is reported with a new count.
    target.refuse("d00010");
    source.put("d00010", None, json!({}));
    remedy_for(&web, "documents_refused");
    let loss = problem(&web, "documents_refused").unwrap();
    assert_eq!(loss["count"], 1, "{loss}");
    web.service.stop();
    runtime.shutdown_timeout(Duration::from_secs(5));
}

#[test]
fn refused_documents_are_no_longer_a_problem_once_verify_finds_them() {
    let world = World::start();
    world.fill(3);
    world.target.refuse("d00001");
    create(&world.web, "backup", &world.continuous());
    remedy_for(&world.web, "documents_refused");
    let verify = || {
        run(&world.web, "`settee jobs verify backup`")[0]
            .status
            .code()
    };
    assert_eq!(verify(), Some(65));
    remedy_for(&world.web, "documents_refused");
    world.target.put("d00001", None, json!({"n": 1}));
    assert_eq!(verify(), Some(0));
    is_over(&world.web, "documents_refused");
    world.stop();
}

#[test]
fn a_full_disk_is_a_problem_of_store_and_audit_until_there_is_room() {
    let directory = directory();
    let audit = directory.path().join("audit.log");
    let config = format!("{SETTINGS}[log]\naudit = {audit:?}\naudit_required = true\n");
    let command = outliving_full_files(&store::command(directory.path(), &config));
    let web = Web::start_command(directory, command);
    let body = json!({"source": "http://127.0.0.1:1/a", "target": "http://127.0.0.1:1/b"});
    create(&web, "first", &body);
    let written = || fs::read_to_string(&audit).unwrap();
    wait_until("the first record", || written().ends_with('\n'));
    // Only a part of the next record fits.
    limit_files(&web, Some(written().len() as u64 + 10));
    put(&web, "/_replicator/second", &body).reason(503, "store_unavailable");
    remedy_for(&web, "store_refusing");
    let remedy = remedy_for(&web, "records_dropped");
    assert!(remedy.starts_with("make room for [log] audit"), "{remedy}");
    assert_eq!(web.get("/_health").ok()["status"], "critical");
    let reason = web
        .send("PUT", "/_drain", "")
        .reason(503, "audit_unavailable");
    assert!(reason.contains("File too large"), "{reason}");
    assert_eq!(web.get("/_drain").ok()["draining"], false);

    limit_files(&web, None);
    // Each order retries the write.
    wait_until("orders are accepted", || {
        put(&web, "/_replicator/second", &body).status == 201
    });
    is_over(&web, "store_refusing");
    let remedy = remedy_for(&web, "records_dropped");
    follow(&web, &remedy);
    is_over(&web, "records_dropped");
    wait_until("the last record", || {
        written().contains("\"what\":\"acknowledge_losses\"")
    });
    let (whole, torn): (Vec<_>, Vec<_>) = written()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).map_err(|_| line.len()))
        .partition(Result::is_ok);
    let gaps = whole
        .iter()
        .flatten()
        .filter(|record| record["level"] == "error");
    let counts: Vec<&Value> = gaps.map(|record| &record["count"]).collect();
    assert_eq!(counts, [2], "{}", written());
    assert_eq!(torn, [Err(10)], "{}", written());
    web.service.stop();
}

#[test]
fn a_drained_daemon_accepts_work_again() {
    let web = Web::start("");
    web.send("PUT", "/_drain", "").ok();
    let remedy = remedy_for(&web, "drained");
    follow(&web, &remedy);
    is_over(&web, "drained");
    web.service.stop();
}
