//! Lists of and orders for hundreds of jobs, with `settee jobs` and over HTTP.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Output};
use std::sync::Arc;

use data_encoding::BASE64;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::replicator::orders::{printed, settee};
use crate::replicator::world::{SETTINGS, World};
use crate::support::daemon::wait_until;
use crate::support::http_client::{Response, Web};
use crate::support::http_server::{Answer, Piece};
use crate::support::program::SETTEE;
use crate::support::store;

/// Numbers of jobs in an outage: with an unknown target host, with a missing target database, and idle.
const LOST: usize = 100;
const MISSING: usize = 97;
const IDLE: usize = 303;

fn set(world: &World, key: &str, value: &str) {
    let path = format!("/_node/_local/_config/replicator/{key}");
    world.web.send("PUT", &path, &format!("{value:?}")).ok();
}

fn total(web: &Web, query: &str) -> Value {
    let jobs = web.get(&format!("/_scheduler/jobs?limit=0&{query}")).ok();
    jobs["total_rows"].clone()
}

/// Writes `count` documents, named `name-0` and so on.
fn create(web: &Web, name: &str, count: usize, body: impl Fn(usize) -> Value) {
    let doc = |number| {
        let mut body = body(number);
        body["_id"] = format!("{name}-{number}").into();
        body
    };
    let docs: Vec<Value> = (0..count).map(doc).collect();
    let made = store::post(web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
    assert_eq!(made.status, 201, "{made:?}");
}

#[track_caller]
fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario from start to end")]
fn hundreds_of_failed_jobs_are_grouped_by_reason_and_restarted_with_one_command() {
    let world = World::start_with("max_jobs = 0\n");
    set(&world, "backoff_max", "10h");
    set(&world, "backoff_base", "5h");
    let is_missing = |path: &str| path.starts_with("missing-");
    world.target.fault(move |request| {
        is_missing(&request.path).then(|| Answer::error(404, "not_found", "no db"))
    });
    let source = world.source.url();
    let to = |target: String| json!({"source": source, "target": target});
    create(&world.web, "lost", LOST, |n| {
        to(format!("http://ann:secret@nowhere.invalid/db{n}"))
    });
    create(&world.web, "shop", MISSING, |n| {
        to(world.target.server.url(&format!("missing-{n}")))
    });
    create(&world.web, "idle", IDLE, |n| {
        to(world.target.server.url(&format!("idle-{n}")))
    });
    wait_until("all jobs", || {
        total(&world.web, "") == LOST + MISSING + IDLE
    });

    let pause = ["pause", "idle-*"];
    let said = failed(&settee(&world, &pause), 64);
    assert!(
        said.contains("this would pause 303 jobs") && said.contains("--yes"),
        "{said}"
    );
    assert_eq!(total(&world.web, "states=paused"), 0);
    let planned = printed(&world, &["pause", "idle-*", "--dry-run"]);
    assert!(planned.ends_with("303 jobs\n"), "{planned}");
    assert_eq!(total(&world.web, "states=paused"), 0);
    let done = printed(&world, &["pause", "idle-*", "--yes"]);
    assert_eq!(done, "303 jobs paused\n");
    set(&world, "max_jobs", "500");
    wait_until("the outage", || {
        total(&world.web, "states=crashing") == LOST + MISSING
    });

    let groups = printed(&world, &["--group-by", "reason"]);
    let lines: Vec<Vec<&str>> = groups
        .lines()
        .map(|line| line.split("  ").collect())
        .collect();
    let starts =
        |line: usize, text: &str| assert!(lines[line].join("|").starts_with(text), "{groups}");
    starts(1, "303 x|paused by admin");
    starts(2, "100 x|name not found: nowhere.invalid|100 crashing|");
    starts(3, " 97 x|database missing");
    assert!(
        groups.ends_with("\n\n500 jobs: 197 crashing, 303 paused\n"),
        "{groups}"
    );
    let list = printed(&world, &["--limit", "200"]);
    let rows: Vec<&str> = list.lines().collect();
    assert!(rows[1..=197].iter().all(|row| row.contains("  crashing  ")));
    assert!(rows[198..=200].iter().all(|row| row.contains("  paused  ")));
    assert_eq!(
        rows[202],
        "500 jobs: 197 crashing, 303 paused; the first 200 are shown"
    );
    assert!(!list.contains("secret"), "{list}");
    let target = format!("{}*", world.target.server.url("missing-1"));
    let json = printed(
        &world,
        &["--target", target.trim_end_matches('/'), "--json"],
    );
    assert_eq!(json.lines().count(), 11, "1 and 10 to 19: {json}");
    for line in json.lines() {
        let job: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&job["reason"], &job["state"]),
            (&json!("database missing"), &json!("crashing"))
        );
        assert!(
            job["next_try"].is_string() && job["since"].is_string(),
            "{job}"
        );
    }

    world.target.heal();
    let done = printed(
        &world,
        &["restart", "--reason", "database missing", "--yes"],
    );
    assert_eq!(done, "97 jobs restarted\n");
    wait_until("the restarted jobs are done", || {
        total(&world.web, "") == LOST + IDLE
    });
    assert_eq!(total(&world.web, "states=crashing"), LOST);
    let done = printed(
        &world,
        &[
            "delete", "lost-*", "--states", "crashing", "--yes", "--json",
        ],
    );
    assert_eq!(done.lines().count(), LOST);
    wait_until("the deleted jobs are gone", || {
        total(&world.web, "") == IDLE
    });
    assert_eq!(world.web.get("/_replicator/lost-7").status, 404);
    world.stop();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario from start to end")]
