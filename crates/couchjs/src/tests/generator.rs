//! Random sources of map functions.

use test_support::TestRandom;

use super::pieces::{
    DOCUMENTS, EXPRESSIONS, MEMBERS, NAMES, ODD_PIECES, PLAIN_STATEMENTS, SUSPECTS,
};
use super::places::{HEADS, PLACES};

/// Maximum depth of nested placeholders filled with more than a constant.
const DEPTH_MAX: usize = 3;

/// One of this many statements is code that a careless parser misreads.
const ODD_PART: usize = 12;

/// Stands for the document where a plain source reads no member of it.
const NO_DOCUMENT: &str = "({a: 1, tags: [2]})";

/// A statement that changes the document, and one that reads an arbitrary member.
const CLEAR_STATEMENTS: [&str; 2] = ["doc.a = @E; emit(doc.a);", "emit(doc['b']);"];

/// Returns the source with this number, which may be invalid. A quarter only reads members of documents, a quarter
/// does anything, a quarter has one of [`SUSPECTS`] in turn, and a quarter has a clear statement in one of [`PLACES`]
/// in turn.
pub(super) fn source(random: &mut TestRandom, number: usize) -> String {
    let turn = number / 4;
    let suspect = match number % 4 {
        1 => Some((SUSPECTS[turn % SUSPECTS.len()], any_place(random))),
        3 => {
            let statement = CLEAR_STATEMENTS[turn % CLEAR_STATEMENTS.len()];
            let place = PLACES[turn / CLEAR_STATEMENTS.len() % PLACES.len()];
            Some((statement, place))
        }
        _ => None,
    };
    let is_usual = suspect.is_some() && random.below(2) == 0;
    let (head, tail) = if is_usual {
        HEADS[0]
    } else {
        *random.one_of(HEADS)
    };
    let count = random.below(3);
    let mut generator = Generator {
        random,
        is_plain: !number.is_multiple_of(4),
    };
    let mut body: Vec<String> = (0..count).map(|_| generator.statement(0)).collect();
    let at = generator.random.below(count + 1);
    let last = match suspect {
        Some((statement, place)) => {
            let statement = generator.fill(statement, DEPTH_MAX - 1, false);
            place.replace("@X", &statement)
        }
        None => generator.statement(0),
    };
    body.insert(at, last);
    format!("{head} var n = 0; {} {tail}", body.join("\n"))
}

fn any_place(random: &mut TestRandom) -> &'static str {
    match random.below(2) {
        0 => PLACES[0],
        _ => random.one_of::<&'static str>(PLACES),
    }
}

struct Generator<'r> {
    random: &'r mut TestRandom,
    /// Whether the function mentions its document only to read members.
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

    /// Returns a piece with filled placeholders.
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
