//! The dashboard, as a user sees it in a browser.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::support::http_client::Web;
use crate::webdriver::Browser;

fn open(web: &Web) -> Browser {
    Browser::open(&format!("http://{}/_dashboard", web.address))
}

/// A replication whose source is unreachable.
const LOST: &str =
    r#"{"source":"http://127.0.0.1:1/lost","target":"http://127.0.0.1:1/b","continuous":true}"#;

#[test]
fn pools_waiters_and_jobs_are_shown_as_they_change() {
    let web = Web::start("[query_server_config]\nos_process_limit = 1\n");
    let mut holder = web.service.connect();
    let proc = holder.get_proc("python");
    let browser = open(&web);
    browser.wait_for("0 requests wait for a process");
    browser.click("#procs-list summary");
    browser.wait_for("assigned");
    let mut waiter = web.service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    browser.wait_for("1 request waits for a process");
    browser.wait_for("at its limit");
    assert!(holder.ret_proc(&proc));
    assert!(waiter.reply().get("ok").is_some());
    browser.wait_for("0 requests wait for a process");

    browser.wait_for("No replication is scheduled.");
    let made = web.send("PUT", "/_replicator/lost", LOST);
    assert_eq!(made.status, 201, "{made:?}");
    browser.wait_for("http://127.0.0.1:1/lost/");
    browser.wait_for("crashing");
    browser.wait_for("1 job: 0 running");

    // Everything that the page loaded came from the service.
    let loaded = "return performance.getEntriesByType('resource').map((entry) => entry.name)";
    let loaded = browser.run(loaded);
    let own = format!("http://{}/", web.address);
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
fn the_first_screen_shows_problems_and_remedies() {
    let broken = "[query_servers]\nbroken = \"sh -c 'exit 7'\"\n[pools.broken]\ninit_size = 1\n";
    let web = Web::start(broken);
    let browser = open(&web);
    browser.wait_for("pool failing");
    browser.wait_for("settee pool unthrottle broken");
    browser.wait_for("broken first");
    browser.wait_until("return document.title.startsWith('(1) Settee runs')");
    let first = "return document.querySelector('h2:not([hidden])').textContent";
    assert_eq!(
        browser.run(first).as_str().unwrap().split(' ').next(),
        Some("Problems")
    );
    let moods =
        "return [...document.getElementById('state').children].map((part) => part.className)";
    assert_eq!(browser.run(moods), json!(["bad", ""]));
    web.service.stop();
    browser.close();
}

#[test]
fn ten_problems_fit_the_first_screen_of_a_phone_and_a_shared_one_takes_one_line() {
    let mut config = "[pools.javascript]\ninit_size = 1\n[query_servers]\n".to_owned();
    for n in 0..10 {
        config += &format!("lang{n} = \"/nowhere/server{n}\"\n");
    }
    let pools = (0..10).map(|n| (format!("team{n}"), n));
    for (pool, n) in pools.chain((1..5).map(|n| (format!("twin{n}"), 0))) {
        config += &format!("[pools.{pool}]\nlanguage = \"lang{n}\"\ninit_size = 1\n");
    }
    let web = Web::start(&config);
    let browser = open(&web);
    browser.resize(390, 844, "light");
    browser.wait_for("14 problems");
    browser.run("location.reload()");
    browser.wait_until("return document.querySelectorAll('#problems li').length === 10");
    let ends = browser.run(
        "scrollTo(0, 0); return [...document.querySelectorAll('#problems li')].map((line) => \
         [line.querySelector('b').innerText, line.getBoundingClientRect().bottom <= innerHeight])",
    );
    let shared = "team0, twin1, twin2 and 2 more".to_owned();
    let names = [shared]
        .into_iter()
        .chain((1..10).map(|n| format!("team{n}")));
    let expected: Vec<_> = names.map(|name| json!([name, true])).collect();
    assert_eq!(ends, json!(expected));
    // The remedies are one tap away.
    let remedies = "return document.getElementById('problems').innerText.includes('unthrottle')";
    assert_eq!(browser.run(remedies), false);
    browser.click("#problems summary");
    browser.wait_until(remedies);
    // Pools follow, with those that start nothing first.
    let second = "return document.querySelector('#pools tbody td').innerText.startsWith('team')";
    assert_eq!(browser.run(second), true);
    browser.close();
    web.service.stop();
}

#[test]
fn the_first_view_lists_its_sections_from_problems_to_databases() {
    let web = Web::start("");
    call(&web, "shop", &["quick"]);
    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    let browser = open(&web);
    browser.wait_until("return document.querySelector('#orders tbody td') !== null");
    browser.wait_until("return document.querySelector('#tenants tbody td')?.innerText === 'shop'");
    browser.wait_for("put doc");
    let heads = browser.run(
        "return [...document.querySelectorAll('#view h2')].map((head) => head.firstChild.data.trim())",
    );
    let expected = [
        "Problems",
        "Pools",
        "Processes",
        "Functions",
        "Replications",
        "The last hour",
        "Orders",
        "Databases",
    ];
    assert_eq!(heads, json!(expected));
    browser.close();
    web.service.stop();
}

#[test]
fn a_job_is_named_by_its_document_or_its_databases_and_never_by_its_id() {
    let web = Web::start("");
    assert_eq!(web.send("PUT", "/_replicator/lost", LOST).status, 201);
    // The server never answers: a failing replication without a document would be removed after some seconds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let from = format!("http://{}/from", silent.local_addr().unwrap());
    let body = json!({"source": from, "target": "http://127.0.0.1:1/to", "continuous": true});
    let replicated = web.send("POST", "/_replicate", &body.to_string());
    assert_eq!(replicated.status, 202);
    let browser = open(&web);
    browser.go("#/jobs");
    browser.wait_until("return document.querySelectorAll('#jobs a').length === 2");
    let names = browser
        .run("return [...document.querySelectorAll('#jobs a')].map((a) => a.innerText).sort()");
    assert_eq!(names, json!(["from → to", "lost"]));
    for (name, title) in [("lost", "Job lost"), ("from → to", "Job from → to")] {
        browser.go("#/jobs");
        browser.wait_until("return document.querySelectorAll('#jobs a').length === 2");
        browser.run(&format!(
            "[...document.querySelectorAll('#jobs a')].find((a) => a.innerText === {}).click()",
            json!(name)
        ));
        browser.wait_until(&format!(
            "return document.getElementById('title').innerText === {}",
            json!(title)
        ));
        assert_eq!(browser.run(TITLE), format!("{title} · Settee"));
    }
    browser.go("#/jobs/0123456789abcdef0123456789abcdef");
    browser.wait_until("return document.getElementById('title').innerText === 'Job'");
    browser.close();
    web.service.stop();
}

#[test]
fn a_hidden_page_does_not_poll_and_polls_at_once_when_shown() {
    let web = Web::start("");
    let browser = open(&web);
    browser.wait_for("0 requests wait for a process");
    let asked = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/state')).length";
    browser.wait_until(&format!("return {asked} > 1"));
    let look = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
             document.dispatchEvent(new Event('visibilitychange'));"
        )
    };
    // A request in progress may still be answered; in three intervals after that none is sent.
    let more = browser.run_async(&format!(
        "const done = arguments[0]; {} setTimeout(() => {{ const before = {asked}; \
         setTimeout(() => done({asked} - before), 3000); }}, 1500);",
        look(true)
    ));
    assert_eq!(more, 0);
    let before = browser.run(&format!("{} return {asked}", look(false)));
    browser.wait_until(&format!("return {asked} > {before}"));
    browser.close();
    web.service.stop();
}

