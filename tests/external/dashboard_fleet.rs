//! The dashboard with many pools and jobs: layout, accessibility, lists, and text of other servers.

use std::fs;

use serde_json::{Value, json};
use test_support::effort;

use crate::fleet::site::wait;
use crate::npm;
use crate::postgres::server::TestDatabase;
use crate::support::couch::Couch;
use crate::support::daemon::{configure, directory};
use crate::support::http_client::{Web, command};
use crate::support::http_server::Answer;
use crate::webdriver::Browser;

/// Pools besides those of the languages.
const POOLS: usize = 30;

const JOBS: usize = 300;

/// A phone, a small window, a large one.
const WIDTHS: [u32; 3] = [390, 700, 1400];

/// Finds hidden parts of the tables: sticky and fixed cells, tables wider than their scroll area, cells beyond the
/// right edge, and links and buttons covered by another element.
const HIDDEN: &str = "
    const found = [];
    for (const scroll of document.querySelectorAll('#view .scroll')) {
      if (scroll.scrollWidth > scroll.clientWidth) found.push(`${scroll.ariaLabel}: ${scroll.scrollWidth} px wide`);
    }
    for (const part of document.querySelectorAll('#view :is(th, td, a, button, summary)')) {
      const name = `${part.tagName} ${part.innerText.slice(0, 40)}`;
      // Content of a closed list may still have a box.
      if (!part.checkVisibility()) continue;
      if (['sticky', 'fixed'].includes(getComputedStyle(part).position)) found.push(`${name} stays`);
      const right = part.getBoundingClientRect().right;
      if (right > document.documentElement.clientWidth) found.push(`${name} ends at ${right} px`);
      if (!part.matches('a, button')) continue;
      part.scrollIntoView({ block: 'center' });
      const box = part.getClientRects()[0];
      const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
      if (!part.contains(top)) found.push(`${name} is below ${top?.outerHTML.slice(0, 60)}`);
    }
    return found;";

/// Daemons that share the jobs.
const DAEMONS: usize = 3;

/// The error text of a hostile server.
const HOSTILE: &str = "<img src=x onerror=document.title=1>";

/// 30 pools, one of which has a command that fails.
fn config() -> String {
    let pool = |n| format!("[pools.team{n:02}]\nlanguage = \"javascript\"\nmax = 2\n");
    let pools: String = (1..POOLS).map(pool).collect();
    format!(
        "[replicator]\nmax_jobs = 10\n[query_servers]\nfailing = \"echo no rates >&2; exit 1\"\n\
         [pools.broken]\nlanguage = \"failing\"\ninit_size = 1\n{pools}"
    )
}

/// Creates replications with an unreachable source, and calls a function in each of three pools.
fn fill(web: &Web) {
    let docs = (0..JOBS).map(|n| {
        json!({"_id": format!("customer-{n:03}"), "source": format!("http://127.0.0.1:1/customer{n:03}"),
            "target": format!("http://127.0.0.1:1/a_copy_with_a_long_name_of_customer{n:03}"), "continuous": true})
    });
    let body = json!({"docs": docs.collect::<Vec<_>>()}).to_string();
    assert_eq!(
        web.send("POST", "/_replicator/_bulk_docs", &body).status,
        201
    );
    for n in 1..4 {
        let body = json!({"pool": format!("team{n:02}"), "db": "shop", "path": ["shows", "s"], "args": [null, {}],
            "ddoc": {"_id": "_design/d", "shows": {"s": "function() { return 'x' }"}}});
        assert_eq!(
            web.send("POST", "/_query/ddoc", &body.to_string()).status,
            200
        );
    }
}

/// Opens a view, waits until it is rendered, and opens its lists.
fn go(browser: &Browser, hash: &str, title: &str) {
    browser.go(hash);
    // The number of problems may precede the title.
    browser.wait_until(&format!(
        "return document.title.replace(/^\\(\\d+\\) /, '').startsWith({}) && document.querySelector('#view').childElementCount > 0",
        json!(title)
    ));
    browser.run("for (const list of document.querySelectorAll('details')) list.open = true");
}

/// Starts daemons that share the jobs of [`fill`], and waits until the first one reports equal shares.
fn share(database: &TestDatabase) -> Vec<Web> {
    let start = || {
        let directory = directory();
        let mut command = command(&configure(directory.path(), &config()));
        command.env("SETTEE__STORE__URL", database.url());
        Web::start_command(directory, command)
    };
    let webs: Vec<Web> = (0..DAEMONS).map(|_| start()).collect();
    fill(&webs[0]);
    wait("equal shares", || {
        let fleet = webs[0].get("/_fleet").ok();
        let daemons = fleet["daemons"].as_array().unwrap();
        let has_share = |daemon: &Value| {
            let jobs = format!(
                "/_scheduler/jobs?limit=0&daemon={}",
                daemon["address"].as_str().unwrap()
            );
            daemon["documents"] == JOBS / DAEMONS
                && webs[0].get(&jobs).ok()["total_rows"] == JOBS / DAEMONS
        };
        daemons.len() == DAEMONS && daemons.iter().all(has_share)
    });
    webs
}

