//! Query servers that fail in different ways, and how the throttle reacts.

use policy::admission::{FAILURES_MIN, KILLS_MIN};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use settee_testkit::eventually;

use crate::services::harness::{Daemon, SocketClient, waiting_to_be_accepted};

/// A service whose query server is `command`, throttled for `delay` after failed starts.
fn config(command: &str, delay: &str) -> String {
    format!(
        "[query_servers]\nbad = '''{command}'''\n\
         [pools.bad]\nlanguage = \"bad\"\nmax = 3\n\
         [services.bad]\nlisten = \"unix:DIR/bad.sock\"\npool = \"bad\"\n\
         throttle_delay = \"{delay}\"\n"
    )
}

/// Asserts that connections get an error with `words`, that the log has them too, with the throttle's
/// delay, and that the next connection waits in the kernel's queue meanwhile.
async fn fails_and_is_throttled(command: &str, words: &[&str]) {
    fails_and_is_throttled_after(FAILURES_MIN, command, words).await;
}

/// Connects until enough starts have failed to throttle the pool.
async fn fail_until_throttled(daemon: &Daemon) {
    for _ in 0..FAILURES_MIN {
        daemon.connect("bad.sock").await.error().await;
    }
}

async fn fails_and_is_throttled_after(failures: u32, command: &str, words: &[&str]) {
    let daemon = Daemon::start(&config(command, "1h")).await;
    let mut reason = String::new();
    for _ in 0..failures {
        assert!(daemon.log.with("none is started for a while").is_empty());
        let mut client = daemon.connect("bad.sock").await;
        client.send("[\"reset\"]").await;
        let (name, last) = client.error().await;
        assert!(
            ["os_process_error", "throttled"].contains(&name.as_str()),
            "{name}"
        );
        reason = last;
    }
    let warnings = daemon.log.with("none is started for a while");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("timeout_ms=3600000"),
        "{}",
        warnings[0]
    );
    for word in words {
        assert!(reason.contains(word), "{word} in {reason}");
        assert!(warnings[0].contains(word), "{word} in {}", warnings[0]);
    }
    // The next connection waits; a request on the client socket is refused at once.
    let mut waits = daemon.connect("bad.sock").await;
    waits.send("[\"reset\"]").await;
    let mut asks = SocketClient::connect(&daemon).await;
    let refused = asks.call(json!({"call": "get_proc", "pool": "bad"})).await;
    assert_eq!(refused["error"]["name"], "throttled", "{refused}");
    assert_eq!(waiting_to_be_accepted(&daemon.path("bad.sock")), 1);
    assert_eq!(daemon.accepted("bad"), u64::from(failures));
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_child_that_exits_at_once_is_throttled_and_its_stderr_reported() {
    let command = "echo out of order >&2; exit 1";
    let words = ["exited with status 1", "out of order"];
    fails_and_is_throttled(&format!("sh -c '{command}'"), &words).await;
}

#[actix_rt::test]
async fn a_child_killed_repeatedly_before_its_first_answer_is_throttled() {
    let command = "sh -c 'kill -KILL $$'";
    fails_and_is_throttled_after(KILLS_MIN, command, &["killed by SIGKILL"]).await;
}

#[actix_rt::test]
async fn a_command_that_does_not_exist_is_throttled() {
    let command = "/no/such/command";
    fails_and_is_throttled(command, &["/no/such/command", "not found"]).await;
}

#[actix_rt::test]
async fn a_command_that_is_not_executable_is_throttled() {
    fails_and_is_throttled("/etc/passwd", &["cannot be executed"]).await;
}

#[actix_rt::test]
async fn a_file_that_is_not_a_program_is_throttled() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("no-program");
    std::fs::write(&path, [0x7f, b'E', b'L', b'F', 0, 0, 0]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    fails_and_is_throttled(
        &path.display().to_string(),
        &["no-program", "exited with status"],
    )
    .await;
}

#[actix_rt::test]
async fn a_child_that_dies_after_an_answer_is_not_a_failed_start() {
    let text = config("SCRIPTED", "1h").replace("'''", "\"");
    let daemon = Daemon::start(&text).await;
    let mut first = daemon.connect("bad.sock").await;
    let pid = first.pid().await;
    first.send("[\"exit\",1]").await;
    first.error().await;
    let mut second = daemon.connect("bad.sock").await;
    assert_ne!(second.pid().await, pid);
    assert!(daemon.log.with("none is started").is_empty());
    daemon.stop_after((first, second)).await;
}

