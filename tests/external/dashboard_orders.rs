//! Orders on the dashboard: who may give them, how they are confirmed, what they do.

use serde_json::{Value, json};

use crate::support::http_client::Web;
use crate::webdriver::Browser;

const ENTER: char = '\u{e007}';
const TAB: char = '\u{e004}';
const ESCAPE: char = '\u{e00c}';

/// A replication whose source refuses connections.
const LOST: &str =
    r#"{"source":"http://127.0.0.1:1/lost","target":"http://127.0.0.1:1/b","continuous":true}"#;

fn open(web: &Web, hash: &str) -> Browser {
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    browser.go(hash);
    browser
}

fn job(web: &Web) -> Value {
    web.get("/_scheduler/jobs").ok()["jobs"][0].clone()
}

/// Presses Tab until the focused element has this accessible name.
fn tab_to(browser: &Browser, name: &str) {
    let focused = "const at = document.activeElement; return at.ariaLabel ?? at.innerText";
    for _ in 0..100 {
        if browser.run(focused) == name {
            return;
        }
        browser.keys(&TAB.to_string());
    }
    panic!("no {name:?} within 100 steps: {}", browser.text());
}

#[test]
fn a_job_is_paused_with_the_keyboard_alone_after_confirmation() {
    let web = Web::start("");
    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    let browser = open(&web, "#/jobs");
    browser.wait_for("crashing");
    tab_to(&browser, "Pause lost");
    browser.keys(&ENTER.to_string());
    browser
        .wait_for("The replication from http://127.0.0.1:1/lost/ to http://127.0.0.1:1/b/ stops");
    browser.keys(&ESCAPE.to_string());
    browser.wait_until("return document.querySelector('dialog') === null");
    assert!(job(&web).get("paused").is_none());
    // The focus is back where it was.
    browser.keys(&ENTER.to_string());
    browser.wait_for("stops until it is resumed");
    browser.keys(&ENTER.to_string());
    browser.wait_for("1 of them paused");
    assert!(job(&web)["paused"].is_object());
    tab_to(&browser, "Resume lost");
    browser.keys(&format!("{ENTER}"));
    browser.wait_for("runs again when it is its turn");
    browser.keys(&format!("{ENTER}"));
    browser
        .wait_until("return document.querySelector('#jobs [aria-label=\"Pause lost\"]') !== null");
    assert!(job(&web).get("paused").is_none());
    browser.close();
    web.service.stop();
}

/// Writes a document of `_replicator` as a user.
fn write(web: &Web, user: &str, id: &str) {
    let basic = data_encoding::BASE64.encode(format!("{user}:secret").as_bytes());
    let basic = format!("Basic {basic}");
    let headers = [
        ("Content-Type", "application/json"),
        ("Authorization", &*basic),
    ];
    let path = format!("/_replicator/{id}");
    let body = LOST.replace("lost", id);
    let made = web.connect().request("PUT", &path, &headers, &body);
    assert_eq!(made.status, 201, "{made:?}");
}

