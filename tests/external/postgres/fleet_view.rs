//! How a service shows another daemon and sends it orders. Mostly, the other daemon is only rows in the database.

use std::fs;

use serde_json::{Value, json};

use super::daemon::{replication, start, wait_for};
use super::server::TestDatabase;
use crate::npm;
use crate::support::http_client::Web;
use crate::support::store::create;
use crate::webdriver::Browser;

const ADDRESS: &str = "two.example:5995";
const JOB: &str = "00000000000000000000000000000002+continuous";

/// Adds another daemon, with a running transient job.
fn add_daemon(database: &TestDatabase) {
    let shown = json!({"id": JOB, "document": null, "doc_id": null, "state": "running", "source": "http://s.example/a/",
        "target": "http://t.example/b/", "info": {"docs_written": 7}, "since": "2026-11-22T10:00:00Z",
        "history": [{"timestamp": "2026-11-22T10:00:00Z", "type": "started"}], "priority": 0, "user": "ann"});
    let task = json!({"type": "replication", "replication_id": JOB, "docs_written": 7});
    let body = json!({"state": "running", "job": {"id": JOB, "listed": "running", "source": "http://s.example/a/",
        "target": "http://t.example/b/", "reason": null, "since": 1_000_000, "user": "ann", "shown": shown, "task": task}});
    database.sql(&format!(
        "INSERT INTO settee.instances (epoch, address, version, lease_until) \
         VALUES (77, '{ADDRESS}', '1.2.3', clock_timestamp() + interval '1 hour'); \
         INSERT INTO settee.job_status (key, transient, epoch, number, body, at) \
         VALUES ('{JOB}', 77, 77, 1, '{body}', clock_timestamp())"
    ));
}

fn jobs(web: &Web, query: &str) -> Vec<Value> {
    let list = web.get(&format!("/_scheduler/jobs{query}")).ok();
    list["jobs"].as_array().unwrap().clone()
}

