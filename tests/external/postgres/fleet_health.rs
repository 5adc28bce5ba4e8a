//! Problems of a daemon, as another daemon of its fleet reports them.

use std::time::Instant;

use serde_json::{Value, json};

use super::daemon::{PATIENCE, start, wait_for};
use super::server::TestDatabase;
use crate::support::daemon::{configure, directory};
use crate::support::http_client::{Web, command};
use crate::support::program::{copy_program, run};
use crate::webdriver::Browser;

/// Starts a service with a pool of this name, which runs `sh` with these arguments.
fn start_with(database: &TestDatabase, pool: &str, arguments: &str) -> Web {
    let directory = directory();
    let text = format!(
        "[replicator]\nmax_jobs = 0\n[query_servers]\n{pool} = \"sh {arguments}\"\n[pools.{pool}]\ninit_size = 1\n"
    );
    let folder = directory.path().display().to_string();
    let mut command = command(&configure(
        directory.path(),
        &text.replace("FOLDER", &folder),
    ));
    command.env("SETTEE__STORE__URL", database.url());
    Web::start_command(directory, command)
}

/// Returns a daemon's name, which it reports after its first health check.
fn address(web: &Web) -> String {
    let mut name = String::new();
    wait_for("the first health check", || {
        let health = web.get("/_health").ok();
        name = health["daemon"].as_str().unwrap().to_owned();
        !name.is_empty()
    });
    name
}

/// Returns what a daemon reports of the fleet: each daemon's name, status and subjects of problems.
fn reported(web: &Web) -> Value {
    let health = web.get("/_health?fleet=true").ok();
    let of_one = |one: &Value| {
        let about = one["problems"].as_array().unwrap().iter();
        json!([
            one["daemon"],
            one["status"],
            about.map(|problem| &problem["subject"]).collect::<Vec<_>>()
        ])
    };
    health["daemons"]
        .as_array()
        .unwrap()
        .iter()
        .map(of_one)
        .collect()
}

/// Waits until a daemon reports this of the fleet.
fn until_reported(web: &Web, expected: &Value) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reported = reported(web);
        if reported == *expected {
            return;
        }
        assert!(Instant::now() < deadline, "{reported} is not {expected}");
        std::thread::yield_now();
    }
}

/// Returns the exit code and the output of `status --check`.
fn checked(web: &Web, arguments: &[&str]) -> (Option<i32>, String) {
    let arguments = [&["status", "--check"], arguments].concat();
    let output = run(&mut web.service.client(&arguments), b"");
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn problems_of_a_daemon_are_shown_by_another_until_resolved_or_the_daemon_ends() {
    let database = TestDatabase::new();
    let mut broken = start_with(&database, "late", "FOLDER/late.sh");
    let web = start(&database);
    let (here, there) = (address(&web), address(&broken));
    let own = json!([here, "ok", []]);
    until_reported(&web, &json!([own, [there, "critical", ["late"]]]));
    let health = web.get("/_health?fleet=true").ok();
    assert_eq!(health["status"], "critical");
    assert!(
        health["daemons"][1]["age_s"].as_u64() < Some(60),
        "{health}"
    );
    assert_eq!(web.get("/_health").ok()["status"], "ok");
    assert_eq!(health["daemons"][1]["problems"][0]["subject"], "late");
    let (code, printed) = checked(&web, &["--fleet"]);
    assert_eq!((code, printed.lines().count()), (Some(2), 1), "{printed}");
    let line = format!("CRITICAL: {there}: pool failing: late: its processes cannot be started: ");
    assert!(printed.starts_with(&line), "{printed}");
    assert_eq!(checked(&web, &[]), (Some(0), String::new()));
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    browser.wait_for(&format!("late at {there} first"));
    browser.wait_for("settee pool unthrottle late");
    let shown =
        "return [...document.querySelectorAll('#problems .what')].map((what) => what.innerText)";
    assert_eq!(
        browser.run(shown),
        json!([format!("pool failing late at {there}")])
    );
    // This daemon has no such pool to link to.
    assert_eq!(
        browser.run("return document.querySelector('#problems a')"),
        Value::Null
    );
    copy_program(
        broken.service.path("scripted.sh"),
        broken.service.path("late.sh"),
    );
    assert_eq!(
        broken.send("POST", "/_pools/late/_unthrottle", "{}").status,
        200
    );
    let mended = json!([own, [there, "ok", []]]);
    until_reported(&web, &mended);
    browser.wait_for("No problem is known.");
    browser.close();
    assert_eq!(checked(&web, &["--fleet"]), (Some(0), String::new()));
    broken.service.kill();
    database.sql(&format!(
        "UPDATE settee.instances SET lease_until = clock_timestamp() WHERE address = '{there}'"
    ));
    until_reported(&web, &json!([own]));
    // The report has only digests of the settings.
    let reports = database.sql("SELECT body FROM settee.reports");
    assert!(
        reports.contains("\"replicator\":") && !reports.contains("secret"),
        "{reports}"
    );
    // A daemon that joins deletes reports of dead ones.
    let next = start(&database);
    wait_for("only the live daemons", || {
        reported(&next).as_array().unwrap().len() == 2
            && database.sql("SELECT count(*) FROM settee.reports") == "2"
    });
}

#[test]
fn a_problem_of_two_daemons_is_one_line_on_the_dashboard_with_both_names() {
    let database = TestDatabase::new();
    let webs = [(); 2].map(|()| start_with(&database, "same", "-c 'exit 7'"));
    wait_for("both problems", || {
        let reported = reported(&webs[0]);
        let bad = |one: &Value| one[1] == "critical";
        reported
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| bad(one))
            .count()
            == 2
    });
    let browser = Browser::open(&format!("http://{}/_dashboard", webs[0].address));
    browser.wait_for("1 problem, same at 2 daemons first");
    let shown =
        "return [...document.querySelectorAll('#problems .what')].map((what) => what.innerText)";
    assert_eq!(
        browser.run(shown),
        json!(["pool failing same at 2 daemons"])
    );
    let [here, there] = [&webs[0], &webs[1]].map(address);
    browser.wait_for(&format!("At {here}, {there}"));
    let path = "return document.querySelector('#problems a').hash";
    assert_eq!(browser.run(path), "#/pools/same");
    browser.close();
}
