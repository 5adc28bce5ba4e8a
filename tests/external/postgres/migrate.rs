//! A store is taken from a file to PostgreSQL and back.

use std::path::Path;
use std::process::Output;

use serde_json::json;

use super::daemon::{replication, start};
use super::server::TestDatabase;
use crate::support::daemon::{directory, wait_until};
use crate::support::http_client::Web;
use crate::support::program::{program, run};
use crate::support::store::{create, file, post, put, start_in};

const IDLE: &str = "[replicator]\nmax_jobs = 0\n";

fn migrate(from: &str, to: &str) -> Output {
    run(
        &mut program(&["store", "migrate", "--from", from, "--to", to]),
        b"",
    )
}

/// Returns the summary.
#[track_caller]
fn migrated(from: &str, to: &str) -> String {
    let output = migrate(from, to);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(from: &str, to: &str, code: i32) -> String {
    let output = migrate(from, to);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!told.contains("secret"), "{told}");
    told
}

/// What a service says of its documents, but for what keeps them.
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
    file(folder).display().to_string()
}

#[test]
fn a_store_goes_to_postgres_and_back_and_services_see_no_difference() {
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
    let told = refused(&source, &database.url(), 75);
    assert!(told.contains("is in use by another process"), "{told}");
    let folder = web.service.stop_and_keep();
    let first = migrated(&source, &database.url());
    assert!(
        first.starts_with("3 documents (1 deleted), 1 local document, 0 jobs"),
        "{first}"
    );
    assert!(!first.contains("secret"), "{first}");
    let wanted = "SELECT string_agg(doc_id, ' ' ORDER BY doc_id) FROM settee.jobs WHERE wanted";
    assert_eq!(database.sql(wanted), "a ö", "b is deleted");
    let known = "SELECT CASE WHEN min(reltuples) > 0 THEN 'known' ELSE 'unknown' END FROM pg_class \
                 WHERE oid IN ('settee.docs'::regclass, 'settee.jobs'::regclass)";
    assert_eq!(database.sql(known), "known", "the planner's statistics");
    let web = start(&database);
    assert_eq!(seen(&web), before);
    web.service.stop();
    let back = directory();
    let target = path(back.path());
    let second = migrated(&database.url(), &target);
    let hash = |summary: &str| summary.split("SHA-256 ").nth(1).unwrap().to_owned();
    assert_eq!(hash(&first), hash(&second));
    let web = start_in(back, IDLE);
    assert_eq!(seen(&web), before);
    web.service.stop();
    drop(folder);
}

#[test]
fn an_interrupted_migration_is_served_by_nobody_and_goes_on() {
    let database = TestDatabase::new();
    let web = start_in(directory(), IDLE);
    for n in 0..5 {
        let mut body = replication();
        body["target"] = json!(format!("http://127.0.0.1:1/{n}"));
        create(&web, &format!("d{n}"), &body);
    }
    let source = path(web.service.directory.path());
    let _folder = web.service.stop_and_keep();
    migrated(&source, &database.url());
    // What an interruption leaves.
    database.sql("DELETE FROM settee.docs WHERE id > 'd2'");
    database.sql("UPDATE settee.meta SET seq = 0, format = -1");
    let told = refused(&database.url(), &format!("{source}.new"), 78);
    assert!(told.contains("unfinished"), "{told}");
    let summary = migrated(&source, &database.url());
    assert!(
        summary.contains("3 of 5 rows were there already; update 5;"),
        "{summary}"
    );
    let web = start(&database);
    let seq = web.get("/_replicator").json()["update_seq"].to_string();
    assert!(seq.starts_with("\"5-"), "{seq}");
    web.service.stop();
    // It has gone on by itself.
    database.sql("UPDATE settee.meta SET seq = 6");
    let told = refused(&source, &database.url(), 65);
    assert!(told.contains("holds something else"), "{told}");
}

/// Runs `settee store` on what the configuration names, a database.
fn store(arguments: &[&str], database: &TestDatabase) -> Output {
    let mut command = program(&[&["store"], arguments].concat());
    command.env("SETTEE__STORE__URL", database.url());
    run(&mut command, b"")
}

#[test]
fn a_database_is_backed_up_while_daemons_run_and_restored_where_none_does() {
    let (database, other) = (TestDatabase::new(), TestDatabase::new());
    let web = start(&database);
    for id in ["a", "b"] {
        let mut body = replication();
        body["target"] = json!(format!("http://127.0.0.1:1/{id}"));
        create(&web, id, &body);
    }
    let folder = directory();
    let file = folder.path().join("backup.redb");
    let file = file.to_str().unwrap();
    let saved = store(&["backup", file], &database);
    assert!(saved.status.success(), "{saved:?}");
    let before = seen(&web);
    // Without the database's URL the service is asked, which has no file.
    let socket = web.service.socket();
    let mut command = program(&["store", "backup", &format!("{file}.2")]);
    let asked = run(command.arg("--socket").arg(socket), b"");
    let told = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(78), "{told}");
    assert!(
        told.contains("are in a database: name its configuration with -c"),
        "{told}"
    );
    let occupied = start(&other);
    wait_until("a daemon with a lease", || {
        occupied.get("/_replicator").status == 200
            && other
                .sql("SELECT count(*) FROM settee.instances WHERE lease_until > clock_timestamp()")
                == "1"
    });
    let refused = store(&["restore", file], &other);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(75), "{told}");
    assert!(
        told.contains("is in use by another process: stop that one"),
        "{told}"
    );
    occupied.service.stop();
    let restored = store(&["restore", file], &other);
    assert!(restored.status.success(), "{restored:?}");
    let second = start(&other);
    assert_eq!(seen(&second), before);
    second.service.stop();
    create(&web, "c", &replication());
    web.service.stop();
    let refused = store(&["restore", file], &database);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(65), "{told}");
    assert!(
        told.contains("holds something else: nothing of it was changed"),
        "{told}"
    );
}
