//! The rows of a reduce command: lists of pairs, split without the engine.
//!
//! SUMMARY   [`Pairs::of`] splits the rows `[[[key, id], value], ..]` into a list of keys and one of values;
//!           [`ignores_keys`] identifies the functions for which the engine need not parse the keys.
//! WHY       The engine would make a list for each pair and parse the keys, which are most of the text. Without both,
//!           summing many rows takes half the time.

use oxc_ast::ast::{IdentifierReference, Program};
use oxc_ast_visit::Visit;

use super::tree::{parameters, plain_name, with_tree};
use json::cursor::Cursor;

/// Number of lists made from the rows.
pub(super) const LISTS: usize = 2;

/// Rows as the JSON texts of two lists.
pub(super) struct Pairs {
    /// `[[key, id], ..]`.
    pub keys: String,
    /// `[value, ..]`.
    pub values: String,
}

impl Pairs {
    /// Splits the rows of a valid JSON text; `None` if one of them is not a pair, or if there is no memory for
    /// [`LISTS`] times the text's length.
    pub fn of(rows: &str) -> Option<Self> {
        let (mut keys, mut values) = (room(rows.len())?, room(rows.len())?);
        let mut cursor = Cursor::of_valid(rows.as_bytes());
        let mut goes_on = cursor.open(b'[')?;
        while goes_on {
            cursor.take(b'[')?;
            push(&mut keys, &rows[cursor.value()?]);
            cursor.take(b',')?;
            push(&mut values, &rows[cursor.value()?]);
            cursor.take(b']')?;
            goes_on = cursor.goes_on(b'[')?;
        }
        for list in [&mut keys, &mut values] {
            list.push_str(if list.is_empty() { "[]" } else { "]" });
        }
        Some(Self { keys, values })
    }
}

fn room(bytes: usize) -> Option<String> {
    let mut text = String::new();
    text.try_reserve_exact(bytes).ok().map(|()| text)
}

fn push(list: &mut String, element: &str) {
    list.push(if list.is_empty() { '[' } else { ',' });
    list.push_str(element);
}

/// Whether a reduce function certainly cannot access its first argument: it neither mentions the argument's name nor
/// anything that could reach it in another way.
pub(super) fn ignores_keys(source: &str) -> bool {
    with_tree(source, is_blind_to_keys).unwrap_or(false)
}

fn is_blind_to_keys(tree: &Program<'_>) -> bool {
    let first = parameters(tree).and_then(|parameters| parameters.items.first());
    let Some(name) = first.and_then(plain_name) else {
        return false;
    };
    let mut mentions = Mentions {
        name,
        is_seen: false,
    };
    mentions.visit_program(tree);
    !mentions.is_seen
}

struct Mentions<'t> {
    name: &'t str,
    is_seen: bool,
}

impl<'a> Visit<'a> for Mentions<'_> {
    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.is_seen |= it.name == self.name || it.name == "arguments" || it.name == "eval";
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_a_list_of_keys_and_one_of_values() {
        let lists = |rows| Pairs::of(rows).map(|pairs| (pairs.keys, pairs.values));
        let both = |keys: &str, values: &str| Some((keys.to_owned(), values.to_owned()));
        assert_eq!(lists("[]"), both("[]", "[]"));
        assert_eq!(
            lists(r#" [ [ ["k" , "x"] , 1.0 ],[[{"a":[]},null],"]"]] "#),
            both(r#"[["k" , "x"],[{"a":[]},null]]"#, r#"[1.0,"]"]"#)
        );
        for rows in [
            "[5]",
            "[[]]",
            "[[1]]",
            "[[1,2,3]]",
            "[{\"a\":1}]",
            "[[1,2],null]",
        ] {
            assert_eq!(lists(rows), None, "{rows}");
        }
    }

    #[test]
    fn a_function_that_does_not_mention_its_keys_ignores_them() {
        for source in [
            "function(keys, values, rereduce) { return sum(values); }",
            "function (k, v) { var o = {k: 1}; return v.length + o.k; } // k",
            "(keys, values) => values[0]",
            "function(_, values) { return values.map(function(v) { return v.keys }) }",
        ] {
            assert!(ignores_keys(source), "{source}");
        }
        for source in [
            "function(keys, values) { return keys.length; }",
            "function(keys, values) { return function() { return keys } }",
            "function(keys) { return {keys} }",
            "function(keys, values = keys) { return values; }",
            "function(keys, values) { return arguments[0]; }",
            "function(keys, values) { return eval('ke' + 'ys'); }",
            "function([first], values) { return values; }",
            "function(keys = [], values) { return values; }",
            "function(...all) { return all; }",
            "function() { return arguments.length }",
            "(function() { return function(keys, values) { return 1 } })()",
            "function(keys, keys) { return keys }",
            "function(keys, values) { return `${keys}` }",
        ] {
            assert!(!ignores_keys(source), "{source}");
        }
    }
}
