//! Outgoing requests of replications: their destinations, connections and secrets.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::replicator::world::{SETTINGS, World};
use crate::support::couch::Couch;
use crate::support::daemon::wait_until;
use crate::support::http_client::Web;
use crate::support::http_server::{Answer, Received};
use crate::support::store::{command, create, post};

/// Requests of a replication, each with the side that gets it.
const REQUESTS: [(&str, &str); 11] = [
    ("source", "GET db"),
    ("source", "GET _local"),
    ("source", "GET _changes"),
    ("source", "POST _bulk_get"),
    ("source", "GET doc"),
    ("source", "PUT _local"),
    ("target", "GET db"),
    ("target", "PUT db"),
    ("target", "POST _revs_diff"),
    ("target", "POST _bulk_docs"),
    ("target", "PUT _local"),
];

/// Redirects requests of a kind to `to`; returns their count.
fn redirects(couch: &Couch, kind: &'static str, code: u16, to: &str) -> Arc<Mutex<u32>> {
    let (seen, to) = (Arc::new(Mutex::new(0)), to.to_owned());
    let count = Arc::clone(&seen);
    couch.fault(move |request: &Received| {
        if request.kind() != kind {
            return None;
        }
        *count.lock().unwrap() += 1;
        let mut answer = Answer::error(code, "moved", "elsewhere");
        answer.headers.push(("Location".into(), to.clone()));
        Some(answer)
    });
    seen
}

#[test]
fn a_redirect_to_this_service_cannot_start_a_replication() {
    let world = World::start();
    world.fill(3);
    let planted = format!(
        "http://127.0.0.1:{}/_replicator/planted",
        world.web.address.port()
    );
    for (code, (side, kind)) in [301, 302, 307, 308]
        .into_iter()
        .flat_map(|code| REQUESTS.map(|request| (code, request)))
    {
        let couch = match side {
            "source" => &world.source,
            _ => &world.target,
        };
        let seen = redirects(couch, kind, code, &planted);
        let mut body = world.body();
        body["create_target"] = (kind == "PUT db").into();
        body["use_bulk_get"] = (kind != "GET doc").into();
        world.source.put(
            &format!("{code} {side} {kind}"),
            None,
            json!({"source": "http://h/a"}),
        );
        let answer = post(&world.web, "/_replicate", &body);
        let text = answer.json().to_string();
        if *seen.lock().unwrap() > 0 && kind != "POST _bulk_get" {
            assert!(
                text.contains("redirected_elsewhere"),
                "{code} {side} {kind}: {text}"
            );
            assert!(
                text.contains(&couch.server.url("").trim_end_matches('/').to_owned()),
                "{text}"
            );
            assert!(
                text.contains(planted.trim_end_matches("/_replicator/planted")),
                "{text}"
            );
        }
        assert!(
            *seen.lock().unwrap() > 0,
            "{code} {side} {kind} was never requested: {text}"
        );
        couch.heal();
    }
    assert_eq!(world.web.get("/_replicator").ok()["doc_count"], 0);
    world.stop();
}

