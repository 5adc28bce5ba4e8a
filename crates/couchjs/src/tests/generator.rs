//! Random sources of map functions, from a grammar of what is easily misread.
//!
//! `@S`, `@E`, `@D`, `@M` and `@N` stand for a statement, an expression, an expression that is the
//! document, the access to a member, and the name of one. Loops have bounds of their own.

use test_random::TestRandom;

/// How often placeholders in placeholders are filled with more than a constant.
const DEPTH_MAX: usize = 3;

/// One in so many statements is a piece of code that a careless reader takes for something else.
const ODD_PART: usize = 12;

/// What a plain source is made of.
const PLAIN_STATEMENTS: &[&str] = &[
    "emit(@E, @E);",
    "emit(@D@M, 1);",
    "emit(@D@M, @D@M);",
    "if (@E) { @S } else { @S }",
    "if (typeof @D@M === 'number') @S",
    "var v = @E; emit(v, @D@M);",
    "let w = @D@M; { let w = @E; emit(w); } emit(w);",
    "for (var t of [1, @E]) { if (n++ > 9) break; @S }",
    "try { @S } catch (error) { emit('' + error); }",
    "var {length, x = @E} = @D@M || ''; emit(length, x);",
    "(function(x) { @S emit(x); })(@E);",
    "(function(doc) { emit(doc@M); })({a: 'inner', tags: [1]});",
    "[1, 2].forEach(function(i) { emit(i, @D@M); });",
    "/* doc = 1 */ emit('doc', \"doc[0]\" + `doc ${@D@M}`);",
    "var g = {get a() { return @D@M; }, doc: 1}; emit(g.a, g.doc);",
];

