//! Determines which members of its document a map function reads.
//!
//! A function that mentions its document only as `doc.NAME` sees no other members. `settee map` then sends only these
//! members, and `_id`, which error messages need.
//!
//! PROMISES  With only these members and `_id`, a function behaves as with the whole document. In doubt, a function is
//!           taken to read all members.
//! LIMITS    As [`super::reading`]: a function that modifies built-in objects by computed names may be misjudged.

use std::collections::BTreeSet;

use oxc_ast::ast::{
    Expression, FormalParameters, IdentifierReference, Program, StaticMemberExpression,
};
use oxc_ast_visit::{Visit, walk};

use super::on_own_stack;
use super::reading::is_harmless;
use super::tree::{parameters, plain_name, with_tree};

/// Maximum named members: beyond it, omitting the rest of a document would save little.
const MEMBERS_MAX: usize = 32;

/// Methods of every object. Called on the document, they get the whole document.
const INHERITED: [&str; 6] = [
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// Returns the members of its document that a map function may read; `None` if it may read all of them.
///
/// Supports functions with one parameter, `function(doc) { .. }` with or without a name, and `(doc) => ..`, that
/// mention the document only as `doc.NAME` or `doc?.NAME`. Another variable with the same name counts as the
/// document.
pub fn members_read(source: &str) -> Option<BTreeSet<String>> {
    on_own_stack(|| with_tree(source, members_of).flatten())
        .ok()
        .flatten()
}

fn members_of(tree: &Program<'_>) -> Option<BTreeSet<String>> {
    let parameter = parameters(tree).and_then(only_name)?;
    if !is_harmless(tree) {
        return None;
    }
    let mut mentions = Mentions {
        parameter,
        members: BTreeSet::new(),
        reads_any: false,
    };
    mentions.visit_program(tree);
    let is_known = !mentions.reads_any && mentions.members.len() <= MEMBERS_MAX;
    is_known.then_some(mentions.members)
}

fn only_name<'t>(parameters: &'t FormalParameters<'_>) -> Option<&'t str> {
    match (parameters.items.as_slice(), &parameters.rest) {
        ([only], None) => plain_name(only),
        _ => None,
    }
}

/// A function's uses of a name.
struct Mentions<'t> {
    parameter: &'t str,
    members: BTreeSet<String>,
    reads_any: bool,
}

impl<'a> Visit<'a> for Mentions<'_> {
    fn visit_static_member_expression(&mut self, it: &StaticMemberExpression<'a>) {
        match &it.object {
            Expression::Identifier(object) if object.name == self.parameter => {
                let name = it.property.name.as_str();
                self.reads_any |= INHERITED.contains(&name);
                self.members.insert(name.to_owned());
            }
            _ => walk::walk_static_member_expression(self, it),
        }
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.reads_any |= it.name == self.parameter || it.name == "arguments";
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(source: &str) -> Option<Vec<String>> {
        members_read(source).map(|members| members.into_iter().collect())
    }

    fn names(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn members_that_are_named_are_found_in_every_form_of_function() {
        let body = "{ if (doc.type === 'order') { emit([doc.customer, doc?.date], doc.total); } }";
        let wanted = names(&["customer", "date", "total", "type"]);
        for head in [
            "function(doc)",
            " // by customer\nfunction (doc) ",
            "(function by_customer(doc)",
            "(doc) =>",
            "doc =>",
        ] {
            let tail = if head.starts_with("(f") { ")" } else { "" };
            assert_eq!(of(&format!("{head}{body}{tail}")), wanted, "{head}");
            assert_eq!(of(&format!("({head}{body}{tail});\n")), wanted, "{head}");
        }
        for (source, members) in [
            ("function(d) { emit(1) }", &[][..]),
            ("doc => emit(doc.a)", &["a"]),
            ("function(d\u{e9}) { emit(d\u{e9}.\u{e9}) }", &["\u{e9}"]),
            ("function(doc) { emit(d\\u006fc.a\\u0062) }", &["ab"]),
            ("function(doc) { emit(doc\n.a, (doc)/**/.b) }", &["a", "b"]),
            (
                "function(d) { d.lines.forEach(function(l) { emit(l.sku, d._id) }) }",
                &["_id", "lines"],
            ),
            (
                "function(doc) { /* doc.a */ emit('doc.b', docs.c + `${doc.$d} doc`) }",
                &["$d"],
            ),
            (
                "function(doc) { emit(doc.a, [[1]].map(function(doc) { return doc.length })) }",
                &["a", "length"],
            ),
        ] {
            assert_eq!(of(source), names(members), "{source}");
        }
    }

    #[test]
    fn a_function_that_may_see_the_whole_document_reads_any() {
        for body in [
            "emit(doc._id, doc)",
            "emit(doc)",
            "for (var k in doc) { emit(k) }",
            "emit(doc['a'])",
            "emit(doc\u{a0})",
            "emit(\u{feff}doc\u{2028})",
            "var d = doc; emit(d.a)",
            "var {a} = doc; emit(a)",
            "emit({...doc})",
            "emit({doc})",
            "emit(arguments[0])",
            "emit(JSON.stringify(doc))",
            "emit('a' in doc)",
            "emit(doc.hasOwnProperty('a'))",
            "emit((doc.toString)())",
            "emit(d\\u006fc)",
            "emit(\\u{61}rguments[0])",
            "({a: doc} = {})",
            "[doc] = [1]",
            "for (doc of []) {}",
            "doc++",
            "emit((() => doc)().a)",
            "emit(`${doc}`)",
            "emit(doc?.5:1)",
            "emit(doc.#a)",
            "eval('doc')",
            "with (doc) { emit(a) }",
            "Object.prototype.f = function() { return this }; emit(doc.f())",
            "require('views/lib/a').f(doc.a)",
            "doc = 7; emit(doc.a)",
            "doc.a = 7",
        ] {
            assert_eq!(of(&format!("function(doc) {{ {body} }}")), None, "{body}");
        }
    }

    #[test]
    fn a_function_that_reads_very_many_members_reads_any() {
        let reads = |count: usize| {
            (0..count)
                .map(|n| format!("emit(doc.m{n});"))
                .collect::<String>()
        };
        let most = format!("function(doc) {{ {} }}", reads(MEMBERS_MAX));
        assert_eq!(of(&most).map(|members| members.len()), Some(MEMBERS_MAX));
        let more = format!("function(doc) {{ {} }}", reads(MEMBERS_MAX + 1));
        assert_eq!(of(&more), None);
    }

    #[test]
    fn a_source_other_than_one_function_with_one_parameter_reads_any() {
        for source in [
            "",
            "7",
            "function() { emit(1) }",
            "function(doc, a) { emit(doc.a) }",
            "function({a}) { emit(a) }",
            "function(doc = {}) { emit(doc.a) }",
            "function(...doc) { emit(doc.a) }",
            "function*(doc) { emit(doc.a) }",
            "async function(doc) { emit(doc.a) }",
            "async doc => { emit(doc.a) }",
            "function(doc) { emit(doc.a) }, function(d) { emit(d) }",
            "function(doc) { emit(doc.a) } function(d) { emit(d) }",
            "(function(doc) { emit(doc.a) }, function(d) { emit(d) })",
            "(function(doc) { emit(doc.a) }) && (function(d) { emit(d) })",
            "(doc) => { emit(doc.a) }; (d) => { emit(d) }",
            "var f = function(doc) { emit(doc.a) }; f",
            "function doc(doc) { emit(doc.a) }",
        ] {
            assert_eq!(of(source), None, "{source}");
        }
    }
}
