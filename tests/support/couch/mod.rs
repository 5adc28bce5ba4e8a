//! A small in-memory CouchDB that supports what pouchdb lacks: sequences that are strings,
//! `multipart/mixed`, `possible_ancestors`, `atts_since`, feeds that time out, `pending`.
//!
//! [`Couch::fault`] makes it misbehave.

mod changes;
pub mod host;
mod reading;
mod tree;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use settee::replication::multipart::parser::{Parser, Piece as Part};

use crate::support::http_server::{Answer, Piece, Received, Server};
use tree::{Rev, digest, generation, leaves, seq_number, seq_text};
pub use tree::{Stored, Tree};

#[derive(Default)]
struct Data {
    docs: BTreeMap<String, BTreeMap<String, Rev>>,
    /// The ids of documents by the sequence of their last change.
    changes: BTreeMap<u64, String>,
    seq_of: BTreeMap<String, u64>,
    seq: u64,
    locals: BTreeMap<String, (u64, Map<String, Value>)>,
    /// Documents whose writes are refused.
    refused: BTreeSet<String>,
    /// Replaces what `_bulk_docs` stores and answers.
    rewrite: Option<Box<Rewrite>>,
}

type Fault = dyn Fn(&Received) -> Option<Answer> + Send + Sync;
type Rewrite = dyn Fn(&mut Vec<Value>) -> Option<Value> + Send + Sync;

/// A server with one database.
pub struct Couch {
    pub server: Server,
    database: Database,
    fault: Arc<Mutex<Option<Box<Fault>>>>,
}

/// A database, without a server.
#[derive(Clone, Default)]
pub struct Database {
    data: Arc<Mutex<Data>>,
    changed: Arc<tokio::sync::Notify>,
}

impl std::ops::Deref for Couch {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

/// The timeout of an idle continuous feed, short to keep tests fast.
const FEED: Duration = Duration::from_millis(300);

impl Couch {
    pub async fn start() -> Self {
        let database = Database::default();
        let fault: Arc<Mutex<Option<Box<Fault>>>> = Arc::default();
        let (inner, faults) = (database.clone(), Arc::clone(&fault));
        let server = Server::start(move |request| {
            if let Some(answer) = faults
                .lock()
                .unwrap()
                .as_ref()
                .and_then(|fault| fault(request))
            {
                return answer;
            }
            inner.answer(request)
        })
        .await;
        Self {
            server,
            database,
            fault,
        }
    }

    pub fn url(&self) -> String {
        self.server.url("db")
    }

    /// Sets a function that may replace an answer; `None` keeps the correct one.
    pub fn fault(&self, fault: impl Fn(&Received) -> Option<Answer> + Send + Sync + 'static) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    pub fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// Answers correctly, but delays each answer by `takes`.
    pub fn slow(&self, takes: impl Fn(&Received) -> Duration + Send + Sync + 'static) {
        let database = self.database.clone();
        self.fault(move |request| {
            let mut answer = database.answer(request);
            answer.pieces.insert(0, Piece::Wait(takes(request)));
            Some(answer)
        });
    }

    /// Answers the first `times` requests of a kind with `answer`.
    pub fn fails(&self, kind: &'static str, times: usize, answer: Answer) {
        let left = Mutex::new(times);
        self.fault(move |request| {
            if request.kind() != kind {
                return None;
            }
            let mut left = left.lock().unwrap();
            *left = left.checked_sub(1)?;
            Some(answer.clone())
        });
    }
}

impl Database {
    fn answer(&self, request: &Received) -> Answer {
        let mut data = self.data.lock().unwrap();
        let before = data.seq;
        let answer = data.answer(request, &self.changed);
        if data.seq != before {
            self.changed.notify_waiters();
        }
        answer
    }

    /// Makes `_bulk_docs` store the documents that `rewrite` leaves, and answer with what it returns, if anything.
    pub fn rewrite_bulk_docs(
        &self,
        rewrite: impl Fn(&mut Vec<Value>) -> Option<Value> + Send + Sync + 'static,
    ) {
        self.data.lock().unwrap().rewrite = Some(Box::new(rewrite));
    }

    /// Refuses writes of a document, as a validation function does.
    pub fn refuse(&self, id: &str) {
        self.data.lock().unwrap().refused.insert(id.to_owned());
    }

    /// Stores a revision, the child of `parent`, and returns its `_rev`.
    pub fn put(&self, id: &str, parent: Option<&str>, body: Value) -> String {
        self.put_with(id, parent, body, Vec::new())
    }

    /// As [`Self::put`], with attachments; the `revpos` of new and changed ones is the revision's generation.
    pub fn put_with(
        &self,
        id: &str,
        parent: Option<&str>,
        body: Value,
        mut attachments: Vec<Stored>,
    ) -> String {
        let mut data = self.data.lock().unwrap();
        let generation = parent.map_or(0, generation) + 1;
        let before = parent.and_then(|parent| Some(&data.docs.get(id)?.get(parent)?.attachments));
        for attachment in &mut attachments {
            let known = before
                .into_iter()
                .flatten()
                .find(|known| (&known.name, &known.bytes) == (&attachment.name, &attachment.bytes));
            attachment.revpos = known.map_or(generation, |known| known.revpos);
        }
        let deleted = body["_deleted"] == json!(true);
        let mut members = body.as_object().unwrap().clone();
        members.remove("_deleted");
        let text = format!(
            "{id}{parent:?}{}{deleted}{attachments:?}",
            Value::Object(members.clone())
        );
        let rev = format!("{generation}-{}", digest(&text));
        let kept = Rev {
            parent: parent.map(str::to_owned),
            body: Some(members),
            deleted,
            attachments,
        };
        data.docs
            .entry(id.to_owned())
            .or_default()
            .insert(rev.clone(), kept);
        data.touch(id);
        drop(data);
        self.changed.notify_waiters();
        rev
    }

