//! `settee jobs apply`: many replications from one file.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::world::World;
use crate::support::daemon::wait_until;
use crate::support::http_server::Answer;
use crate::support::program::SETTEE;
use crate::support::store::create;

/// A source of 30 customers' databases, and a folder with the file to apply.
struct Fleet {
    world: World,
    folder: TempDir,
}

impl Fleet {
    fn start() -> Self {
        let world = World::start();
        world.fill(3);
        world.source.fault(|request| {
            let mut names: Vec<String> = (1..=30).map(|n| format!("customer-{n:02}")).collect();
            names.extend(["_users".to_owned(), "other".to_owned()]);
            let is_let_in = request.headers.contains_key("authorization");
            (request.path == "_all_dbs").then(|| match is_let_in {
                true => Answer::json(200, json!(names)),
                false => Answer::error(401, "unauthorized", "Name or password is incorrect."),
            })
        });
        let folder = tempfile::tempdir().unwrap();
        Self { world, folder }
    }

    /// The URLs of both servers, to which the name of a database is appended.
    fn urls(&self) -> [String; 2] {
        let all = |url: String| url.strip_suffix("db").unwrap().to_owned();
        [all(self.world.source.url()), all(self.world.target.url())]
    }

    fn write(&self, more: &str) {
        let [source, target] = self.urls();
        let text = format!(
            r#"
[[replication]]
name = "mine-{{db}}"
source = {{ url = "{source}{{db}}", auth = {{ basic = {{ username = "ann", password = {{ env = "A_PASSWORD" }} }} }} }}
target = "{target}{{db}}"
all_dbs = {{ url = "{source}", auth = {{ basic = {{ username = "ann", password = {{ env = "A_PASSWORD" }} }} }} }}
match = "customer-*"
except = ["*-30"]
{more}"#
        );
        fs::write(self.folder.path().join("fleet.toml"), text).unwrap();
    }

    fn apply(&self, more: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new(SETTEE);
        command
            .args(["jobs", "apply"])
            .arg(self.folder.path().join("fleet.toml"))
            .args(more)
            .arg("--socket")
            .arg(self.world.web.service.socket())
            .env("A_PASSWORD", "s3cret")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The command may have ended without asking.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let Output {
            status,
            stdout,
            stderr,
        } = child.wait_with_output().unwrap();
        let [out, error] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(
            !out.contains("s3cret") && !error.contains("s3cret"),
            "{out}{error}"
        );
        (status.code(), out, error)
    }

    fn document(&self, id: &str) -> Value {
        self.world.web.get(&format!("/_replicator/{id}")).json()
    }

    /// Waits until all replications are completed: if one wrote its outcome between a plan and the plan's writes, these
    /// would be conflicts.
    fn wait_until_completed(&self) {
        wait_until("all documents are completed", || {
            let all = self
                .world
                .web
                .get("/_replicator/_all_docs?include_docs=true");
            let all = all.ok();
            let mut rows = all["rows"].as_array().unwrap().iter();
            rows.all(|row| row["doc"]["_replication_state"] == "completed")
        });
    }

    fn count(&self) -> usize {
        let all = self.world.web.get("/_replicator/_all_docs").ok();
        all["rows"].as_array().unwrap().len()
    }
}

#[test]
fn apply_creates_a_document_for_each_matching_database_once() {
    let fleet = Fleet::start();
    fleet.write("");
    let (status, out, error) = fleet.apply(&["--dry-run"], "");
    assert_eq!(status, Some(0), "{error}");
    assert!(
        out.starts_with("add mine-customer-01\nadd mine-customer-02\n"),
        "{out}"
    );
    let sum = "29 to add, 0 to change, 0 to remove, 0 unchanged";
    assert_eq!(out.lines().last(), Some(sum));
    for no in ["", "n\n", "maybe\n"] {
        let (status, _, error) = fleet.apply(&[], no);
        assert_eq!((status, fleet.count()), (Some(64), 0), "{error}");
        assert!(
            error.contains("nothing was changed: answer y, or give --yes"),
            "{error}"
        );
    }
    let (status, _, error) = fleet.apply(&[], "y\n");
    assert_eq!((status, fleet.count()), (Some(0), 29), "{error}");
    let document = fleet.document("mine-customer-07");
    let [source, _] = fleet.urls();
    assert_eq!(
        (&document["managed_by"], &document["source"]["url"]),
        (&json!("fleet"), &json!(format!("{source}customer-07")))
    );
    assert_eq!(document["source"]["auth"]["basic"]["password"], "s3cret");
    fleet.world.wait_for_state("mine-customer-07", "completed");
    let (status, out, error) = fleet.apply(&["--yes"], "");
    assert_eq!(
        (status, out.as_str()),
        (
            Some(0),
            "0 to add, 0 to change, 0 to remove, 29 unchanged\n"
        ),
        "{error}"
    );
    fleet.world.stop();
}

