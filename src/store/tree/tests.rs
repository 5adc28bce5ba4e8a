//! Tests of [`super`]: against a naive model, and what each call answers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn hash(text: &str) -> RevHash {
    text.parse().unwrap()
}

fn rev(text: &str) -> Revision {
    text.parse().unwrap()
}

/// A leaf by its number and hashes, newest first.
fn leaf(number: u64, hashes: &str, deleted: bool) -> Leaf {
    let hashes = hashes_of(hashes).unwrap();
    Leaf {
        history: History::new(number, hashes).unwrap(),
        deleted,
        body: format!("{{\"n\":{number}}}"),
    }
}

fn revisions(tree: &Tree) -> Vec<String> {
    let leaves = tree.leaves().iter();
    leaves.map(|leaf| leaf.revision().to_string()).collect()
}

/// Parent of each revision: the hash of a node is its number in this list.
type Parents = Vec<Option<usize>>;

/// A node stands after its parent.
fn parents() -> impl Strategy<Value = Parents> {
    prop::collection::vec(any::<prop::sample::Index>(), 1..24).prop_map(|picks| {
        let pick = |(place, pick): (usize, prop::sample::Index)| match pick.index(place + 1) {
            0 => None,
            parent => Some(parent - 1),
        };
        picks.into_iter().enumerate().map(pick).collect()
    })
}

/// A node's history of at most `length` revisions.
fn path(parents: &Parents, node: usize, length: usize) -> History {
    let up = |node: &usize| parents[*node];
    let nodes: Vec<usize> = std::iter::successors(Some(node), up).collect();
    let number = nodes.len() as u64;
    let hashes = nodes.iter().take(length.max(1));
    History::new(
        number,
        hashes.map(|node| hash(&format!("h{node}"))).collect(),
    )
    .unwrap()
}

/// A node is deleted or not for good: it is written once.
fn node_leaf(parents: &Parents, node: usize, length: usize) -> Leaf {
    Leaf {
        history: path(parents, node, length),
        deleted: node.is_multiple_of(3),
        body: node.to_string(),
    }
}

