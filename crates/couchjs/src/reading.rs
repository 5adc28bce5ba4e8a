//! Finds out whether a function only reads its document.
//!
//! CouchDB deep-freezes the document of a map function, which costs more than parsing it. A function without anything
//! that could change an object, or query whether it is frozen, does not notice an unfrozen document. Each call parses
//! the document again, so such a function gets it unfrozen. A function that cannot be analysed counts as writing.
//!
//! LIMITS    A function that finds a mutating function by a computed name, and applies it without naming anything
//!           below (say, by enumerating the properties of Object), is not detected. It changes its own copy of one
//!           document, which nothing else sees.

use oxc_ast::ast::{
    CallExpression, Class, Expression, IdentifierName, IdentifierReference, NewExpression, Program,
    SimpleAssignmentTarget, Statement, StringLiteral, TaggedTemplateExpression, TemplateElement,
    UnaryExpression, UnaryOperator, WithStatement,
};
use oxc_ast_visit::{Visit, walk};

use super::tree::with_tree;

/// Names that can change an object, query whether it is frozen, or reach code that is not visible here. Strings with
/// them count too: they may name a member. The differential test shows that each is needed, and that others, such as
/// `freeze`, are not.
const WRITING_WORDS: [&str; 29] = [
    "Function",
    "Reflect",
    "__defineGetter__",
    "__defineSetter__",
    "apply",
    "assign",
    "bind",
    "call",
    "captureStackTrace",
    "constructor",
    "copyWithin",
    "defineProperties",
    "defineProperty",
    "eval",
    "fill",
    "getOwnPropertyDescriptor",
    "getOwnPropertyDescriptors",
    "isExtensible",
    "isFrozen",
    "isSealed",
    "pop",
    "push",
    "require",
    "reverse",
    "setPrototypeOf",
    "shift",
    "sort",
    "splice",
    "unshift",
];

/// Methods that call an argument with a `this` from a later argument.
const LENDING_THIS: [&str; 11] = [
    "every",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "findLastIndex",
    "flatMap",
    "forEach",
    "from",
    "map",
    "some",
];

/// The deepest nesting of expressions and statements: the stack must hold them.
const DEPTH_MAX: usize = 500;

/// Whether the function of a source cannot distinguish a frozen document from an unfrozen one.
pub(super) fn only_reads(source: &str) -> bool {
    with_tree(source, is_harmless).unwrap_or(false)
}

/// Whether nothing in a tree could change an object, or query whether it is frozen.
pub(super) fn is_harmless(tree: &Program<'_>) -> bool {
    let mut reader = Reader {
        is_harmless: true,
        depth: 0,
    };
    reader.visit_program(tree);
    reader.is_harmless
}

struct Reader {
    is_harmless: bool,
    depth: usize,
}

impl Reader {
    fn check(&mut self, is_harmless: bool) {
        self.is_harmless &= is_harmless;
    }

    fn name(&mut self, name: &str) {
        self.check(WRITING_WORDS.binary_search(&name).is_err());
    }

    fn text(&mut self, text: &str) {
        let is_word_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        for word in text.split(|c| !is_word_part(c)) {
            self.name(word);
        }
    }

    /// A callee with a computed name may be anything.
    fn callee(&mut self, callee: &Expression<'_>) {
        let is_computed = matches!(
            callee,
            Expression::ComputedMemberExpression(_) | Expression::ChainExpression(_)
        );
        self.check(!is_computed);
    }