fn orders_report_the_jobs_they_did_not_change_and_invalid_ones_are_refused() {
    let world = World::start();
    store::create(&world.web, "live", &world.continuous());
    let mut other = world.continuous();
    other["target"] = world.target.server.url("other").into();
    let begun = store::post(&world.web, "/_replicate", &other);
    let id = begun.json()["_local_id"].as_str().unwrap().to_owned();
    wait_until("both jobs", || total(&world.web, "states=running") == 2);
    let list = printed(&world, &["list"]);
    assert!(list.contains(&id) && list.contains(" -> "), "{list}");

    assert!(failed(&settee(&world, &["restart"]), 64).contains("no job is named"));
    assert!(failed(&settee(&world, &["restart", "none"]), 66).contains("no such job: none"));
    assert!(failed(&settee(&world, &["pause", "none*"]), 66).contains("no job matches"));
    let said = failed(&settee(&world, &["pause", "live", "none"]), 65);
    assert!(said.contains("no such job: none"), "{said}");
    wait_until("a pause", || total(&world.web, "states=paused") == 1);
    let cancelled = settee(&world, &["cancel", "--all", "--yes"]);
    let said = failed(&cancelled, 65);
    assert!(said.contains("1 of 2 jobs were not cancelled"), "{said}");
    let said = String::from_utf8(cancelled.stdout).unwrap();
    assert!(
        said.starts_with("live: conflict: it belongs to document `live`: delete or pause it\n"),
        "{said}"
    );
    wait_until("the transient job is gone", || total(&world.web, "") == 1);

    let bulk = |body: Value| store::post(&world.web, "/_scheduler/_bulk", &body);
    let answer = bulk(json!({"order": "priority", "priority": 3, "select": {"all": true}})).ok();
    assert_eq!((&answer["total"], &answer["done"]), (&json!(1), &json!(1)));
    assert_eq!(answer["results"][0]["document"], "live");
    assert_eq!(world.jobs()[0]["priority"], 3);
    let all = json!({"all": true});
    for (wrong, code, name) in [
        (
            json!({"order": "restart", "select": {}}),
            400,
            "bad_request",
        ),
        (json!({"order": "restart"}), 400, "bad_request"),
        (
            json!({"order": "explode", "select": all}),
            400,
            "bad_request",
        ),
        (
            json!({"order": "restart", "select": {"staets": []}}),
            400,
            "bad_request",
        ),
        (
            json!({"order": "restart", "select": {"states": ["odd"]}}),
            400,
            "bad_request",
        ),
        (
            json!({"order": "priority", "select": all}),
            400,
            "bad_request",
        ),
        (
            json!({"order": "pause", "priority": 1, "select": all}),
            400,
            "bad_request",
        ),
        (
            json!({"order": "pause", "select": all, "expect": 0}),
            409,
            "conflict",
        ),
    ] {
        bulk(wrong).error(code, name);
    }
    world
        .web
        .get("/_scheduler/jobs?sort=odd")
        .error(400, "bad_request");
    world
        .web
        .get("/_scheduler/jobs?group_by=odd")
        .error(400, "bad_request");
    world.stop();
}