const STATEMENTS: &[&str] = &[
    "emit(@E, @E);",
    "emit(@E, @E);",
    "emit(@D@M, 1);",
    "emit(@D@M, @D@M);",
    "if (@E) { @S } else { @S }",
    "if (typeof @D@M === 'number') @S",
    "var v = @E; emit(v, @D@M);",
    "let w = @D@M; { let w = @E; emit(w); } emit(w);",
    "for (var k in @D) { emit(k, doc[k]); }",
    "for (var t of [1, @E]) { if (n++ > 9) break; @S }",
    "for (const i of Object.keys(@D)) { emit(i); }",
    "switch (@E) { case 3: @S break; default: @S }",
    "try { @S } catch (error) { emit('' + error); } finally { @S }",
    "try { throw @E; } catch (doc) { emit(doc); @S }",
    "L: { if (@E) break L; @S }",
    "return; @S",
    // Aliases.
    "var d = @D; emit(d@M);",
    "var d = @D; d@M = @E; emit(doc@M, d@M);",
    "var t = @D.tags; t.push(1); emit(t);",
    "var f = @D.tags.push; f.call(doc.tags, 1); emit(doc.tags);",
    "var f = [].map; emit(doc.tags.map(String), f === doc.tags.map);",
    "[7].forEach(@D.tags['pu' + 'sh'], doc.tags); emit(doc.tags);",
    "JSON.stringify(@D, doc.tags && doc.tags['pu' + 'sh']); emit(doc);",
    "var o = {f: doc, g: function() { return this.f; }}; emit(o.g()@M); o.f@M = 5; emit(@D@M);",
    "kept = @D; emit(kept@M);",
    "emit(typeof kept === 'undefined' || kept@M); kept = doc;",
    "count = (typeof count === 'number' ? count : 0) + 1; emit(count);",
    // `arguments`.
    "emit(arguments.length, arguments[0]@M);",
    "arguments[0] = {a: 1}; emit(doc.a);",
    "arguments[0]@M = @E; emit(doc@M);",
    "doc = {a: @E}; emit(arguments[0].a, @D@M);",
    "(function() { emit(arguments[0]); @S })(@D);",
    "emit(Array.from(arguments).length);",
    // Destructuring.
    "var {a, b: [z] = [], ...rest} = @D; emit(a, z); emit(rest);",
    "var {@N: x = @E} = @D; emit(x);",
    "var {length, [@E]: y} = doc.tags || []; emit(length, y);",
    "var {push} = doc.tags || []; emit(push === [].push);",
    "({a: doc.b} = {a: @E}); emit(@D.b);",
    "[doc.a, doc.b] = [doc.b, doc.a]; emit(doc.a, @D.b);",
    "[x, y = @E, ...z] = [@D@M, 2, 3, 4]; emit(x, [y, z]);",
    "for ([doc.a] of [[@E]]) emit(doc.a);",
    "for (doc@M in {q: 1}) emit(@D@M);",
    "for (const [k, v] of Object.entries(@D)) { emit(k, v); }",
    "(function({a, o}) { emit(a, o); })(@D);",
    "(([first = @E]) => emit(first))(doc.tags || []);",
    // Getters and setters.
    "var g = {get a() { return @D@M; }, set a(v) { doc.b = v; }}; emit(g.a); g.a = @E; emit(doc.b);",
    "var g = {get doc() { return 8; }, get [@E]() { return 9; }}; emit(g.doc, g);",
    "Object.defineProperty(@D, 'a', {get() { return 4; }}); emit(doc.a);",
    "doc.__defineGetter__('c', () => 6); emit(doc.c);",
    // `eval`, `with` and code that is made.
    "eval('doc.a = 1'); emit(doc.a);",
    "emit(eval('doc')@M);",
    "var doc2 = eval('doc' + @E); emit(doc2);",
    "(0, eval)('seen = 1'); emit(seen);",
    "e\\u0076al('doc.b = 2'); emit(doc.b);",
    "new Function('d', 'd.a = 3')(@D); emit(doc.a);",
    "emit.constructor('d', 'd.a = 3')(@D); emit(doc.a);",
    "new globalThis['Fun' + 'ction']('d', 'd.c = 3')(@D); emit(doc.c);",
    "with (@D) { emit(a); @N = 1; } emit(doc@M);",
    // Shadowing.
    "(function(doc) { @S })({a: 'inner', tags: [1], o: {n: 2}});",
    "var doc = {a: @E}; emit(@D.a);",
    "{ let doc = {b: 1}; doc.b = 2; emit(doc.b, doc); } @S",
    "function doc() {} emit(typeof @D);",
    "(function(emit) { emit(doc@M); })(function(x) { log(x); });",
    "for (let doc of [{a: 1}, {a: 2}]) { emit(@D@M); }",
    "(doc => { doc.a = 5; emit(doc.a); })({});",
    "var f = function doc(x) { return x ? typeof doc : 0; }; emit(f(@E));",
    // Functions in functions.
    "(function() { @S })();",
    "(() => { @S })();",
    "(function(x) { @S emit(x); })(@E);",
    "var h = (x, y = @D@M) => [x, y]; emit(h(@E));",
    "function h(x) { return x && x.a; } emit(h(@D), h(@E));",
    "function h(x) { x.a = 12; } h(@D); emit(doc.a);",
    "[1, 2].forEach(function(i) { emit(i, @D@M); });",
    "(doc.tags || []).forEach(t => { @S });",
    "emit([...(function*() { yield @E; yield* doc.tags || []; })()]);",
    "emit([3, 1, 2].sort(), [1].concat(@E));",
    "emit(new (class { x = @E; get y() { return doc.a; } })().y);",
    // What changes documents, or asks about them.
    "@D@M = @E; emit(doc@M);",
    "@D@M += 1; emit(doc@M);",
    "@D@M++; --@D@M; emit(doc@M);",
    "@D@M ||= @E; @D@M ??= 1; emit(doc@M);",
    "delete @D@M; emit(doc@M, 'a' in doc);",
    "'use strict'; @D@M = 1; emit(2);",
    "(function() { 'use strict'; @D@M = 1; emit('written'); })();",
    "emit(Object.isFrozen(@D), Object.isExtensible(doc.o || {}));",
    "Object.assign(@D, {a: @E}); emit(doc.a);",
    "(doc.tags || []).push(@E); emit(doc.tags);",
    "(doc.tags || [])['push'](@E); emit(doc.tags);",
    "(doc.tags || []).pu\\u0073h(@E); emit(doc.tags);",
    "(doc.tags || []).length = 0; emit(doc.tags);",
    "Object.prototype.f = function() { return this; }; emit(doc.f());",
    "Array.prototype.toJSON = function() { return 'list'; }; emit(doc.tags);",
    "emit(doc.hasOwnProperty('a'), doc.toString());",
    "emit(Object.getPrototypeOf(@D) === Object.prototype);",
];