#[actix_rt::test]
async fn a_line_that_kills_a_child_fails_only_its_client_and_does_not_throttle() {
    let command =
        "sh -c 'for n in 1 2; do read line; echo true; done; read line; echo no more >&2; exit 3'";
    let daemon = Daemon::start(&config(command, "1h")).await;
    for _ in 0..3 {
        let mut client = daemon.connect("bad.sock").await;
        client.send("hello").await;
        let (name, reason) = client.error().await;
        assert_eq!(name, "os_process_error");
        assert!(reason.contains("no more"), "{reason}");
    }
    assert!(daemon.log.with("none is started").is_empty());
    assert_eq!(daemon.pool("bad").await.totals.start_failures, 0);
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_child_that_hangs_at_its_start_is_throttled_and_its_client_gets_an_error() {
    let text = config("sleep 1000", "1h").replace("max = 3", "max = 3\nstart_timeout = \"300ms\"");
    let daemon = Daemon::start(&text).await;
    for _ in 0..FAILURES_MIN {
        let mut client = daemon.connect("bad.sock").await;
        let (name, reason) = client.error().await;
        assert_eq!(name, "os_process_error");
        assert!(reason.contains("start_timeout"), "{reason}");
    }
    let warnings = daemon.log.with("none is started for a while");
    assert!(warnings[0].contains("start_timeout"), "{warnings:?}");
    let failures = daemon.pool("bad").await.totals.start_failures;
    assert_eq!(failures, u64::from(FAILURES_MIN));
    daemon.stop().await;
}

#[actix_rt::test]
async fn the_throttle_is_lifted_by_its_timer() {
    let mark = "[ -e DIR/good ] && exec SCRIPTED; exit 1";
    let daemon = Daemon::start(&config(&format!("sh -c \"{mark}\""), "300ms")).await;
    fail_until_throttled(&daemon).await;
    std::fs::write(daemon.path("good"), "").unwrap();
    let mut second = daemon.connect("bad.sock").await;
    second.pid().await;
    assert!(
        !daemon
            .log
            .with("query servers are started again")
            .is_empty()
    );
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn the_throttle_is_lifted_by_a_reload() {
    let mark = "[ -e DIR/good ] && exec SCRIPTED; exit 1";
    let daemon = Daemon::start(&config(&format!("sh -c \"{mark}\""), "1h")).await;
    fail_until_throttled(&daemon).await;
    let mut second = daemon.connect("bad.sock").await;
    second.send("[\"hello\"]").await;
    assert_eq!(daemon.accepted("bad"), u64::from(FAILURES_MIN));
    std::fs::write(daemon.path("good"), "").unwrap();
    // Nothing in the configuration has changed.
    daemon.reload_same().await.unwrap();
    assert_eq!(second.line().await, "[\"hello\"]");
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn the_throttle_is_lifted_by_an_operator() {
    let mark = "[ -e DIR/good ] && exec SCRIPTED; exit 1";
    let daemon = Daemon::start(&config(&format!("sh -c \"{mark}\""), "1h")).await;
    fail_until_throttled(&daemon).await;
    let mut second = daemon.connect("bad.sock").await;
    second.send("[\"hello\"]").await;
    std::fs::write(daemon.path("good"), "").unwrap();
    let lift = daemon.operator();
    let done: Value = lift.post("/_pools/bad/_unthrottle", &()).await.unwrap();
    assert_eq!(done["was_throttled"], true, "{done}");
    assert_eq!(second.line().await, "[\"hello\"]");
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn while_throttled_existing_processes_keep_serving() {
    // The first process works, the others fail.
    let mark = "mkdir DIR/first && exec SCRIPTED; exit 1";
    let daemon = Daemon::start(&config(&format!("sh -c \"{mark}\""), "1h")).await;
    let mut first = daemon.connect("bad.sock").await;
    let pid = first.pid().await;
    fail_until_throttled(&daemon).await;
    let mut third = daemon.connect("bad.sock").await;
    third.send("[\"pid\"]").await;
    assert_eq!(daemon.accepted("bad"), u64::from(1 + FAILURES_MIN));
    drop(first);
    assert_eq!(third.line().await.parse::<u32>().unwrap(), pid);
    drop(third);
    let mut fourth = daemon.connect("bad.sock").await;
    assert_eq!(fourth.pid().await, pid);
    daemon.stop_after(fourth).await;
}

#[actix_rt::test]
async fn a_service_on_a_language_throttles_that_languages_own_pool() {
    let text = "[query_servers]\nbad = '''sh -c 'exit 1' '''\n\
                [services.bad]\nlisten = \"unix:DIR/bad.sock\"\nlanguage = \"bad\"\n";
    let daemon = Daemon::start(text).await;
    fail_until_throttled(&daemon).await;
    let warnings = daemon.log.with("none is started for a while");
    assert!(warnings[0].contains("timeout_ms=60000"), "{warnings:?}");
    daemon.stop().await;
}

/// Returns the state of a process from `/proc`.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[actix_rt::test]
async fn a_child_stopped_by_sigstop_still_counts_and_resumes() {
    let text = config("SCRIPTED", "1h")
        .replace("'''", "\"")
        .replace("max = 3", "max = 1");
    let daemon = Daemon::start(&text).await;
    let mut client = daemon.connect("bad.sock").await;
    let number = client.pid().await;
    let pid = Pid::from_raw(number as i32).unwrap();
    let stopped = "query server was stopped";
    for round in 1..=3 {
        kill_process(pid, Signal::STOP).unwrap();
        eventually("the warning", async || !daemon.log.with(stopped).is_empty()).await;
        eventually("the child is stopped", async || {
            state_of(number) == Some('T')
        })
        .await;
        client.send("[\"pid\"]").await;
        let pool = daemon.pool("bad").await;
        assert_eq!((pool.used, pool.procs.len()), (1, 1));
        kill_process(pid, Signal::CONT).unwrap();
        let continued = "query server was continued";
        eventually("the record of the continuation", async || {
            daemon.log.with(continued).len() == round
        })
        .await;
        assert_eq!(client.line().await, number.to_string());
    }
    // The warning is logged once in 1000 s.
    let warnings = daemon.log.with(stopped);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("signal=SIGSTOP"), "{warnings:?}");
    daemon.stop_after(client).await;
}