/// Runs `settee jobs` on a terminal, types a line, and returns what the terminal shows.
fn on_terminal(world: &World, arguments: &[&str], line: &str) -> String {
    let mut screen = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut command = Command::new(SETTEE);
    command.arg("jobs").args(arguments);
    command.arg("--socket").arg(world.web.service.socket());
    let other = || terminal.try_clone().unwrap();
    command.stdin(other()).stdout(other()).stderr(other());
    let mut child = command.spawn().unwrap();
    // The terminal keeps the line until it is read.
    screen.write_all(format!("{line}\n").as_bytes()).unwrap();
    // Reading fails once the last program that has the terminal open has ended.
    drop((command, terminal));
    let mut shown = Vec::new();
    assert!(screen.read_to_end(&mut shown).is_err());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    String::from_utf8(shown).unwrap()
}

#[test]
fn on_a_terminal_a_deletion_or_an_order_for_several_jobs_asks_for_confirmation() {
    let world = World::start_with("max_jobs = 0\n");
    create(
        &world.web,
        "shop",
        3,
        |n| json!({"source": world.source.url(), "target": world.target.server.url(&format!("{n}"))}),
    );
    wait_until("all jobs", || total(&world.web, "") == 3);
    let shown = on_terminal(&world, &["pause", "shop-*"], "n");
    assert!(
        shown.contains("3 x") && shown.contains("pause 3 jobs? [y/N]"),
        "{shown}"
    );
    assert!(shown.contains("nothing was done"), "{shown}");
    assert_eq!(total(&world.web, "states=paused"), 0);
    let shown = on_terminal(&world, &["pause", "shop-*"], "y");
    assert!(shown.contains("3 jobs paused"), "{shown}");
    assert_eq!(total(&world.web, "states=paused"), 3);
    for no in ["", "y", "yes", "1"] {
        let shown = on_terminal(&world, &["delete", "shop-0"], no);
        let asked = "delete the documents of 1 job? Type shop-0 to do it:";
        assert!(shown.contains(asked), "{shown}");
        assert!(shown.contains("nothing was done"), "{no}: {shown}");
        let shown = on_terminal(
            &world,
            &["delete", "--all"],
            if no == "1" { "2" } else { no },
        );
        let asked = "delete the documents of 3 jobs? Type 3 to do it:";
        assert!(shown.contains(asked), "{shown}");
        assert!(shown.contains("nothing was done"), "{no}: {shown}");
    }
    assert_eq!(total(&world.web, ""), 3);
    let shown = on_terminal(&world, &["delete", "shop-1"], "shop-1");
    assert!(shown.contains("1 job deleted"), "{shown}");
    assert_eq!(world.web.get("/_replicator/shop-1").status, 404);
    let shown = on_terminal(&world, &["resume", "shop-0"], "");
    assert!(
        !shown.contains("[y/N]") && shown.contains("1 job resumed"),
        "{shown}"
    );
    let shown = on_terminal(&world, &["delete", "shop-*"], "2");
    assert!(shown.contains("2 jobs deleted"), "{shown}");
    world.stop();
}