    /// Walks one level deeper, unless the function is known to write; nesting beyond [`DEPTH_MAX`] counts as writing.
    fn descend(&mut self, walk: impl FnOnce(&mut Self)) {
        self.check(self.depth < DEPTH_MAX);
        if self.is_harmless {
            self.depth += 1;
            walk(self);
            self.depth -= 1;
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_expression(&mut self, it: &Expression<'a>) {
        self.descend(|reader| walk::walk_expression(reader, it));
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        self.descend(|reader| walk::walk_statement(reader, it));
    }

    fn visit_simple_assignment_target(&mut self, it: &SimpleAssignmentTarget<'a>) {
        self.check(matches!(
            it,
            SimpleAssignmentTarget::AssignmentTargetIdentifier(_)
        ));
        walk::walk_simple_assignment_target(self, it);
    }

    fn visit_unary_expression(&mut self, it: &UnaryExpression<'a>) {
        self.check(it.operator != UnaryOperator::Delete);
        walk::walk_unary_expression(self, it);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        self.callee(&it.callee);
        if let Expression::StaticMemberExpression(method) = &it.callee {
            let lends_this = LENDING_THIS.contains(&method.property.name.as_str());
            let has_more = it.arguments.len() > 1 || it.arguments.iter().any(|a| a.is_spread());
            self.check(!(lends_this && has_more));
        }
        walk::walk_call_expression(self, it);
    }

    fn visit_new_expression(&mut self, it: &NewExpression<'a>) {
        self.callee(&it.callee);
        walk::walk_new_expression(self, it);
    }

    fn visit_tagged_template_expression(&mut self, it: &TaggedTemplateExpression<'a>) {
        self.callee(&it.tag);
        walk::walk_tagged_template_expression(self, it);
    }

    fn visit_with_statement(&mut self, _: &WithStatement<'a>) {
        self.is_harmless = false;
    }

    fn visit_class(&mut self, _: &Class<'a>) {
        self.is_harmless = false;
    }

    fn visit_identifier_name(&mut self, it: &IdentifierName<'a>) {
        self.name(&it.name);
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.name(&it.name);
    }

    fn visit_string_literal(&mut self, it: &StringLiteral<'a>) {
        self.text(&it.value);
    }

    fn visit_template_element(&mut self, it: &TemplateElement<'a>) {
        self.text(it.value.cooked.as_deref().unwrap_or(&it.value.raw));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(body: &str) -> bool {
        only_reads(&format!("function(doc) {{ {body} }}"))
    }

    #[test]
    fn words_are_in_order_for_the_search() {
        assert!(WRITING_WORDS.is_sorted());
    }

    #[test]
    fn usual_map_functions_only_read() {
        for body in [
            "emit(doc._id, 1);",
            "if (doc.type === 'order' && doc.total >= 5) { emit([doc.a, doc.b], doc.c); }",
            "for (var i = 0; i < doc.tags.length; i++) { emit(doc.tags[i], null); }",
            "for (var k in doc) { if (k !== 'x') emit(k, doc[k]); }",
            "for (const [k, v] of Object.entries(doc)) { emit(k, v); }",
            "doc.lines.forEach(function(l) { emit(l.sku, l.qty); });",
            "const {name, tags: [first], ...rest} = doc; emit(name, rest);",
            "var n = 0, f = (a = 1) => a; n += doc.x; n <<= 1; n ??= 2; emit(-n, +f());",
            "var t = doc.a ? doc.a[0] : doc.b?.[1]; --t; emit(t, `${doc.x + 1}`);",
            "/* delete doc.x */ emit(doc.t\\u0061gs, 'doc.x = 1'); // doc.x++\n",
            "var m = /[/=]/.exec(doc.a); [m, n] = [n, m]; emit(doc.a / 2 / 3, m);",
            "for (var d = doc; d; d = d.next) emit(d.a, arguments[0].b);",
            "var o = {get a() { return doc.a }, doc}; emit(o.a, o.doc.b);",
        ] {
            assert!(reads(body), "{body}");
        }
    }

    #[test]
    fn whatever_could_change_an_object_is_noticed() {
        for body in [
            "doc.x = 1;",
            "doc['x'] = 1;",
            "doc.x += 1;",
            "doc.x ??= 1;",
            "doc.x >>>= 1;",
            "doc.x++;",
            "doc.x--",
            "++doc.x;",
            "--doc['x'];",
            "a\n++doc.x",
            "(doc.x) = 1",
            "delete doc.x;",
            "[doc.x] = [1];",
            "({a: doc.x} = {a: 1});",
            "({a: doc.x = 2} = {})",
            "for (doc.x of [1]) {}",
            "for (doc['x'] in {a: 1}) {}",
            "for ([doc.x] of [[1]]) {}",
            "doc.tags.push(1)",
            "doc.tags['pu' + 'sh'](1)",
            "doc.tags['pu' + 'sh']?.(1)",
            "doc.tags[m]`x`",
            "Object.assign(doc, {})",
            "with (doc) { x = 1; }",
            "doc.ta\u{301}gs++",
            "doc.n<!-- x\n= 1",
            "doc.tags.pu\\u0073h(1)",
            "doc.tags['pu\\x73h']",
            "var p = doc.tags[`push`]",
            "var {push} = doc.tags",
            "var {push: p} = doc.tags",
            "({push: p} = doc.tags)",
            "(doc.tags[m])(1)",
            "(doc.tags?.[m])(1)",
            "new globalThis['Fun' + 'ction']('d', 'd.x = 1')",
            "[1].forEach(doc.tags[m], doc.tags)",
            "[1].forEach(...list)",
            "({...doc.x} = {})",
            "[...doc.x] = []",
            "[doc.x = 1] = []",
            "for (doc?.a.x of [1]) {}",
            "((doc).x)++",
            "doc.let[0] = 1",
            "class A extends f { x = 1 }",
            "emit(Object.isFrozen(doc))",
            "require('views/lib/a').f(doc)",
            "doc.__proto__ = null",
            "eval('1')",
            "emit.constructor('d', 'x')(doc)",
            "var f = function() {} / 2; doc.y = 1 / 3",
            "doc.x /= 2",
            "doc.x **= 2",
            "doc.x &&= 0",
            "(doc).x -= 1",
        ] {
            assert!(!reads(body), "{body}");
        }
    }
}