    /// Loses a revision, as no database should.
    pub fn lose(&self, id: &str, rev: &str) {
        let mut data = self.data.lock().unwrap();
        let lost = data.docs.get_mut(id).and_then(|revs| revs.remove(rev));
        assert!(lost.is_some(), "{id} {rev}");
    }

    /// Changes the attachments of a revision, as no database should.
    pub fn damage(&self, id: &str, rev: &str, damage: impl FnOnce(&mut Vec<Stored>)) {
        let mut data = self.data.lock().unwrap();
        let revs = data.docs.get_mut(id).unwrap();
        damage(&mut revs.get_mut(rev).unwrap().attachments);
    }

    /// Returns all revisions with their parents, and the bodies of the leaves, by document.
    pub fn trees(&self) -> BTreeMap<String, Tree> {
        let data = self.data.lock().unwrap();
        let tree = |revs: &BTreeMap<String, Rev>| {
            let edges = revs
                .iter()
                .map(|(rev, node)| (rev.clone(), node.parent.clone()));
            let leaves = leaves(revs).into_iter().map(|rev| {
                let node = &revs[&rev];
                let attachments = node.attachments.clone();
                (rev, (node.body.clone(), node.deleted, attachments))
            });
            (edges.collect(), leaves.collect())
        };
        data.docs
            .iter()
            .map(|(id, revs)| (id.clone(), tree(revs)))
            .collect()
    }

    /// Returns at most `most` rows of the changes feed after a sequence, as JSON text.
    pub fn rows_after(&self, since: &str, most: usize) -> Vec<String> {
        let data = self.data.lock().unwrap();
        let since = seq_number(since).expect("a sequence of this server");
        let row = |(seq, id): (&u64, &String)| {
            let told: Vec<Value> = leaves(&data.docs[id])
                .into_iter()
                .map(|rev| json!({"rev": rev}))
                .collect();
            json!({"seq": seq_text(*seq), "id": id, "changes": told}).to_string()
        };
        data.changes
            .range(since + 1..)
            .take(most)
            .map(row)
            .collect()
    }

    pub fn seq(&self) -> u64 {
        self.data.lock().unwrap().seq
    }

    /// Returns a `_local` document, if it exists.
    pub fn local(&self, id: &str) -> Option<Value> {
        let data = self.data.lock().unwrap();
        data.locals
            .get(id)
            .map(|(_, body)| Value::Object(body.clone()))
    }

    pub fn locals(&self) -> Vec<Value> {
        let data = self.data.lock().unwrap();
        data.locals
            .values()
            .map(|(_, body)| Value::Object(body.clone()))
            .collect()
    }
}

impl Data {
    fn touch(&mut self, id: &str) {
        self.seq += 1;
        if let Some(before) = self.seq_of.insert(id.to_owned(), self.seq) {
            self.changes.remove(&before);
        }
        self.changes.insert(self.seq, id.to_owned());
    }

    fn answer(&mut self, request: &Received, changed: &Arc<tokio::sync::Notify>) -> Answer {
        let call = request.call().to_owned();
        match (request.method.as_str(), call.as_str()) {
            ("POST", _) if request.path == "_session" => Answer::error(404, "not_found", "missing"),
            ("GET", "") => Answer::json(
                200,
                json!({
                "db_name": "db", "update_seq": seq_text(self.seq), "instance_start_time": "1700000000",
                "doc_count": self.docs.len()}),
            ),
            ("PUT", "") => Answer::error(412, "file_exists", "exists"),
            (_, "_changes") => self.changes_feed(request, changed),
            ("POST", "_revs_diff") => self.revs_diff(request),
            ("POST", "_bulk_get") => self.bulk_get(request),
            ("POST", "_bulk_docs") => self.bulk_docs(request),
            ("POST", "_ensure_full_commit") => Answer::json(
                201,
                json!({"ok": true, "instance_start_time": "1700000000"}),
            ),
            ("GET" | "PUT", local) if local.starts_with("_local/") => self.local(request),
            ("GET", _) => self.open_revs(request),
            ("PUT", _) => self.put_doc(request),
            _ => Answer::error(405, "method_not_allowed", "no"),
        }
    }
}

pub fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .unwrap()
        .into_owned()
}

/// Returns the parts of a multipart body, which must be complete.
pub fn parts(kind: &str, body: &Bytes) -> Vec<Bytes> {
    let mut parser = Parser::new(kind).unwrap();
    parser.push(body.clone());
    let (mut parts, mut open) = (Vec::new(), Vec::new());
    loop {
        match parser.next().unwrap().expect("the body is complete") {
            Part::Headers(_) => open.clear(),
            Part::Data(data) => open.extend_from_slice(&data),
            Part::PartEnd => parts.push(Bytes::from(std::mem::take(&mut open))),
            Part::End => return parts,
        }
    }
}