#[test]
fn a_paused_job_that_was_restarted_runs_again_after_a_service_restart() {
    let mut world = World::start();
    store::create(&world.web, "live", &world.continuous());
    world.wait_for_state("live", "running");
    printed(&world, &["pause", "live"]);
    world.wait_for_state("live", "pending");
    printed(&world, &["restart", "live"]);
    world.wait_for_state("live", "running");
    let directory = world.web.service.stop_and_keep();
    world.web = store::start_in(directory, SETTINGS);
    world.wait_for_state("live", "running");
    world.stop();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario from start to end")]
fn a_user_with_the_replicator_role_lists_and_orders_only_its_own_jobs() {
    let user = |name: &str, role: &str| {
        format!("[users.{name}]\npassword = \"secret\"\nroles = [{role:?}]\n")
    };
    let web = store::start(&format!(
        "[replicator]\nmax_jobs = 0\n{}{}{}{}",
        user("rita", "replicator"),
        user("rolf", "replicator"),
        user("olga", "operator"),
        user("vera", "viewer")
    ));
    let by = |name: &str, method: &str, path: &str, body: &Value| -> Response {
        let credentials = format!(
            "Basic {}",
            BASE64.encode(format!("{name}:secret").as_bytes())
        );
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", &credentials),
        ];
        let body = if method == "GET" {
            String::new()
        } else {
            body.to_string()
        };
        web.connect().request(method, path, &headers, &body)
    };
    for (name, number) in [("rita", 0), ("rita", 1), ("rolf", 2)] {
        let body = json!({"source": "http://127.0.0.1:1/a",
            "target": format!("http://127.0.0.1:1/{number}"), "continuous": true});
        let made = by(name, "PUT", &format!("/_replicator/d{number}"), &body);
        assert_eq!(made.status, 201, "{made:?}");
    }
    let list = |name: &str, query: &str| {
        by(
            name,
            "GET",
            &format!("/_scheduler/jobs?{query}"),
            &json!(null),
        )
        .ok()
    };
    wait_until("all jobs", || list("olga", "")["total_rows"] == 3);
    assert_eq!(list("rita", "sort=trouble")["total_rows"], 2);
    assert_eq!(list("rita", "match=d2")["total_rows"], 0);
    assert_eq!(list("rolf", "limit=1&skip=0")["jobs"][0]["doc_id"], "d2");
    assert_eq!(list("vera", "group_by=reason")["groups"][0]["count"], 3);
    let bulk = |name: &str, order: &str| {
        by(
            name,
            "POST",
            "/_scheduler/_bulk",
            &json!({"order": order, "select": {"all": true}}),
        )
    };
    assert_eq!(bulk("rita", "pause").ok()["done"], 2);
    assert_eq!(list("olga", "states=paused")["total_rows"], 2);
    assert_eq!(bulk("olga", "resume").ok()["done"], 3);
    assert_eq!(list("olga", "states=paused")["total_rows"], 0);
    let path = "/_scheduler/jobs?states=completed";
    by("vera", "GET", path, &json!(null)).error(403, "forbidden");
    assert_eq!(list("rita", "states=completed")["total_rows"], 0);
    bulk("vera", "pause").error(403, "forbidden");
    bulk("olga", "delete").error(403, "forbidden");
    for path in ["/_scheduler/jobs/d2", "/_scheduler/jobs/d2/_pause"] {
        let method = if path.ends_with("_pause") {
            "POST"
        } else {
            "GET"
        };
        by("rita", method, path, &json!({})).error(404, "not_found");
        by("rolf", method, path, &json!({})).ok();
    }
    assert_eq!(bulk("rita", "delete").ok()["done"], 2);
    wait_until("the deleted jobs are gone", || {
        list("olga", "")["total_rows"] == 1
    });
    web.service.stop();
}

#[test]
fn refused_documents_are_listed_of_more_jobs_than_one_answer_has() {
    let world = World::start();
    world.fill(3);
    world.target.refuse("d00001");
    store::create(&world.web, "last", &world.body());
    world.wait_for_state("last", "completed");
    set(&world, "max_jobs", "0");
    create(
        &world.web,
        "idle",
        500,
        |n| json!({"source": world.source.url(), "target": world.target.server.url(&format!("idle-{n}"))}),
    );
    wait_until("all jobs", || total(&world.web, "") == 500);
    let said = printed(&world, &["refused", "*"]);
    assert!(
        said.contains("d00001") && said.ends_with("\n\n1 document refused\n"),
        "{said}"
    );
    world.stop();
}

