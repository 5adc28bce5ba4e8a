//! Roles over HTTP: each has its rights and no others.

use serde_json::{Value, json};

use crate::http::admins::{ask, basic};
use crate::support::daemon::configure;
use crate::support::http_client::{Response, Web};

/// Carol may call functions.
pub const CAROL: &str = "[users.Carol]\npassword = \"secret\"\nroles = [\"caller\"]\n";

/// A user for each role, whose password is `secret`.
fn users() -> String {
    let user = |(name, roles): (&str, &str)| {
        format!("[users.{name}]\npassword = \"secret\"\nroles = {roles}\n")
    };
    let users = [
        ("root", "[\"admin\"]"),
        ("olga", "\"operator\""),
        ("rita", "[\"replicator\"]"),
        ("rolf", "[\"replicator\"]"),
        ("vera", "[\"viewer\"]"),
        ("nils", "\"viewer,caller\""),
    ];
    users.map(user).concat() + CAROL
}

#[test]
fn a_feed_ends_with_the_rights_of_its_user() {
    let ruth = users().replace("[users.root]", "[users.ruth]");
    let both = format!("{ruth}[users.root]\npassword = \"secret\"\nroles = [\"admin\"]\n");
    let web = Web::start(&both);
    let open = |name: &str| {
        let mut feed = web.connect();
        let credentials = basic(name, "secret");
        let path = "/_replicator/_changes?feed=continuous&heartbeat=100";
        feed.send("GET", path, &[("Authorization", &credentials)], "");
        assert_eq!(feed.head().status, 200);
        assert_eq!(feed.chunk().as_deref(), Some("\n"));
        feed
    };
    let (mut of_root, mut of_ruth) = (open("root"), open("ruth"));
    configure(web.service.directory.path(), &ruth);
    web.service.connect().operator.reload_config();
    assert!((0..600).any(|_| of_root.chunk().is_none()));
    assert_eq!(of_ruth.chunk().as_deref(), Some("\n"));
    web.service.stop();
}

