//! Writes of documents, and `_local` documents.

use bytes::Bytes;
use serde_json::{Value, json};

use super::tree::{Rev, Stored};
use super::{Data, decode, parts};
use crate::support::http_server::{Answer, Received};

impl Data {
    pub(super) fn bulk_docs(&mut self, request: &Received) -> Answer {
        let body = request.json();
        assert_eq!(body["new_edits"], json!(false));
        let mut failures = Vec::new();
        let mut documents = body["docs"].as_array().unwrap().clone();
        let rewritten = self
            .rewrite
            .as_ref()
            .and_then(|rewrite| rewrite(&mut documents));
        for document in &documents {
            let id = document["_id"].as_str().unwrap();
            if self.refused.contains(id) {
                failures.push(json!({"id": id, "rev": document["_rev"], "error": "forbidden", "reason": "not this one"}));
            } else if let Err(error) = self.store(document, Vec::new()) {
                failures.push(
                    json!({"id": id, "rev": document["_rev"], "error": error, "reason": "x"}),
                );
            }
        }
        Answer::json(201, rewritten.unwrap_or(Value::Array(failures)))
    }

    pub(super) fn put_doc(&mut self, request: &Received) -> Answer {
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

    /// Returns the attachments that a document has after this write.
    fn attachments(
        &self,
        document: &Value,
        history: &[String],
        bodies: Vec<Bytes>,
    ) -> Result<Vec<Stored>, &'static str> {
        let id = document["_id"].as_str().unwrap();
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
            if let Some(data) = told["data"].as_str() {
                attachments.push(Stored {
                    name: name.clone(),
                    content_type: told["content_type"].as_str().unwrap().to_owned(),
                    encoding: None,
                    bytes: data_encoding::BASE64
                        .decode(data.as_bytes())
                        .unwrap()
                        .into(),
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
        Ok(attachments)
    }

    pub(super) fn store(
        &mut self,
        document: &Value,
        bodies: Vec<Bytes>,
    ) -> Result<(), &'static str> {
        let id = document["_id"].as_str().unwrap();
        let start = document["_revisions"]["start"].as_u64().unwrap();
        let ids = document["_revisions"]["ids"].as_array().unwrap();
        let history: Vec<String> = ids
            .iter()
            .enumerate()
            .map(|(index, id)| format!("{}-{}", start - index as u64, id.as_str().unwrap()))
            .collect();
        let attachments = self.attachments(document, &history, bodies)?;
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

    pub(super) fn local(&mut self, request: &Received) -> Answer {
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
