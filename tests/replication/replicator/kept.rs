//! The store survives restarts and kills; a file that cannot be used as a store is an error with a remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use settee::Daemon;
use settee::config::{Sources, Surroundings, load};

use crate::support::daemon::{Service, directory, make_private_folder, wait_for_exit, wait_until};
use crate::support::http_client::{Connection, Web};
use crate::support::program::SETTEE;
use crate::support::store::{command, create, file, put, start, start_in};

/// Returns a document body with its own target: of two documents for the same replication, one fails.
fn body(id: &str) -> Value {
    let target = format!("http://127.0.0.1:1/{id}");
    json!({"source": "http://127.0.0.1:1/a", "target": target, "continuous": true})
}

const IDLE: &str = "[replicator]\nmax_jobs = 0\n";

#[test]
fn documents_and_sequence_numbers_survive_a_restart() {
    let web = start(IDLE);
    let rev = create(&web, "a", &body("a"));
    let seq = web.get("/_replicator").ok()["update_seq"].clone();
    let web = restart(web);
    assert_eq!(web.get("/_replicator/a").ok()["_rev"], rev.as_str());
    assert_eq!(web.get("/_replicator").ok()["update_seq"], seq);
    let path = file(web.service.directory.path());
    assert_eq!(
        fs::metadata(path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    web.service.stop();
}

#[test]
fn the_service_and_the_command_share_one_uuid_whichever_runs_first() {
    let uuid = |web: &Web| web.get("/").ok()["uuid"].as_str().unwrap().to_owned();
    let kept = |directory: &std::path::Path| {
        fs::read_to_string(file(directory).with_file_name("replicate.uuid"))
    };
    // The service first.
    let web = start(IDLE);
    create(&web, "a", &body("a"));
    let first = uuid(&web);
    assert_eq!(kept(web.service.directory.path()).unwrap().trim(), first);
    let web = restart(web);
    assert_eq!(uuid(&web), first);
    web.service.stop();
    // The command first: it reaches no server, but stores its uuid.
    let directory = directory();
    let config = crate::support::daemon::configure(directory.path(), IDLE);
    let run = Command::new(SETTEE)
        .args(["replicate", "-c"])
        .arg(config)
        .args(["http://127.0.0.1:1/a", "http://127.0.0.1:1/b"])
        .args(["--retries-per-request", "0"])
        .env("SETTEE__STORE__PATH", file(directory.path()))
        .output()
        .unwrap();
    assert!(!run.status.success());
    let own = kept(directory.path()).unwrap().trim().to_owned();
    let web = start_in(directory, IDLE);
    create(&web, "a", &body("a"));
    assert_eq!(uuid(&web), own);
    web.service.stop();
}

#[test]
fn a_uuid_that_cannot_be_stored_for_the_command_is_only_logged() {
    let directory = directory();
    let uuid_file = file(directory.path()).with_file_name("replicate.uuid");
    make_private_folder(&uuid_file.join("in the way"));
    let web = start_in(directory, IDLE);
    create(&web, "a", &body("a"));
    web.service.wait_for_log("cannot be kept");
    assert!(web.service.log().contains("replicate.uuid"));
    let uuid = web.get("/").ok()["uuid"].clone();
    let web = restart(web);
    assert_eq!(web.get("/").ok()["uuid"], uuid);
    web.service.stop();
}

/// Stops a service, and starts one in the same directory.
fn restart(web: Web) -> Web {
    let directory = web.service.stop_and_keep();
    start_in(directory, IDLE)
}

#[test]
fn every_acknowledged_write_survives_a_kill() {
    for _ in 0..5 {
        let web = start(IDLE);
        let acknowledged: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (address, acknowledged) = (web.address, Arc::clone(&acknowledged));
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || write_until(&stop, address, writer, &acknowledged))
            })
            .collect();
        wait_until("some writes", || acknowledged.lock().unwrap().len() > 20);
        let directory = web.service.kill_and_keep();
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            // A writer panics when the kill cuts its connection, as intended.
            drop(writer.join());
        }
        let web = start_in(directory, IDLE);
        for (id, rev) in acknowledged.lock().unwrap().iter() {
            let found = web.get(&format!("/_replicator/{id}")).ok();
            assert_eq!(found["_rev"], rev.as_str());
        }
        let info = web.get("/_replicator").ok();
        let all = web.get("/_replicator/_changes").ok();
        let rows = all["results"].as_array().unwrap().len();
        assert_eq!(info["doc_count"], rows, "the tables agree");
        web.service.stop();
    }
}

fn write_until(
    stop: &AtomicBool,
    address: std::net::SocketAddr,
    writer: u32,
    acknowledged: &Mutex<Vec<(String, String)>>,
) {
    let mut connection = Connection::open(address);
    let headers = [("Content-Type", "application/json")];
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = format!("w{writer}-{number}");
        let path = format!("/_replicator/{id}");
        let answer = connection.request("PUT", &path, &headers, &body(&id).to_string());
        let rev = answer.json()["rev"].as_str().unwrap().to_owned();
        acknowledged.lock().unwrap().push((id, rev));
    }
}