/// Returns the output of a command.
fn output_of(web: &Web, command: &[&str]) -> String {
    let output = web.service.client(command).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn replications_that_no_daemon_has_claimed_are_listed_with_the_reason() {
    let database = TestDatabase::new();
    let web = start(&database);
    web.send("PUT", "/_drain", "").ok();
    create(&web, "rep", &replication());
    wait_for("the command lists the replication", || {
        let listed = output_of(&web, &["jobs"]);
        let mut lines = listed.lines();
        let is_listed = |line: &str| {
            [
                "rep ",
                " initializing ",
                "no daemon of the fleet has claimed it",
            ]
            .iter()
            .all(|part| line.contains(part))
        };
        lines.any(is_listed) && listed.ends_with("1 job: 1 initializing\n")
    });
    let status = output_of(&web, &["status"]);
    assert!(status.contains("1 job: 1 initializing"), "{status}");
    web.send("DELETE", "/_drain", "").ok();
    wait_for("the replication becomes a job", || {
        output_of(&web, &["jobs"]).ends_with("1 job: 1 pending\n")
    });
}

/// Starts a service with a job of its own, and adds another daemon.
fn two(database: &TestDatabase) -> Web {
    let web = start(database);
    create(&web, "rep", &replication());
    wait_for("the service's own job", || jobs(&web, "").len() == 1);
    add_daemon(database);
    wait_for("the other daemon's job", || jobs(&web, "").len() == 2);
    web
}

#[test]
fn jobs_of_another_daemon_are_listed_with_its_address_and_orders_for_them_go_to_the_database() {
    let database = TestDatabase::new();
    let web = two(&database);
    let other = jobs(&web, "?daemon=two.*");
    assert_eq!((other.len(), &other[0]["daemon"]), (1, &ADDRESS.into()));
    assert!(other[0]["age_s"].is_u64());
    let tasks = web.get("/_active_tasks").ok();
    assert_eq!(
        (&tasks[0]["replication_id"], &tasks[0]["daemon"]),
        (&JOB.into(), &ADDRESS.into())
    );
    let fleet = web.get("/_fleet").ok();
    let daemons = fleet["daemons"].as_array().unwrap();
    let other = daemons
        .iter()
        .find(|one| one["address"] == ADDRESS)
        .unwrap();
    assert!(other["lease_left_s"].as_u64() > Some(3000), "{other}");
    assert_eq!(
        (&other["epoch"], &other["version"]),
        (&"000000000000004d".into(), &"1.2.3".into())
    );
    let status = output_of(&web, &["status"]);
    assert!(status.contains(&format!("{ADDRESS}  alive")), "{status}");
    let list = output_of(&web, &["jobs", "--daemon", "two.example:*"]);
    assert!(list.contains("1 job: 1 running"), "{list}");
    let order = json!({"order": "cancel", "select": {"match": [JOB]}}).to_string();
    let answer = web.send("POST", "/_scheduler/_bulk", &order).ok();
    assert_eq!(
        (&answer["done"], &answer["told"]),
        (&1.into(), &1.into()),
        "{answer}"
    );
    assert_eq!(answer["results"][0]["told"], ADDRESS);
    let left =
        database.sql("SELECT key FROM settee.orders WHERE epoch = 77 AND body LIKE '%cancel%'");
    assert_eq!(left, JOB);
}

#[test]
fn two_daemons_share_jobs_and_each_lists_all_and_executes_orders_sent_to_the_other() {
    let database = TestDatabase::new();
    let webs = [start(&database), start(&database)];
    let alive = |web: &Web| web.get("/_fleet").ok()["daemons"].as_array().unwrap().len() == 2;
    wait_for("both daemons", || webs.iter().all(alive));
    for n in 0..6 {
        let mut body = replication();
        body["target"] = format!("http://127.0.0.1:1/b{n}").into();
        create(&webs[0], &format!("rep{n}"), &body);
    }
    let own = |web: &Web, job: &Value| {
        let port = format!(":{}", web.address.port());
        job["daemon"].as_str().unwrap().ends_with(&port)
    };
    let owned = |web: &Web| jobs(web, "").iter().filter(|job| own(web, job)).count();
    wait_for("both daemons list equal shares", || {
        let all = |web| jobs(web, "").len() == 6 && owned(web) == 3;
        webs.iter().all(all)
    });
    let other = jobs(&webs[0], "")
        .into_iter()
        .find(|job| !own(&webs[0], job))
        .unwrap();
    let doc = other["document"].as_str().unwrap().to_owned();
    let path = format!("/_scheduler/jobs/{doc}/_pause");
    let answer = webs[0].send("POST", &path, "{}").ok();
    assert_eq!(answer["job"]["told"], other["daemon"], "{answer}");
    let is_paused = |web: &Web| {
        let job = web.get(&format!("/_scheduler/jobs/{doc}")).ok();
        job["paused"].is_object()
    };
    wait_for("both daemons list the job as paused", || {
        webs.iter().all(is_paused)
    });
    let metric = |web: &Web, line: &str| web.get("/metrics").body.lines().any(|l| l == line);
    for web in &webs {
        wait_for("the fleet's metrics", || {
            metric(web, "settee_fleet_daemons 2")
                && metric(web, "settee_fleet_documents_owned 3")
                && metric(web, "settee_fleet_documents_unowned 0")
        });
    }
    let [stays, ends] = webs;
    ends.service.stop();
    wait_for("the remaining daemon owns all jobs", || owned(&stays) == 6);
    assert!(jobs(&stays, &format!("?match={doc}"))[0]["paused"].is_object());
}

#[test]
fn the_dashboard_shows_daemons_and_job_owners_and_passes_the_axe_accessibility_checks() {
    let axe = npm::packages("axe-core-4.10.3", &["axe-core@4.10.3"]).join("axe-core/axe.min.js");
    let axe = fs::read_to_string(axe).unwrap();
    let database = TestDatabase::new();
    let web = two(&database);
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    let has = |selector: &str, text: &str| {
        browser.wait_until(&format!(
            "return document.querySelector({selector:?})?.innerText.includes({text:?}) ?? false"
        ));
    };
    has("#daemons", ADDRESS);
    has("#daemons", "alive");
    has("#jobs", ADDRESS);
    let check = "const done = arguments[0]; axe.run().then((found) => \
        done(found.violations.map((one) => one.id)), (error) => done(String(error)))";
    browser.run(&axe);
    assert_eq!(browser.run_async(check), json!([]));
    // A daemon's name links to its jobs.
    browser.run("[...document.querySelectorAll('#daemons a')].find((a) => a.innerText.startsWith('two')).click()");
    has("#job-daemon", ADDRESS);
    browser.wait_until("return document.querySelectorAll('#jobs tbody tr').length === 1");
    assert_eq!(
        browser.run("return document.querySelector('#job-daemon').value"),
        ADDRESS
    );
    assert_eq!(browser.run_async(check), json!([]));
    browser.close();
}