#[test]
fn applying_a_changed_file_changes_its_documents_and_prune_removes_the_others() {
    let fleet = Fleet::start();
    create(&fleet.world.web, "theirs", &fleet.world.body());
    fleet.write("");
    assert_eq!(fleet.apply(&["--yes"], "").0, Some(0));
    fleet.wait_until_completed();
    let text = fs::read_to_string(fleet.folder.path().join("fleet.toml")).unwrap();
    let changed = text.replace("*-30", "customer-0*") + "worker_processes = 1\n";
    fs::write(fleet.folder.path().join("fleet.toml"), changed).unwrap();
    let (status, out, error) = fleet.apply(&["--yes"], "");
    assert_eq!(status, Some(0), "{error}");
    let kept = "keep mine-customer-01 (not in the file: --prune removes it)\n";
    assert!(out.starts_with(kept), "{out}");
    assert!(out.contains("add mine-customer-30\n"), "{out}");
    assert!(
        out.contains("change mine-customer-10 (worker_processes)\n"),
        "{out}"
    );
    let sum = "1 to add, 20 to change, 0 to remove, 0 unchanged";
    assert_eq!((out.lines().last(), fleet.count()), (Some(sum), 31));
    assert_eq!(fleet.document("mine-customer-10")["worker_processes"], 1);
    fleet.wait_until_completed();
    for no in ["\n", "y\n", "22\n"] {
        let (status, _, error) = fleet.apply(&["--prune"], no);
        assert_eq!((status, fleet.count()), (Some(64), 31), "{error}");
        assert!(error.contains("It removes 9. Type 9 to do it:"), "{error}");
        assert!(
            error.contains("answer 9, the number of documents to remove"),
            "{error}"
        );
    }
    let (status, out, _) = fleet.apply(&["--prune", "--json"], "9\n");
    assert_eq!((status, fleet.count()), (Some(0), 22), "{out}");
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(first, json!({"remove": "mine-customer-01"}));
    assert_eq!(fleet.document("theirs")["target"], fleet.world.target.url());
    fleet.world.stop();
}

#[test]
fn apply_changes_nothing_if_a_document_is_not_its_own_or_the_file_is_invalid() {
    let fleet = Fleet::start();
    create(&fleet.world.web, "mine-customer-03", &fleet.world.body());
    fleet.write("");
    let (status, _, error) = fleet.apply(&["--yes"], "");
    assert_eq!((status, fleet.count()), (Some(65), 1), "{error}");
    assert!(
        error.contains("document mine-customer-03 exists, and was not made from this file"),
        "{error}"
    );
    fleet.write("continous = true\n");
    let (status, _, error) = fleet.apply(&["--yes"], "");
    let told = "fleet.toml:9: there is no member \"continous\": write continuous";
    assert!(status == Some(65) && error.contains(told), "{error}");
    let twice =
        "[[replication]]\nname = \"mine-customer-01\"\nsource = \"http://a/b\"\ntarget = \"b\"\n";
    fleet.write(twice);
    let (status, _, error) = fleet.apply(&["--yes"], "");
    let told = "fleet.toml:9: document mine-customer-01 is described twice, first in line 2";
    assert!(status == Some(65) && error.contains(told), "{error}");
    fleet.write(&twice.replace("customer-01", "more"));
    let (status, _, error) = fleet.apply(&["--yes"], "");
    let told = "fleet.toml:9: document mine-more: local_endpoints_not_supported";
    assert!(status == Some(65) && error.contains(told), "{error}");
    fleet.write("");
    let path = fleet.folder.path().join("fleet.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("A_PASSWORD", "NO_PASSWORD")).unwrap();
    let (status, _, error) = fleet.apply(&["--yes"], "");
    assert!(
        status == Some(65) && error.contains("$NO_PASSWORD is not set"),
        "{error}"
    );
    let lines: Vec<&str> = text.lines().collect();
    let open = text.replace(lines[5], &format!("all_dbs = \"{}\"", fleet.urls()[0]));
    fs::write(&path, open).unwrap();
    let (status, _, error) = fleet.apply(&["--yes"], "");
    assert_eq!((status, fleet.count()), (Some(75), 1), "{error}");
    assert!(
        error.contains("fleet.toml:2: all_dbs: unauthorized"),
        "{error}"
    );
    fleet.world.stop();
}
