//! Converts a page of docs/ into roff, for the manual.
//!
//! SUMMARY   Knows what these pages use: headings, paragraphs, tables, lists, fenced lines, `code`, **bold** and
//!           links, which become their text.
//! LIMITS    Tables become lists of tagged paragraphs; those of keys show the default after the key.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// Indentation of lists and fenced lines, in characters.
const INDENT: &str = "4";

/// Adds a page without its title.
pub(super) fn add(page: &mut Roff, text: &str) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with("# ") {
            continue;
        } else if let Some(heading) = line.strip_prefix("### ") {
            page.control("SS", [heading]);
        } else if let Some(heading) = line.strip_prefix("## ") {
            page.control("SH", [&*heading.to_uppercase()]);
        } else if line.starts_with("```") {
            page.control("PP", []).control("RS", [INDENT]);
            super::preformatted(page, lines.by_ref().take_while(|line| *line != "```"));
            page.control("RE", []);
        } else if line.starts_with('|') {
            let ruler = lines.next();
            debug_assert!(ruler.is_some_and(|ruler| ruler.starts_with("|--")));
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                add_row(page, row);
            }
        } else {
            let (mark, first) = item(line).unwrap_or(("", line));
            let mut paragraph = first.to_owned();
            while let Some(more) = lines.next_if(|line| goes_on(line)) {
                paragraph.push(' ');
                paragraph.push_str(more.trim_start());
            }
            match mark {
                "" => page.control("PP", []),
                mark => page.control("IP", [mark, INDENT]),
            };
            page.text(inlines(&paragraph));
        }
    }
}

/// Splits an item of a list into its mark and its text.
fn item(line: &str) -> Option<(&str, &str)> {
    let (mark, text) = line.split_once(' ')?;
    let numbered = mark
        .strip_suffix('.')
        .is_some_and(|n| n.parse::<u8>().is_ok());
    (numbered || mark == "*").then_some((mark, text))
}

fn goes_on(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(['#', '|', '`']) && item(line).is_none()
}

/// Adds a row: its first cell as the tag, with the second if there are three, and the last as the text.
fn add_row(page: &mut Roff, row: &str) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
        return;
    };
    let mut tag = inlines(first);
    if let [_, default, _] = &cells[..]
        && !default.is_empty()
    {
        tag.push(roman(" = "));
        tag.append(&mut inlines(default));
    }
    page.control("TP", []).text(tag).text(inlines(last));
}

/// Returns a text with `code` and **bold** as bold, and links as their text.
fn inlines(text: &str) -> Vec<Inline> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[']) {
        let (before, from) = rest.split_at(at);
        parts.push(roman(before));
        let marked = |mark: &str| from.strip_prefix(mark)?.split_once(mark);
        if let Some((code, after)) = marked("`").or_else(|| marked("**")) {
            parts.push(bold(code));
            rest = after;
        } else if let Some((label, after)) = link(from) {
            parts.append(&mut inlines(label));
            rest = after;
        } else {
            parts.push(roman(&from[..1]));
            rest = &from[1..];
        }
    }
    parts.push(roman(rest));
    parts
}

/// Splits `[text](address) and more` into its text and the rest.
fn link(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (_, after) = rest.split_once(')')?;
    (!label.contains(']')).then_some((label, after))
}