/// Returns the address under which the fleet lists a daemon, once the daemon lists itself.
fn listed_address(web: &Web) -> String {
    let mut name = None;
    wait("the daemon lists itself", || {
        let fleet = web.get("/_fleet").ok();
        let daemons = fleet["daemons"].as_array().unwrap();
        let own = daemons.iter().find(|daemon| daemon["self"] == true);
        name = own.map(|own| own["address"].as_str().unwrap().to_owned());
        name.is_some()
    });
    name.unwrap()
}

/// Returns the page of a job that another daemon owns.
fn job_of_another(web: &Web, daemon: &str) -> String {
    let jobs = web.get(&format!("/_scheduler/jobs?limit=1&daemon={daemon}"));
    let id = jobs.ok()["jobs"][0]["id"].clone();
    format!("#/jobs/{}", id.as_str().unwrap().replace('+', "%2B"))
}

/// Pauses and resumes a daemon's job on the dashboard of another daemon.
fn pause_and_resume_elsewhere(browser: &Browser, owner: &Web, job: &str) {
    let path = job.replace("#/", "/_scheduler/");
    go(browser, job, "Job ");
    for (order, pauses) in [("Pause", true), ("Resume", false)] {
        browser.click(&format!("#view .orders button[aria-label^={order}]"));
        browser.wait_for(&format!("{order} it"));
        browser.click("dialog [type=submit]");
        browser.wait_until("return document.querySelector('dialog') === null");
        wait("the owner executes the order", || {
            owner.get(&path).ok()["paused"].is_object() == pauses
        });
        let next = if pauses { "Resume" } else { "Pause" };
        let shown = format!("#view .orders button[aria-label^={next}]");
        browser.wait_until(&format!(
            "return document.querySelector({}) !== null",
            json!(shown)
        ));
    }
}

#[test]
fn many_pools_and_jobs_fit_every_width_and_pass_the_axe_accessibility_checks() {
    let axe = npm::packages("axe-core-4.10.3", &["axe-core@4.10.3"]).join("axe-core/axe.min.js");
    let axe = fs::read_to_string(axe).unwrap();
    let database = TestDatabase::new();
    let webs = share(&database);
    let web = &webs[0];
    let other = listed_address(&webs[1]);
    let of_other = format!("#/jobs?daemon={other}");
    let job = job_of_another(web, &other);
    let views = [
        ("#/", "Settee"),
        ("#/pools", "Pools"),
        ("#/pools/broken", "Pool broken"),
        ("#/functions?period=hour", "Functions"),
        ("#/functions/shop/_design%2Fd/shows%2Fs", "Function shows/s"),
        ("#/jobs", "Replications"),
        (&*of_other, "Replications"),
        (&*job, "Job "),
    ];
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    browser.wait_for(&format!("{JOBS} jobs: "));
    browser.wait_for(&format!("{DAEMONS} daemons"));
    go(&browser, "#/jobs", "Replications");
    browser.wait_until(
        "return new Set([...document.querySelectorAll('#jobs td[data-label=Daemon]')].map((cell) => cell.innerText)).size > 1",
    );
    go(&browser, &of_other, "Replications");
    browser.wait_for("1–50 of 100");
    pause_and_resume_elsewhere(&browser, &webs[1], &job);
    browser.run(&axe);
    let check = "const done = arguments[0]; axe.run().then((found) => \
        done(found.violations.map((one) => [one.id, one.nodes[0].html])))";
    let schemes = ["light", "dark"];
    for (number, width) in WIDTHS.into_iter().enumerate() {
        for scheme in effort(&schemes[number % 2..][..1], &schemes) {
            browser.resize(width, 1000, scheme);
            for (hash, title) in views {
                go(&browser, hash, title);
                let at = format!("{hash} at {width} px, {scheme}");
                assert_eq!(browser.run_async(check), json!([]), "{at}");
                let widest = browser.run("return document.documentElement.scrollWidth");
                assert!(widest.as_u64().unwrap() <= width.into(), "{at}: {widest}");
                assert_eq!(browser.run(HIDDEN), json!([]), "{at}");
            }
            go(&browser, "#/jobs", "Replications");
            browser.click("[data-order=delete]");
            browser.wait_for(&format!("Delete {JOBS} jobs"));
            assert_eq!(
                browser.run_async(check),
                json!([]),
                "a dialog at {width} px"
            );
            browser.keys("\u{e00c}");
            browser.wait_until("return document.querySelector('dialog') === null");
        }
    }
    browser.close();
    webs.into_iter().for_each(|web| web.service.stop());
}