/// Calls functions of a design document, one after another.
fn call(web: &Web, db: &str, functions: &[&str]) {
    let source = |name: &&str| match *name {
        "large" => "function() { return 'large'.repeat(1000) }",
        "wrong" => "function() { throw new Error('wrong') }",
        _ => "function() { return 'quick' }",
    };
    let shows = functions.iter().map(|name| (*name, source(name)));
    let shows: std::collections::BTreeMap<_, _> = shows.collect();
    for function in functions {
        let body = json!({"db": db, "path": ["shows", function], "args": [null, {}],
            "ddoc": {"_id": "_design/d", "shows": shows}});
        web.send("POST", "/_query/ddoc", &body.to_string());
    }
}

/// Returns a script that tells whether the first function has this name.
fn leads(function: &str) -> String {
    format!(
        "return document.querySelector('#functions tbody').rows[0].cells[0]?.innerText === 'shows/{function}'"
    )
}

#[test]
fn function_costs_are_sorted_by_the_selected_column() {
    let web = Web::start("");
    let browser = open(&web);
    browser.go("#/functions");
    browser.wait_for("No function was called in the last ");
    let hostile = "<img src=x onerror=document.title=1>";
    call(
        &web,
        hostile,
        &["quick", "quick", "quick", "wrong", "large"],
    );
    browser.wait_for("3 functions in the last ");
    browser.wait_for(hostile);
    browser.click("[data-sort=bytes]");
    browser.wait_until(&leads("large"));
    browser.click("[data-sort=calls]");
    browser.wait_until(&leads("quick"));
    browser.press("[data-sort=errors]", '\u{e007}');
    browser.wait_until(&leads("wrong"));
    let sorted = "return document.querySelector('[aria-sort=descending]').innerText";
    assert!(browser.run(sorted).as_str().unwrap().starts_with("Errors"));
    let alarms =
        "return [...document.querySelectorAll('#functions .warn')].map((cell) => cell.innerText)";
    assert_eq!(browser.run(alarms), json!(["1"]));
    browser.click("#period [value=hour]");
    assert_eq!(
        browser.run("return location.hash"),
        "#/functions?period=hour&sort=errors"
    );
    browser.wait_until(&leads("wrong"));
    assert_eq!(browser.run("return document.images.length"), 0);
    assert_eq!(browser.run(TITLE), "Functions · Settee");
    browser.close();
    web.service.stop();
}

