//! A store moves from a file to PostgreSQL and back by export and import.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::{replication, start};
use super::server::TestDatabase;
use crate::support::daemon::{directory, wait_until};
use crate::support::http_client::Web;
use crate::support::program::{program, run};
use crate::support::store::{create, post, put, start_in};

const IDLE: &str = "[replicator]\nmax_jobs = 0\n";

/// Number of documents that the killed imports would write.
const DOCUMENTS: usize = 3000;

/// Number of imports per store that are killed unless they end earlier.
const KILLS: u32 = 5;

/// Returns a `jobs` command on the store of a file or of a database.
fn on(place: &str, arguments: &[&str]) -> Command {
    let mut command = program(&[&["jobs"], arguments].concat());
    let name = match place.contains("://") {
        true => "SETTEE__STORE__URL",
        false => "SETTEE__STORE__PATH",
    };
    command.env(name, place);
    command
}

/// Exports a store into a new file, and returns its bytes.
#[track_caller]
fn exported(place: &str, to: &Path) -> Vec<u8> {
    let mut command = on(place, &["export", "--offline", "--secrets"]);
    let output = run(command.arg(to), b"");
    assert!(output.status.success(), "{output:?}");
    fs::read(to).unwrap()
}

/// Replaces a store with an exported file; returns the summary.
#[track_caller]
fn replaced(place: &str, from: &Path) -> String {
    let output = run(on(place, &["import", "--replace"]).arg(from), b"");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(place: &str, from: &Path, code: i32) -> String {
    let output = run(on(place, &["import", "--replace"]).arg(from), b"");
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!printed.contains("secret"), "{printed}");
    printed
}

/// Returns how a service shows its documents, with the engine's name masked.
fn seen(web: &Web) -> Vec<String> {
    [
        "/_replicator/_changes?include_docs=true",
        "/_replicator/_local/note",
        "/_replicator",
    ]
    .map(|path| {
        web.get(path)
            .body
            .replace("\"engine\":\"postgresql\"", "\"engine\":\"redb\"")
    })
    .into()
}

fn path(folder: &Path) -> String {
    crate::support::store::file(folder).display().to_string()
}

#[test]
fn a_store_moves_to_postgres_and_back_and_services_see_no_difference() {
    let database = TestDatabase::new();
    let web = start_in(directory(), IDLE);
    for id in ["a", "b", "%C3%B6"] {
        let mut body = replication();
        body["target"] = json!(format!("http://127.0.0.1:1/{id}"));
        create(&web, id, &body);
    }
    let rev = web.get("/_replicator/b").json()["_rev"].clone();
    let deletion = json!({"docs": [{"_id": "b", "_rev": rev, "_deleted": true}]});
    assert_eq!(post(&web, "/_replicator/_bulk_docs", &deletion).status, 201);
    let note = json!({"z": 1, "a": 1.0});
    assert_eq!(put(&web, "/_replicator/_local/note", &note).status, 201);
    let before = seen(&web);
    let source = path(web.service.directory.path());
    let folder = web.service.stop_and_keep();
    let file = folder.path().join("all.ndjson");
    let bytes = exported(&source, &file);
    let printed = replaced(&database.url(), &file);
    assert!(
        printed.starts_with("3 documents (1 deleted), 1 local document, 0 jobs"),
        "{printed}"
    );
    assert!(!printed.contains("secret"), "{printed}");
    let wanted = "SELECT string_agg(doc_id, ' ' ORDER BY doc_id) FROM settee.jobs WHERE wanted";
    assert_eq!(database.sql(wanted), "a ö", "b is deleted");
    let known = "SELECT CASE WHEN min(reltuples) > 0 THEN 'known' ELSE 'unknown' END FROM pg_class \
                 WHERE oid IN ('settee.docs'::regclass, 'settee.jobs'::regclass)";
    assert_eq!(database.sql(known), "known", "the planner's statistics");
    let web = start(&database);
    assert_eq!(seen(&web), before);
    web.service.stop();
    let again = folder.path().join("again.ndjson");
    assert!(
        exported(&database.url(), &again) == bytes,
        "the exports differ"
    );
    let back = directory();
    replaced(&path(back.path()), &again);
    let web = start_in(back, IDLE);
    assert_eq!(seen(&web), before);
    web.service.stop();
}