#[test]
fn no_table_hides_anything_at_any_width() {
    let web = Web::start(&config());
    fill(&web);
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    browser.wait_for(&format!("{JOBS} jobs: "));
    let mut holder = web.service.connect();
    let proc = holder.get_proc("python");
    for width in [390, 699, 700, 1199, 1200, 1400] {
        browser.resize(width, 900, "light");
        for (hash, title) in [
            ("#/", "Settee"),
            ("#/pools", "Pools"),
            ("#/pools/python", "Pool python"),
            ("#/functions?period=hour", "Functions"),
            ("#/jobs", "Replications"),
            ("#/jobs/customer-007", "Job customer-007"),
        ] {
            go(&browser, hash, title);
            assert_eq!(browser.run(HIDDEN), json!([]), "{hash} at {width} px");
        }
    }
    assert!(holder.ret_proc(&proc));
    browser.close();
    web.service.stop();
}

#[test]
fn lists_are_paged_and_searchable_and_failure_reasons_are_grouped() {
    let web = Web::start(&config());
    fill(&web);
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    go(&browser, "#/jobs", "Replications");
    browser.wait_for("1–50 of 300");
    let rows = "return document.querySelectorAll('#jobs tbody tr').length";
    assert_eq!(browser.run(rows), 50);
    browser.click(".pages a");
    browser.wait_for("51–100 of 300");
    browser.wait_until("return document.querySelectorAll('#reasons tbody tr').length === 1");
    browser.click("#reasons a");
    browser.wait_for("Reason: cannot be reached: 127.0.0.1:1");
    browser.write("#job-match", "mer-007");
    browser.wait_until("return document.querySelectorAll('#jobs tbody tr').length === 1");
    browser.wait_for("customer-007");
    for (field, text, found) in [
        ("match", "*-00?", 10),
        ("source", "/customer01", 10),
        ("target", "http://127.0.0.1:1/a_copy*_customer299", 1),
    ] {
        go(&browser, "#/jobs?state=paused", "Replications");
        browser.wait_for("No such job.");
        go(&browser, "#/jobs", "Replications");
        browser.wait_for("1–50 of 300");
        browser.write(&format!("#job-{field}"), text);
        browser.wait_until(&format!(
            "return document.querySelectorAll('#jobs tbody tr').length === {found}"
        ));
    }
    go(&browser, "#/pools", "Pools");
    browser.write("#pool-match", "team2");
    browser.wait_for("10 of ");
    browser.click("#pools a");
    browser.wait_for("Pool team20");
    let focused = browser.run("return document.activeElement.id");
    assert_eq!(focused, "title");
    browser.run("history.back()");
    browser.wait_until("return document.title.includes('Pools')");
    browser.close();
    web.service.stop();
}

#[test]
fn on_a_phone_a_job_shows_its_state_name_and_reason_first() {
    let web = Web::start(&config());
    fill(&web);
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    browser.resize(390, 844, "dark");
    go(&browser, "#/jobs?state=crashing", "Replications");
    browser.wait_for("customer-");
    let order = "const cells = [...document.querySelector('#jobs tbody tr').cells]; \
        cells.sort((one, other) => one.getBoundingClientRect().top - other.getBoundingClientRect().top); \
        return cells.filter((cell) => cell.offsetHeight > 0).slice(0, 3).map((cell) => cell.dataset.label)";
    assert_eq!(browser.run(order), json!(["State", "Job", "Reason"]));
    browser.close();
    web.service.stop();
}

#[actix_rt::test]
async fn markup_in_a_server_error_is_shown_as_text() {
    let couch = Couch::start().await;
    couch.fault(|_| Some(Answer::error(500, HOSTILE, HOSTILE)));
    let source = couch.url();
    let page = tokio::task::spawn_blocking(move || {
        let web = Web::start("");
        let body = json!({"_id": "bad", "source": source, "target": "http://127.0.0.1:1/b", "continuous": true});
        let made = web.send("POST", "/_replicator", &body.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
        // Lists show the service's own reason; the job's page also shows the server's text.
        browser.go("#/jobs");
        browser.click("#jobs a");
        browser.wait_for(HOSTILE);
        assert_eq!(browser.run("return document.images.length"), 0);
        let title = "return document.title.replace(/^\\(\\d+\\) /, '')";
        assert_eq!(browser.run(title), "Job bad · Settee");
        browser.close();
        web.service.stop();
    });
    page.await.unwrap();
}

#[actix_rt::test]
async fn completed_jobs_are_listed_by_state_and_their_written_documents_are_counted() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("a", None, json!({"n": 1}));
    source.put("b", None, json!({"n": 2}));
    let (from, to) = (source.url(), target.url());
    let page = tokio::task::spawn_blocking(move || {
        let web = Web::start("");
        let body = json!({"_id": "once", "source": from, "target": to});
        let made = web.send("POST", "/_replicator", &body.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
        browser.go("#/jobs?state=completed");
        browser.wait_until(
            "return document.querySelector('#jobs tbody tr')?.innerText.split(/\\s+/).slice(0, 2).join() === 'completed,once'",
        );
        let metrics = web.get("/metrics").body;
        let written = "couchdb_couch_replicator_docs_written_total 2\n";
        assert!(metrics.contains(written), "{metrics}");
        browser.close();
        web.service.stop();
    });
    page.await.unwrap();
}