#[test]
fn each_role_sees_the_orders_that_it_may_give_and_is_refused_the_others() {
    let user = |name, roles| format!("[users.{name}]\npassword = \"secret\"\nroles = {roles}\n");
    let web = Web::start(&format!(
        "[admins]\nann = \"secret\"\n{}{}{}",
        user("vera", "[\"viewer\"]"),
        user("olga", "[\"operator\"]"),
        user("rita", "[\"viewer\", \"replicator\"]"),
    ));
    write(&web, "ann", "lost");
    write(&web, "rita", "own");
    let browser = open(&web, "#/jobs");
    let buttons = "return [...document.querySelectorAll('#view button')]\
        .map((one) => one.ariaLabel ?? one.innerText).sort().join()";
    for (name, expected) in [
        ("vera", ""),
        ("rita", ""),
        (
            "olga",
            "Pause all 2,Pause lost,Pause own,Restart all 2,Restart lost,Restart own,Resume all 2",
        ),
    ] {
        browser.wait_for("log in to see the service");
        browser.write("[name=name]", name);
        browser.write("[name=password]", "secret");
        browser.click("#login button");
        browser.wait_for("http://127.0.0.1:1/lost/");
        browser.wait_for("http://127.0.0.1:1/own/");
        assert_eq!(browser.run(buttons), expected, "{name}");
        let order = "const done = arguments[0]; \
            fetch('/_pools/none/_unthrottle', {method: 'POST'}).then((answer) => done(answer.status))";
        let status = if name == "olga" { 404 } else { 403 };
        assert_eq!(browser.run_async(order), status, "{name}");
        browser.go("#/pools/javascript");
        browser.wait_for("Settings");
        let text = browser.text();
        assert_eq!(text.contains("Change limits"), name == "olga", "{text}");
        browser.click("#logout");
        browser.wait_for("log in to see the service");
        browser.go("#/jobs");
    }
    browser.close();
    web.service.stop();
}

#[test]
fn all_jobs_that_the_filter_shows_are_paused_and_no_others() {
    let web = Web::start("");
    let docs = (0..60).map(|n| {
        let team = if n < 55 { "north" } else { "south" };
        json!({"_id": format!("{team}-{n}"), "source": format!("http://127.0.0.1:1/{team}{n}"),
            "target": "http://127.0.0.1:1/b", "continuous": true})
    });
    let body = json!({"docs": docs.collect::<Vec<_>>()}).to_string();
    assert_eq!(
        web.send("POST", "/_replicator/_bulk_docs", &body).status,
        201
    );
    let browser = open(&web, "#/jobs");
    browser.wait_for("60 jobs: ");
    browser.wait_for("1–50 of 60");
    browser.write("#job-match", "north");
    browser.wait_for("1–50 of 55");
    browser.click("[data-order=pause]");
    browser.wait_for("Pause 55 jobs");
    browser.click("dialog [type=submit]");
    browser.wait_for("55 of them paused");
    let paused = web.get("/_scheduler/jobs?states=paused&limit=100").ok();
    let paused = paused["jobs"].as_array().unwrap();
    assert_eq!(paused.len(), 55);
    assert!(
        paused
            .iter()
            .all(|job| job["doc_id"].as_str().unwrap().starts_with("north"))
    );
    browser.click("[data-order=delete]");
    browser.wait_for("Delete 55 jobs");
    browser.wait_for("55 × paused by ");
    // Deleting requires the number of jobs to be typed.
    let is_refused = "return document.querySelector('dialog [type=submit]').disabled";
    for (typed, refused) in [("", true), ("5", true), ("55", false)] {
        browser.write("dialog input", typed);
        assert_eq!(browser.run(is_refused), json!(refused), "{typed}");
    }
    browser.click("dialog [type=submit]");
    browser.wait_for("5 jobs: ");
    browser.wait_for("No such job.");
    let left = web.get("/_replicator/_all_docs").ok();
    let left = left["rows"].as_array().unwrap();
    assert_eq!(left.len(), 5);
    assert!(
        left.iter()
            .all(|row| row["id"].as_str().unwrap().starts_with("south"))
    );
    browser.close();
    web.service.stop();
}

#[test]
fn an_order_for_all_jobs_does_nothing_if_more_match_than_were_shown() {
    let web = Web::start("");
    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    let browser = open(&web, "#/jobs");
    browser.wait_for("1 job: ");
    browser.click("[data-order=pause]");
    browser.wait_for("Pause 1 job");
    let more = LOST.replace("lost", "more");
    assert_eq!(web.send("PUT", "/_replicator/more", &more).status, 201);
    browser.wait_for("2 jobs: ");
    browser.click("dialog [type=submit]");
    browser.wait_until("return document.querySelector('dialog [role=alert]').innerText !== ''");
    let paused = web.get("/_scheduler/jobs?states=paused").ok();
    assert_eq!(paused["total_rows"], 0);
    browser.close();
    web.service.stop();
}

