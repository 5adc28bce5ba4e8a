//! Random sources of map functions.

use test_random::TestRandom;

use super::pieces::{
    DOCUMENTS, EXPRESSIONS, LENDING, MEMBERS, NAMES, ODD_PIECES, PLAIN_STATEMENTS, SUSPECTS,
};
use super::places::{HEADS, PLACES};

/// How often placeholders in placeholders are filled with more than a constant.
const DEPTH_MAX: usize = 3;

/// One in so many statements is a piece of code that a careless reader takes for something else.
const ODD_PART: usize = 12;

/// What stands for the document in a plain source where no member of it is read.
const NO_DOCUMENT: &str = "({a: 1, tags: [2]})";

/// Returns the source of this number, which may be wrong. A quarter only reads members of documents,
/// a quarter does anything, and half has one suspect statement, each in its turn.
pub(super) fn source(random: &mut TestRandom, number: usize) -> String {
    let (head, tail) = *random.one_of(HEADS);
    let count = random.below(3);
    let mut generator = Generator {
        random,
        is_plain: number % 4 != 0,
    };
    let mut body: Vec<String> = (0..count).map(|_| generator.statement(0)).collect();
    let place = generator.random.below(count + 1);
    let last = match number % 2 {
        0 => generator.statement(0),
        _ => generator.suspect(SUSPECTS[number / 2 % SUSPECTS.len()]),
    };
    body.insert(place, last);
    format!("{head} var n = 0; {} {tail}", body.join("\n"))
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
            part if self.is_plain || part % 2 == 0 => PLAIN_STATEMENTS,
            _ => SUSPECTS,
        };
        let piece = self.pick(pieces);
        self.fill(piece, depth, self.is_plain)
    }

    /// Returns this piece somewhere in a plain source.
    fn suspect(&mut self, piece: &str) -> String {
        let place = self.pick(PLACES);
        let suspect = self.fill(piece, DEPTH_MAX - 1, false);
        place.replace("@X", &suspect)
    }

    /// Returns a piece with its placeholders filled.
    fn fill(&mut self, piece: &str, depth: usize, is_plain: bool) -> String {
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
                "E" => self.fill_one(EXPRESSIONS, depth + 1, self.is_plain),
                "D" if is_plain && reads_member => "doc".to_owned(),
                "D" if is_plain => NO_DOCUMENT.to_owned(),
                "D" => self.pick(DOCUMENTS).to_owned(),
                "M" if is_plain => format!(".{}", self.pick(NAMES)),
                "M" => self.fill_one(MEMBERS, depth + 1, false),
                "N" => self.pick(NAMES).to_owned(),
                "L" => self.pick(LENDING).to_owned(),
                other => unreachable!("{other} is no placeholder"),
            };
            text += rest;
        }
        text
    }

    fn fill_one(&mut self, pieces: &[&'static str], depth: usize, is_plain: bool) -> String {
        let piece = self.pick(pieces);
        self.fill(piece, depth, is_plain)
    }

    fn pick(&mut self, pieces: &[&'static str]) -> &'static str {
        self.random.one_of::<&'static str>(pieces)
    }
}
