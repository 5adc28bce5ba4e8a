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

use super::parser::{Parsed, Parser};
use super::reading::only_reads;
use super::source::{self, is_name_part, skip_space};

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
    let head = Head::of(source)?;
    if !head.is_whole(source) {
        return None;
    }
    let mut members = BTreeSet::new();
    for start in mentions(source, head.parameter) {
        if start != head.place {
            members.insert(member(&source[start + head.parameter.len()..])?);
        }
    }
    (members.len() <= MEMBERS_MAX).then_some(members)
}

/// The beginning of a source that may be one function of one parameter.
struct Head<'a> {
    parameter: &'a str,
    /// Where the parameter stands in the source, in bytes.
    place: usize,
    /// The block of the function, and what follows it.
    body: &'a str,
    /// Whether the function is in parentheses.
    in_parentheses: bool,
}

impl<'a> Head<'a> {
    fn of(source: &'a str) -> Option<Self> {
        let head = |rest, in_parentheses| {
            let (parameter, body) = function_head(rest)?;
            Some(Self {
                parameter,
                place: parameter.as_ptr() as usize - source.as_ptr() as usize,
                body,
                in_parentheses,
            })
        };
        head(source, false).or_else(|| head(skip_space(source).strip_prefix('(')?, true))
    }

    /// Whether the source ends with the block of the function. The engine says so: between `?` and `:`
    /// it takes one arrow function and nothing behind it.
    fn is_whole(&self, source: &str) -> bool {
        let end = |text: &'a str| text.trim_end_matches(|c: char| c.is_whitespace() || c == ';');
        let body = match self.in_parentheses {
            true => end(self.body).strip_suffix(')').map(end),
            false => Some(end(self.body)),
        };
        let Some((body, parser)) = body.zip(Parser::new()) else {
            return false;
        };
        let arrow = format!("(0?({})=>{body}\n:0)", self.parameter);
        parser.parse(&arrow) == Parsed::Correct
            && source::parse(&parser, source).0 == Parsed::Correct
    }
}

/// The parameter of the function that a text begins with, and the text from its block on.
fn function_head(text: &str) -> Option<(&str, &str)> {
    let (first, rest) = match word(text) {
        Some(("function", rest)) => {
            let rest = word(rest).map_or(rest, |(_name, rest)| rest);
            let (parameter, rest) = word(skip_space(rest).strip_prefix('(')?)?;
            return block(parameter, skip_space(rest).strip_prefix(')')?);
        }
        Some(bare) => bare,
        None => {
            let (parameter, rest) = word(skip_space(text).strip_prefix('(')?)?;
            (parameter, skip_space(rest).strip_prefix(')')?)
        }
    };
    block(first, skip_space(rest).strip_prefix("=>")?)
}

fn block<'a>(parameter: &'a str, rest: &'a str) -> Option<(&'a str, &'a str)> {
    let body = skip_space(rest);
    body.starts_with('{').then_some((parameter, body))
}

/// The word that a text begins with, and the rest.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = skip_space(text);
    let end = text.find(|c| !is_name_part(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let is_plain = word.is_ascii() && !word.contains('\\');
    (is_plain && !word.is_empty()).then_some((word, rest))
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

/// The name of the member that is read where a mention of the document ends.
fn member(rest: &str) -> Option<&str> {
    let name = rest.strip_prefix("?.").or_else(|| rest.strip_prefix('.'))?;
    let end = name.find(|c| !is_name_part(c)).unwrap_or(name.len());
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
