//! All leaves of a document, as a reader may see them.
//!
//! SUMMARY   [`SeenLeaf`] is a leaf without what its reader must not see. Of a leaf from which
//!           credentials were taken the revisions are others too, all of its branch, so that a
//!           replication of such a reader makes branches that go together.
//! SOURCE    couch_replicator_docs: strip_credentials/1.

use super::document::{Person, lookalike, seen_by, with_head};
use super::members::Members;
use crate::store::{Leaf, Revision, Tree};

/// A leaf, as a reader may see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenLeaf {
    /// Whether it is a deletion.
    pub deleted: bool,
    /// Newest first; never empty.
    revisions: Vec<Revision>,
    members: Members,
}

impl SeenLeaf {
    fn of(leaf: &Leaf, reader: &Person) -> Self {
        let members = Members::parse(&leaf.body).unwrap_or_default();
        let (members, is_stripped) = seen_by(members, reader);
        let revisions = leaf.history.revisions();
        Self {
            deleted: leaf.deleted,
            revisions: match is_stripped {
                true => revisions.map(lookalike).collect(),
                false => revisions.collect(),
            },
            members,
        }
    }

    /// Returns its revision.
    pub fn revision(&self) -> Revision {
        self.revisions[0]
    }

    /// Returns its revision and those before it, newest first.
    pub fn revisions(&self) -> &[Revision] {
        &self.revisions
    }

    /// Returns the whole document, with its id and revision.
    pub fn whole(&self, id: &str) -> Members {
        let members = self.members.clone();
        with_head(id, &self.revision().to_string(), self.deleted, members)
    }
}

/// Returns the leaves of a document, the winner first.
pub fn seen(tree: &Tree, reader: &Person) -> Vec<SeenLeaf> {
    let leaves = tree.leaves().iter();
    leaves.map(|leaf| SeenLeaf::of(leaf, reader)).collect()
}

/// Returns the leaf that is this revision or, with `latest`, those that come after it.
pub fn choose(leaves: &[SeenLeaf], revision: Revision, latest: bool) -> Vec<&SeenLeaf> {
    let is_one = |leaf: &&SeenLeaf| match latest {
        true => leaf.revisions.contains(&revision),
        false => leaf.revision() == revision,
    };
    leaves.iter().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::store::History;

    fn leaf(hashes: &[&str], body: &Value) -> Leaf {
        let hashes: Vec<_> = hashes.iter().map(|hash| hash.parse().unwrap()).collect();
        Leaf {
            history: History::new(hashes.len() as u64, hashes).unwrap(),
            deleted: false,
            body: body.to_string(),
        }
    }

    #[test]
    fn who_sees_less_sees_other_revisions_which_go_together() {
        let secret = json!({"source": "http://u:pw@h/a", "target": "http://h/b"});
        let plain = json!({"source": "http://h/a", "target": "http://h/b"});
        let before = Tree::of(vec![leaf(&["b", "a"], &secret)]);
        let after = Tree::of(vec![leaf(&["c", "b", "a"], &secret)]);
        let other = Tree::of(vec![leaf(&["b", "a"], &plain)]);
        let (admin, guest) = (
            Person {
                name: None,
                is_admin: true,
            },
            Person::default(),
        );
        let whole = seen(&before, &admin)[0].whole("x").value();
        assert_eq!(
            (&whole["_rev"], &whole["source"]),
            (&json!("2-b"), &secret["source"])
        );
        assert_eq!(seen(&other, &guest)[0].revision(), "2-b".parse().unwrap());
        let early = seen(&before, &guest);
        let late = seen(&after, &guest);
        assert!(early[0].whole("x").raw("_deleted").is_none());
        assert_eq!(early[0].whole("x").get("source").unwrap(), "http://h/a");
        assert_ne!(early[0].revision(), "2-b".parse().unwrap());
        assert_eq!(choose(&late, early[0].revision(), true), [&late[0]]);
        assert_eq!(
            choose(&late, early[0].revision(), false),
            [] as [&SeenLeaf; 0]
        );
    }
}
