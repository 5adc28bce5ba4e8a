//! express-pouchdb, an independent server: installed once below the target directory, and run in memory by each test.
//!
//! PROMISES  [`Pouch::start`] returns a running server, or fails the test with what is missing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::npm;
use crate::support::ask;

const PACKAGES: [&str; 6] = [
    "express@4.21.2",
    "express-pouchdb@4.2.0",
    "pouchdb-core@7.3.1",
    "pouchdb-adapter-memory@7.3.1",
    "pouchdb-mapreduce@7.3.1",
    "pouchdb-replication@7.3.1",
];
const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/external/pouch/server.js"
);

/// A server, stopped when dropped.
pub struct Pouch {
    child: Child,
    address: String,
    /// The folder of its log.
    _folder: TempDir,
}

impl Pouch {
    /// Starts a server without databases.
    pub fn start() -> Self {
        let modules = npm::packages("express-pouchdb-4.2.0", &PACKAGES);
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("node")
            .arg(SERVER)
            .arg(folder.path())
            .env("NODE_PATH", modules)
            .env("NODE_NO_WARNINGS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("node: {error}; these tests need Node.js 18 or later"));
        let mut port = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut port)
            .unwrap();
        assert!(!port.is_empty(), "express-pouchdb did not start");
        let address = format!("127.0.0.1:{}", port.trim());
        Self {
            child,
            address,
            _folder: folder,
        }
    }

    pub fn url(&self, database: &str) -> String {
        format!("http://{}/{database}", self.address)
    }

    /// Creates a database.
    pub async fn create(&self, database: &str) {
        let (status, answer) = self.call("PUT", database, None).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Returns the status and the answer, null if it is not JSON.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let kind = "application/json";
        let body = body.map(|body| Bytes::from(body.to_string()));
        let answer = ask::ask(&self.address, method, path, kind, body).await;
        let json = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        (answer.status, json)
    }

    /// Writes documents with the revisions they have.
    pub async fn bulk(&self, database: &str, docs: Vec<Value>) {
        let body = json!({"docs": docs, "new_edits": false});
        let (status, answer) = self
            .call("POST", &format!("{database}/_bulk_docs"), Some(body))
            .await;
        assert_eq!((status, answer), (201, json!([])));
    }

    /// Writes documents, and returns the answers with their new revisions.
    pub async fn write(&self, database: &str, docs: Vec<Value>) -> Vec<Value> {
        let path = format!("{database}/_bulk_docs");
        let (status, answer) = self
            .call("POST", &path, Some(json!({ "docs": docs })))
            .await;
        assert_eq!(status, 201, "{answer}");
        let answers = answer.as_array().unwrap().clone();
        assert!(
            answers.iter().all(|answer| answer["ok"] == json!(true)),
            "{answers:?}"
        );
        answers
    }

    /// Stores an attachment.
    pub async fn attach(&self, database: &str, id: &str, rev: &str, name: &str, bytes: Bytes) {
        let path = format!("{database}/{id}/{name}?rev={rev}");
        let answer = ask::ask(&self.address, "PUT", &path, "image/png", Some(bytes)).await;
        assert_eq!(answer.status, 201);
    }

    /// Reads an attachment.
    pub async fn attachment(&self, database: &str, id: &str, name: &str) -> Bytes {
        let path = format!("{database}/{id}/{name}");
        let answer = ask::ask(&self.address, "GET", &path, "", None).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.body
    }

    /// Returns all leaves of all documents, sorted, with their histories and bodies.
    pub async fn trees(&self, database: &str) -> Vec<(String, Vec<Value>)> {
        let path = format!("{database}/_changes?style=all_docs");
        let (_, changes) = self.call("GET", &path, None).await;
        let mut asked = Vec::new();
        for row in changes["results"].as_array().unwrap() {
            for change in row["changes"].as_array().unwrap() {
                asked.push(json!({"id": row["id"], "rev": change["rev"]}));
            }
        }
        let path = format!("{database}/_bulk_get?revs=true");
        let (_, answer) = self
            .call("POST", &path, Some(json!({ "docs": asked })))
            .await;
        let mut trees = std::collections::BTreeMap::<String, Vec<Value>>::new();
        for result in answer["results"].as_array().unwrap() {
            let leaf = result["docs"][0]["ok"].clone();
            assert!(leaf.is_object(), "{result}");
            trees
                .entry(result["id"].as_str().unwrap().to_owned())
                .or_default()
                .push(leaf);
        }
        for leaves in trees.values_mut() {
            leaves.sort_by_key(|leaf| leaf["_rev"].to_string());
        }
        trees.into_iter().collect()
    }

    /// Fails the test with the difference if two databases differ.
    pub async fn assert_equal(&self, one: &str, other: &str) {
        let (ours, theirs) = (self.trees(one).await, self.trees(other).await);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.len(), theirs.len());
    }

    pub async fn count(&self, database: &str) -> u64 {
        self.call("GET", database, None).await.1["doc_count"]
            .as_u64()
            .unwrap()
    }
}

impl Drop for Pouch {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
