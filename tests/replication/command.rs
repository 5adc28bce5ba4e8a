//! `settee replicate`, as a user runs it.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use settee_testkit::eventually;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::support::couch::Couch;
use crate::support::http_server::Answer;
use crate::support::program::SETTEE;

/// A directory with a configuration; the command keeps its id there.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("settee.redb");
    let config = format!("[store]\npath = {:?}\n", store.display().to_string());
    std::fs::write(folder.path().join("settee.toml"), config).unwrap();
    folder
}

pub fn command_of(folder: &TempDir, source: &str, target: &str, more: &[&str]) -> Command {
    let mut command = Command::new(SETTEE);
    command
        .args(["replicate", "-c"])
        .arg(folder.path().join("settee.toml"))
        .args([source, target, "--connection-timeout", "5000"])
        .args(more)
        .env_remove("SETTEE_SOURCE_PASSWORD")
        .env_remove("SETTEE_TARGET_PASSWORD")
        .kill_on_drop(true);
    command
}

pub async fn run(folder: &TempDir, source: &str, target: &str, more: &[&str]) -> Output {
    let output = command_of(folder, source, target, more).output();
    tokio::time::timeout(Duration::from_secs(120), output)
        .await
        .expect("the command ends")
        .unwrap()
}

pub fn code(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub async fn two() -> (Couch, Couch) {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for index in 0..20 {
        source.put(&format!("doc-{index:02}"), None, json!({ "n": index }));
    }
    (source, target)
}

#[actix_rt::test]
async fn the_command_prints_totals_and_resumes_from_its_checkpoint() {
    let (folder, (source, target)) = (folder(), two().await);
    let refused = folder.path().join("refused.ndjson");
    target.refuse("doc-07");
    let more = ["--refused", refused.to_str().unwrap()];
    let (status, out, error) = code(&run(&folder, &source.url(), &target.url(), &more).await);
    assert_eq!(status, Some(0), "{error}");
    let expected = "everything is replicated: 20 revisions looked at, 20 missing at the target, 20 read, 19 written";
    assert!(out.starts_with(expected), "{out}");
    assert!(
        out.contains("1 refused") && out.contains("refused.ndjson"),
        "{out}"
    );
    let told = lines(&refused);
    assert_eq!(
        (told.len(), told[0]["id"].clone(), told[0]["error"].clone()),
        (1, json!("doc-07"), json!("forbidden"))
    );
    source.put("later", None, json!({}));
    let (status, out, _) = code(&run(&folder, &source.url(), &target.url(), &more).await);
    assert!(
        out.starts_with("everything is replicated: 1 revisions looked at"),
        "{out}"
    );
    assert_eq!((status, target.trees().len()), (Some(0), 20));
}

#[actix_rt::test]
async fn a_command_with_the_uuid_of_a_server_resumes_from_the_servers_checkpoints() {
    let (source, target) = two().await;
    let looked_at = async |uuid: &str| {
        let folder = folder();
        std::fs::write(folder.path().join("replicate.uuid"), uuid).unwrap();
        let (_, out, _) = code(&run(&folder, &source.url(), &target.url(), &[]).await);
        let words = out.strip_prefix("everything is replicated: ").unwrap();
        words.split(' ').next().unwrap().to_owned()
    };
    let (couchdb, other) = ("0123456789abcdef0123456789abcdef", "f".repeat(32));
    assert_eq!(looked_at(couchdb).await, "20");
    source.put("later", None, json!({}));
    assert_eq!(looked_at(couchdb).await, "1");
    assert_eq!(looked_at(&other).await, "21");
}

#[actix_rt::test]
async fn exit_codes_distinguish_failures() {
    let folder = folder();
    let cases = [
        (
            Answer::error(401, "unauthorized", "x"),
            77,
            "give the name and password",
        ),
        (Answer::error(404, "not_found", "x"), 65, "correct the URL"),
        (
            Answer::error(503, "unavailable", "x"),
            75,
            "run this again later",
        ),
    ];
    for (answer, expected, hint) in cases {
        let (source, target) = two().await;
        source.fails("GET db", usize::MAX, answer);
        let more = ["--retries-per-request", "0"];
        let (status, _, error) = code(&run(&folder, &source.url(), &target.url(), &more).await);
        assert_eq!(status, Some(expected), "{error}");
        assert!(error.contains(hint), "{error}");
    }
    let more = ["--selector", "{"];
    let (status, _, error) = code(&run(&folder, "http://a/b", "http://a/c", &more).await);
    assert_eq!(
        (status, error.contains("--selector is not JSON")),
        (Some(64), true),
        "{error}"
    );
    let (status, _, error) = code(&run(&folder, "ftp://a/b", "http://a/c", &[]).await);
    assert_eq!(status, Some(64), "{error}");
}

#[actix_rt::test]
async fn a_wrong_password_is_not_a_temporary_failure() {
    let folder = folder();
    for has_sessions in [true, false] {
        for filter in [&[][..], &["--filter", "d/f"]] {
            let (source, target) = two().await;
            source.fault(move |request| match (request.path.as_str(), has_sessions) {
                ("_session", false) => Some(Answer::error(404, "not_found", "missing")),
                _ => Some(Answer::error(
                    401,
                    "unauthorized",
                    "Name or password is incorrect.",
                )),
            });
            let url = source.url().replace("http://", "http://ann:wrong@");
            let (status, _, error) = code(&run(&folder, &url, &target.url(), filter).await);
            assert_eq!(status, Some(77), "{error}");
            assert!(error.contains("give the name and password"), "{error}");
            let name = if has_sessions {
                "replication_auth_error: session_request_unauthorized"
            } else {
                "unauthorized"
            };
            assert!(error.contains(name) && !error.contains("wrong"), "{error}");
        }
    }
}

#[actix_rt::test]
async fn a_password_revoked_during_the_run_exits_with_77() {
    let (folder, (source, target)) = (folder(), two().await);
    for kind in [
        "GET _local",
        "GET _changes",
        "POST _bulk_docs",
        "POST _ensure_full_commit",
    ] {
        let at = if kind == "POST _bulk_docs" {
            &target
        } else {
            &source
        };
        source.heal();
        at.fails(kind, usize::MAX, Answer::error(401, "unauthorized", "x"));
        let more = ["--retries-per-request", "0"];
        let (status, _, error) = code(&run(&folder, &source.url(), &target.url(), &more).await);
        assert_eq!(status, Some(77), "{kind}: {error}");
        at.heal();
    }
}

#[actix_rt::test]
async fn a_missing_filter_exits_with_65_and_says_what_to_check() {
    let (folder, (source, target)) = (folder(), two().await);
    source.put("_design/d", None, json!({"filters": {}}));
    let more = ["--retries-per-request", "0", "--filter"];
    for filter in ["none/f", "d/none", "../f", "%2e%2e/f"] {
        let (status, _, error) = code(
            &run(
                &folder,
                &source.url(),
                &target.url(),
                &[&more[..], &[filter]].concat(),
            )
            .await,
        );
        assert_eq!(status, Some(65), "{filter}: {error}");
        assert!(
            error.contains("check that the source has the filter"),
            "{error}"
        );
    }
    source.fails(
        "GET _changes",
        usize::MAX,
        Answer::error(404, "not_found", "missing json key: views"),
    );
    let view = ["_view", "--query-params", "view=d/none"];
    let (status, _, error) = code(
        &run(
            &folder,
            &source.url(),
            &target.url(),
            &[&more[..], &view].concat(),
        )
        .await,
    );
    assert_eq!(status, Some(65), "{error}");
    assert!(error.contains("missing json key: views"), "{error}");
}

#[actix_rt::test]
async fn passwords_come_from_the_environment_and_are_never_shown() {
    let (folder, (source, target)) = (folder(), two().await);
    let url = source.url().replace("http://", "http://ann@");
    let mut command = command_of(&folder, &url, &target.url(), &[]);
    let output = command
        .env("SETTEE_SOURCE_PASSWORD", "top secret")
        .output()
        .await
        .unwrap();
    let (status, out, error) = code(&output);
    assert_eq!(status, Some(0), "{error}");
    assert!(!out.contains("top secret") && !error.contains("top secret"));
    let sent = source.server.received();
    let feed = sent
        .iter()
        .find(|request| request.call() == "_changes")
        .unwrap();
    assert_eq!(feed.headers["authorization"], "Basic YW5uOnRvcCBzZWNyZXQ=");
}

pub fn interrupt(child: &Child) {
    let id = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
}

#[actix_rt::test]
async fn an_interrupt_writes_a_checkpoint_and_stops_the_command() {
    let (folder, (source, target)) = (folder(), two().await);
    let mut command = command_of(&folder, &source.url(), &target.url(), &["--continuous"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    eventually("everything is replicated", || async {
        target.trees().len() == 20
    })
    .await;
    interrupt(&child);
    let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output())
        .await
        .expect("the command ends");
    let (status, out, _) = code(&output.unwrap());
    assert!(
        status == Some(0) && out.starts_with("stopped: 20 revisions looked at"),
        "{status:?} {out}"
    );
    assert_eq!((source.locals().len(), target.locals().len()), (1, 1));
}

#[actix_rt::test]
async fn the_error_of_a_redirect_or_a_denied_address_names_the_setting_to_change() {
    let (folder, (source, target)) = (folder(), two().await);
    let mut moved = Answer::error(301, "moved", "elsewhere");
    let to = "http://b.example/db?token=s3cret";
    moved.headers.push(("Location".into(), to.into()));
    source.fault(move |_| Some(moved.clone()));
    for (url, expected, parts) in [
        (source.url(), 65, ["redirected_elsewhere", "redirects_to"]),
        (
            "http://169.254.169.254/db".to_owned(),
            78,
            ["endpoint_denied", "endpoints_allowed"],
        ),
    ] {
        let (status, _, error) = code(&run(&folder, &url, &target.url(), &[]).await);
        assert_eq!(status, Some(expected), "{error}");
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[actix_rt::test]
async fn a_redirect_elsewhere_exits_with_65_on_any_request() {
    let arguments = [
        "--retries-per-request",
        "1",
        "--no-bulk-get",
        "--filter",
        "app/mine",
    ];
    for (kind, arguments) in [
        ("GET _local", &arguments[..3]),
        ("PUT _local", &arguments[..3]),
        ("GET _changes", &arguments[..3]),
        ("GET doc", &arguments[..3]),
        ("GET doc", &arguments[..]),
    ] {
        let (folder, (source, target)) = (folder(), two().await);
        let mut moved = Answer::error(301, "moved", "elsewhere");
        let to = "http://b.example/db";
        moved.headers.push(("Location".into(), to.into()));
        source.fails(kind, usize::MAX, moved);
        let run = run(&folder, &source.url(), &target.url(), arguments).await;
        let (status, _, error) = code(&run);
        assert_eq!(status, Some(65), "{kind}: {error}");
        assert!(error.contains("redirects_to"), "{kind}: {error}");
    }
}