fn by(web: &Web, name: &str, method: &str, path: &str, body: &str) -> Response {
    let credentials = basic(name, "secret");
    ask(web, method, path, &[("Authorization", &credentials)], body)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn each_role_has_exactly_its_rights() {
    let web = Web::start(&users());
    let all = ["root", "olga", "rita", "vera", "Carol", "nils"];
    let look = &["root", "olga", "vera", "nils"][..];
    let call = &["root", "Carol", "nils"][..];
    let operate = &["root", "olga"][..];
    let replicate = &["root", "rita"][..];
    let admin = &["root"][..];
    let new_pool = r#"{"language": "javascript"}"#;
    for (method, path, body, may) in [
        ("GET", "/_pools", "", look),
        ("GET", "/metrics", "", look),
        ("GET", "/_active_tasks", "", look),
        ("GET", "/_dashboard/state", "", look),
        ("GET", "/_dashboard/history", "", look),
        ("GET", "/_node/_local/_stats", "", look),
        ("GET", "/_node/_local/_system", "", look),
        (
            "GET",
            "/_scheduler/jobs",
            "",
            &["root", "olga", "vera", "nils", "rita"],
        ),
        ("GET", "/_scheduler/docs", "", &["root", "olga", "rita"]),
        (
            "POST",
            "/_scheduler/jobs/x/_pause",
            "",
            &["root", "olga", "rita"],
        ),
        (
            "POST",
            "/_scheduler/_bulk",
            "{\"order\": \"pause\", \"select\": {\"all\": true}}",
            &["root", "olga", "rita"],
        ),
        (
            "POST",
            "/_scheduler/_bulk",
            "{\"order\": \"delete\", \"select\": {\"all\": true}}",
            &["root", "rita"],
        ),
        ("GET", "/_node/_local/_config", "", operate),
        ("GET", "/_tenants/shop/log", "", operate),
        ("PUT", "/_pools/new", new_pool, operate),
        ("PUT", "/_pools/new", r#"{"callers": true}"#, admin),
        ("DELETE", "/_pools/new", "", operate),
        ("POST", "/_pools/x/_unthrottle", "", operate),
        ("GET", "/_procs", "", look),
        ("DELETE", "/_procs/javascript/0", "", operate),
        ("POST", "/_reload_query_servers", "", operate),
        ("PUT", "/_node/_local/_config/log/level", "\"info\"", admin),
        ("DELETE", "/_node/_local/_config/log/level", "", admin),
        ("POST", "/_node/_local/_config/_reload", "", admin),
        ("POST", "/_query/compile", "{}", call),
        ("POST", "/_query/map", "{}", call),
        ("POST", "/_replicate", "{}", replicate),
        ("GET", "/_replicator", "", replicate),
        ("GET", "/_replicator/x", "", replicate),
        ("PUT", "/_replicator/x", "{}", replicate),
        (
            "POST",
            "/_replicator/_bulk_docs",
            "{\"docs\": []}",
            replicate,
        ),
        ("GET", "/_replicator/_all_docs", "", admin),
        ("GET", "/_replicator/_changes", "", admin),
        ("POST", "/_replicator/_bulk_get", "{}", admin),
        ("PUT", "/_replicator/_design/x", "{}", admin),
        ("GET", "/_replicator/_local/x", "", admin),
        ("PUT", "/_replicator/x?new_edits=false", "{}", admin),
    ] {
        for name in all {
            let response = by(&web, name, method, path, body);
            let refused = response.status == 403 && response.body.contains("requires the role");
            let refused = refused || response.status == 401;
            assert_eq!(
                !refused,
                may.contains(&name),
                "{name} {method} {path}: {response:?}"
            );
        }
    }
    let who = by(&web, "nils", "GET", "/_session", "").ok();
    assert_eq!(who["userCtx"]["roles"], json!(["caller", "viewer"]));
    let who = by(&web, "root", "GET", "/_session", "").ok();
    assert_eq!(who["userCtx"]["roles"], json!(["_admin"]));
    // Names are case-sensitive.
    by(&web, "carol", "GET", "/_session", "").error(401, "unauthorized");
    web.service.stop();
}

const FUNCTION: &str = "function(doc) { emit(1, 1); }";

fn map(from: &Value) -> String {
    let mut call = json!({"funs": [FUNCTION], "docs": [{"_id": "a"}]});
    for (key, value) in from.as_object().unwrap() {
        call[key] = value.clone();
    }
    call.to_string()
}

#[test]
fn callers_use_configured_commands_only_in_pools_that_allow_them() {
    let web = Web::start(&format!(
        "{}[pools.shared]\nlanguage = \"python\"\ncallers = true\ngroup = \"g\"\n\
         [pools.own]\nlanguage = \"python\"\ngroup = \"g\"\n\
         [users.paul]\npassword = \"secret\"\nroles = [\"caller\"]\npools = [\"shared\"]\n",
        users()
    ));
    let compile = |lang: &str| json!({"lang": lang, "name": "f", "fun": "x"}).to_string();
    for (name, from, may) in [
        ("Carol", json!({"lang": "javascript"}), true),
        ("Carol", json!({"lang": "python"}), false),
        ("Carol", json!({"lang": "python", "pool": "own"}), false),
        ("Carol", json!({"lang": "python", "group": "g"}), false),
        ("Carol", json!({"lang": "python", "pool": "shared"}), true),
        ("paul", json!({"lang": "python", "pool": "shared"}), true),
        ("paul", json!({"lang": "javascript"}), false),
        ("root", json!({"lang": "python"}), true),
    ] {
        let response = by(&web, name, "POST", "/_query/map", &map(&from));
        assert_eq!(response.status != 403, may, "{name} {from}: {response:?}");
        if !may {
            response.error(403, "forbidden");
        }
    }
    by(&web, "Carol", "POST", "/_query/compile", &compile("python")).error(403, "forbidden");
    by(
        &web,
        "paul",
        "POST",
        "/_query/compile",
        &compile("javascript"),
    )
    .error(403, "forbidden");
    // The same for a stream.
    let carol = basic("Carol", "secret");
    let lines = [
        ("Content-Type", "application/x-ndjson"),
        ("Authorization", &carol),
    ];
    let first = json!({"lang": "python", "funs": [FUNCTION]}).to_string();
    let mut stream = web.connect();
    let refused = stream.request("POST", "/_query/map", &lines, &format!("{first}\n{{}}\n"));
    assert!(refused.body.contains("forbidden"), "{refused:?}");
    // No process was started for a refused call.
    let pools = by(&web, "vera", "GET", "/_pools", "").ok();
    let own = pools["pools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pool| pool["name"] == "own");
    assert_eq!(own.unwrap()["totals"]["started"], 0);
    web.service.stop();
}

/// A replication with an unreachable source and target.
fn lost(more: Value) -> String {
    let mut body = json!({"source": "http://u:pw@127.0.0.1:1/a", "target": "http://127.0.0.1:1/b", "continuous": true});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story from its beginning to its end"
)]
fn a_replicator_sees_and_controls_only_its_own_replications() {
    let web = Web::start(&users());
    let made = by(&web, "rita", "PUT", "/_replicator/hers", &lost(json!({})));
    assert_eq!(made.status, 201, "{made:?}");
    let document = by(&web, "rita", "GET", "/_replicator/hers", "").ok();
    assert_eq!(document["owner"], "rita");
    assert_eq!(document["source"], "http://u:pw@127.0.0.1:1/a");
    let rev = document["_rev"].as_str().unwrap();
    // Another replicator can neither read, change nor take over the document, even with its revision.
    for (method, path, body) in [
        ("GET", "/_replicator/hers".to_owned(), String::new()),
        (
            "GET",
            "/_replicator/hers?open_revs=all".to_owned(),
            String::new(),
        ),
        (
            "PUT",
            "/_replicator/hers".to_owned(),
            lost(json!({"_rev": rev})),
        ),
        (
            "DELETE",
            format!("/_replicator/hers?rev={rev}"),
            String::new(),
        ),
        (
            "POST",
            "/_replicator".to_owned(),
            lost(json!({"_id": "hers", "_rev": rev})),
        ),
        (
            "POST",
            "/_replicator/_bulk_docs".to_owned(),
            json!({"docs": [{"_id": "hers", "_rev": rev, "_deleted": true}]}).to_string(),
        ),
        (
            "POST",
            "/_replicator/_bulk_docs".to_owned(),
            json!({"new_edits": false, "docs": []}).to_string(),
        ),
        (
            "PUT",
            "/_replicator/his".to_owned(),
            lost(json!({"user_ctx": {"name": "rita"}})),
        ),
        (
            "PUT",
            "/_replicator/his".to_owned(),
            lost(json!({"user_ctx": {"name": "rolf", "roles": ["_admin"]}})),
        ),
    ] {
        by(&web, "rolf", method, &path, &body).error(403, "forbidden");
    }
    let jobs = |name: &str| by(&web, name, "GET", "/_scheduler/jobs", "").ok();
    crate::support::daemon::wait_until("her job", || jobs("rita")["total_rows"] == 1);
    assert_eq!(jobs("root")["total_rows"], 1);
    let none = json!({"total_rows": 0, "offset": 0, "jobs": []});
    assert_eq!(jobs("rolf"), none);
    let job = jobs("rita")["jobs"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/_scheduler/jobs/{}", job.replace('+', "%2B"));
    by(&web, "rolf", "GET", &path, "").error(404, "not_found");
    by(&web, "rolf", "POST", &format!("{path}/_pause"), "").error(404, "not_found");
    by(&web, "rita", "POST", &format!("{path}/_pause"), "").ok();
    by(&web, "rolf", "GET", "/_scheduler/docs/_replicator/hers", "").error(404, "not_found");
    by(&web, "rita", "GET", "/_scheduler/docs/_replicator/hers", "").ok();
    let docs = |name: &str| by(&web, name, "GET", "/_scheduler/docs", "").ok();
    assert_eq!(docs("rita")["docs"].as_array().unwrap().len(), 1);
    assert_eq!(docs("olga")["docs"].as_array().unwrap().len(), 1);
    assert_eq!(docs("rolf")["docs"], json!([]));
    // A job without a document belongs to its user.
    let other = lost(json!({"target": "http://127.0.0.1:1/c"}));
    let begun = by(&web, "rita", "POST", "/_replicate", &other);
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()["_local_id"].as_str().unwrap().to_owned();
    let cancel = json!({"cancel": true, "id": id}).to_string();
    by(&web, "rolf", "POST", "/_replicate", &cancel).error(404, "not_found");
    by(&web, "rita", "POST", "/_replicate", &cancel).ok();
    web.service.stop();
}
