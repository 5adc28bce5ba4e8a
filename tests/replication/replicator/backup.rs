//! Backup and restore: an export is written while the service runs, and an import replaces a store.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::replicator::world::{SETTINGS, World};
use crate::support::daemon::{SetAtEnd, directory, wait_until};
use crate::support::http_client::Web;
use crate::support::program::{program, run};
use crate::support::store::{create, file, post, put, start, start_in};

/// Enough documents for several reads of a snapshot.
const DOCUMENTS: usize = 2500;

/// A user who owns nothing.
const NOBODY: u32 = 65_534;

const IDLE: &str = "[replicator]\nmax_jobs = 0\n";

fn backup(web: &Web, to: &Path) -> Output {
    let mut command = program(&["jobs", "export", "--secrets"]);
    command.arg(to).arg("--socket").arg(web.service.socket());
    run(&mut command, b"")
}

/// Imports an export into the store of a stopped service.
fn restore(from: &Path, folder: &Path) -> Output {
    let mut command = program(&["jobs", "import", "--replace"]);
    command.arg(from).env("SETTEE__STORE__PATH", file(folder));
    run(&mut command, b"")
}

/// Exports the store of a stopped service.
fn offline(folder: &Path) -> Output {
    let mut command = program(&["jobs", "export", "--offline"]);
    run(command.env("SETTEE__STORE__PATH", file(folder)), b"")
}

#[track_caller]
fn text(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = match code {
        0 => &output.stdout,
        _ => &output.stderr,
    };
    String::from_utf8(said.clone()).unwrap()
}

fn doc(id: &str, n: usize) -> Value {
    json!({"_id": id, "source": "http://127.0.0.1:1/a", "target": format!("http://127.0.0.1:1/{id}"), "n": n})
}

#[test]
fn a_backup_is_a_consistent_snapshot_while_documents_are_written() {
    let web = start(IDLE);
    let docs: Vec<Value> = (0..DOCUMENTS)
        .map(|n| doc(&format!("d{n:04}"), n))
        .collect();
    let made = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
    assert_eq!(made.status, 201);
    let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("backup.ndjson");
    std::thread::scope(|scope| {
        // The documents with the first and the last id, always written together.
        scope.spawn(|| {
            let mut revs = [None, None];
            for n in 0.. {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let mut pair = [doc("a", n), doc("z", n)];
                for (doc, rev) in pair.iter_mut().zip(revs.iter().flatten()) {
                    doc["_rev"] = Value::clone(rev);
                }
                let answer = post(&web, "/_replicator/_bulk_docs", &json!({"docs": pair}));
                let answer = answer.json();
                revs = [0, 1].map(|at| Some(answer[at]["rev"].clone()));
                assert!(answer[1]["ok"] == true, "{answer}");
                written.store(n + 1, Ordering::SeqCst);
            }
        });
        let _end = SetAtEnd(&over);
        let some_more = || {
            let before = written.load(Ordering::SeqCst);
            wait_until("writes", || written.load(Ordering::SeqCst) > before + 3);
        };
        some_more();
        let before = written.load(Ordering::SeqCst);
        let said = text(&backup(&web, &to), 0);
        let after = written.load(Ordering::SeqCst);
        assert!(
            said.starts_with(&format!("{} documents in ", DOCUMENTS + 2)),
            "{said}"
        );
        assert!(after > before, "nothing was written during the backup");
        some_more();
        let other = directory();
        text(&restore(&to, other.path()), 0);
        let other = start_in(other, IDLE);
        let n = |id: &str| other.get(&format!("/_replicator/{id}")).ok()["n"].as_u64();
        assert_eq!(n("a"), n("z"), "both are of one snapshot");
        let n = n("a").unwrap() as usize;
        assert!((before - 1..=after).contains(&n), "{before}..{after}: {n}");
        let info = other.get("/_replicator").ok();
        let seq = info["update_seq"].as_str().unwrap().split('-').next();
        let last = DOCUMENTS + 2 * (n + 1);
        assert_eq!(
            seq,
            Some(&*last.to_string()),
            "all writes before the snapshot and none after it"
        );
        other.service.stop();
    });
    web.service.stop();
}