#[test]
fn an_import_that_cannot_gather_statistics_changes_nothing() {
    let database = TestDatabase::new();
    let folder = directory();
    let files = ["old", "new"].map(|id| {
        let web = start(&database);
        create(&web, id, &replication());
        web.service.stop();
        let file = folder.path().join(id);
        let bytes = exported(&database.url(), &file);
        (file, bytes)
    });
    let [(old, _), (_, before)] = &files;
    // `ANALYZE` evaluates the expressions of indexes.
    database.sql(
        "CREATE FUNCTION settee.fails(id text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
         IF current_query() LIKE '%ANALYZE%' THEN RAISE 'no statistics'; END IF; RETURN id; END $$",
    );
    database.sql("CREATE INDEX ON settee.docs (settee.fails(id))");
    refused(&database.url(), old, 74);
    database.sql("DROP FUNCTION settee.fails CASCADE");
    assert!(exported(&database.url(), &folder.path().join("after")) == *before);
}

#[test]
fn a_killed_import_leaves_the_old_or_the_new_store_and_a_completed_one_is_equal_byte_for_byte() {
    let database = TestDatabase::new();
    let web = start_in(directory(), IDLE);
    let docs = (0..DOCUMENTS).map(|n| {
        let mut body = replication();
        body["_id"] = format!("d{n:05}").into();
        body["n"] = json!(1.0);
        body
    });
    let docs: Vec<_> = docs.collect();
    for docs in docs.chunks(1000) {
        let made = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
        assert_eq!(made.status, 201);
    }
    let source = path(web.service.directory.path());
    let folder = web.service.stop_and_keep();
    let file = folder.path().join("all.ndjson");
    let bytes = exported(&source, &file);
    let back = path(&folder.path().join("back"));
    let mut killed = 0;
    for place in [&database.url(), &back] {
        let begun = Instant::now();
        replaced(place, &file);
        let whole = begun.elapsed();
        // Content to be replaced.
        let other = directory();
        let web = start_in(other, IDLE);
        create(&web, "other", &replication());
        let other = path(web.service.directory.path());
        let kept = web.service.stop_and_keep();
        let other_file = kept.path().join("other.ndjson");
        let other = exported(&other, &other_file);
        for n in 0..KILLS {
            replaced(place, &other_file);
            let mut child = on(place, &["import", "--replace"])
                .arg(&file)
                .spawn()
                .unwrap();
            let deadline = whole * n / KILLS;
            let ended = wait_at_most(&mut child, deadline);
            if !ended {
                child.kill().unwrap();
                killed += 1;
            }
            child.wait().unwrap();
            let now = folder.path().join("now.ndjson");
            // The database may not have noticed the closed connection yet.
            wait_until("old or new content", || {
                drop(fs::remove_file(&now));
                let now = exported(place, &now);
                now == other || now == bytes
            });
        }
        replaced(place, &file);
        let again = folder.path().join("again.ndjson");
        assert!(exported(place, &again) == bytes, "the exports differ");
        fs::remove_file(&again).unwrap();
    }
    assert!(killed > 0, "no import was killed");
}

/// Waits at most `time` for a child to exit. Returns whether it has.
fn wait_at_most(child: &mut Child, time: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[test]
fn a_database_is_exported_while_daemons_run_and_replaced_only_while_none_runs() {
    let (database, other) = (TestDatabase::new(), TestDatabase::new());
    let web = start(&database);
    for id in ["a", "b"] {
        let mut body = replication();
        body["target"] = json!(format!("http://127.0.0.1:1/{id}"));
        create(&web, id, &body);
    }
    let folder = directory();
    let file = folder.path().join("backup.ndjson");
    let before = seen(&web);
    let mut command = program(&["jobs", "export", "--secrets"]);
    command.arg(&file).arg("--socket").arg(web.service.socket());
    let saved = run(&mut command, b"");
    assert!(saved.status.success(), "{saved:?}");
    let occupied = start(&other);
    wait_until("daemon with a lease", || {
        occupied.get("/_replicator").status == 200
            && other
                .sql("SELECT count(*) FROM settee.instances WHERE lease_until > clock_timestamp()")
                == "1"
    });
    let printed = refused(&other.url(), &file, 75);
    assert!(
        printed.contains("is in use by another process: stop that one"),
        "{printed}"
    );
    create(&occupied, "c", &replication());
    occupied.service.stop();
    replaced(&other.url(), &file);
    let second = start(&other);
    assert_eq!(seen(&second), before);
    second.service.stop();
    web.service.stop();
}