#[test]
fn a_job_reports_a_redirect_elsewhere_and_resumes_once_it_is_gone() {
    let world = World::start();
    world.fill(3);
    let to = "http://other.example/db/";
    redirects(&world.source, "GET _changes", 301, to);
    create(&world.web, "moved", &world.continuous());
    let doc = world.wait_for_state("moved", "crashing");
    let error = doc["info"]["error"].as_str().unwrap();
    let from = world.source.server.url("");
    for part in [
        "redirected_elsewhere",
        from.trim_end_matches('/'),
        "http://other.example",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    world.source.heal();
    world.wait_until_equal();
    world.stop();
}

#[test]
fn no_replication_connects_to_the_service_itself_unless_allowed() {
    let world =
        World::start_with("[services.s]\nlanguage = \"javascript\"\nlisten = \"127.0.0.1:0\"\n");
    let own = world.web.address.port();
    let status = world.web.service.status();
    let service = status["services"][0]["listen"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(service.starts_with("127.0.0.1:"), "{status}");
    for (number, place) in [
        format!("127.0.0.1:{own}"),
        format!("localhost:{own}"),
        service,
    ]
    .iter()
    .enumerate()
    {
        let id = format!("own{number}");
        let mut body = world.continuous();
        body["source"] = format!("http://{place}/_replicator").into();
        create(&world.web, &id, &body);
        let doc = world.wait_for_state(&id, "crashing");
        let error = doc["info"]["error"].as_str().unwrap();
        assert!(error.contains("endpoint_denied"), "{error}");
    }
    world.stop();
}

/// Secrets that only their owner may read, one for each place that can hold one.
const SECRETS: [&str; 8] = [
    "t0ken-in-url",
    "bare-in-url",
    "k3y-in-header",
    "b3arer-in-header",
    "pw-in-auth",
    "pw-in-url",
    "pw-of-proxy",
    "t0ken-of-proxy",
];

/// A side with secrets in its URL's query, headers and `auth`.
fn secretive(url: &str) -> Value {
    json!({
        "url": format!("{url}?access_token=t0ken-in-url&bare-in-url"),
        "headers": {"X-Api-Key": "k3y-in-header", "X-Auth": "Bearer b3arer-in-header"},
        "auth": {"basic": {"username": "ann", "password": "pw-in-auth"}},
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn no_secret_of_a_source_or_target_is_shown_anywhere() {
    let more = "auth_plugins = \"couch_replicator_auth_noop\"\nupdate_docs = true\n[log]\nlevel = \"debug\"\n";
    let world = World::start_with(more);
    world.fill(3);
    // A server that echoes requests, as proxies do in error pages.
    let echo = world.another();
    echo.fault(|request| {
        let said = format!("{:?} {:?} {}", request.query, request.headers, request.path);
        Some(Answer::error(400, "bad_request", &said))
    });
    let target = json!(world.target.url());
    let running = json!({"source": secretive(&world.source.url()), "target": secretive(&world.target.url()),
        "continuous": true});
    let failing = json!({"source": secretive(&echo.url()), "target": target, "continuous": true});
    let unreached = json!({"source": "http://ann:pw-in-url@127.0.0.1:1/db?token=t0ken-in-url", "target": target,
        "continuous": true, "source_proxy": "http://p:pw-of-proxy@127.0.0.1:1/?t=t0ken-of-proxy"});
    let finished = json!({"source": secretive(&world.source.url()), "target": target});
    let taken = running.clone();
    // A database that echoes a secret in the reason for a refusal.
    let refusing = world.another();
    refusing.rewrite_bulk_docs(|docs| {
        let entry = |doc: &Value| json!({"id": doc["_id"], "error": "forbidden", "reason": "not for t0ken-in-url"});
        let entries = docs.iter().map(entry).collect();
        docs.clear();
        Some(Value::Array(entries))
    });
    let refused = json!({"source": world.source.url(), "target": secretive(&refusing.url()), "continuous": true});
    for (id, body) in [
        ("running", &running),
        ("failing", &failing),
        ("unreached", &unreached),
        ("finished", &finished),
        ("taken", &taken),
        ("refused", &refused),
    ] {
        create(&world.web, id, body);
    }
    world.wait_for_state("failing", "crashing");
    world.wait_for_state("unreached", "crashing");
    world.wait_for_state("finished", "completed");
    world.wait_until_equal();
    wait_until("documents are refused", || {
        let jobs = world.jobs();
        jobs.iter()
            .any(|job| job["refused"][0]["reason"].is_string())
    });
    wait_until("one of the duplicates fails", || {
        ["running", "taken"]
            .iter()
            .any(|id| world.doc(id)["state"] == "failed")
    });
    let mut transient = failing.clone();
    transient["continuous"] = false.into();
    let answer = post(&world.web, "/_replicate", &transient);
    let mut shown = vec![("/_replicate".to_owned(), answer.json().to_string())];
    for path in [
        "/_scheduler/jobs",
        "/_scheduler/docs",
        "/_active_tasks",
        "/_dashboard/state",
        "/_node/_local/_prometheus",
        "/_node/_local/_stats",
    ] {
        shown.push((path.to_owned(), world.web.get(path).body));
    }
    for id in ["running", "failing", "unreached", "finished", "taken"] {
        let mut doc = world.web.get(&format!("/_replicator/{id}")).ok();
        for name in ["source", "target", "source_proxy"] {
            doc.as_object_mut().unwrap().remove(name);
        }
        shown.push((id.to_owned(), doc.to_string()));
    }
    for job in world.jobs() {
        let id = job["id"].as_str().unwrap().to_owned();
        let out = world.web.service.client(&["jobs", &id]).output().unwrap();
        shown.push((id, String::from_utf8_lossy(&out.stdout).into_owned()));
    }
    let list = world.web.service.client(&["jobs"]).output().unwrap();
    shown.push((
        "settee jobs".to_owned(),
        String::from_utf8_lossy(&list.stdout).into_owned(),
    ));
    shown.push(("log".to_owned(), world.web.service.log()));
    let checkpoints = [&world.source, &world.target].map(|couch| format!("{:?}", couch.locals()));
    shown.push(("checkpoints".to_owned(), checkpoints.concat()));
    for (place, text) in shown {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{place} shows {secret}: {text}");
        }
    }
    world.stop();
}

#[test]
fn a_design_document_of_the_source_cannot_choose_a_configured_command() {
    let directory = crate::support::daemon::directory();
    let marker = directory.path().join("was-run");
    let command = format!("touch {0}; exec cat", marker.display());
    for (pool, language) in [
        ("", "sh"),
        ("[pools.sh]\ncallers = true\n", "sh"),
        ("", "javascript"),
    ] {
        let world = World::start_with(&format!(
            "[query_servers]\n{language} = \"{command}\"\n{pool}"
        ));
        world.fill(3);
        let ddoc =
            json!({"language": language, "filters": {"f": "x"}, "views": {"v": {"map": "x"}}});
        world.source.put("_design/d", None, ddoc);
        for (filter, params) in [("d/f", json!({})), ("_view", json!({"view": "d/v"}))] {
            let mut body = world.body();
            body["filter"] = filter.into();
            body["query_params"] = params;
            body["filter_at"] = "settee".into();
            let answer = post(&world.web, "/_replicate", &body).json().to_string();
            assert!(
                answer.contains("filter_failed") && answer.contains("built-in"),
                "{answer}"
            );
        }
        assert!(!marker.exists(), "{language} was run");
        assert_eq!(world.target.trees().len(), 0);
        world.stop();
    }
}

/// The limit leaves 192 descriptors beside those that are reserved: 120 for feeds, and 72 for everything else.
#[test]
fn jobs_of_slow_servers_open_only_as_many_connections_as_the_open_file_limit_allows() {
    const JOBS: usize = 120;
    let mut world = World::start();
    for couch in [&world.source, &world.target] {
        couch.fault(|request| {
            let is_slow = request.kind() == "GET db";
            let info = json!({"db_name": "db", "update_seq": "0-x", "instance_start_time": "1"});
            is_slow.then(|| Answer::json(200, info).slow(16, Duration::from_millis(40)))
        });
    }
    let directory = world.web.service.stop_and_keep();
    let settings = format!("{SETTINGS}max_jobs = {JOBS}\n");
    let unlimited = command(directory.path(), &settings);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]);
    limited
        .arg(unlimited.get_program())
        .args(unlimited.get_args());
    for (name, value) in unlimited.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    limited.stdin(Stdio::null());
    world.web = Web::start_command(directory, limited);
    let docs = (0..JOBS).map(|number| {
        let mut doc = world.continuous();
        doc["_id"] = format!("d{number}").into();
        doc["target"] = world.target.server.url(&format!("t{number}")).into();
        doc
    });
    let docs: Vec<Value> = docs.collect();
    let made = post(
        &world.web,
        "/_replicator/_bulk_docs",
        &json!({"docs": docs}),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let mut most = 0;
    wait_until("all feeds", || {
        let both = [&world.source, &world.target];
        most = most.max(both.iter().map(|couch| couch.server.connections()).sum());
        world.source.server.count("GET _changes") >= JOBS
    });
    assert!(most <= 192, "{most} connections");
    let running = world
        .web
        .get("/_scheduler/jobs?states=running&limit=1000")
        .ok();
    assert_eq!(running["total_rows"], JOBS, "{}", world.web.service.log());
    for job in running["jobs"].as_array().unwrap() {
        assert_eq!(job["error_count"].as_u64().unwrap_or(0), 0, "{job}");
    }
    world.stop();
}