#[test]
fn a_failed_document_is_counted_shown_with_its_whole_error_and_restarted() {
    let web = Web::start("");
    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    let browser = open(&web, "#/jobs?state=failed");
    browser.wait_for("No such job.");
    assert_eq!(web.send("PUT", "/_replicator/second", LOST).status, 201);
    browser.wait_for("1 document failed for good");
    browser.wait_for("triggered by document `lost` from db `_replicator`");
    let gone = web.get("/_replicator/lost").ok();
    let rev = gone["_rev"].as_str().unwrap();
    let deleted = web.send("DELETE", &format!("/_replicator/lost?rev={rev}"), "");
    assert_eq!(deleted.status, 200, "{deleted:?}");
    tab_to(&browser, "Restart second");
    browser.keys(&ENTER.to_string());
    browser.wait_for("restarts at its checkpoint now");
    browser.keys(&ENTER.to_string());
    browser.wait_for("No such job.");
    browser.go("#/jobs");
    browser.wait_for("crashing");
    assert_eq!(job(&web)["doc_id"], "second");
    browser.close();
    web.service.stop();
}

#[test]
fn a_document_is_deleted_and_the_list_is_shown_again() {
    let web = Web::start("");
    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    let browser = open(&web, "#/jobs");
    browser.wait_for("crashing");
    browser.click("#jobs a");
    browser.wait_for("latest first");
    let title = browser.run("return document.activeElement.innerText");
    assert!(title.as_str().unwrap().starts_with("Job "), "{title}");
    browser.click("#view .orders button:last-child");
    browser.wait_for("its document is deleted");
    browser.wait_for("Type lost");
    browser.press("dialog input", ENTER);
    assert_eq!(web.get("/_replicator/lost").status, 200);
    browser.write("dialog input", "lost");
    browser.click("dialog [type=submit]");
    browser.wait_for("No replication is scheduled.");
    assert_eq!(web.get("/_replicator/lost").status, 404);
    browser.close();
    web.service.stop();
}

#[test]
fn pool_limits_are_changed_processes_ended_and_errors_shown_in_the_dialog() {
    let web = Web::start(
        "[query_servers]\nfailing = \"exit 1\"\n\
         [pools.broken]\nlanguage = \"failing\"\ninit_size = 1\n[pools.few]\nlanguage = \"python\"\nmax = 1\n",
    );
    let mut holder = web.service.connect();
    let lent = holder.ok(&json!({"id": 1, "call": "get_proc", "pool": "few"}));
    let browser = open(&web, "#/pools/few");
    browser.wait_for("Change limits");
    browser.click("#view .orders button");
    browser.wait_for("Change the limits of few");
    browser.write("dialog [name=max]", "7");
    browser.write("dialog [name=min_free]", "9");
    browser.click("dialog [type=submit]");
    browser.wait_until(
        "return document.querySelector('dialog [role=alert]').innerText.includes('min_free')",
    );
    browser.write("dialog [name=min_free]", "0");
    browser.click("dialog [type=submit]");
    browser.wait_for("1 of 7");
    assert_eq!(web.get("/_pools/few").ok()["hard_limit"], 7);

    browser.wait_for(&lent["os_pid"].to_string());
    browser.click("#procs button");
    browser.wait_for("End few/");
    browser.click("dialog [type=submit]");
    browser.wait_for("No process runs.");
    drop(holder);

    browser.go("#/pools/broken");
    browser.wait_for("starts nothing for");
    browser.click("#view .orders button:last-child");
    browser.wait_for("The pool broken starts processes again now");
    browser.click("dialog [type=submit]");
    browser.wait_until("return document.querySelector('dialog') === null");
    browser.close();
    web.service.stop();
}