#[test]
fn a_store_in_use_by_another_service_is_an_error_with_a_remedy() {
    let web = start(IDLE);
    let place = web.service.path("other");
    fs::create_dir(&place).unwrap();
    let mut second = command(&place, IDLE);
    second.env("SETTEE__STORE__PATH", file(web.service.directory.path()));
    let (code, text) = fails(second);
    assert_eq!(code, Some(75), "{text}");
    assert!(text.contains("is in use by another process"), "{text}");
    assert!(text.contains("[store] path"), "{text}");
    web.service.stop();
}

#[test]
fn a_file_that_is_not_a_store_is_an_error_and_left_unchanged() {
    let directory = directory();
    let path = file(directory.path());
    make_private_folder(path.parent().unwrap());
    let text = "dear diary\n".repeat(500);
    fs::write(&path, &text).unwrap();
    let (code, said) = fails(command(directory.path(), IDLE));
    assert_eq!(code, Some(74), "{said}");
    assert!(said.contains("store.redb is not a store"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn with_a_damaged_store_the_start_exits_with_74_and_leaves_the_store_unchanged() {
    let web = start(IDLE);
    create(&web, "a", &body("a"));
    let directory = web.service.stop_and_keep();
    let path = file(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // Damages all pages but the first.
    bytes[4096..].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(&path, &bytes).unwrap();
    let (code, said) = fails(command(directory.path(), IDLE));
    assert_eq!(code, Some(74), "{said}");
    assert!(
        said.contains("store.redb is damaged (DB corrupted"),
        "{said}"
    );
    assert!(
        said.contains("with `settee jobs import --replace`"),
        "{said}"
    );
    assert!(!said.contains("panicked"), "{said}");
    assert!(fs::read(&path).unwrap() == bytes, "the store is unchanged");
}

/// Wraps a command so that exceeding the file size limit is an error and not a fatal signal.
pub fn outliving_full_files(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Limits the file size of a service.
pub fn limit_files(web: &Web, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(web.service.pid()).unwrap());
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

#[test]
fn a_full_store_is_a_problem_and_loses_nothing() {
    let directory = directory();
    let command = outliving_full_files(&command(directory.path(), IDLE));
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    let web = Web { service, address };
    create(&web, "first", &body("first"));
    let bytes = file(web.service.directory.path()).metadata().unwrap().len();
    limit_files(&web, Some(bytes));
    let mut large = body("large");
    large["x"] = "x".repeat(300_000).into();
    let mut written = 0;
    let refused = loop {
        let answer = put(&web, &format!("/_replicator/large{written}"), &large);
        if answer.status != 201 {
            break answer;
        }
        written += 1;
    };
    let reason = refused.reason(503, "store_unavailable");
    assert!(reason.contains("store.redb has no room left"), "{reason}");
    assert!(!reason.contains("away"), "{reason}");
    web.service.wait_for_log("the store refuses writes");
    let problem = || {
        let health = web.get("/_health").json();
        let problems = health["problems"].as_array().unwrap().clone();
        let mut of_store = problems.into_iter();
        of_store.find(|problem| problem["kind"] == "store_refusing")
    };
    wait_until("the problem is reported", || problem().is_some());
    let problem = problem().unwrap();
    assert_eq!(problem["severity"], "critical");
    let cause = problem["cause"].as_str().unwrap();
    assert!(cause.contains("store.redb has no room left"), "{cause}");
    assert!(problem["remedy"].as_str().unwrap().contains("make room"));
    let metrics = web.get("/_node/_local/_prometheus").body;
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("settee_store_writes_refused_total "));
    assert!(count.unwrap().parse::<f64>().unwrap() > 0.0);
    limit_files(&web, None);
    create(&web, "last", &body("last"));
    web.service.wait_for_log("the store accepts writes again");
    let rows = web.get("/_replicator/_all_docs").ok()["total_rows"].clone();
    assert_eq!(rows, written + 2);
    web.service.stop();
}

/// Starts a service that cannot start; returns its exit status and standard error.
fn fails(mut command: Command) -> (Option<i32>, String) {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let code = wait_for_exit(&mut child);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    (code, said)
}

#[actix_rt::test]
async fn with_an_unusable_default_store_path_the_service_starts_and_refuses_replicator_requests() {
    let directory = directory();
    let blocked = directory.path().join("blocked");
    fs::write(&blocked, "no directory").unwrap();
    let variables = [("XDG_STATE_HOME", &blocked)].map(|(name, value)| (name.into(), value.into()));
    // Root's default path is one that a test must not touch.
    let surroundings = Surroundings {
        variables: variables.to_vec(),
        user_id: 1000,
    };
    let mut config = load(&Sources {
        surroundings,
        ..Sources::default()
    })
    .unwrap()
    .config;
    config.server.socket = directory.path().join("run/s.sock");
    config.server.http = Some("127.0.0.1:0".parse().unwrap());
    config.server.open = true;
    let log = slog::Logger::root(slog::Discard, slog::o!());
    let builder = Daemon::builder().program(SETTEE);
    let app = builder.start(config, log).await.unwrap();
    let address = app.http().unwrap();
    let asked = actix_rt::task::spawn_blocking(move || {
        let get = |path| Connection::open(address).request("GET", path, &[], "");
        get("/_up").ok();
        get("/_replicator").reason(503, "store_unavailable")
    });
    let reason = asked.await.unwrap();
    assert!(
        reason.contains("blocked") && reason.contains("[store] path"),
        "{reason}"
    );
    app.stop(true).await;
}
