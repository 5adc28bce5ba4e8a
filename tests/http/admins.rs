//! Admins over HTTP: who is let in, how, and what is never shown.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::browser::{Response, Web, command};
use crate::service::{Service, configure, directory};
use data_encoding::BASE64;
use serde_json::json;

/// Ann's password is plain, Bob's is `password`.
const ADMINS: &str = "[admins]\nann = \"open sesame\"\n\
    bob = \"-pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096\"\n";

fn basic(name: &str, password: &str) -> String {
    format!(
        "Basic {}",
        BASE64.encode(format!("{name}:{password}").as_bytes())
    )
}

fn ask(web: &Web, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let json = [("Content-Type", "application/json")];
    let headers = [&json[..], headers].concat();
    web.connect().request(method, path, &headers, body)
}

fn log_in(web: &Web, name: &str, password: &str) -> Response {
    let body = json!({"name": name, "password": password}).to_string();
    ask(web, "POST", "/_session", &[], &body)
}

/// Returns `AuthSession=VALUE` of a response that begins a session.
fn cookie(response: &Response) -> String {
    let set = response.header("set-cookie").unwrap();
    let (cookie, attributes) = set.split_once(';').unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=600"] {
        assert!(attributes.contains(attribute), "{set}");
    }
    assert!(cookie.starts_with("AuthSession="), "{set}");
    cookie.to_owned()
}

#[test]
fn everything_that_changes_something_needs_an_admin_and_the_rest_is_open_here() {
    let web = Web::start(ADMINS);
    for path in [
        "/",
        "/_up",
        "/_active_tasks",
        "/_session",
        "/_node/_local/_system",
    ] {
        web.get(path).ok();
    }
    let ann = basic("ann", "open sesame");
    for (method, path, body) in [
        ("POST", "/_query/ddoc", "{}"),
        ("POST", "/_query/map", "{}"),
        ("POST", "/_reload_query_servers", ""),
        ("GET", "/_node/_local/_config", ""),
        ("GET", "/_node/_local/_config/log/level", ""),
        ("PUT", "/_node/_local/_config/log/level", "\"debug\""),
        ("DELETE", "/_node/_local/_config/log/level", ""),
        ("POST", "/_node/_local/_config/_reload", ""),
    ] {
        let refused = ask(&web, method, path, &[], body);
        let reason = refused.reason(401, "unauthorized");
        assert_eq!(reason, "You are not a server admin.");
        assert!(
            refused
                .header("www-authenticate")
                .unwrap()
                .starts_with("Basic ")
        );
        let status = ask(&web, method, path, &[("Authorization", &ann)], body).status;
        assert!(![401, 403].contains(&status), "{method} {path}: {status}");
    }
    web.service.stop();
}

#[test]
fn passwords_are_checked_in_all_their_forms() {
    let web = Web::start(ADMINS);
    let system = |credentials: &str| {
        let headers = [("Authorization", credentials)];
        ask(&web, "GET", "/_node/_local/_config/log", &headers, "")
    };
    // The second time they are remembered.
    for _ in 0..2 {
        system(&basic("ann", "open sesame")).ok();
        system(&basic("bob", "password")).ok();
    }
    for (name, password) in [
        ("ann", "password"),
        ("bob", ""),
        ("eve", "password"),
        ("", ""),
    ] {
        let refused = system(&basic(name, password));
        assert_eq!(
            refused.reason(401, "unauthorized"),
            "Name or password is incorrect."
        );
    }
    for wrong in ["Basic", "Basic !!!", "Bearer x", "Basic YW5u"] {
        system(wrong).error(400, "bad_request");
    }
    // Also where nobody has to log in.
    let headers = [("Authorization", basic("ann", "x"))];
    let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    ask(&web, "GET", "/", &headers, "").error(401, "unauthorized");
    web.service.stop();
}

#[test]
fn a_session_lets_its_admin_in_until_it_ends() {
    let web = Web::start(ADMINS);
    log_in(&web, "ann", "wrong").error(401, "unauthorized");
    let begun = log_in(&web, "ann", "open sesame");
    let expected = json!({"ok": true, "name": "ann", "roles": ["_admin"]});
    assert_eq!(begun.ok(), expected);
    let session = cookie(&begun);
    let with =
        |cookie: &str, method: &str, path: &str| ask(&web, method, path, &[("Cookie", cookie)], "");
    let who = with(&session, "GET", "/_session").ok();
    assert_eq!(who["userCtx"], json!({"name": "ann", "roles": ["_admin"]}));
    assert_eq!(who["info"]["authenticated"], "cookie");
    let config = with(&session, "GET", "/_node/_local/_config/log");
    config.ok();
    assert_eq!(config.header("set-cookie"), None, "it is fresh");
    // What is no session is as good as none.
    for forged in ["AuthSession=x", &format!("{session}x"), "AuthSession="] {
        let nobody = with(forged, "GET", "/_session").ok();
        assert_eq!(nobody["userCtx"], json!({"name": null, "roles": []}));
        with(forged, "GET", "/_node/_local/_config/log").error(401, "unauthorized");
    }
    let ended = with(&session, "DELETE", "/_session");
    assert_eq!(ended.ok(), json!({"ok": true}));
    assert!(
        ended
            .header("set-cookie")
            .unwrap()
            .starts_with("AuthSession=;")
    );
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let body = "name=bob&password=pass%77ord";
    let begun = web.connect().request("POST", "/_session", &form, body);
    assert_eq!(begun.ok()["name"], "bob");
    for body in ["", "{", "[]", "{\"name\": \"ann\"}"] {
        ask(&web, "POST", "/_session", &[], body).error(400, "bad_request");
    }
    web.connect()
        .request("POST", "/_session", &[("Content-Type", "text/plain")], "x")
        .error(415, "bad_content_type");
    web.service.stop();
}

