//! Logins over HTTP: passwords, sessions, open services, and hidden secrets.

use crate::http::roles::CAROL;
use crate::support::daemon::{Service, configure, directory};
use crate::support::http_client::{Response, Web, closed_command};
use data_encoding::BASE64;
use serde_json::json;

/// Ann's password is plain, Bob's is `password`.
const ADMINS: &str = "[admins]\nann = \"open sesame\"\n\
    bob = \"-pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096\"\n";

pub fn basic(name: &str, password: &str) -> String {
    format!(
        "Basic {}",
        BASE64.encode(format!("{name}:{password}").as_bytes())
    )
}

pub fn ask(web: &Web, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
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

/// Paths that require no login.
const OPEN: &[&str] = &[
    "/",
    "/_up",
    "/_session",
    "/_dashboard",
    "/_dashboard/page.js",
];

/// Requests that require a login.
const CLOSED: &[(&str, &str, &str)] = &[
    ("GET", "/_active_tasks", ""),
    ("GET", "/_fleet", ""),
    ("GET", "/metrics", ""),
    ("GET", "/_pools", ""),
    ("GET", "/_pools/javascript", ""),
    ("GET", "/_dashboard/state", ""),
    ("GET", "/_dashboard/history", ""),
    ("GET", "/_replicator", ""),
    ("GET", "/_replicator/_all_docs", ""),
    ("GET", "/_replicator/_changes", ""),
    ("GET", "/_replicator/a", ""),
    ("GET", "/_scheduler/jobs", ""),
    ("GET", "/_scheduler/docs", ""),
    ("GET", "/_node/_local/_system", ""),
    ("GET", "/_node/_local/_stats", ""),
    ("GET", "/_node/_local/_prometheus", ""),
    ("GET", "/_no/such/path", ""),
    ("POST", "/_query/ddoc", "{}"),
    ("POST", "/_query/map", "{}"),
    ("POST", "/_replicate", "{}"),
    ("POST", "/_reload_query_servers", ""),
    ("GET", "/_node/_local/_config", ""),
    ("GET", "/_node/_local/_config/log/level", ""),
    ("PUT", "/_node/_local/_config/log/level", "\"debug\""),
    ("DELETE", "/_node/_local/_config/log/level", ""),
    ("POST", "/_node/_local/_config/_reload", ""),
];

#[test]
fn every_path_requires_a_login_except_the_open_ones() {
    let web = Web::start(ADMINS);
    for path in OPEN {
        assert_eq!(web.get(path).status, 200, "{path}");
    }
    let ann = basic("ann", "open sesame");
    for (method, path, body) in CLOSED {
        let refused = ask(&web, method, path, &[], body);
        let reason = refused.reason(401, "unauthorized");
        assert_eq!(reason, "Authentication required.", "{path}");
        // Paths of the dashboard send no challenge: it has a login form.
        let asks = !path.starts_with("/_dashboard/");
        assert_eq!(refused.header("www-authenticate").is_some(), asks, "{path}");
        let status = ask(&web, method, path, &[("Authorization", &ann)], body).status;
        assert!(![401, 403].contains(&status), "{method} {path}: {status}");
    }
    web.service.stop();
}

#[test]
fn plain_and_hashed_passwords_are_checked() {
    let web = Web::start(ADMINS);
    let system = |credentials: &str| {
        let headers = [("Authorization", credentials)];
        ask(&web, "GET", "/_node/_local/_config/log", &headers, "")
    };
    // The second login is answered from the cache.
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
    // Wrong credentials are refused even on open paths.
    let headers = [("Authorization", basic("ann", "x"))];
    let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    ask(&web, "GET", "/", &headers, "").error(401, "unauthorized");
    web.service.stop();
}

#[test]
fn a_session_authenticates_its_admin_and_a_forged_cookie_does_not() {
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
    assert_eq!(config.header("set-cookie"), None, "the session is fresh");
    // A forged cookie is ignored.
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
fn a_session_is_refused_after_logout() {
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
fn a_new_session_replaces_the_one_of_the_request() {
    let web = Web::start(&format!("{ADMINS}[chttpd_auth]\ntimeout = 10\n"));
    let begun = log_in(&web, "bob", "password");
    let set = begun.header("set-cookie").unwrap();
    let old = set.split(';').next().unwrap().to_owned();
    let old = [("Cookie", old.as_str())];
    crate::support::daemon::wait_until("a session due for renewal", || {
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
fn an_old_session_is_reissued() {
    let web = Web::start(&format!("{ADMINS}[chttpd_auth]\ntimeout = 10\n"));
    let begun = log_in(&web, "bob", "password");
    let set = begun.header("set-cookie").unwrap();
    assert!(set.contains("Max-Age=10"), "{set}");
    let session = set.split(';').next().unwrap().to_owned();
    // A session is renewed after a tenth of its timeout, here a second.
    crate::support::daemon::wait_until("a new cookie", || {
        let answer = ask(&web, "GET", "/_session", &[("Cookie", &session)], "");
        assert_eq!(answer.ok()["userCtx"]["name"], "bob");
        answer
            .header("set-cookie")
            .is_some_and(|new| !new.starts_with(&session))
    });
    web.service.stop();
}

#[test]
fn a_service_without_users_creates_an_administrator_and_names_its_password_file() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut service = Service::start_command(directory, closed_command(&config));
    let address = service.next_address("http://");
    let file = service.path("run/admin-password");
    let notice = service.next_line();
    let expected = format!(
        "settee: the password of the administrator admin is in {}\n",
        file.display()
    );
    assert_eq!(notice, expected);
    let web = Web { service, address };
    web.get("/_pools").error(401, "unauthorized");
    let password = std::fs::read_to_string(&file).unwrap();
    let admin = basic("admin", password.trim_end());
    let admin = [("Authorization", admin.as_str())];
    ask(&web, "GET", "/_pools", &admin, "").ok();
    let shown = ask(
        &web,
        "GET",
        "/_node/_local/_config/admins/admin",
        &admin,
        "",
    );
    assert_eq!(shown.ok(), "***");
    // A reload keeps the administrator until the configuration names one.
    web.service.signal("HUP");
    web.service.wait_for_log("configuration is unchanged");
    let file = web.service.path("settee.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n{ADMINS}")).unwrap();
    ask(&web, "POST", "/_node/_local/_config/_reload", &admin, "").ok();
    ask(&web, "GET", "/_pools", &admin, "").error(401, "unauthorized");
    let ann = basic("ann", "open sesame");
    ask(&web, "GET", "/_pools", &[("Authorization", &ann)], "").ok();
    let log = web.service.log();
    assert!(!log.contains(password.trim_end()), "{log}");
    web.service.stop();
}

#[test]
fn sessions_survive_a_restart() {
    let with = |web: &Web, cookie: &str| ask(web, "GET", "/_session", &[("Cookie", cookie)], "");
    for (admins, name) in [("", "admin"), (ADMINS, "ann")] {
        let mut directory = directory();
        let config = configure(directory.path(), admins);
        let mut session = None;
        for _ in 0..2 {
            let mut service = Service::start_command(directory, closed_command(&config));
            let address = service.next_address("http://");
            let password = std::fs::read_to_string(service.path("run/admin-password"));
            let password = password.unwrap_or_else(|_| "open sesame".to_owned());
            let web = Web { service, address };
            let begun = || cookie(&log_in(&web, name, password.trim_end()));
            let session = session.get_or_insert_with(begun);
            let who = with(&web, session).ok();
            assert_eq!(who["userCtx"]["name"], json!(name));
            let secret = web.service.path("run/cookie-secret");
            let secret = std::fs::read_to_string(secret).unwrap();
            assert!(!web.service.log().contains(secret.trim_end()));
            directory = web.service.stop_and_keep();
        }
    }
}

#[test]
fn with_open_every_local_user_is_an_administrator_and_this_is_logged() {
    let web = Web::start("[server]\nopen = true\n");
    let who = web.get("/_session").ok();
    assert_eq!(who["userCtx"], json!({"name": null, "roles": ["_admin"]}));
    web.get("/_node/_local/_config").ok();
    log_in(&web, "ann", "x").error(401, "unauthorized");
    let notice = "nobody has to log in over HTTP";
    assert_eq!(web.service.log().matches(notice).count(), 1);
    for header in [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Real-IP",
        "Via",
    ] {
        let refused = ask(&web, "GET", "/_pools", &[(header, "10.0.0.1")], "");
        let reason = refused.reason(403, "forbidden");
        assert!(reason.contains("proxy"), "{reason}");
    }
    web.service.stop();
}

#[test]
fn open_is_refused_with_a_public_address_or_with_users() {
    for (extra, http, part) in [
        ("", "0.0.0.0:0", "can be reached from other machines"),
        (ADMINS, "127.0.0.1:0", "has a password to log in with"),
        (CAROL, "127.0.0.1:0", "has a password to log in with"),
    ] {
        let directory = directory();
        let extra = format!("[server]\nopen = true\nhttp = \"{http}\"\n{extra}");
        let config = configure(directory.path(), &extra);
        let mut command = closed_command(&config);
        command.env_remove("SETTEE__SERVER__HTTP");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{said}");
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_link_printed_by_settee_dashboard_logs_a_browser_in_once() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut service = Service::start_command(directory, closed_command(&config));
    let address = service.next_address("http://");
    let web = Web { service, address };
    let output = web.service.client(&["dashboard"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let url = String::from_utf8(output.stdout).unwrap();
    let page = format!("http://{address}/_dashboard#token=");
    let token = url.trim_end().strip_prefix(&page).unwrap();
    let exchange = |token: &str| {
        let body = json!({"token": token}).to_string();
        ask(&web, "POST", "/_session", &[], &body)
    };
    exchange("x").error(401, "unauthorized");
    let begun = exchange(token);
    assert_eq!(begun.ok()["name"], "admin");
    let session = cookie(&begun);
    ask(
        &web,
        "GET",
        "/_dashboard/state",
        &[("Cookie", &session)],
        "",
    )
    .ok();
    let reason = exchange(token).reason(401, "unauthorized");
    assert!(reason.contains("settee dashboard"), "{reason}");
    web.service.stop();
}

#[test]
fn passwords_and_their_hashes_are_never_shown() {
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
    let change =
        json!({"section": "admins", "key": "ann", "old": "***", "new": "***", "effect": "reload"});
    assert_eq!(changes["changes"], json!([change]));
    log_in(&web, "ann", "open sesame").error(401, "unauthorized");
    log_in(&web, "ann", "new sesame").ok();
    let log = web.service.log();
    for secret in ["sesame", "rosebud", "c5e478", "pbkdf2"] {
        assert!(!log.contains(secret), "{log}");
        assert!(!config.body.contains(secret), "{}", config.body);
    }
    web.service.stop();
}