const EXPRESSIONS: &[&str] = &[
    "1",
    "'text'",
    "null",
    "@D@M",
    "@D@M",
    "@D",
    "[@E, @E]",
    "{a: @E, @N: @D@M}.a",
    "({doc: @E, 'b': 2, [@E]: 3})",
    "({...@D, x: 1})",
    "({doc}).doc@M",
    "(@E, @E)",
    "(@E ? @E : @E)",
    "(@E && @E || @E)",
    "(@E ?? @D@M)",
    "typeof @D@M",
    "!@D@M",
    "'a' in @D",
    "@E + @E",
    "@E / @E / 2",
    "`${@D@M} doc.b = 1 ${@E}`",
    "`doc.a` + 'doc.c = 2' + \"eval('doc')\"",
    "/doc.a = [/\"]/.test(@E)",
    "String(@E).replace(/t/g, '/')",
    "JSON.stringify(@D)",
    "JSON.stringify(@D@M)",
    "(() => @E)()",
    "(x => x)(@D)@M",
    "(function() { return @E; })()",
    "(function() { return this === globalThis; })()",
    "Object.keys(@D).length",
    "isArray(@D.tags)",
    "(@D.tags || []).map(t => t + @E)",
    "(@D.tags || []).slice().concat(@E)",
    "(@D.tags || []).indexOf('q')",
    "sum([1, @E])",
    "(x = @E)",
    "/* doc.f */ @E // doc.f = 1\n",
    "0 /* ' */",
    "'\\u0064oc.a'",
    "doc?.[@E]",
    "@D?.o?.n",
    "@D.o.n[1].m",
    "new Date(0).getTime()",
    "this",
    "void @E",
];

const DOCUMENTS: &[&str] = &[
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "doc",
    "d\\u006fc",
    "\\u{64}oc",
    "(doc)",
    "doc /* . */ ",
    "doc\n",
    "[doc][0]",
    "(() => doc)()",
    "(0, doc)",
    "(doc || {})",
    "arguments[0]",
];

const MEMBERS: &[&str] = &[
    ".@N",
    ".@N",
    ".@N",
    ".@N",
    ".@N",
    ".@N",
    "?.@N",
    "['@N']",
    "?.['@N']",
    "[@E]",
    ".\\u0061",
    ".\\u{62}",
    "['\\x61']",
    "/**/.@N",
    "\n.@N",
];

const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "tags",
    "o",
    "doc",
    "_id",
    "length",
    "none",
    "if",
    "constructor",
    "$f",
    "\u{e9}",
    "toString",
];

/// What stands around the body of a function.
const HEADS: &[(&str, &str)] = &[
    ("function(doc) {", "}"),
    ("function(doc) {", "}"),
    ("function(doc) {", "}"),
    ("function (doc) { 'use strict';", "} // '"),
    ("(doc) => {", "}"),
    ("doc => {", "};"),
    ("(function(doc) {", "})"),
    ("(function map(doc) {", "});\n"),
    ("/* function(d) { */ function /**/ (doc) {", "}"),
    ("function(d\\u006fc) {", "}"),
    ("function(doc, other) {", "}"),
    ("function(doc = 1) {", "}"),
    ("function({a, ...doc}) {", "}"),
    ("function(doc) {", "} function(doc) { emit(doc.e) }"),
    ("function(doc) {", "} / 2"),
    ("function h() {} function(doc) {", "}"),
    ("var of = 1; of / 2\nfunction(doc) {", "}"),
    ("var shared = {}; function(doc) {", "}"),
    ("(function() { return function(doc) {", "} })()"),
];

