//! Daemons of one database share settings and logins.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::json;

use super::server::{Server, TestDatabase};
use crate::support::daemon::{Service, configure, directory};
use crate::support::http_client::{Response, Web, closed_command};
use crate::support::program::run;

/// How long a change may take to reach other daemons.
const PATIENCE: Duration = Duration::from_secs(60);

const ANN: &str = "[admins]\nann = \"open sesame\"\n";

/// Starts a daemon of a database with this configuration.
fn start(database: &TestDatabase, text: &str) -> Web {
    let directory = directory();
    let config = configure(directory.path(), text);
    start_again(database, directory, config)
}

fn start_again(database: &TestDatabase, directory: tempfile::TempDir, config: PathBuf) -> Web {
    let mut command = closed_command(&config);
    command.env("SETTEE__STORE__URL", database.url());
    command.env("SETTEE__STORE__PATH", directory.path().join("data/s.redb"));
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    Web { service, address }
}

fn ask(web: &Web, method: &str, path: &str, header: (&str, &str), body: &str) -> Response {
    let headers = [("Content-Type", "application/json"), header];
    web.connect().request(method, path, &headers, body)
}

fn generated(web: &Web, name: &str) -> String {
    let file = web.service.path("data").join(name);
    let text = std::fs::read_to_string(file).unwrap();
    text.trim_end().to_owned()
}

fn basic(name: &str, password: &str) -> String {
    let text = format!("{name}:{password}");
    format!("Basic {}", BASE64.encode(text.as_bytes()))
}

/// Logs in. Returns the session's cookie.
fn log_in(web: &Web, name: &str, password: &str) -> String {
    let body = json!({"name": name, "password": password}).to_string();
    let begun = ask(web, "POST", "/_session", ("Accept", "*/*"), &body);
    assert_eq!(begun.status, 200, "{begun:?}");
    let cookie = begun.header("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

fn counts(web: &Web, cookie: &str, name: &str) -> bool {
    let who = ask(web, "GET", "/_session", ("Cookie", cookie), "");
    who.json()["userCtx"]["name"] == name
}

const MAX_JOBS: &str = "/_node/_local/_config/replicator/max_jobs";

/// Changes a setting as ann.
fn set(web: &Web, path: &str, value: &str) -> Response {
    let ann = basic("ann", "open sesame");
    let body = json!(value).to_string();
    ask(web, "PUT", path, ("Authorization", &ann), &body)
}

fn max_jobs(web: &Web) -> String {
    let ann = basic("ann", "open sesame");
    let got = ask(web, "GET", MAX_JOBS, ("Authorization", &ann), "");
    got.json().as_str().unwrap_or_default().to_owned()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_setting_changed_over_http_applies_to_all_daemons_and_outlives_them() {
    let database = TestDatabase::new();
    let (one, two) = (start(&database, ANN), start(&database, ANN));
    assert_eq!(set(&one, MAX_JOBS, "0").status, 200);
    assert_eq!(max_jobs(&one), "0");
    wait_for("the other daemon has the value", || max_jobs(&two) == "0");
    // After concurrent changes both have the same value.
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(set(&one, MAX_JOBS, "1").status, 200));
        scope.spawn(|| assert_eq!(set(&two, MAX_JOBS, "2").status, 200));
    });
    let sql = "SELECT value FROM settee.overrides WHERE key = 'max_jobs'";
    let last = database.sql(sql);
    for web in [&one, &two] {
        wait_for("both have the last value", || max_jobs(web) == last);
    }
    let own = "/_node/_local/_config/log/level";
    assert_eq!(set(&one, own, "debug").status, 200);
    let sql = "SELECT count(*) FROM settee.overrides WHERE section = 'log'";
    assert_eq!(database.sql(sql), "0");
    one.service.stop();
    two.service.stop();
    let later = start(&database, ANN);
    wait_for("a later daemon has the value", || max_jobs(&later) == last);
}

#[test]
fn a_generated_administrator_and_a_session_are_valid_on_all_daemons() {
    let database = TestDatabase::new();
    let (one, two) = (start(&database, ""), start(&database, ""));
    for file in ["admin-password", "cookie-secret"] {
        assert_eq!(generated(&one, file), generated(&two, file));
    }
    let password = generated(&two, "admin-password");
    let session = log_in(&one, "admin", &password);
    assert!(counts(&one, &session, "admin") && counts(&two, &session, "admin"));
    let config = one.service.path("settee.toml");
    let directory = one.service.stop_and_keep();
    let one = start_again(&database, directory, config);
    assert!(counts(&one, &session, "admin"));
    assert!(!one.service.log().contains(&password));
    let explicit = start(&database, ANN);
    let session = log_in(&explicit, "ann", "open sesame");
    assert!(counts(&start(&database, ANN), &session, "ann"));
}

#[test]
fn a_daemon_started_without_the_database_adopts_the_shared_secrets_later() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let one = start(&database, "");
    let password = generated(&one, "admin-password");
    let session = log_in(&one, "admin", &password);
    server.stop();
    let late = start(&database, "");
    let before = generated(&late, "admin-password");
    assert_ne!(before, password);
    let early = log_in(&late, "admin", &before);
    assert!(counts(&late, &early, "admin"));
    // A daemon that has reached the database before keeps its secrets without it.
    assert!(counts(&one, &session, "admin"));
    let ask = || {
        let admin = basic("admin", &password);
        ask(&one, "PUT", MAX_JOBS, ("Authorization", &admin), "\"0\"")
    };
    ask().reason(503, "store_unavailable");
    server.start();
    wait_for("sessions of the others are valid", || {
        counts(&late, &session, "admin")
    });
    assert_eq!(generated(&late, "admin-password"), password);
    assert!(!counts(&late, &early, "admin"));
    wait_for("settings can be changed again", || ask().status == 200);
}

#[test]
fn a_daemon_whose_explicit_secret_differs_from_a_running_daemons_does_not_start() {
    let database = TestDatabase::new();
    let one = start(&database, ANN);
    // A daemon counts as running while it has a lease.
    let lease = "INSERT INTO settee.instances (epoch, address, version, lease_until) \
                 VALUES (7, 'one', '0', clock_timestamp() + interval '1 hour')";
    database.sql(lease);
    let directory = directory();
    let config = configure(directory.path(), &ANN.replace("open", "close"));
    let mut command = closed_command(&config);
    command.env("SETTEE__STORE__URL", database.url());
    let output = run(&mut command, b"");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{told}");
    let expected = "settee: [admins] ann: another daemon of this database has another value: both must be the same: ";
    assert!(told.contains(expected), "{told}");
    assert!(!told.contains("sesame"), "{told}");
    let rows = "SELECT string_agg(value, ' ') FROM settee.overrides";
    assert!(!database.sql(rows).contains("sesame"));
    start(&database, ANN);
    drop(one);
}
