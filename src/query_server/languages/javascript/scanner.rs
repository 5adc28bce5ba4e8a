//! A scanner for JavaScript sources that knows just enough to tell where statements begin: strings,
//! templates, comments, regular expressions and brackets.
//!
//! LIMITS    Whether `/` divides or begins a regular expression is guessed from the token before
//!           it, which is right except after a `}` that ends an expression. A wrong guess costs an
//!           error message or a little speed, never the meaning of a source that compiles.

/// A token: a word, string, regular expression, piece of a template, bracket, or one character of
/// an operator (`++`, `--` and `=>` may be whole).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// Where it starts in the source, in bytes.
    pub(super) start: usize,
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Whether it is a name, keyword or number.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_part)
    }
}

/// A source, scanned.
pub(super) struct Scan<'a> {
    /// What to insert, and where, so that functions without a name can stand as statements.
    pub(super) edits: Vec<(usize, &'static str)>,
    pub(super) tokens: Vec<Token<'a>>,
}

impl<'a> Scan<'a> {
    pub(super) fn of(source: &'a str) -> Self {
        Scanner::new(source).scan()
    }
}

/// What ends a line.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

fn is_word_part(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '#' | '\\')
    } else {
        !(c.is_whitespace() || c == '\u{feff}')
    }
}

/// What the last token was, as far as it decides what the next one means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Nothing, or `;`: a statement begins.
    Start,
    /// A name, number, string, `)`, `]`: an operand is complete.
    Operand,
    /// `}` of a block or a function.
    BlockEnd,
    /// `)` after the condition of `if`, `while`, `for` or `with`; `do`, `else`, `=>`.
    ConditionEnd,
    /// An operator, an opening bracket, or a keyword that an expression follows.
    Operator,
    /// `if`, `while`, `for`, `with`: a condition follows.
    Condition,
}

/// An open bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// `(` or `[`
    Group,
    /// `(` of a condition.
    Condition,
    /// `{` of a block or a function body.
    Block,
    /// `{` of an object literal.
    Object,
    /// `${` in a template.
    Template,
}

/// How far a function that is being wrapped has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapping {
    No,
    /// Its parameters come.
    Parameters,
    /// Its body is open.
    Body,
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    open: Vec<Open>,
    last: Last,
    /// Whether a line ended since the last token.
    newline: bool,
    wrapping: Wrapping,
    edits: Vec<(usize, &'static str)>,
    tokens: Vec<Token<'a>>,
}

/// Keywords after which an expression goes on.
const OPERATOR_WORDS: [&str; 12] = [
    "return",
    "typeof",
    "instanceof",
    "in",
    "of",
    "new",
    "delete",
    "void",
    "throw",
    "case",
    "await",
    "yield",
];

impl<'a> Scanner<'a> {
    fn new(source: &'a str) -> Self {
        Scanner {
            source,
            at: 0,
            open: Vec::new(),
            last: Last::Start,
            newline: false,
            wrapping: Wrapping::No,
            edits: Vec::new(),
            tokens: Vec::new(),
        }
    }

    fn scan(mut self) -> Scan<'a> {
        while let Some(next) = self.rest().chars().next() {
            let start = self.at;
            let blank = next.is_whitespace()
                || next == '\u{feff}'
                || self.rest().starts_with("/*")
                || self.at_line_comment();
            self.token(next);
            if !blank {
                self.tokens.push(Token {
                    start,
                    text: &self.source[start..self.at],
                });
            }
        }
        Scan {
            edits: self.edits,
            tokens: self.tokens,
        }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn token(&mut self, next: char) {
        match next {
            end if LINE_ENDS.contains(&end) => {
                self.newline = true;
                self.at += next.len_utf8();
            }
            c if c.is_whitespace() || c == '\u{feff}' => self.at += c.len_utf8(),
            _ if self.at_line_comment() => self.line_comment(),
            '/' if self.rest().starts_with("/*") => self.block_comment(),
            '/' if self.regex_allowed() => self.regex(),
            '"' | '\'' => self.string(next),
            '`' => {
                self.at += 1;
                self.template();
            }
            '(' | '[' | '{' => self.opening(next),
            ')' | ']' | '}' => self.closing(next),
            c if is_word_part(c) => self.word(),
            _ => self.operator(next),
        }
    }

    fn seen(&mut self, last: Last) {
        self.last = last;
        self.newline = false;
    }

    /// Whether a comment up to the end of the line begins here; there are four kinds of them.
    fn at_line_comment(&self) -> bool {
        let rest = self.rest();
        rest.starts_with("//")
            || rest.starts_with("<!--")
            || rest.starts_with("-->") && (self.newline || self.tokens.is_empty())
            || rest.starts_with("#!") && self.at == 0
    }

    fn line_comment(&mut self) {
        let end = self.rest().find(LINE_ENDS);
        self.at = end.map_or(self.source.len(), |length| self.at + length);
    }

    fn block_comment(&mut self) {
        let end = self.rest()[2..]
            .find("*/")
            .map_or(self.source.len(), |n| self.at + n + 4);
        self.newline |= self.source[self.at..end].contains(LINE_ENDS);
        self.at = end;
    }

