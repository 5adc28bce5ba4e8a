//! Sequences, revisions and their trees.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Map, Value};

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
pub(super) struct Rev {
    pub(super) parent: Option<String>,
    /// The body without members that begin with `_`; `None` for a revision known by its id alone.
    pub(super) body: Option<Map<String, Value>>,
    pub(super) deleted: bool,
    pub(super) attachments: Vec<Stored>,
}

/// Edges and leaves of a revision tree.
pub type Tree = (
    BTreeMap<String, Option<String>>,
    BTreeMap<String, (Option<Map<String, Value>>, bool, Vec<Stored>)>,
);

/// Returns a sequence as CouchDB makes them: opaque and unordered.
pub(super) fn seq_text(seq: u64) -> String {
    format!(
        "{seq}-g1AAAAB/{:x}+=",
        seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
}

pub(super) fn seq_number(text: &str) -> Option<u64> {
    let number = text.split('-').next()?.parse().ok()?;
    let whole = text == seq_text(number) || (text == "0" && number == 0);
    whole.then_some(number)
}

pub(super) fn digest(text: &str) -> String {
    use md5::Digest;
    data_encoding::HEXLOWER.encode(&md5::Md5::digest(text.as_bytes()))
}

pub(super) fn generation(rev: &str) -> u64 {
    rev.split('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

pub(super) fn leaves(revs: &BTreeMap<String, Rev>) -> Vec<String> {
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
pub(super) fn path(revs: &BTreeMap<String, Rev>, rev: &str) -> Vec<String> {
    let mut path = vec![rev.to_owned()];
    while let Some(parent) = revs
        .get(&path[path.len() - 1])
        .and_then(|node| node.parent.clone())
    {
        path.push(parent);
    }
    path
}
