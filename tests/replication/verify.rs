//! `settee replicate --verify` and `settee jobs verify`: whether the target holds everything.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use settee_testkit::{eventually, within};
use tokio::process::Child;
use tokio::sync::Notify;

use crate::command::{code, command_of, folder, interrupt, run};
use crate::replicator::world::World;
use crate::support::couch::{Couch, Stored};
use crate::support::filters::KIND;
use crate::support::http_server::{Answer, Piece};
use crate::support::program::SETTEE;
use crate::support::store::{create, post};

fn attached(name: &str, bytes: &'static str) -> Stored {
    Stored {
        name: name.into(),
        content_type: "text/plain".into(),
        encoding: None,
        bytes: Bytes::from(bytes),
        revpos: 0,
    }
}

/// Two databases, and the revisions that both hold.
struct Two {
    source: Couch,
    target: Couch,
    plain: String,
    branches: [String; 2],
    gone: String,
    pictures: String,
}

/// Creates two databases with the same documents: plain ones, a conflict, a deletion, attachments.
async fn two() -> Two {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let both = |id: &str, parent: Option<&str>, body: Value, attachments: Vec<Stored>| {
        target.put_with(id, parent, body.clone(), attachments.clone());
        source.put_with(id, parent, body, attachments)
    };
    let plain = both("plain", None, json!({"n": 1}), vec![]);
    let first = both("conflict", None, json!({"n": 1}), vec![]);
    let branches = [2, 3].map(|n| both("conflict", Some(&first), json!({"n": n}), vec![]));
    let was = both("gone", None, json!({}), vec![]);
    let gone = both("gone", Some(&was), json!({"_deleted": true}), vec![]);
    let three = vec![
        attached("a b.txt", "one"),
        attached("..", "dots"),
        attached("third", "third"),
    ];
    let pictures = both("pictures/1", None, json!({}), three);
    both("_design/d", None, json!({"views": {}}), vec![]);
    Two {
        source,
        target,
        plain,
        branches,
        gone,
        pictures,
    }
}

impl Two {
    /// Runs `settee replicate --verify=only`. Returns exit code, standard output and standard error.
    async fn verified(&self, more: &[&str]) -> (Option<i32>, String, String) {
        let folder = folder();
        let more = [&["--verify=only"], more].concat();
        code(&run(&folder, &self.source.url(), &self.target.url(), &more).await)
    }

    /// Disables `_bulk_get` on both.
    fn without_bulk_get(&self) {
        for couch in [&self.source, &self.target] {
            couch.fails(
                "POST _bulk_get",
                usize::MAX,
                Answer::error(404, "not_found", "missing"),
            );
        }
    }
}

#[actix_rt::test]
async fn a_complete_target_is_reported_after_a_replication_or_without_one() {
    let (two, folder) = (two().await, folder());
    let empty = Couch::start().await;
    for verify in ["--verify", "--verify=after"] {
        let output = run(
            &folder,
            &two.source.url(),
            &empty.url(),
            &[verify, "--deep"],
        )
        .await;
        let (status, out, error) = code(&output);
        assert_eq!(status, Some(0), "{error}");
        assert!(out.starts_with("everything is replicated: "), "{out}");
        let sum = "\nthe target holds everything: 6 revisions, 3 attachments (12 bytes) compared\n";
        assert!(out.ends_with(sum), "{out}");
    }
    let (status, out, error) = two.verified(&[]).await;
    assert_eq!(
        (status, out.as_str()),
        (
            Some(0),
            "the target holds everything: 6 revisions, 3 attachments compared\n"
        ),
        "{error}"
    );
    assert!(two.target.locals().is_empty(), "nothing was written");
    let more = ["--continuous", "--verify"];
    let (status, _, error) = code(&run(&folder, "http://a/b", "http://a/c", &more).await);
    assert!(
        status == Some(64) && error.contains("--verify=only"),
        "{error}"
    );
}

