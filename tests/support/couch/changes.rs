//! `_changes` and `_revs_diff` of the fake CouchDB.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::tree::{generation, leaves, seq_number, seq_text};
use super::{Data, FEED};
use crate::support::http_server::{Answer, Piece, Received};

impl Data {
    pub(super) fn changes_feed(
        &self,
        request: &Received,
        changed: &Arc<tokio::sync::Notify>,
    ) -> Answer {
        let since = request.param("since").unwrap_or("0");
        let Some(since) = seq_number(since) else {
            return Answer::error(
                400,
                "bad_request",
                "Malformed sequence supplied in 'since'.",
            );
        };
        let rows = self.rows(since, request);
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
                // The feed ends with a change, or after `FEED`; the client then opens another.
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

    /// Returns the rows after `since` that pass the request's filter.
    fn rows(&self, since: u64, request: &Received) -> Vec<String> {
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
        self.changes
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
            .collect()
    }

    pub(super) fn revs_diff(&self, request: &Received) -> Answer {
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
}