/// Returns the service's answers about its documents.
fn seen(web: &Web) -> Vec<String> {
    let paths = [
        "/_replicator/_changes?include_docs=true",
        "/_replicator/_local/note",
        "/_replicator",
        "/_scheduler/jobs?states=paused",
    ];
    let texts = paths.map(|path| web.get(path).body);
    let uuid = web.get("/").json()["uuid"].to_string();
    texts.into_iter().chain([uuid]).collect()
}

#[test]
fn a_service_restored_from_a_backup_has_everything_and_its_replications_continue() {
    let world = World::start();
    world.fill(10);
    create(&world.web, "live", &world.continuous());
    let mut paused = world.continuous();
    paused["target"] = "http://127.0.0.1:1/nowhere".into();
    paused["continuous"] = true.into();
    create(&world.web, "paused", &paused);
    let rev = create(&world.web, "gone", &doc("gone", 1));
    let gone = world
        .web
        .send("DELETE", &format!("/_replicator/gone?rev={rev}"), "");
    assert_eq!(gone.status, 200);
    let note = json!({"z": 1, "a": 1.0});
    assert_eq!(
        put(&world.web, "/_replicator/_local/note", &note).status,
        201
    );
    world.wait_until_equal();
    let id = |world: &World| world.doc("paused")["id"].as_str().map(str::to_owned);
    wait_until("a job", || id(&world).is_some());
    let order = format!(
        "/_scheduler/jobs/{}/_pause",
        id(&world).unwrap().replace('+', "%2B")
    );
    assert_eq!(world.web.send("POST", &order, "").status, 200);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("backup.ndjson");
    text(&backup(&world.web, &to), 0);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o600);
    let bytes = fs::read(&to).unwrap();
    let said = text(&backup(&world.web, &to), 74);
    assert!(said.contains("already exists: name another file"), "{said}");
    assert!(
        fs::read(&to).unwrap() == bytes,
        "the existing file is unchanged"
    );
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "no temporary file is left");
    let before = seen(&world.web);
    let first = world.web.service.stop_and_keep();
    let place = directory();
    let said = text(&restore(&to, place.path()), 0);
    assert!(
        said.starts_with("3 documents (1 deleted), 1 local document, 1 job with settings"),
        "{said}"
    );
    assert_eq!(text(&restore(&to, place.path()), 0), said);
    let begun = world.source.server.received().len();
    let web = start_in(place, SETTINGS);
    let world = World { web, ..world };
    world.source.put("later", None, json!({}));
    world.wait_until_equal();
    let received = world.source.server.received();
    let feeds = received[begun..]
        .iter()
        .filter(|one| one.kind() == "GET _changes");
    let since: Vec<_> = feeds
        .map(|one| one.param("since").map(str::to_owned))
        .collect();
    assert!(
        !since.is_empty() && !since.contains(&Some("0".into())),
        "{since:?}"
    );
    // None of these contains the time of the last start.
    assert_eq!(seen(&world.web)[..3], before[..3]);
    assert_eq!(seen(&world.web)[4], before[4], "the uuid");
    let paused = world.web.get("/_scheduler/jobs?states=paused").ok();
    assert_eq!(paused["jobs"][0]["doc_id"], "paused");
    world.stop();
    drop(first);
}

