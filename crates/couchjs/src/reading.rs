//! Tells functions that only read their document from those that may try to change it.
//!
//! CouchDB deep-freezes the document of a map function, which costs more than parsing it. A
//! function that contains nothing that could change an object, or ask whether it is frozen, cannot
//! tell the difference, and its document is parsed anew for every call; so for such a function the
//! freezing is left out. In doubt a function is taken to write.
//!
//! LIMITS    A function that finds a mutating function by a name it computes, and applies it
//!           without naming anything below (say, by enumerating the properties of Object), is not
//!           noticed. It changes its own copy of one document; nobody else sees that.

use super::scanner::{Token, tokens};

/// Names that can change an object, ask whether it is frozen, or reach code that is not seen here.
/// They are looked for everywhere, in strings and comments too.
const WRITING_WORDS: [&str; 44] = [
    "Function",
    "Proxy",
    "Reflect",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "apply",
    "assign",
    "bind",
    "call",
    "captureStackTrace",
    "class",
    "constructor",
    "copyWithin",
    "defineProperties",
    "defineProperty",
    "delete",
    "eval",
    "fill",
    "freeze",
    "fromAsync",
    "getOwnPropertyDescriptor",
    "getOwnPropertyDescriptors",
    "getOwnPropertySymbols",
    "import",
    "isExtensible",
    "isFrozen",
    "isSealed",
    "pop",
    "preventExtensions",
    "prototype",
    "push",
    "require",
    "reverse",
    "seal",
    "setPrototypeOf",
    "shift",
    "sort",
    "splice",
    "super",
    "unshift",
    "with",
];

/// Longest source that is looked at, in bytes: its tokens take many times as much memory.
const SOURCE_BYTES_MAX: usize = 64 << 10;

/// Whether the function of a source cannot tell a frozen document from another.
pub(super) fn only_reads(source: &str) -> bool {
    if source.len() > SOURCE_BYTES_MAX {
        return false;
    }
    let word = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$'));
    if source
        .split(word)
        .any(|word| WRITING_WORDS.binary_search(&word).is_ok())
    {
        return false;
    }
    let Some(tokens) = tokens(source) else {
        return false;
    };
    let reader = Reader {
        source,
        tokens: &tokens,
    };
    (0..tokens.len()).all(|index| reader.harmless(index))
}

struct Reader<'a> {
    source: &'a str,
    tokens: &'a [Token<'a>],
}

impl Reader<'_> {
    fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| token.text)
    }

    fn harmless(&self, index: usize) -> bool {
        let token = self.tokens[index];
        match token.text {
            "=" => !self.is_assignment(token.start) || self.assigns_a_name(index),
            "++" | "--" => self.steps_a_name(index),
            "for" => self.loops_over_a_name(index),
            // What is called was found by a computed name.
            "]" => !self.is_called(index + 1),
            text => !(token.is_word() && text.contains('\\')),
        }
    }

    /// Whether `=` is an assignment and no part of `==`, `<=`, `=>` and so on.
    fn is_assignment(&self, at: usize) -> bool {
        let bytes = self.source.as_bytes();
        let before = |count: usize| at.checked_sub(count).map_or(b' ', |index| bytes[index]);
        match (before(1), bytes.get(at + 1)) {
            (_, Some(b'=' | b'>')) | (b'=' | b'!', _) => false,
            (shift @ (b'<' | b'>'), _) => before(2) == shift,
            _ => true,
        }
    }

    /// Whether the target of an assignment is a variable, or a pattern of a declaration.
    fn assigns_a_name(&self, index: usize) -> bool {
        let mut target = index;
        while target > 0 {
            target -= 1;
            let adjacent = self.tokens[target].start + self.tokens[target].text.len()
                == self.tokens[target + 1].start;
            if !(adjacent && "+-*/%&|^<>?".contains(self.tokens[target].text)) {
                break;
            }
        }
        match self.text(target) {
            "]" | "}" => self.opener(target).is_some_and(|open| {
                open > 0
                    && self.is_name(open - 1)
                    && matches!(self.text(open - 1), "const" | "let" | "var")
            }),
            _ => self.is_name(target),
        }
    }

    /// Whether a token is a word that no dot precedes.
    fn is_name(&self, index: usize) -> bool {
        let is_word = self.tokens.get(index).is_some_and(Token::is_word);
        is_word && (index == 0 || self.text(index - 1) != ".")
    }

    /// Whether `++` or `--` changes a variable, whichever side it belongs to.
    fn steps_a_name(&self, index: usize) -> bool {
        let next = index + 1;
        let reaches_on = matches!(self.text(next + 1), "." | "[" | "(" | "?");
        if matches!(self.text(next), "(" | "[") || self.is_name(next) && reaches_on {
            return false;
        }
        match index.checked_sub(1) {
            Some(left) if self.tokens[left].is_word() => self.is_name(left),
            Some(left) => !matches!(self.text(left), "]" | ")"),
            None => true,
        }
    }

    /// Whether a loop's variable is a variable: `for (doc.x of y)` assigns to a property.
    fn loops_over_a_name(&self, index: usize) -> bool {
        match self.text(index + 2) {
            "[" | "{" | "(" => false,
            _ => {
                !matches!(self.text(index + 3), "." | "[" | "(" | "?")
                    || matches!(self.text(index + 2), "const" | "let" | "var")
            }
        }
    }

    fn is_called(&self, next: usize) -> bool {
        match self.text(next) {
            "(" => true,
            "?" => self.text(next + 1) == "." && self.text(next + 2) == "(",
            text => text.starts_with('`'),
        }
    }

    /// The bracket that a closing one closes.
    fn opener(&self, close: usize) -> Option<usize> {
        let mut depth = 0;
        for index in (0..=close).rev() {
            match self.text(index) {
                "]" | "}" | ")" => depth += 1,
                "[" | "{" | "(" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(index);
            }
        }
        None
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
            "doc.t\\u0061gs",
            "doc.ta\u{301}gs++",
            "doc.n<!-- x\n= 1",
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