#[test]
fn finished_and_unstartable_replications_are_listed_with_their_refused_documents() {
    let mut world = World::start();
    world.fill(3);
    world.target.refuse("d00001");
    store::create(&world.web, "done", &world.body());
    world.wait_for_state("done", "completed");
    store::create(&world.web, "live", &world.continuous());
    let mut filtered = world.continuous();
    filtered["filter"] = "app/missing".into();
    store::create(&world.web, "filtered", &filtered);
    world.wait_for_state("filtered", "error");
    world.wait_for_state("live", "running");

    let usual = printed(&world, &[]);
    assert!(
        usual.ends_with("\n2 jobs: 1 running, 1 error\n") && usual.contains("filtered  error"),
        "{usual}"
    );
    let refused = |world: &World, name: &str| printed(world, &["refused", name]);
    // `live` resumes from the checkpoint of `done`.
    world.target.refuse("later");
    world.source.put("later", None, json!({}));
    wait_until("a refused document", || {
        refused(&world, "live").contains("later")
    });
    let over = ["--states", "completed,failed"];
    let directory = world.web.service.stop_and_keep();
    world.web = store::start_in(directory, SETTINGS);
    let mut list = String::new();
    wait_until("all documents are loaded", || {
        list = printed(&world, &over);
        !list.contains("incomplete")
    });
    assert!(
        list.contains("done      completed") && list.ends_with("\n1 job: 1 completed\n"),
        "{list}"
    );
    let said = refused(&world, "done");
    assert!(
        said.contains("d00001   1-") && said.contains("  forbidden  "),
        "{said}"
    );
    assert!(said.ends_with("\n\n1 document refused\n"), "{said}");
    failed(&settee(&world, &["refused", "none"]), 66);
    world.stop();
}

#[test]
fn lists_report_loading_after_a_start_and_an_order_for_all_jobs_waits_for_it() {
    let settings = format!("{SETTINGS}max_jobs = 0\n");
    let mut world = World::start_with("max_jobs = 0\n");
    let code = json!({"filters": {"f": "function() { return true; }"}}).to_string();
    world
        .source
        .put("_design/d", None, serde_json::from_str(&code).unwrap());
    store::create(&world.web, "plain", &world.continuous());
    let mut filtered = world.continuous();
    filtered["filter"] = "d/f".into();
    store::create(&world.web, "filtered", &filtered);
    wait_until("both jobs", || total(&world.web, "") == 2);
    assert!(
        world
            .web
            .get("/_scheduler/jobs")
            .ok()
            .get("loading")
            .is_none()
    );

    let directory = world.web.service.stop_and_keep();
    let asked = Arc::new(Notify::new());
    let until = Arc::clone(&asked);
    world.source.fault(move |request| {
        let answer = vec![
            Piece::Until(Arc::clone(&until)),
            Piece::Bytes(code.clone().into()),
        ];
        let is_code = request.path.contains("_design");
        is_code.then(|| Answer::stream(200, "application/json", answer))
    });
    world.web = store::start_in(directory, &settings);
    wait_until("the plain job", || total(&world.web, "") == 1);
    for path in [
        "/_scheduler/jobs",
        "/_scheduler/jobs?sort=trouble",
        "/_scheduler/docs",
    ] {
        assert_eq!(world.web.get(path).ok()["loading"], true, "{path}");
    }
    assert_eq!(
        world.web.get("/_dashboard/state").ok()["jobs"]["loading"],
        true
    );
    let list = printed(&world, &[]);
    assert!(list.contains("still loading its documents"), "{list}");

    let mut waiting = world.web.connect();
    let order = json!({"order": "pause", "select": {"all": true}}).to_string();
    waiting.send("POST", "/_scheduler/_bulk", &[], &order);
    assert_eq!(total(&world.web, ""), 1);
    asked.notify_one();
    let done = waiting.response().ok();
    assert_eq!(
        (&done["total"], &done["done"]),
        (&json!(2), &json!(2)),
        "{done}"
    );
    assert!(done.get("loading").is_none() && done.get("unknown").is_none());
    let list = world.web.get("/_scheduler/jobs").ok();
    assert!(
        list["total_rows"] == 2 && list.get("loading").is_none(),
        "{list}"
    );
    world.stop();
}