#[test]
fn an_import_replaces_the_whole_store_and_is_refused_while_it_is_in_use() {
    let web = start(IDLE);
    create(&web, "one", &doc("one", 1));
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("backup.ndjson");
    text(&backup(&web, &to), 0);
    create(&web, "two", &doc("two", 2));
    let said = text(&restore(&to, web.service.directory.path()), 75);
    assert!(
        said.contains("is in use by another process: stop that one"),
        "{said}"
    );
    let said = text(&offline(web.service.directory.path()), 75);
    assert!(said.contains("is in use by another process"), "{said}");
    let stopped = web.service.stop_and_keep();
    let before = text(&offline(stopped.path()), 0);
    assert!(before.contains("\"two\""), "{before}");
    let plain = folder.path().join("plain.ndjson");
    fs::write(&plain, &before).unwrap();
    let said = text(&restore(&plain, stopped.path()), 65);
    assert!(said.contains("export with --secrets"), "{said}");
    assert_eq!(
        text(&offline(stopped.path()), 0),
        before,
        "the store is unchanged"
    );
    text(&restore(&to, stopped.path()), 0);
    let missing = folder.path().join("missing.ndjson");
    text(&restore(&missing, stopped.path()), 74);
    let web = start_in(stopped, IDLE);
    assert_eq!(web.get("/_replicator/one").ok()["n"], 1);
    assert_eq!(web.get("/_replicator/two").status, 404);
    web.service.stop();
}

#[test]
fn a_damaged_cut_empty_or_newer_export_is_refused_before_anything_is_written() {
    let web = start(IDLE);
    create(&web, "one", &doc("one", 1));
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("backup.ndjson");
    text(&backup(&web, &to), 0);
    text(
        &run(
            program(&["jobs", "delete", "one", "--yes"])
                .arg("--socket")
                .arg(web.service.socket()),
            b"",
        ),
        0,
    );
    let whole = fs::read(&to).unwrap();
    let mut other = whole.clone();
    let id = whole.windows(3).position(|bytes| bytes == b"one").unwrap();
    other[id] ^= 1;
    let newer = String::from_utf8(whole.clone()).unwrap();
    let newer = newer.replacen("export\":1,", "export\":2,", 1);
    let cut = &whole[..whole.len() - 1];
    for (bytes, why) in [
        (&*other, "is damaged"),
        (cut, "is damaged"),
        (newer.as_bytes(), "it has format 2"),
    ] {
        fs::write(&to, bytes).unwrap();
        let place = directory();
        let said = text(&restore(&to, place.path()), 65);
        assert!(said.contains(why), "{said}");
        assert!(said.contains("nothing was imported"), "{said}");
        assert!(!file(place.path()).exists(), "nothing is restored");
        let mut command = program(&["jobs", "import"]);
        command.arg(&to).arg("--socket").arg(web.service.socket());
        text(&run(&mut command, b""), 65);
        assert_eq!(web.get("/_replicator/one").status, 404);
    }
    fs::write(&to, b"").unwrap();
    text(&restore(&to, directory().path()), 65);
    web.service.stop();
}

#[test]
fn an_export_whose_name_is_not_utf8_is_imported() {
    let web = start(IDLE);
    create(&web, "one", &doc("one", 1));
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join(OsStr::from_bytes(b"backup-\xff"));
    text(&backup(&web, &to), 0);
    text(&restore(&to, directory().path()), 0);
    web.service.stop();
}

#[test]
fn a_store_restored_by_root_belongs_to_the_owner_of_its_folder() {
    let web = start(IDLE);
    create(&web, "one", &doc("one", 1));
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("backup.ndjson");
    text(&backup(&web, &to), 0);
    web.service.stop();
    let place = directory();
    let path = file(place.path());
    let state = path.parent().unwrap();
    fs::create_dir(state).unwrap();
    let owner = match rustix::process::geteuid() {
        root if root.is_root() => NOBODY,
        user => user.as_raw(),
    };
    chown(state, Some(owner), None).unwrap();
    text(&restore(&to, place.path()), 0);
    let restored = fs::metadata(&path).unwrap();
    assert_eq!((restored.uid(), restored.mode() & 0o777), (owner, 0o600));
}
