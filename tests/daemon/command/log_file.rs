//! The log in files: `[log] file` and `[log] access_log`, and their reopening on HUP.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::support::daemon::{Service, configure, directory, refused, wait_until};
use serde_json::{Value, json};

const RENAMED_MAX: usize = 8;
const CALLS: usize = 400;
const UNCHANGED: &str = "configuration is unchanged";

/// Starts a service with both logs in a folder of their own.
fn start() -> (Service, PathBuf) {
    let directory = directory();
    let folder = directory.path().join("logs");
    fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name);
    let (log, access) = (path("settee.log"), path("access.log"));
    let extra = format!("[log]\nfile = {log:?}\naccess_log = {access:?}\n");
    (Service::start_in(directory, &extra), folder)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn has(path: &Path, text: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|log| log.contains(text))
}

fn call(service: &Service, calls: usize) {
    let mut client = service.connect();
    let fun = "function(doc) { emit(doc._id, 1); }";
    for id in 0..calls {
        client.ok(&json!({"id": id, "call": "try_compile", "lang": "javascript", "name": "m", "fun": fun}));
    }
}

#[test]
fn a_renamed_log_gets_all_records_until_hup_and_a_new_file_gets_the_later_ones() {
    let (service, folder) = start();
    let log = folder.join("settee.log");
    let names = ["settee.log", "access.log"];
    for name in names {
        let mode = fs::metadata(folder.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o137, 0, "{name} {mode:o}");
    }
    let renamed = |name: &str, number: usize| folder.join(format!("{name}.{number}"));
    thread::scope(|scope| {
        let calls = scope.spawn(|| call(&service, CALLS));
        for number in 0..RENAMED_MAX {
            for name in names {
                fs::rename(folder.join(name), renamed(name, number)).unwrap();
            }
            service.signal("HUP");
            wait_until("a record in the new file", || has(&log, UNCHANGED));
        }
        calls.join().unwrap();
    });
    let directory = service.stop_and_keep();
    for (name, record, expected) in [
        ("settee.log", UNCHANGED, RENAMED_MAX),
        ("settee.log", "service is ready", 1),
        ("access.log", "function call", CALLS),
    ] {
        let files = (0..RENAMED_MAX).map(|number| renamed(name, number));
        let records: Vec<Value> = files
            .chain([folder.join(name)])
            .flat_map(|file| lines(&file))
            .collect();
        let found = records.iter().filter(|line| line["msg"] == record).count();
        assert_eq!(found, expected, "{record}");
    }
    assert!(!has(&renamed("settee.log", 0), UNCHANGED));
    directory.close().unwrap();
}

#[test]
fn a_log_that_cannot_be_reopened_stays_in_use_and_reports_the_failure() {
    let (service, folder) = start();
    let moved = folder.with_file_name("moved");
    fs::rename(&folder, &moved).unwrap();
    service.signal("HUP");
    let log = moved.join("settee.log");
    wait_until("the reload", || has(&log, UNCHANGED));
    let records = lines(&log);
    let failures = records
        .iter()
        .filter(|line| line["msg"] == "a log file was not reopened");
    let files: Vec<_> = failures
        .map(|line| line["file"].as_str().unwrap())
        .collect();
    assert_eq!(
        files,
        [folder.join("settee.log"), folder.join("access.log")]
            .map(|file| file.display().to_string())
    );
    call(&service, 1);
    fs::rename(&moved, &folder).unwrap();
    service.signal("HUP");
    let log = folder.join("settee.log");
    wait_until("the next reload", || {
        lines(&log)
            .iter()
            .filter(|line| line["msg"] == UNCHANGED)
            .count()
            == 2
    });
    assert_eq!(service.log(), "", "nothing goes to standard error");
    service.stop();
}

#[test]
fn a_log_that_cannot_be_opened_at_start_is_a_configuration_error() {
    for key in ["file", "access_log"] {
        let directory = directory();
        let file = directory.path().join("missing/settee.log");
        let config = configure(directory.path(), &format!("[log]\n{key} = {file:?}\n"));
        let (status, complaint) = refused(&config);
        assert_eq!(status, Some(78), "{complaint}");
        let place = format!("settee: [log] {key} {}: ", file.display());
        assert!(complaint.contains(&place), "{complaint}");
        assert!(complaint.contains("make its folder"), "{complaint}");
    }
}
