//! The dashboard, as somebody sees it who looks at it.

use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::support::http_client::Web;
use crate::webdriver::Browser;

fn open(web: &Web) -> Browser {
    Browser::open(&format!("http://{}/_dashboard", web.address))
}

/// A replication whose source nobody answers for.
const LOST: &str =
    r#"{"source":"http://127.0.0.1:1/lost","target":"http://127.0.0.1:1/b","continuous":true}"#;

#[test]
fn it_shows_pools_waiters_and_jobs_as_they_change() {
    let web = Web::start("[query_server_config]\nos_process_limit = 1\n");
    let mut holder = web.service.connect();
    let proc = holder.get_proc("python");
    let browser = open(&web);
    browser.wait_for("live; 0 requests wait for a process");
    browser.wait_for("assigned");
    let mut waiter = web.service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    browser.wait_for("live; 1 request waits for a process");
    browser.wait_for("at its limit");
    assert!(holder.ret_proc(&proc));
    assert!(waiter.reply().get("ok").is_some());
    browser.wait_for("live; 0 requests wait for a process");

    browser.wait_for("No replication is scheduled.");
    let made = web.send("PUT", "/_replicator/lost", LOST);
    assert_eq!(made.status, 201, "{made:?}");
    browser.wait_for("http://127.0.0.1:1/lost/");
    browser.wait_for("crashing");
    browser.wait_for("1 job: 0 running");

    // The page is the one that was opened, and all that it loaded came from the service.
    let loaded = "return performance.getEntriesByType('resource').map((entry) => entry.name)";
    let loaded = browser.run(loaded);
    let own = format!("http://{}/_dashboard", web.address);
    let loaded = loaded.as_array().unwrap();
    assert!(
        loaded
            .iter()
            .all(|url| url.as_str().unwrap().starts_with(&own))
    );

    web.service.stop();
    browser.wait_for("the service does not answer");
    browser.close();
}

#[test]
fn a_paused_job_is_no_alarm_and_a_pid_is_shown_as_it_is_typed() {
    let web = Web::start("");
    let browser = open(&web);
    let mut holder = web.service.connect();
    let lent = holder.ok(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    browser.wait_for("assigned");
    let pid = lent["os_pid"].to_string();
    let shown = browser.run("return document.querySelector('#procs').innerText");
    let mut cells = shown.as_str().unwrap().split_whitespace();
    assert!(cells.any(|cell| cell == pid), "{pid} in {shown}");

    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    browser.wait_for("crashing");
    let alarms = "return document.querySelectorAll('#jobs .bad').length";
    assert_eq!(browser.run(alarms), 1);
    let job = web.get("/_scheduler/jobs").json()["jobs"][0]["id"].clone();
    let job = job.as_str().unwrap();
    let paused = web.send("POST", &format!("/_scheduler/jobs/{job}/_pause"), "");
    assert_eq!(paused.status, 200, "{paused:?}");
    browser.wait_for("1 of them paused");
    assert_eq!(browser.run(alarms), 0);
    browser.close();
    web.service.stop();
}

#[test]
fn it_shows_where_services_listen_and_why_they_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("door.sock");
    let web = Web::start(&format!(
        "[pools.few]\nlanguage = \"python\"\nmax = 1\n\
         [services.door]\nlisten = \"unix:{}\"\npool = \"few\"\n",
        socket.display()
    ));
    let browser = open(&web);
    browser.wait_for("door.sock\tfew\t0\t0\t1\taccepts");
    let held = UnixStream::connect(&socket).unwrap();
    browser.wait_for("few\t1\t1\t1\tdoes not accept: at its limit");
    drop(held);
    browser.wait_for("few\t0\t1\t1\taccepts");
    browser.close();
    web.service.stop();
}

#[test]
fn what_children_say_is_shown_as_text() {
    let failing = "[query_servers]\n\
        failing = \"echo '<img src=x onerror=document.title=1>' >&2; exit 1\"\n\
        [pools.broken]\nlanguage = \"failing\"\ninit_size = 1\n";
    let web = Web::start(failing);
    let browser = open(&web);
    browser.wait_for("starts nothing for");
    browser.wait_for("<img src=x onerror=document.title=1>");
    assert_eq!(browser.run("return document.images.length"), 0);
    assert_eq!(browser.run("return document.title"), "Settee");
    browser.close();
    web.service.stop();
}

#[test]
fn an_admin_logs_in_on_the_page_and_sees_replications() {
    let web = Web::start("[admins]\nann = \"open sesame\"\n");
    let browser = open(&web);
    browser.wait_for("log in to see the service");
    browser.write("[name=name]", "ann");
    browser.write("[name=password]", "open barley");
    browser.click("#login button");
    browser.wait_for("Name or password is incorrect.");
    browser.write("[name=password]", "open sesame");
    browser.click("#login button");
    browser.wait_for("No replication is scheduled.");
    browser.click("#logout");
    browser.wait_for("log in to see the service");
    browser.close();
    web.service.stop();
}

#[test]
fn a_link_of_the_command_line_leads_to_the_page_without_a_password() {
    let web = Web::start("[admins]\nann = \"open sesame\"\n");
    let output = web.service.client(&["dashboard"]).output().unwrap();
    let browser = Browser::open(String::from_utf8(output.stdout).unwrap().trim_end());
    browser.wait_for("No replication is scheduled.");
    assert_eq!(browser.run("return location.hash"), "");
    browser.close();
    web.service.stop();
}