/// Pieces of code that a careless reader of sources takes for something else.
const ODD_PIECES: &[&str] = &[
    "doc.d = 5; emit(doc.d);",
    "var of = 4; emit(of / doc.a / 1, \"/\");",
    "var await = 4; emit(await / doc.b / 1, '\"/');",
    "var yield = 4, let = 2; emit(yield / let / doc.c, '`/');",
    "emit(function() {} / 2 + \"/\" + doc.a);",
    "L: {} /\"/.test(doc.c) || emit(doc.c + \"\");",
    "emit('a\\\r\n' + doc.d, '\\\r\n/');",
    "emit(`${doc.a}/${`${/[`}/]/.test(doc.b)}`}` + `/`);",
    "if (doc.a) /'/.test(doc.e); emit(\"'\" + doc.e);",
    "(doc.a) / 2; emit(doc.b /1/ 2);",
    "var x = {return: 6, if: function(a) { return a; }}; emit(x.return / 2, x.if (doc.e) / 3);",
    "var y = x => {}\n/doc.f/.test('');",
    "emit([] / 1 + '/', doc.a ? /=/ : doc.b);",
    "emit({}.x / doc.c, '/');",
    "a = 1; a++ / 2; emit(a, doc.e);",
    "a = 2\n++a / 1; emit(a, doc.d);",
    "emit(1. / doc.a, '/' /* ' */);",
    "var n2 = doc.a<!--doc.b\nemit(n2);",
    "emit(doc.a)\n--> doc.b = 1",
    "// doc'\r",
    "// doc\u{2028}doc.a = 1;",
    "/* \" */",
    "/",
    "'",
    "\"",
    "`",
    "}",
    "{",
    "${",
    "doc.a /",
    "= doc.b;",
    "/ doc.e = 7;",
    "[doc.a] = [1];",
    "\n",
    ")",
    "(",
    "\\",
    "\u{2028}",
];

/// What stands for the document in a plain source where no member of it is read.
const NO_DOCUMENT: &str = "({a: 1, tags: [2]})";

/// Returns a source, which may be wrong.
pub(super) fn source(random: &mut TestRandom) -> String {
    let is_plain = random.below(2) == 0;
    let (head, tail) = *random.one_of(HEADS);
    let count = 1 + random.below(3);
    let mut generator = Generator { random, is_plain };
    let body: String = (0..count).map(|_| generator.statement(0) + "\n").collect();
    format!("{head} var n = 0; {body} {tail}")
}

struct Generator<'r> {
    random: &'r mut TestRandom,
    /// Whether the function names its document only to read members of it.
    is_plain: bool,
}

impl Generator<'_> {
    fn statement(&mut self, depth: usize) -> String {
        let pieces = match self.random.below(ODD_PART) {
            0 => ODD_PIECES,
            _ if self.is_plain => PLAIN_STATEMENTS,
            _ => STATEMENTS,
        };
        self.fill(pieces, depth)
    }

    /// Returns one of these pieces with its placeholders filled.
    fn fill(&mut self, pieces: &[&'static str], depth: usize) -> String {
        let piece = self.pick(pieces);
        let mut parts = piece.split('@').peekable();
        let mut text = parts.next().unwrap_or_default().to_owned();
        while let Some(part) = parts.next() {
            let (placeholder, rest) = part.split_at(1);
            let reads_member = rest.starts_with(['.', '?'])
                || rest.is_empty() && parts.peek().is_some_and(|next| next.starts_with('M'));
            let is_deep = depth >= DEPTH_MAX;
            text += &match placeholder {
                "S" if is_deep => ";".to_owned(),
                "S" => self.statement(depth + 1),
                "E" if is_deep => "2".to_owned(),
                "E" => self.fill(EXPRESSIONS, depth + 1),
                "D" if self.is_plain && reads_member => "doc".to_owned(),
                "D" if self.is_plain => NO_DOCUMENT.to_owned(),
                "D" => self.pick(DOCUMENTS).to_owned(),
                "M" if self.is_plain => format!(".{}", self.pick(NAMES)),
                "M" => self.fill(MEMBERS, depth + 1),
                "N" => self.pick(NAMES).to_owned(),
                other => unreachable!("{other} is no placeholder"),
            };
            text += rest;
        }
        text
    }

    fn pick(&mut self, pieces: &[&'static str]) -> &'static str {
        self.random.one_of::<&'static str>(pieces)
    }
}
