//! Checks that a line of input is a document, and finds its id and the members to send.
//!
//! SUMMARY   [`check`] reads the whole line once; [`Members`] selects the members to send.
//! PROMISES  An accepted line is one JSON object; its `_id`, if any, is a nonempty string. Members that are not sent
//!           are checked like the others. Members with the same name are all sent, in order, so that the last one is
//!           used, as in JavaScript.

use std::ops::Range;

use serde::de::IgnoredAny;

use json::cursor::Cursor;
use json::string::unescape;

/// Which members of its documents a view gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// All of them.
    #[default]
    All,
    /// `_id` and the few members with these names. For functions known to read no others: the process has less to
    /// parse.
    Named(Vec<String>),
}

/// A line with a document.
pub(super) struct Checked<'a> {
    /// The document, without surrounding white space.
    pub text: &'a str,
    /// Its id, a JSON string: a slice of the text, empty if there is none.
    pub id: &'a str,
}

impl Checked<'_> {
    /// Returns the position of the id in the text.
    pub fn id_start(&self) -> usize {
        self.id.as_ptr() as usize - self.text.as_ptr() as usize
    }
}

/// Checks a line. Returns `None` if it is empty. If only some members are sent, `kept` gets their positions.
///
/// # Errors
/// The problem and its remedy.
pub(super) fn check<'a>(
    line: &'a [u8],
    members: &Members,
    kept: &mut Vec<Range<usize>>,
) -> Result<Option<Checked<'a>>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| {
            format!(
                "not UTF-8 at byte {}; convert the input",
                error.valid_up_to() + 1
            )
        })?
        .trim_matches([' ', '\t', '\r', '\n']);
    if text.is_empty() {
        return Ok(None);
    }
    let id = look(text, members, kept).ok_or_else(|| not_a_document(text))?;
    id.map_or(Ok(()), check_id)?;
    let id = id.unwrap_or(&text[..0]);
    Ok(Some(Checked { text, id }))
}

/// Reads an object and returns its `_id`, if any; the outer option is `None` if the text is not a well-formed object.
/// `kept` gets the positions of members that are sent, each from the quotation mark of its name to the end of its
/// value.
fn look<'a>(
    text: &'a str,
    members: &Members,
    kept: &mut Vec<Range<usize>>,
) -> Option<Option<&'a str>> {
    kept.clear();
    let mut id = None;
    let mut scan = Cursor::of(text.as_bytes());
    let mut goes_on = scan.open(b'{')?;
    while goes_on {
        let quoted = scan.name()?;
        let value = scan.value()?;
        let member = quoted.start..value.end;
        let name = unescape(&text[quoted]);
        let is_id = name == "_id";
        if is_id {
            id = Some(&text[value]);
        }
        if let Members::Named(names) = members
            && (is_id || names.iter().any(|wanted| *wanted == *name))
        {
            match kept.last_mut() {
                // Only a comma separates them.
                Some(last) if last.end + 1 == member.start => last.end = member.end,
                _ => kept.push(member),
            }
        }
        goes_on = scan.goes_on(b'{')?;
    }
    scan.is_at_end().then_some(id)
}

fn check_id(id: &str) -> Result<(), String> {
    let is_plain = id.starts_with('"') && !id.contains('\\');
    match id {
        "\"\"" => Err("the document's '_id' is empty".into()),
        _ if is_plain || serde_json::from_str::<String>(id).is_ok() => Ok(()),
        // Not a string, or an unpaired surrogate.
        _ => Err(format!("the document's '_id' is {id}; it must be a string")),
    }
}

/// Returns why a text is not a document, in the parser's words.
fn not_a_document(text: &str) -> String {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => {
            // The line number in the parser's message is always 1.
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            format!("not JSON: {what} at column {}", error.column())
        }
        Ok(_) => "not a JSON object; a document is one object on one line".into(),
    }
}
