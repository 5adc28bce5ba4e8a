//! The plan of `settee jobs apply`: the difference between a file and the service's documents.
//!
//! PROMISES  Documents without the file's mark are never changed or removed. Changes show only the names of members.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// The member with the mark: the name, without extension, of the file that manages the document.
pub(super) const MARK: &str = "managed_by";

/// A document's planned change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DocumentChange {
    Add(String),
    Remove(String),
    /// The document is no longer in the file, but is kept.
    Keep(String),
    #[serde(untagged)]
    Change {
        /// The document's id.
        change: String,
        /// The members that differ.
        members: Vec<String>,
    },
}

impl fmt::Display for DocumentChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(id) => write!(f, "add {id}"),
            Self::Change { change, members } => {
                write!(f, "change {change} ({})", members.join(", "))
            }
            Self::Remove(id) => write!(f, "remove {id}"),
            Self::Keep(id) => write!(f, "keep {id} (not in the file: --prune removes it)"),
        }
    }
}

/// Documents by id.
pub(super) type Documents = BTreeMap<String, Map<String, Value>>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// First documents that are no longer in the file, then the others, each in the order of ids.
    pub(super) changes: Vec<DocumentChange>,
    /// The documents to write, one for each change except `Keep`.
    pub(super) writes: Vec<Value>,
    /// The numbers of documents that `changes` add, change and remove, and of others.
    pub(super) added: usize,
    pub(super) changed: usize,
    pub(super) removed: usize,
    pub(super) unchanged: usize,
    /// Documents of the file that exist without its mark.
    pub(super) foreign: Vec<String>,
}

impl Plan {
    /// Compares `wanted`, without their marks, with the existing documents.
    pub(super) fn new(wanted: Documents, there: &Documents, mark: &str, prune: bool) -> Self {
        let mut plan = Self::default();
        for (id, document) in there {
            let is_own = document.get(MARK).is_some_and(|known| known == mark);
            if wanted.contains_key(id) || !is_own {
                continue;
            }
            if !prune {
                plan.changes.push(DocumentChange::Keep(id.clone()));
                continue;
            }
            plan.removed += 1;
            plan.changes.push(DocumentChange::Remove(id.clone()));
            let mut write = head(id, document.get("_rev"));
            write.insert("_deleted".to_owned(), true.into());
            plan.writes.push(Value::Object(write));
        }
        for (id, mut document) in wanted {
            document.insert(MARK.to_owned(), mark.into());
            let known = there.get(&id);
            if known.is_some_and(|known| known.get(MARK) != document.get(MARK)) {
                plan.foreign.push(id);
                continue;
            }
            match known.map(|known| differing(known, &document)) {
                Some(members) if members.is_empty() => {
                    plan.unchanged += 1;
                    continue;
                }
                Some(members) => {
                    plan.changed += 1;
                    let change = id.clone();
                    plan.changes
                        .push(DocumentChange::Change { change, members });
                }
                None => {
                    plan.added += 1;
                    plan.changes.push(DocumentChange::Add(id.clone()));
                }
            }
            let mut write = head(&id, known.and_then(|known| known.get("_rev")));
            write.extend(document);
            plan.writes.push(Value::Object(write));
        }
        plan
    }
}

fn head(id: &str, rev: Option<&Value>) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("_id".to_owned(), id.into());
    if let Some(rev) = rev {
        head.insert("_rev".to_owned(), rev.clone());
    }
    head
}

/// Returns the names of members that differ, except those that the service writes.
fn differing(there: &Map<String, Value>, wanted: &Map<String, Value>) -> Vec<String> {
    let mut names: Vec<&String> = wanted.keys().collect();
    names.extend(there.keys().filter(|name| !wanted.contains_key(*name)));
    names.sort_unstable();
    names
        .into_iter()
        .filter(|name| !name.starts_with('_') && *name != "owner")
        .filter(|name| there.get(*name) != wanted.get(*name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn documents(value: Value) -> Documents {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_plan_is_what_differs_and_touches_no_document_of_others() {
        let wanted = json!({"new": {"source": "a"}, "same": {"source": "a"},
            "other": {"source": "b", "continuous": true}, "theirs": {"source": "a"}});
        let there = json!({
            "same": {"_rev": "1-a", "_replication_state": "completed", "owner": null, "source": "a", "managed_by": "fleet"},
            "other": {"_rev": "2-b", "source": "a", "filter": "f", "managed_by": "fleet"},
            "old": {"_rev": "3-c", "source": "a", "managed_by": "fleet"},
            "theirs": {"_rev": "1-d", "source": "a"}, "unrelated": {"source": "a", "managed_by": "x"}});
        let (wanted, there) = (documents(wanted), documents(there));
        let counts = |plan: &Plan| [plan.added, plan.changed, plan.removed, plan.unchanged];
        let plan = Plan::new(wanted.clone(), &there, "fleet", true);
        let lines: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "remove old",
                "add new",
                "change other (continuous, filter, source)"
            ]
        );
        assert_eq!(
            (counts(&plan), &*plan.foreign),
            ([1, 1, 1, 1], &["theirs".to_owned()][..])
        );
        assert_eq!(
            plan.writes,
            [
                json!({"_id": "old", "_rev": "3-c", "_deleted": true}),
                json!({"_id": "new", "source": "a", "managed_by": "fleet"}),
                json!({"_id": "other", "_rev": "2-b", "source": "b", "continuous": true, "managed_by": "fleet"}),
            ]
        );
        let plan = Plan::new(wanted, &there, "fleet", false);
        assert_eq!(plan.changes[0], DocumentChange::Keep("old".to_owned()));
        assert_eq!((plan.writes.len(), counts(&plan)), (2, [1, 1, 0, 1]));
        let texts: Vec<Value> = plan.changes.iter().map(|change| json!(change)).collect();
        let change = json!({"change": "other", "members": ["continuous", "filter", "source"]});
        assert_eq!(
            texts,
            [json!({"keep": "old"}), json!({"add": "new"}), change]
        );
    }
}