    fn regex_allowed(&self) -> bool {
        !matches!(self.last, Last::Operand)
    }

    /// Skips what stands up to an unescaped end; characters in a class do not end a regular
    /// expression.
    fn skip_to(&mut self, end: char, classes: bool) {
        let (mut escaped, mut in_class) = (false, false);
        for (offset, c) in self.rest().char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\n' | '\r' => {
                    self.at += offset;
                    return;
                }
                '[' if classes => in_class = true,
                ']' if classes => in_class = false,
                _ if c == end && !in_class => {
                    self.at += offset + 1;
                    return;
                }
                _ => {}
            }
        }
        self.at = self.source.len();
    }

    fn regex(&mut self) {
        self.skip_to('/', true);
        let flags = self.rest().find(|c: char| !c.is_alphanumeric());
        self.at = flags.map_or(self.source.len(), |length| self.at + length);
        self.seen(Last::Operand);
    }

    fn string(&mut self, quote: char) {
        self.skip_to(quote, false);
        self.seen(Last::Operand);
    }

    /// Reads a template up to its end or to the next `${`.
    fn template(&mut self) {
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '`' => {
                    self.at += offset + 1;
                    return self.seen(Last::Operand);
                }
                '$' if self.rest()[offset..].starts_with("${") => {
                    self.at += offset + 2;
                    self.open.push(Open::Template);
                    return self.seen(Last::Operator);
                }
                _ => {}
            }
        }
        self.at = self.source.len();
    }

    fn opening(&mut self, bracket: char) {
        let condition = self.last == Last::Condition;
        let kind = match bracket {
            '{' if matches!(self.last, Last::Operator) => Open::Object,
            '{' => Open::Block,
            '(' if condition => Open::Condition,
            _ => Open::Group,
        };
        if bracket == '{' && self.open.is_empty() && self.wrapping == Wrapping::Parameters {
            self.wrapping = Wrapping::Body;
        }
        self.open.push(kind);
        self.at += 1;
        self.seen(if kind == Open::Block {
            Last::Start
        } else {
            Last::Operator
        });
    }

    fn closing(&mut self, bracket: char) {
        self.at += 1;
        let kind = self.open.pop();
        if bracket == '}' && self.open.is_empty() && self.wrapping == Wrapping::Body {
            self.wrapping = Wrapping::No;
            self.edits.push((self.at, ")"));
            return self.seen(Last::Operand);
        }
        match kind {
            Some(Open::Template) => self.template(),
            Some(Open::Block) => self.seen(Last::BlockEnd),
            Some(Open::Condition) => self.seen(Last::ConditionEnd),
            _ => self.seen(Last::Operand),
        }
    }

    fn word(&mut self) {
        let length = self
            .rest()
            .find(|c| !is_word_part(c))
            .unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        let member = self.source[..self.at].trim_end().ends_with('.');
        let wrap = self.open.is_empty()
            && self.wrapping == Wrapping::No
            && self.at_statement()
            && (word == "function" && followed_by_parameters(&self.rest()[length..])
                || word == "async" && followed_by_function(&self.rest()[length..]));
        if wrap {
            self.edits.push((self.at, ";("));
            self.wrapping = Wrapping::Parameters;
        }
        self.at += length;
        self.seen(match word {
            _ if member => Last::Operand,
            "if" | "while" | "for" | "with" => Last::Condition,
            "do" | "else" => Last::ConditionEnd,
            _ if OPERATOR_WORDS.contains(&word) => Last::Operator,
            _ => Last::Operand,
        });
    }

    /// Whether a statement can begin here.
    fn at_statement(&self) -> bool {
        match self.last {
            Last::Start | Last::BlockEnd => true,
            Last::Operand => self.newline,
            Last::ConditionEnd | Last::Operator | Last::Condition => false,
        }
    }

    fn operator(&mut self, next: char) {
        // After `x++` and `x--` an operand is complete.
        if (self.rest().starts_with("++") || self.rest().starts_with("--"))
            && matches!(self.last, Last::Operand)
        {
            self.at += 2;
            return self.seen(Last::Operand);
        }
        if self.rest().starts_with("=>") {
            // The body of an arrow function is a block.
            self.at += 2;
            return self.seen(Last::ConditionEnd);
        }
        self.at += next.len_utf8();
        self.seen(if next == ';' {
            Last::Start
        } else {
            Last::Operator
        });
    }
}

/// The text after white space and comments.
fn skip_space(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        text = if let Some(comment) = text.strip_prefix("//") {
            comment.find(LINE_ENDS).map_or("", |end| &comment[end..])
        } else if let Some(comment) = text.strip_prefix("/*") {
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else {
            return text;
        };
    }
}

fn followed_by_parameters(text: &str) -> bool {
    skip_space(text).starts_with('(')
}

fn followed_by_function(text: &str) -> bool {
    skip_space(text)
        .strip_prefix("function")
        .is_some_and(followed_by_parameters)
}