#[test]
fn at_most_fifty_functions_are_shown_and_the_page_says_so() {
    let web = Web::start("");
    let functions: Vec<_> = (0..52).map(|number| format!("f{number}")).collect();
    let functions: Vec<_> = functions.iter().map(String::as_str).collect();
    call(&web, "shop", &functions);
    let browser = open(&web);
    browser.go("#/functions?period=hour");
    browser.wait_for("52 functions in the last ");
    browser.wait_for("; 50 are shown");
    let rows = "return document.querySelector('#functions tbody').rows.length";
    assert_eq!(browser.run(rows), 50);
    browser.close();
    web.service.stop();
}

#[test]
fn functions_fit_a_phone_in_light_and_dark_mode() {
    let web = Web::start("");
    let browser = open(&web);
    call(&web, &"a_database_with_a_long_name_".repeat(4), &["quick"]);
    browser.go("#/functions?period=hour");
    browser.wait_for("1 function in the last ");
    let widest = "return Math.max(document.documentElement.scrollWidth, \
        ...[...document.querySelectorAll('#functions :is(td, button)')].map((part) => part.getBoundingClientRect().right))";
    let colour = "return getComputedStyle(document.querySelector('[aria-sort] button')).color";
    let colours = ["light", "dark"].map(|scheme| {
        browser.resize(390, 844, scheme);
        let widest = browser.run(widest).as_f64().unwrap();
        assert!(widest <= 390.0, "{widest}");
        browser.run(colour)
    });
    assert_eq!(colours, ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]);
    browser.close();
    web.service.stop();
}

#[test]
fn a_paused_job_is_not_an_alarm_and_a_pid_is_shown_in_plain_digits() {
    let web = Web::start("");
    let browser = open(&web);
    let mut holder = web.service.connect();
    let lent = holder.ok(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    browser.click("#procs-list summary");
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
fn services_are_shown_with_their_address_or_why_they_do_not_accept() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("door.sock");
    let web = Web::start(&format!(
        "[pools.few]\nlanguage = \"python\"\nmax = 1\n\
         [services.door]\nlisten = \"unix:{}\"\npool = \"few\"\n",
        socket.display()
    ));
    let browser = open(&web);
    let row = |cells: &str| {
        browser.wait_until(&format!(
            "const row = document.querySelector('#services tbody tr'); \
             return row?.innerText.replace(/\\s+/g, ' ').includes({})",
            json!(cells)
        ));
    };
    row("door accepts unix:");
    row("door.sock few 0 0 1");
    let held = UnixStream::connect(&socket).unwrap();
    row("door does not accept: at its limit");
    row("few 1 1 1");
    drop(held);
    row("door accepts");
    row("few 0 1 1");
    browser.close();
    web.service.stop();
}

/// The title of the page, without the number of problems.
const TITLE: &str = r"return document.title.replace(/^\(\d+\) /, '')";

#[test]
fn output_of_children_is_shown_as_text() {
    let failing = "[query_servers]\n\
        failing = \"echo '<img src=x onerror=document.title=1>' >&2; exit 1\"\n\
        [pools.broken]\nlanguage = \"failing\"\ninit_size = 1\n";
    let web = Web::start(failing);
    let browser = open(&web);
    browser.wait_for("starts nothing for");
    browser.wait_for("<img src=x onerror=document.title=1>");
    assert_eq!(browser.run("return document.images.length"), 0);
    let title = env!("CARGO_PKG_DESCRIPTION").replacen("Runs", "Settee runs", 1);
    assert_eq!(browser.run(TITLE), title);
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
fn a_link_from_the_command_line_opens_the_page_without_a_password() {
    let web = Web::start("[admins]\nann = \"open sesame\"\n");
    let output = web.service.client(&["dashboard"]).output().unwrap();
    let browser = Browser::open(String::from_utf8(output.stdout).unwrap().trim_end());
    browser.wait_for("No replication is scheduled.");
    assert_eq!(browser.run("return location.hash"), "");
    browser.close();
    web.service.stop();
}