#[test]
fn a_session_that_was_logged_out_is_refused_afterwards() {
    let web = Web::start(ADMINS);
    let with =
        |cookie: &str, method: &str, path: &str| ask(&web, method, path, &[("Cookie", cookie)], "");
    let one = cookie(&log_in(&web, "ann", "open sesame"));
    let other = cookie(&log_in(&web, "ann", "open sesame"));
    with(&one, "DELETE", "/_session").ok();
    with(&one, "GET", "/_node/_local/_config/log").error(401, "unauthorized");
    let nobody = with(&one, "GET", "/_session").ok();
    assert_eq!(nobody["userCtx"]["name"], json!(null));
    with(&other, "GET", "/_node/_local/_config/log").ok();
    web.service.stop();
}

#[test]
fn a_new_session_takes_the_place_of_the_one_that_the_request_came_with() {
    let web = Web::start(&format!("{ADMINS}[chttpd_auth]\ntimeout = 10\n"));
    let begun = log_in(&web, "bob", "password");
    let set = begun.header("set-cookie").unwrap();
    let old = set.split(';').next().unwrap().to_owned();
    let old = [("Cookie", old.as_str())];
    crate::service::wait_until("a session that is worn", || {
        let answer = ask(&web, "GET", "/_session", &old, "");
        answer.header("set-cookie").is_some()
    });
    let body = json!({"name": "ann", "password": "open sesame"}).to_string();
    let begun = ask(&web, "POST", "/_session", &old, &body);
    assert_eq!(
        begun.head.matches("set-cookie").count(),
        1,
        "{}",
        begun.head
    );
    let new = begun
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let who = ask(&web, "GET", "/_session", &[("Cookie", new)], "").ok();
    assert_eq!(who["userCtx"]["name"], "ann");
    let ended = ask(&web, "DELETE", "/_session", &old, "");
    assert_eq!(
        ended.head.matches("set-cookie").count(),
        1,
        "{}",
        ended.head
    );
    web.service.stop();
}

#[test]
fn a_session_that_is_worn_is_issued_anew() {
    let web = Web::start(&format!("{ADMINS}[chttpd_auth]\ntimeout = 10\n"));
    let begun = log_in(&web, "bob", "password");
    let set = begun.header("set-cookie").unwrap();
    assert!(set.contains("Max-Age=10"), "{set}");
    let session = set.split(';').next().unwrap().to_owned();
    // A tenth of its time is a second.
    crate::service::wait_until("a new cookie", || {
        let answer = ask(&web, "GET", "/_session", &[("Cookie", &session)], "");
        assert_eq!(answer.ok()["userCtx"]["name"], "bob");
        answer
            .header("set-cookie")
            .is_some_and(|new| !new.starts_with(&session))
    });
    web.service.stop();
}

#[test]
fn without_admins_everybody_here_is_one_and_the_log_says_so() {
    let web = Web::start("");
    let who = web.get("/_session").ok();
    assert_eq!(who["userCtx"], json!({"name": null, "roles": ["_admin"]}));
    log_in(&web, "ann", "x").error(401, "unauthorized");
    let told = web.service.log().matches("no admin is configured").count();
    assert_eq!(told, 1);
    web.service.stop();
}

#[test]
fn on_an_address_for_others_only_the_welcome_is_open() {
    let directory = directory();
    let config = configure(directory.path(), ADMINS);
    let mut command = command(&config);
    command.env("SETTEE__SERVER__HTTP", "0.0.0.0:0");
    let mut service = Service::start_command(directory, command);
    let mut address = service.next_address("http://");
    address.set_ip([127, 0, 0, 1].into());
    let web = Web { service, address };
    for path in ["/", "/_up", "/_session"] {
        web.get(path).ok();
    }
    let bob = basic("bob", "password");
    for path in ["/_active_tasks", "/_node/_local/_system"] {
        web.get(path).error(401, "unauthorized");
        ask(&web, "GET", path, &[("Authorization", &bob)], "").ok();
    }
    web.service.stop();
}

#[test]
fn no_form_of_a_password_is_ever_shown() {
    let secrets =
        format!("{ADMINS}[chttpd_auth]\nsecret = \"rosebud\"\n[log]\nlevel = \"debug\"\n");
    let web = Web::start(&secrets);
    let bob = basic("bob", "password");
    let headers = [("Authorization", bob.as_str())];
    let config = ask(&web, "GET", "/_node/_local/_config", &headers, "");
    assert_eq!(config.ok()["admins"], json!({"ann": "***", "bob": "***"}));
    assert_eq!(config.ok()["chttpd_auth"]["secret"], "***");
    let one = ask(
        &web,
        "GET",
        "/_node/_local/_config/admins/ann",
        &headers,
        "",
    );
    assert_eq!(one.ok(), "***");
    log_in(&web, "ann", "open sesame").ok();
    log_in(&web, "ann", "closed sesame").error(401, "unauthorized");
    let file = web.service.path("settee.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("open sesame", "new sesame")).unwrap();
    let changes = ask(&web, "POST", "/_node/_local/_config/_reload", &headers, "").ok();
    let expected = json!([{"section": "admins", "key": "ann", "old": "***", "new": "***"}]);
    assert_eq!(changes["changes"], expected);
    log_in(&web, "ann", "open sesame").error(401, "unauthorized");
    log_in(&web, "ann", "new sesame").ok();
    let log = web.service.log();
    for secret in ["sesame", "rosebud", "c5e478", "pbkdf2"] {
        assert!(!log.contains(secret), "{log}");
        assert!(!config.body.contains(secret), "{}", config.body);
    }
    web.service.stop();
}