#[actix_rt::test]
async fn a_comparison_alone_does_not_empty_the_file_of_refused_documents() {
    let folder = folder();
    let file = folder.path().join("refused");
    std::fs::write(&file, "of the replication\n").unwrap();
    let more = ["--verify=only", "--refused", file.to_str().unwrap()];
    let (status, _, error) = code(&run(&folder, "http://a/b", "http://a/c", &more).await);
    assert!(
        status == Some(64) && error.contains("none is refused"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "of the replication\n"
    );
}

#[actix_rt::test]
async fn every_missing_revision_and_missing_or_different_attachment_is_listed() {
    for has_bulk_get in [true, false] {
        let two = two().await;
        let Two { source, target, .. } = &two;
        if !has_bulk_get {
            two.without_bulk_get();
        }
        target.lose("plain", &two.plain);
        target.lose("conflict", &two.branches[1]);
        target.lose("gone", &two.gone);
        target.damage("pictures/1", &two.pictures, |all| {
            all.retain(|one| one.name != "third");
            all[0].bytes = "more".into();
        });
        let lines = [
            format!("missing plain {}", two.plain),
            format!("missing conflict {}", two.branches[1]),
            format!("missing gone {}", two.gone),
            format!("attachment missing pictures/1 {} third", two.pictures),
            format!(
                "attachment differs pictures/1 {} a b.txt (3 bytes at the source, 4 at the target)",
                two.pictures
            ),
        ];
        let (status, out, error) = two.verified(&[]).await;
        assert_eq!(status, Some(65), "{out}{error}");
        let mut told: Vec<&str> = out.lines().collect();
        let sum = told.pop().unwrap();
        told.sort_unstable();
        let mut expected: Vec<&str> = lines.iter().map(String::as_str).collect();
        expected.sort_unstable();
        assert_eq!(told, expected);
        assert_eq!(
            sum,
            "the target does not hold everything: 6 revisions, 3 attachments compared, \
             1 attachment differs, 1 attachment missing, 3 missing"
        );
        assert!(
            error.contains("in 5 places") && error.contains("--no-checkpoints"),
            "{error}"
        );
        // Revisions that only the target has are not a difference.
        target.put("more", None, json!({}));
        source.put("plain", Some(&two.plain), json!({}));
        target.put("plain", None, json!({"n": 1}));
        target.put("plain", Some(&two.plain), json!({}));
        let (_, out, _) = two.verified(&[]).await;
        assert!(!out.contains("plain") && !out.contains("more\n"), "{out}");
    }
}

#[actix_rt::test]
async fn different_bytes_of_the_same_length_are_found_only_by_a_deep_comparison() {
    let two = two().await;
    two.target.damage("pictures/1", &two.pictures, |all| {
        all[0].bytes = "onE".into();
        // No URL can name the attachment `..`.
        all[1].bytes = "dotS".into();
    });
    let (status, _, error) = two.verified(&[]).await;
    assert_eq!(status, Some(0), "{error}");
    let (status, out, _) = two.verified(&["--deep", "--json"]).await;
    assert_eq!(status, Some(65), "{out}");
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line = |name: &str, at: u32| {
        json!({"difference": "attachment_differs", "id": "pictures/1", "rev": two.pictures,
            "name": name, "how": format!("the bytes differ from byte {at} on")})
    };
    assert_eq!(lines[..2], [line("a b.txt", 2), line("..", 3)]);
    assert_eq!(lines[2]["differences"], json!({"attachment differs": 2}));
    assert_eq!(lines[2]["revisions"], json!(6));
    two.without_bulk_get();
    let (status, out, _) = two.verified(&["--deep"]).await;
    assert_eq!(status, Some(65), "{out}");
    assert!(
        out.contains(" .. (not compared: no URL can name the attachment"),
        "{out}"
    );
}

#[actix_rt::test]
async fn filtered_out_documents_are_not_missing() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("_design/f", None, json!({"filters": {"kind": KIND}}));
    let mut missing = Vec::new();
    for n in 0..10 {
        let kind = if n < 5 { "x" } else { "y" };
        let body = json!({"kind": kind});
        let id = format!("{n:02}");
        match n {
            0..4 => drop(target.put(&id, None, body.clone())),
            4 => missing.push(source.put(&id, None, body.clone())),
            _ => {}
        }
        source.put(&id, None, body);
    }
    let line = format!("missing 04 {}\n", missing[0]);
    let function = [
        "--filter",
        "f/kind",
        "--query-params",
        "kind=x",
        "--filter-at",
        "settee",
    ];
    for (more, filtered) in [
        (&["--doc-ids", "00,01,02,03,04"][..], 0),
        (&["--selector", r#"{"kind": "x"}"#], 0),
        (
            &["--selector", r#"{"kind": "x"}"#, "--filter-at", "settee"],
            6,
        ),
        (&function, 6),
    ] {
        let folder = folder();
        let more = [&["--verify=only"], more].concat();
        let output = run(&folder, &source.url(), &target.url(), &more).await;
        let (status, out, error) = code(&output);
        assert_eq!(status, Some(65), "{more:?}: {error}");
        assert!(out.starts_with(&line), "{more:?}: {out}");
        assert_eq!(out.lines().count(), 2, "{more:?}: {out}");
        let told = format!(", {filtered} filtered");
        assert_eq!(out.contains(&told), filtered > 0, "{more:?}: {out}");
    }
}

#[actix_rt::test]
async fn a_document_that_the_target_refused_is_reported_as_refused() {
    let (two, folder) = (two().await, folder());
    let empty = Couch::start().await;
    empty.refuse("plain");
    let output = run(&folder, &two.source.url(), &empty.url(), &["--verify"]).await;
    let (status, out, _) = code(&output);
    let line = format!("\nrefused plain {} (forbidden: not this one)\n", two.plain);
    assert!(status == Some(65) && out.contains(&line), "{out}");
}

#[actix_rt::test]
async fn a_write_during_the_comparison_is_not_a_difference() {
    let two = two().await;
    let (source, target) = (Arc::new(two.source), Arc::new(two.target));
    let rev = source.put("replaced", None, json!({"n": 1}));
    source.put("arrives", None, json!({"n": 1}));
    let asked = AtomicUsize::new(0);
    let (writes, arrives) = (Arc::clone(&source), Arc::clone(&target));
    target.fault(move |request| {
        if request.call() == "_revs_diff" {
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => drop(writes.put("replaced", Some(&rev), json!({"n": 2}))),
                2 => drop(arrives.put("arrives", None, json!({"n": 1}))),
                _ => {}
            }
        }
        None
    });
    let folder = folder();
    let output = run(&folder, &source.url(), &target.url(), &["--verify=only"]).await;
    let (status, out, error) = code(&output);
    assert_eq!(
        (status, out.as_str()),
        (
            Some(0),
            "the target holds everything: 8 revisions, 3 attachments compared, 1 changed meanwhile\n"
        ),
        "{error}"
    );
    // Breaks the reference cycle of the closure and its server.
    target.heal();
}

/// Creates two databases with the same `count` documents.
async fn many(count: usize, body: &Value) -> (Couch, Couch) {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for n in 0..count {
        let id = format!("d{n:05}");
        source.put(&id, None, body.clone());
        target.put(&id, None, body.clone());
    }
    (source, target)
}

/// Holds the target's answers to `_revs_diff` requests with the document `id` until notified. Returns the notifier and
/// the number of such requests.
fn hold(target: &Couch, id: &'static str) -> (Arc<Notify>, Arc<AtomicUsize>) {
    let (release, held) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (bell, count) = (Arc::clone(&release), Arc::clone(&held));
    target.fault(move |request| {
        if request.call() != "_revs_diff" || request.json().get(id).is_none() {
            return None;
        }
        count.fetch_add(1, Ordering::SeqCst);
        let pieces = vec![Piece::Until(Arc::clone(&bell)), Piece::Bytes("{}".into())];
        Some(Answer::stream(200, "application/json", pieces))
    });
    (release, held)
}

fn spawn(folder: &tempfile::TempDir, source: &Couch, target: &Couch, more: &[&str]) -> Child {
    let more = [&["--verify=only"], more].concat();
    let mut command = command_of(folder, &source.url(), &target.url(), &more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

#[actix_rt::test]
async fn a_killed_comparison_resumes_where_it_stopped() {
    let (folder, (source, target)) = (folder(), many(2000, &json!({})).await);
    let lost = target.trees()["d00003"].1.keys().next().unwrap().clone();
    target.lose("d00003", &lost);
    let state = folder.path().join("state");
    let more = [
        "--worker-batch-size",
        "100",
        "--resume",
        state.to_str().unwrap(),
    ];
    hold(&target, "d01000");
    let mut child = spawn(&folder, &source, &target, &more);
    // The first line describes the comparison.
    eventually("ten batches are recorded", || async { lines(&state) == 11 }).await;
    child.kill().await.unwrap();
    target.heal();
    let before = target.server.received().len();
    let arguments = [&["--verify=only"], &more[..]].concat();
    let output = run(&folder, &source.url(), &target.url(), &arguments).await;
    let (status, out, error) = code(&output);
    assert_eq!(status, Some(65), "{error}");
    let expected = format!(
        "missing d00003 {lost}\nthe target does not hold everything: 2000 revisions, \
         0 attachments compared, 1 missing\n"
    );
    assert_eq!(out, expected);
    // Requests of the killed comparison may still arrive: they are for documents after the recorded ones.
    let received = target.server.received();
    let requested = |batch: &u32| {
        let id = format!("d{:05}", batch * 100 + 50);
        let mut requests = received[before..].iter();
        requests.any(|one| one.call() == "_revs_diff" && one.json()[&id].is_array())
    };
    let requested: Vec<u32> = (0..20).filter(requested).collect();
    assert_eq!(requested, (10..20).collect::<Vec<_>>());
    assert!(!state.exists(), "the state is removed once complete");
}

#[actix_rt::test]
async fn an_interrupt_ends_a_comparison_that_follows_a_replication() {
    let (folder, (source, target)) = (folder(), many(1, &json!({})).await);
    let (release, held) = hold(&target, "d00000");
    // Of the replication.
    release.notify_one();
    let mut command = command_of(&folder, &source.url(), &target.url(), &["--verify"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    eventually("the comparison has begun", || async {
        held.load(Ordering::SeqCst) == 2
    })
    .await;
    interrupt(&child);
    let status = within("the end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(75));
    target.heal();
}

#[actix_rt::test]
async fn memory_does_not_grow_with_the_number_of_documents() {
    let body = json!({"text": "x".repeat(16_000)});
    let mut peaks = Vec::new();
    for (count, last) in [(1000, "d00999"), (3500, "d03499")] {
        let (folder, (source, target)) = (folder(), many(count, &body).await);
        let (release, held) = hold(&target, last);
        let child = spawn(&folder, &source, &target, &[]);
        eventually("the last batch is requested", || async {
            held.load(Ordering::SeqCst) > 0
        })
        .await;
        peaks.push(peak_kib(child.id().unwrap()));
        target.heal();
        release.notify_waiters();
        let output = child.wait_with_output().await.unwrap();
        let (status, out, error) = code(&output);
        assert_eq!(status, Some(0), "{out}{error}");
        assert!(out.contains(&format!(": {count} revisions")), "{out}");
    }
    let more = peaks[1].saturating_sub(peaks[0]);
    assert!(
        more < 16 << 10,
        "{peaks:?} KiB: 2,500 documents of 16 KiB are 40,000 KiB"
    );
}

/// Returns the peak memory of a process, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// Runs `settee jobs verify`. Returns exit code, standard output and standard error.
fn jobs_verify(world: &World, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(SETTEE);
    command.args(["jobs", "verify"]).args(arguments);
    command.arg("--socket").arg(world.web.service.socket());
    let folder = tempfile::tempdir().unwrap();
    command.env("XDG_STATE_HOME", folder.path());
    code(&command.output().unwrap())
}

#[test]
fn a_verify_that_selects_no_job_or_resumes_several_fails() {
    let world = World::start();
    for (arguments, expected) in [
        (&[][..], 64),
        (&["--all", "--resume", "x"], 64),
        (&["no-*"], 66),
    ] {
        let (status, _, error) = jobs_verify(&world, arguments);
        assert_eq!(status, Some(expected), "{error}");
    }
    world.stop();
}

#[test]
fn several_replications_are_verified_with_one_line_each_and_a_total() {
    let world = World::start();
    world.fill(20);
    let mut body = world.body();
    for (id, doc) in [
        ("shop-1", "d00001"),
        ("shop-2", "d00002"),
        ("other", "d00003"),
    ] {
        body["doc_ids"] = json!([doc]);
        create(&world.web, id, &body);
        world.wait_for_state(id, "completed");
    }
    // A job without a document is not compared.
    let begun = post(&world.web, "/_replicate", &world.continuous());
    assert_eq!(begun.status, 202, "{begun:?}");
    world.wait_until_equal();
    let (_, revs) = &world.source.trees()["d00002"];
    world.target.lose("d00002", revs.keys().next().unwrap());
    let holds = "the target holds everything: 1 revision, 0 attachments compared";
    let lacks =
        "the target does not hold everything: 1 revision, 0 attachments compared, 1 missing";
    let other = format!("other: {holds}");
    let shops = [format!("shop-1: {holds}"), format!("shop-2: {lacks}")];
    let none = "zzz: not compared: there is no document of this id in _replicator".to_owned();
    for (arguments, lines, sum, expected) in [
        (
            &["--all"][..],
            vec![&other, &shops[0], &shops[1]],
            "3 jobs: 2 complete, 1 incomplete, 0",
            65,
        ),
        (
            &["shop-*"],
            vec![&shops[0], &shops[1]],
            "2 jobs: 1 complete, 1 incomplete, 0",
            65,
        ),
        (
            &["shop-1", "zzz"],
            vec![&shops[0], &none],
            "2 jobs: 1 complete, 0 incomplete, 1",
            65,
        ),
        (
            &["--match", "shop-1", "--states", "completed"],
            vec![&shops[0]],
            "1 job: 1 complete, 0 incomplete, 0",
            0,
        ),
    ] {
        let (status, out, error) = jobs_verify(&world, arguments);
        assert_eq!(status, Some(expected), "{out}{error}");
        let mut told: Vec<&str> = out.lines().collect();
        assert_eq!(told.pop(), Some(&*format!("{sum} not compared")), "{out}");
        told.sort_unstable();
        assert_eq!(told.len(), lines.len(), "{out}");
        for (line, expected) in told.iter().zip(&lines) {
            assert!(line.starts_with(expected.as_str()), "{out}");
        }
    }
    let (_, out, _) = jobs_verify(&world, &["--all", "--json"]);
    let sum: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(
        sum,
        json!({"jobs": 3, "complete": 2, "incomplete": 1, "not_compared": 0})
    );
    world.stop();
}

#[test]
fn jobs_verify_uses_the_credentials_of_the_document_and_does_not_print_them() {
    let world = World::start();
    world.fill(20);
    let url = |couch: &Couch| couch.url().replace("http://", "http://ann:secret@");
    let mut body = world.body();
    body["source"] = url(&world.source).into();
    body["target"] = url(&world.target).into();
    body["doc_ids"] = json!(["d00001", "d00002", "d00003", "d00004"]);
    world.target.refuse("d00004");
    for id in ["shop", "shop-10", "shop-12"] {
        create(&world.web, id, &body);
        body["doc_ids"] = json!(["d00001"]);
    }
    world.wait_for_state("shop", "completed");
    let verify = |document: &str, more: &[&str]| {
        let (status, out, error) = jobs_verify(&world, &[&[document], more].concat());
        assert!(
            !out.contains("secret") && !error.contains("secret"),
            "{out}{error}"
        );
        (status, out, error)
    };
    let rev = |id: &str| world.source.trees()[id].1.keys().next().unwrap().clone();
    let lost = rev("d00002");
    world.target.lose("d00002", &lost);
    let (status, out, error) = verify("shop", &[]);
    assert_eq!(status, Some(65), "{error}");
    let refused = format!("d00004 {}", rev("d00004"));
    let told: Vec<&str> = out.lines().collect();
    assert_eq!(told.len(), 3, "{out}");
    assert_eq!(told[0], format!("missing d00002 {lost}"));
    assert!(told[1].contains(&refused), "{out}");
    assert!(told[2].contains(": 4 revisions, "), "{out}");
    let (status, out, error) = verify("shop-12", &["--json"]);
    assert_eq!(status, Some(0), "{error}");
    let sum: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&sum["revisions"], &sum["differences"]),
        (&json!(1), &json!({}))
    );
    for none in ["shop-11", "zzz", "a", "sho"] {
        let (status, _, error) = verify(none, &[]);
        assert!(
            status == Some(66) && error.contains("no document"),
            "{error}"
        );
    }
    world.stop();
}
