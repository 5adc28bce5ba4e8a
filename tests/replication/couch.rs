//! A small CouchDB in memory that speaks what pouchdb does not: sequences that are texts,
//! `multipart/mixed`, `possible_ancestors`, `atts_since`, feeds that end by time-out, `pending`.
//!
//! What it should do wrong is told by a [`Couch::fault`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use settee::replication::multipart::parser::{Parser, Piece as Part};

use crate::http::{Answer, Piece, Received, Server};

/// An attachment as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub name: String,
    pub content_type: String,
    pub encoding: Option<String>,
    pub bytes: Bytes,
    pub revpos: u64,
}

/// A revision.
#[derive(Clone, Debug, PartialEq)]
struct Rev {
    parent: Option<String>,
    /// The body without members that begin with `_`; nothing for one that is only known by name.
    body: Option<Map<String, Value>>,
    deleted: bool,
    attachments: Vec<Stored>,
}

#[derive(Default)]
struct Data {
    docs: BTreeMap<String, BTreeMap<String, Rev>>,
    /// The last change of each document.
    changes: BTreeMap<u64, String>,
    seq_of: BTreeMap<String, u64>,
    seq: u64,
    locals: BTreeMap<String, (u64, Map<String, Value>)>,
    /// Documents whose writes are refused.
    refused: BTreeSet<String>,
}

type Fault = dyn Fn(&Received) -> Option<Answer> + Send + Sync;

/// A server with one database.
pub struct Couch {
    pub server: Server,
    data: Arc<Mutex<Data>>,
    fault: Arc<Mutex<Option<Box<Fault>>>>,
    changed: Arc<tokio::sync::Notify>,
}

/// How long an idle continuous feed lasts: a test does not wait ten seconds.
const FEED: Duration = Duration::from_millis(300);

impl Couch {
    pub async fn start() -> Self {
        let data = Arc::new(Mutex::new(Data::default()));
        let fault: Arc<Mutex<Option<Box<Fault>>>> = Arc::default();
        let changed = Arc::new(tokio::sync::Notify::new());
        let (inner, faults, notify) = (Arc::clone(&data), Arc::clone(&fault), Arc::clone(&changed));
        let server = Server::start(move |request| {
            if let Some(answer) = faults
                .lock()
                .unwrap()
                .as_ref()
                .and_then(|fault| fault(request))
            {
                return answer;
            }
            let mut data = inner.lock().unwrap();
            let before = data.seq;
            let answer = data.answer(request, &notify);
            if data.seq != before {
                notify.notify_waiters();
            }
            answer
        })
        .await;
        Self {
            server,
            data,
            fault,
            changed,
        }
    }

    pub fn url(&self) -> String {
        self.server.url("db")
    }