proptest! {
    #[test]
    fn leaves_are_what_has_no_child_whatever_the_order(
        parents in parents(),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut tree = Tree::default();
        // A naive model: every node that was heard of, and its parent.
        let mut known: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        for pick in order {
            let node = pick.index(parents.len());
            let is_news = tree.merge(node_leaf(&parents, node, usize::MAX)).unwrap();
            prop_assert_eq!(is_news, !known.contains_key(&node));
            let up = |node: &usize| parents[*node];
            for node in std::iter::successors(Some(node), up) {
                known.insert(node, parents[node]);
            }
            let inner: BTreeSet<usize> = known.values().flatten().copied().collect();
            let leaves = known.keys().filter(|node| !inner.contains(node));
            let mut expected: Vec<Leaf> =
                leaves.map(|&node| node_leaf(&parents, node, usize::MAX)).collect();
            expected.sort_by_key(|leaf| (leaf.deleted, Reverse(leaf.revision())));
            prop_assert_eq!(tree.leaves(), expected.as_slice());
            prop_assert_eq!(leaves_of(&leaves_text(tree.leaves())).unwrap(), expected);
        }
    }

    #[test]
    fn a_history_that_was_cut_short_is_made_whole_by_who_knows_more(
        parents in parents(),
        lengths in prop::collection::vec(1..4_usize, 24),
    ) {
        let mut tree = Tree::default();
        for node in (0..parents.len()).rev() {
            tree.merge(node_leaf(&parents, node, lengths[node])).unwrap();
        }
        for node in 0..parents.len() {
            tree.merge(node_leaf(&parents, node, usize::MAX)).unwrap();
        }
        let inner: BTreeSet<usize> = parents.iter().flatten().copied().collect();
        let leaves = (0..parents.len()).filter(|node| !inner.contains(node));
        let expected: BTreeSet<Revision> =
            leaves.map(|node| path(&parents, node, 1).revision()).collect();
        let found: BTreeSet<Revision> = tree.leaves().iter().map(Leaf::revision).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_branch_that_lives_wins_then_the_longer_then_the_greater_hash() {
    let mut tree = Tree::default();
    assert_eq!(tree.winner(), None);
    for (number, hashes, deleted, winner) in [
        (2, "b,a", false, "2-b"),
        (2, "c,a", false, "2-c"),
        (3, "x,w,a", true, "2-c"),
        (3, "d,b,a", false, "3-d"),
    ] {
        assert!(tree.merge(leaf(number, hashes, deleted)).unwrap());
        assert_eq!(tree.winner().unwrap().revision(), rev(winner));
    }
    assert_eq!(revisions(&tree), ["3-d", "2-c", "3-x"]);
    assert!(
        !tree.merge(leaf(2, "b,a", false)).unwrap(),
        "it is an ancestor"
    );
}

#[test]
fn any_leaf_can_be_written_after_by_who_knows_it() {
    let mut tree = Tree::of(vec![leaf(2, "b,a", false), leaf(2, "c,a", false)]);
    assert_eq!(tree.edit(None, false, "{}".into()), Err(Conflict));
    assert_eq!(
        tree.edit(Some(rev("1-a")), false, "{}".into()),
        Err(Conflict)
    );
    let third = tree.edit(Some(rev("2-b")), false, "{}".into()).unwrap();
    let history: Vec<Revision> = tree.winner().unwrap().history.revisions().collect();
    assert_eq!(history, [third, rev("2-b"), rev("1-a")]);
    tree.edit(Some(third), true, "{}".into()).unwrap();
    assert_eq!(tree.winner().unwrap().revision(), rev("2-c"));
    tree.edit(Some(rev("2-c")), true, "{}".into()).unwrap();
    assert!(tree.winner().unwrap().deleted);
    let reborn = tree.edit(None, false, "{}".into()).unwrap();
    assert_eq!(reborn.number, 5);
    assert_eq!(Tree::default().edit(None, true, "{}".into()), Err(Conflict));
}

#[test]
fn what_is_missing_is_told_with_what_may_come_before_it() {
    let tree = Tree::of(vec![leaf(3, "c,b,a", false), leaf(2, "x,a", true)]);
    let asked = ["1-a", "2-b", "3-c", "3-d", "2-x"].map(rev);
    let missing = tree.missing(&asked);
    assert_eq!(missing.missing, [rev("3-d")]);
    assert_eq!(missing.possible_ancestors, [rev("2-x")]);
    assert_eq!(tree.missing(&[rev("3-c")]), Missing::default());
    let after: Vec<Revision> = tree.after(rev("1-a")).map(Leaf::revision).collect();
    assert_eq!(after, [rev("3-c"), rev("2-x")]);
}

#[test]
fn only_so_many_revisions_of_a_branch_are_remembered() {
    let mut tree = Tree::default();
    let mut last = tree.edit(None, false, "0".into()).unwrap();
    for number in 1..=REVISIONS_MAX {
        last = tree.edit(Some(last), false, number.to_string()).unwrap();
    }
    let history = &tree.winner().unwrap().history;
    assert_eq!(history.revisions().count(), REVISIONS_MAX);
    assert_eq!(history.revisions().last().unwrap().number, 2);
}

#[test]
fn only_so_many_branches_are_taken_in_and_those_that_are_there_go_on() {
    let mut tree = Tree::default();
    for number in 0..LEAVES_MAX {
        assert_eq!(tree.merge(leaf(2, &format!("b{number},a"), true)), Ok(true));
    }
    let before = tree.clone();
    assert_eq!(tree.merge(leaf(2, "one,a", false)), Err(TooManyBranches));
    assert_eq!(tree.merge(leaf(2, "b7,a", true)), Ok(false));
    assert_eq!(tree, before);
    assert_eq!(tree.merge(leaf(3, "c,b7,a", true)), Ok(true));
    assert_eq!(tree.leaves().len(), LEAVES_MAX);
}

#[test]
fn a_history_has_a_number_for_each_of_its_hashes() {
    let of = |number, hashes| History::new(number, hashes_of(hashes).unwrap());
    assert_eq!(of(1, ""), Err(InvalidRevision));
    assert_eq!(of(1, "b,a"), Err(InvalidRevision));
    assert!(of(3, "b,a").is_ok());
    assert_eq!(leaves_of("{}"), None);
    assert_eq!(
        leaves_of(r#"[{"number":1,"hashes":"-","deleted":false,"body":""}]"#),
        None
    );
}
