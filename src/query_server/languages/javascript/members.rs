//! Which members of its document a map function reads, told from its source.
//!
//! A function whose every mention of its document is `doc.NAME` cannot see any other member, so
//! none has to be sent. `settee map` then sends `_id`, which errors are told with, and those.
//!
//! PROMISES  A function that is given only these members, and `_id`, does what it would do with
//!           the whole document. In doubt the answer is that it may read all of them.
//! LIMITS    As [`super::reading`]: a function that changes how objects work, by names that it
//!           computes, may be misjudged.

use std::collections::BTreeSet;

use super::reading::only_reads;
use super::scanner::{Scan, Token};

/// How many members may be named: of a function that reads more, little would be saved.
const MEMBERS_MAX: usize = 32;

/// What every object has: when it is called as a member of the document, it gets all of it.
const INHERITED: [&str; 6] = [
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// Returns the members of its document that a map function may read; `None` when that may be any.
///
/// Understood are functions with one parameter: `function(doc) { .. }`, with a name or without,
/// and `(doc) => { .. }`, which mention the document as `doc.NAME` or `doc?.NAME` only. Comments
/// and strings are looked at as if they were code: they may make the answer longer, or none.
pub fn members_read(source: &str) -> Option<BTreeSet<&str>> {
    if !only_reads(source) || mentions(source, "arguments").next().is_some() {
        return None;
    }
    let parameter = only_parameter(source)?;
    let mut members = BTreeSet::new();
    for start in mentions(source, parameter.text) {
        if start != parameter.start {
            members.insert(member(&source[start + parameter.text.len()..])?);
        }
    }
    (members.len() <= MEMBERS_MAX).then_some(members)
}

/// The one parameter of a source that is one function and nothing else.
fn only_parameter(source: &str) -> Option<Token<'_>> {
    let tokens = Scan::of(source).tokens;
    let mut inside = &tokens[..];
    while let [rest @ .., last] = inside
        && last.text == ";"
    {
        inside = rest;
    }
    if let [first, rest @ .., last] = inside
        && (first.text, last.text) == ("(", ")")
    {
        inside = rest;
    }
    let texts: Vec<&str> = inside.iter().take(5).map(|token| token.text).collect();
    let (parameter, body) = match texts[..] {
        ["function", "(", _, ")", "{"] => (2, 4),
        ["function", _, "(", _, ")"] if inside[1].is_word() => (3, 5),
        ["(", _, ")", "=>", "{"] => (1, 4),
        [_, "=>", "{", ..] => (0, 2),
        _ => return None,
    };
    let parameter = inside[parameter];
    let is_name = parameter.is_word() && parameter.text.is_ascii();
    (is_name && is_one_block(inside.get(body..)?)).then_some(parameter)
}

/// Whether tokens are a block that ends with the last of them.
fn is_one_block(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth > 0 => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index > 0 && index + 1 == tokens.len() && token.text == "}";
        }
    }
    false
}

/// Where a word stands in a text, be it code or not. Beside a character beyond ASCII it may be a part
/// of a longer one, or that may be white space: it counts as a mention.
fn mentions<'a>(source: &'a str, word: &'a str) -> impl Iterator<Item = usize> + use<'a> {
    let of_a_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let is_whole = move |start: usize| {
        let (before, after) = (&source[..start], &source[start + word.len()..]);
        !before.ends_with(of_a_word) && !after.starts_with(of_a_word)
    };
    let places = source.match_indices(word).map(|(start, _)| start);
    places.filter(move |start| is_whole(*start))
}

/// Whether a character may make the name before it a longer one.
fn goes_on(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '\\') || !c.is_ascii()
}

/// The name of the member that is read where a mention of the document ends.
fn member(rest: &str) -> Option<&str> {
    let name = rest.strip_prefix("?.").or_else(|| rest.strip_prefix('.'))?;
    let end = name.find(|c| !goes_on(c)).unwrap_or(name.len());
    let name = &name[..end];
    let plain =
        name.is_ascii() && !name.contains('\\') && !name.starts_with(|c: char| c.is_ascii_digit());
    (!name.is_empty() && plain && !INHERITED.contains(&name)).then_some(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(source: &str) -> Option<Vec<&str>> {
        members_read(source).map(|members| members.into_iter().collect())
    }

    #[test]
    fn members_that_are_named_are_found_in_every_form_of_function() {
        let body = "{ if (doc.type === 'order') { emit([doc.customer, doc?.date], doc.total); } }";
        let wanted = Some(vec!["customer", "date", "total", "type"]);
        for head in [
            "function(doc)",
            " // by customer\nfunction (doc) ",
            "function by_customer(doc)",
            "(doc) =>",
            "doc =>",
        ] {
            assert_eq!(of(&format!("{head}{body}")), wanted, "{head}");
            assert_eq!(of(&format!("({head}{body});\n")), wanted, "{head}");
        }
        assert_eq!(of("function(d) { emit(1) }"), Some(vec![]));
        assert_eq!(
            of("function(d) { d.lines.forEach(function(l) { emit(l.sku, d._id) }) }"),
            Some(vec!["_id", "lines"])
        );
        assert_eq!(
            of("function(doc) { /* doc.a */ emit('doc.b', docs.c + `${doc.$d}`) }"),
            Some(vec!["$d", "a", "b"])
        );
    }

    #[test]
    fn a_function_that_may_see_the_whole_document_reads_any() {
        for body in [
            "emit(doc._id, doc)",
            "emit(doc)",
            "for (var k in doc) { emit(k) }",
            "emit(doc['a'])",
            "emit(doc\n.a)",
            "emit(doc\u{a0})",
            "emit(\u{feff}doc\u{2028})",
            "emit(doc/**/.a)",
            "var d = doc; emit(d.a)",
            "var {a} = doc; emit(a)",
            "emit({...doc})",
            "emit({doc})",
            "emit(arguments[0])",
            "emit(JSON.stringify(doc))",
            "emit('a' in doc)",
            "emit(doc.hasOwnProperty('a'))",
            "emit((doc.toString)())",
            "emit(doc.a\\u0062)",
            "emit(doc.\u{e9})",
            "emit(doc.a\u{e9})",
            "emit(d\\u006fc)",
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
    fn what_is_not_one_function_of_one_parameter_reads_any() {
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
            "doc => emit(doc.a)",
            "function(doc) { emit(doc.a) }, function(d) { emit(d) }",
            "function(doc) { emit(doc.a) } function(d) { emit(d) }",
            "(function(doc) { emit(doc.a) }, function(d) { emit(d) })",
            "(function(doc) { emit(doc.a) }) && (function(d) { emit(d) })",
            "(doc) => { emit(doc.a) }; (d) => { emit(d) }",
            "var f = function(doc) { emit(doc.a) }; f",
            "function doc(doc) { emit(doc.a) }",
            "function(d\u{e9}) { emit(1) }",
        ] {
            assert_eq!(of(source), None, "{source}");
        }
    }
}
