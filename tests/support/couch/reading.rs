//! Reads of documents: in bulk, or one with its attachments.

use serde_json::{Map, Value, json};

use super::tree::{Stored, generation, leaves, path};
use super::{Data, decode};
use crate::support::http_server::{Answer, Piece, Received};

impl Data {
    /// Returns a revision as it is sent, and the attachments whose bytes follow it: those that `since` lacks if
    /// `follows`, and none otherwise. The document has stubs for the others.
    pub(super) fn document(
        &self,
        id: &str,
        rev: &str,
        since: &[String],
        follows: bool,
    ) -> (Value, Vec<Stored>) {
        let revs = &self.docs[id];
        let node = &revs[rev];
        let history = path(revs, rev);
        // A revision of another branch does not show which attachments this one inherited.
        let known = history.iter().find(|rev| since.contains(rev));
        let known = known.map_or(0, |rev| generation(rev));
        let mut document = Map::new();
        document.insert("_id".into(), json!(id));
        document.insert("_rev".into(), json!(rev));
        document.extend(node.body.clone().unwrap_or_default());
        if node.deleted {
            document.insert("_deleted".into(), json!(true));
        }
        let ids: Vec<String> = history
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

    /// Returns a leaf that is a revision or descends from it, as CouchDB does with `latest=true`.
    pub(super) fn latest(&self, id: &str, rev: &str) -> Option<String> {
        let revs = self.docs.get(id)?;
        revs.get(rev)?;
        leaves(revs)
            .into_iter()
            .find(|leaf| path(revs, leaf).iter().any(|known| known == rev))
    }

    pub(super) fn bulk_get(&self, request: &Received) -> Answer {
        let asked = request.json();
        let results: Vec<Value> = asked["docs"].as_array().unwrap().iter().map(|asked| {
            let (id, rev) = (asked["id"].as_str().unwrap(), asked["rev"].as_str().unwrap());
            let found = match self.latest(id, rev) {
                Some(rev) => {
                    let mut document = self.document(id, &rev, &[], false).0;
                    if request.param("attachments") == Some("true") {
                        for attachment in &self.docs[id][&rev].attachments {
                            let told = &mut document["_attachments"][&attachment.name];
                            told["data"] = json!(data_encoding::BASE64.encode(&attachment.bytes));
                            told.as_object_mut().unwrap().remove("stub");
                        }
                    }
                    json!({ "ok": document })
                }
                None => json!({"error": {"id": id, "rev": rev, "error": "not_found", "reason": "missing"}}),
            };
            json!({"id": id, "docs": [found]})
        }).collect();
        Answer::json(200, json!({"results": results}))
    }

    /// Answers with an attachment, without an encoding.
    fn attachment(&self, id: &str, name: &str, request: &Received) -> Answer {
        let revs = self.docs.get(&decode(id));
        let rev = revs.and_then(|revs| revs.get(request.param("rev")?));
        let found = rev.and_then(|rev| {
            let name = decode(name);
            rev.attachments.iter().find(|known| known.name == name)
        });
        match found {
            Some(found) => Answer::bytes(200, &found.content_type, found.bytes.clone()),
            None => Answer::error(404, "not_found", "Document is missing attachment"),
        }
    }

    pub(super) fn open_revs(&self, request: &Received) -> Answer {
        if let Some((id, name)) = request.call().split_once('/')
            && id != "_design"
        {
            return self.attachment(id, name, request);
        }
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
        if request
            .headers
            .get("accept")
            .is_some_and(|kind| kind == "application/json")
        {
            let entry = |rev: String| match self.latest(&id, &rev) {
                Some(leaf) => json!({"ok": self.document(&id, &leaf, &[], false).0}),
                None => json!({"missing": rev}),
            };
            let entries: Vec<Value> = texts("open_revs").into_iter().map(entry).collect();
            return Answer::json(200, Value::Array(entries));
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
}

#[derive(Default)]
struct BytesMutBody(Vec<u8>);

impl BytesMutBody {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }
}