    /// What is answered in place of what should be; nothing means as it should be.
    pub fn fault(&self, fault: impl Fn(&Received) -> Option<Answer> + Send + Sync + 'static) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    pub fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// Answers the first `times` requests of a kind in this way.
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

    /// Writes of this document are refused, as by a validation function.
    pub fn refuse(&self, id: &str) {
        self.data.lock().unwrap().refused.insert(id.to_owned());
    }

    /// Stores a revision, the child of `parent`.
    pub fn put(&self, id: &str, parent: Option<&str>, body: Value) -> String {
        self.put_with(id, parent, body, Vec::new())
    }

    /// Attachments that the parent has not, or not so, count from this revision on.
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

    /// All revisions that have a body, or once had, with parents, and the bodies of the leaves.
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

    /// Rows of the feed, as text.
    pub fn rows_after(&self, since: &str, most: usize) -> Vec<String> {
        let data = self.data.lock().unwrap();
        let since = seq_number(since).expect("a sequence of ours");
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

    /// A `_local` document.
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

/// Edges and leaves of a revision tree.
pub type Tree = (
    BTreeMap<String, Option<String>>,
    BTreeMap<String, (Option<Map<String, Value>>, bool, Vec<Stored>)>,
);

/// A sequence as CouchDB makes them: opaque, and of no order.
fn seq_text(seq: u64) -> String {
    format!(
        "{seq}-g1AAAAB/{:x}+=",
        seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
}

fn seq_number(text: &str) -> Option<u64> {
    let number = text.split('-').next()?.parse().ok()?;
    let whole = text == seq_text(number) || (text == "0" && number == 0);
    whole.then_some(number)
}

fn digest(text: &str) -> String {
    use md5::Digest;
    data_encoding::HEXLOWER.encode(&md5::Md5::digest(text.as_bytes()))
}

fn generation(rev: &str) -> u64 {
    rev.split('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

fn leaves(revs: &BTreeMap<String, Rev>) -> Vec<String> {
    let parents: BTreeSet<&String> = revs
        .values()
        .filter_map(|rev| rev.parent.as_ref())
        .collect();
    let mut leaves: Vec<String> = revs
        .iter()
        .filter(|(rev, node)| !parents.contains(rev) && node.body.is_some())
        .map(|(rev, _)| rev.clone())
        .collect();
    // The winner first.
    leaves.sort_by_key(|rev| {
        let alive = !revs[rev].deleted;
        std::cmp::Reverse((alive, generation(rev), rev.clone()))
    });
    leaves
}

/// From a revision to its oldest known ancestor.
fn path(revs: &BTreeMap<String, Rev>, rev: &str) -> Vec<String> {
    let mut path = vec![rev.to_owned()];
    while let Some(parent) = revs
        .get(&path[path.len() - 1])
        .and_then(|node| node.parent.clone())
    {
        path.push(parent);
    }
    path
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

    fn changes_feed(&self, request: &Received, changed: &Arc<tokio::sync::Notify>) -> Answer {
        let since = request.param("since").unwrap_or("0");
        let Some(since) = seq_number(since) else {
            return Answer::error(
                400,
                "bad_request",
                "Malformed sequence supplied in 'since'.",
            );
        };
        let ids: Option<Vec<String>> = (request.param("filter") == Some("_doc_ids"))
            .then(|| serde_json::from_value(request.json()["doc_ids"].clone()).unwrap());
        let takes = |id: &str| match (&ids, request.param("filter")) {
            (Some(ids), _) => ids.iter().any(|known| known == id),
            (None, Some("_selector")) => {
                let wanted = request.json()["selector"]["kind"].clone();
                let revs = &self.docs[id];
                let winner = &leaves(revs)[0];
                revs[winner]
                    .body
                    .as_ref()
                    .is_some_and(|body| body.get("kind") == Some(&wanted))
            }
            _ => true,
        };
        let rows: Vec<String> = self
            .changes
            .range(since + 1..)
            .filter(|(_, id)| takes(id))
            .map(|(seq, id)| {
                let revs = &self.docs[id];
                let mut told = leaves(revs);
                if request.param("style") != Some("all_docs") {
                    told.truncate(1);
                }
                let deleted = revs[&told[0]].deleted;
                let told: Vec<Value> = told.into_iter().map(|rev| json!({"rev": rev})).collect();
                let mut row = json!({"seq": seq_text(*seq), "id": id, "changes": told});
                if deleted {
                    row["deleted"] = json!(true);
                }
                row.to_string()
            })
            .collect();
        let pending = self.changes.range(since + 1..).count();
        if request.param("limit") == Some("0") {
            return Answer::json(
                200,
                json!({"results": [], "last_seq": seq_text(since), "pending": pending}),
            );
        }
        let last = json!({"last_seq": seq_text(self.seq), "pending": 0}).to_string();
        if request.param("feed") == Some("continuous") {
            let mut pieces: Vec<Piece> = rows
                .into_iter()
                .map(|row| Piece::Bytes(format!("{row}\n").into()))
                .collect();
            if pieces.is_empty() {
                pieces.push(Piece::Bytes("\n".into()));
                let quiet = FEED / 3;
                // Whoever waits is woken by a change and asks again.
                let woken = Arc::clone(changed);
                let bell = Arc::new(tokio::sync::Notify::new());
                let ring = Arc::clone(&bell);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(FEED, woken.notified()).await;
                    ring.notify_one();
                });
                pieces.push(Piece::Wait(quiet / 10));
                pieces.push(Piece::Until(bell));
            }
            pieces.push(Piece::Bytes(format!("{last}\n").into()));
            return Answer::stream(200, "application/json", pieces);
        }
        let text = format!(
            "{{\"results\":[\n{}\n],\n{}\n",
            rows.join(",\n"),
            &last[1..]
        );
        Answer::stream(200, "application/json", vec![Piece::Bytes(text.into())])
    }

    fn revs_diff(&self, request: &Received) -> Answer {
        let mut diff = Map::new();
        for (id, revs) in request.json().as_object().unwrap() {
            let known = self.docs.get(id);
            let is_known = |rev: &str| known.is_some_and(|known| known.contains_key(rev));
            let missing: Vec<&str> = revs
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .filter(|rev| !is_known(rev))
                .collect();
            if missing.is_empty() {
                continue;
            }
            let newest = missing.iter().map(|rev| generation(rev)).max().unwrap();
            let ancestors: Vec<String> = known.map(leaves).unwrap_or_default();
            let ancestors: Vec<String> = ancestors
                .into_iter()
                .filter(|rev| generation(rev) < newest)
                .collect();
            diff.insert(
                id.clone(),
                match ancestors.is_empty() {
                    true => json!({"missing": missing}),
                    false => json!({"missing": missing, "possible_ancestors": ancestors}),
                },
            );
        }
        Answer::json(200, Value::Object(diff))
    }

    /// A revision as it travels, with those attachments as stubs that whoever has `since` knows.
    fn document(
        &self,
        id: &str,
        rev: &str,
        since: &[String],
        follows: bool,
    ) -> (Value, Vec<Stored>) {
        let revs = &self.docs[id];
        let node = &revs[rev];
        let known = since.iter().map(|rev| generation(rev)).max().unwrap_or(0);
        let mut document = Map::new();
        document.insert("_id".into(), json!(id));
        document.insert("_rev".into(), json!(rev));
        document.extend(node.body.clone().unwrap_or_default());
        if node.deleted {
            document.insert("_deleted".into(), json!(true));
        }
        let ids: Vec<String> = path(revs, rev)
            .iter()
            .map(|rev| rev.split_once('-').unwrap().1.to_owned())
            .collect();
        document.insert(
            "_revisions".into(),
            json!({"start": generation(rev), "ids": ids}),
        );
        let mut following = Vec::new();
        let mut told = Map::new();
        for attachment in &node.attachments {
            let sent = follows && attachment.revpos > known;
            let mut stub = json!({
                "content_type": attachment.content_type, "revpos": attachment.revpos, "digest": "md5-x",
                "length": attachment.bytes.len() + usize::from(attachment.encoding.is_some())});
            if let Some(encoding) = attachment.encoding.as_ref().filter(|_| follows) {
                stub["encoding"] = json!(encoding);
                stub["encoded_length"] = json!(attachment.bytes.len());
            }
            stub[if sent { "follows" } else { "stub" }] = json!(true);
            told.insert(attachment.name.clone(), stub);
            if sent {
                following.push(attachment.clone());
            }
        }
        if !told.is_empty() {
            document.insert("_attachments".into(), Value::Object(told));
        }
        (Value::Object(document), following)
    }

    /// With `latest`, the leaf above a revision.
    fn latest(&self, id: &str, rev: &str) -> Option<String> {
        let revs = self.docs.get(id)?;
        revs.get(rev)?;
        leaves(revs)
            .into_iter()
            .find(|leaf| path(revs, leaf).iter().any(|known| known == rev))
    }

    fn bulk_get(&self, request: &Received) -> Answer {
        let asked = request.json();
        let results: Vec<Value> = asked["docs"].as_array().unwrap().iter().map(|asked| {
            let (id, rev) = (asked["id"].as_str().unwrap(), asked["rev"].as_str().unwrap());
            let found = match self.latest(id, rev) {
                Some(rev) => json!({"ok": self.document(id, &rev, &[], false).0}),
                None => json!({"error": {"id": id, "rev": rev, "error": "not_found", "reason": "missing"}}),
            };
            json!({"id": id, "docs": [found]})
        }).collect();
        Answer::json(200, json!({"results": results}))
    }

    fn open_revs(&self, request: &Received) -> Answer {
        let id = decode(request.call());
        let texts = |name| -> Vec<String> {
            request
                .param(name)
                .map(|list| serde_json::from_str(list).unwrap())
                .unwrap_or_default()
        };
        if request.param("open_revs").is_none() {
            let Some(rev) = self
                .docs
                .get(&id)
                .and_then(|revs| leaves(revs).into_iter().next())
            else {
                return Answer::error(404, "not_found", "missing");
            };
            return Answer::json(200, self.document(&id, &rev, &[], false).0);
        }
        let since = texts("atts_since");
        let mut body = BytesMutBody::default();
        for rev in texts("open_revs") {
            body.text("--outer\r\n");
            let Some(leaf) = self.latest(&id, &rev) else {
                body.text("Content-Type: application/json; error=\"true\"\r\n\r\n");
                body.text(&json!({"missing": rev}).to_string());
                body.text("\r\n");
                continue;
            };
            let (document, following) = self.document(&id, &leaf, &since, true);
            if following.is_empty() {
                body.text("Content-Type: application/json\r\n\r\n");
                body.text(&format!("{document}\r\n"));
                continue;
            }
            body.text("Content-Type: multipart/related; boundary=\"inner\"\r\n\r\n--inner\r\n");
            body.text(&format!(
                "Content-Type: application/json\r\n\r\n{document}\r\n--inner"
            ));
            for attachment in following {
                body.text(&format!(
                    "\r\nContent-Disposition: attachment; filename=\"{}\"\r\nContent-Type: {}\r\n\
                     Content-Length: {}\r\n\r\n",
                    attachment.name,
                    attachment.content_type,
                    attachment.bytes.len()
                ));
                body.0.extend_from_slice(&attachment.bytes);
                body.text("\r\n--inner");
            }
            body.text("--\r\n");
        }
        body.text("--outer--");
        let kind = "multipart/mixed; boundary=\"outer\"";
        Answer::stream(200, kind, vec![Piece::Bytes(body.0.into())])
    }

    fn bulk_docs(&mut self, request: &Received) -> Answer {
        let body = request.json();
        assert_eq!(body["new_edits"], json!(false));
        let mut failures = Vec::new();
        for document in body["docs"].as_array().unwrap() {
            let id = document["_id"].as_str().unwrap();
            if self.refused.contains(id) {
                failures.push(json!({"id": id, "rev": document["_rev"], "error": "forbidden", "reason": "not this one"}));
            } else if let Err(error) = self.store(document, Vec::new()) {
                failures.push(
                    json!({"id": id, "rev": document["_rev"], "error": error, "reason": "x"}),
                );
            }
        }
        Answer::json(201, Value::Array(failures))
    }

    fn put_doc(&mut self, request: &Received) -> Answer {
        assert_eq!(request.param("new_edits"), Some("false"));
        let kind = request.headers["content-type"].clone();
        let (document, bodies) = if kind.starts_with("multipart/related") {
            let mut parts = parts(&kind, &request.body);
            let document: Value = serde_json::from_slice(&parts.remove(0)).unwrap();
            (document, parts)
        } else {
            (request.json(), Vec::new())
        };
        let id = document["_id"].as_str().unwrap();
        assert_eq!(id, decode(request.call()));
        if self.refused.contains(id) {
            return Answer::error(403, "forbidden", "not this one");
        }
        match self.store(&document, bodies) {
            Ok(()) => Answer::json(201, json!({"ok": true, "id": id, "rev": document["_rev"]})),
            Err(error) => Answer::error(412, error, "x"),
        }
    }

    fn store(&mut self, document: &Value, bodies: Vec<Bytes>) -> Result<(), &'static str> {
        let id = document["_id"].as_str().unwrap();
        let start = document["_revisions"]["start"].as_u64().unwrap();
        let ids = document["_revisions"]["ids"].as_array().unwrap();
        let history: Vec<String> = ids
            .iter()
            .enumerate()
            .map(|(index, id)| format!("{}-{}", start - index as u64, id.as_str().unwrap()))
            .collect();
        let mut bodies = bodies.into_iter();
        let mut attachments = Vec::new();
        for (name, told) in document["_attachments"].as_object().into_iter().flatten() {
            if told["follows"] == json!(true) {
                let bytes = bodies
                    .next()
                    .expect("a part for each attachment that follows");
                let length = told.get("encoded_length").unwrap_or(&told["length"]);
                assert_eq!(length.as_u64(), Some(bytes.len() as u64), "{name}");
                attachments.push(Stored {
                    name: name.clone(),
                    content_type: told["content_type"].as_str().unwrap().to_owned(),
                    encoding: told["encoding"].as_str().map(str::to_owned),
                    bytes,
                    revpos: told["revpos"].as_u64().unwrap(),
                });
                continue;
            }
            let revs = self.docs.get(id).ok_or("missing_stub")?;
            let known = history
                .iter()
                .skip(1)
                .filter_map(|rev| revs.get(rev))
                .find_map(|node| node.attachments.iter().find(|known| known.name == *name));
            attachments.push(known.ok_or("missing_stub")?.clone());
        }
        assert!(bodies.next().is_none(), "no part without an attachment");
        let revs = self.docs.entry(id.to_owned()).or_default();
        let mut is_new = false;
        for (index, rev) in history.iter().enumerate() {
            let node = revs.entry(rev.clone()).or_insert_with(|| Rev {
                parent: None,
                body: None,
                deleted: false,
                attachments: Vec::new(),
            });
            if node.parent.is_none() {
                node.parent = history.get(index + 1).cloned();
            }
            if index == 0 && node.body.is_none() {
                is_new = true;
                let members = document.as_object().unwrap().iter();
                let members = members.filter(|(name, _)| !name.starts_with('_'));
                node.body = Some(
                    members
                        .map(|(name, value)| (name.clone(), value.clone()))
                        .collect(),
                );
                node.deleted = document["_deleted"] == json!(true);
                node.attachments = attachments.clone();
            }
        }
        if is_new {
            self.touch(id);
        }
        Ok(())
    }

    fn local(&mut self, request: &Received) -> Answer {
        let id = request.call().to_owned();
        let known = self.locals.get(&id);
        if request.method == "GET" {
            let Some((number, body)) = known else {
                return Answer::error(404, "not_found", "missing");
            };
            let mut body = body.clone();
            body.insert("_rev".into(), json!(format!("0-{number}")));
            return Answer::json(200, Value::Object(body));
        }
        let mut body = request.json().as_object().unwrap().clone();
        let number = known.map_or(0, |(number, _)| *number);
        let given = body.remove("_rev");
        let expected = (number > 0).then(|| json!(format!("0-{number}")));
        if given != expected {
            return Answer::error(409, "conflict", "Document update conflict.");
        }
        body.insert("_id".into(), json!(id));
        self.locals.insert(id.clone(), (number + 1, body));
        Answer::json(
            201,
            json!({"ok": true, "id": id, "rev": format!("0-{}", number + 1)}),
        )
    }
}

#[derive(Default)]
struct BytesMutBody(Vec<u8>);

impl BytesMutBody {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }
}

pub fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .unwrap()
        .into_owned()
}

/// The parts of a body that is complete.
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
