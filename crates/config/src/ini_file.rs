//! Parses a file in CouchDB's `.ini` format into entries, each with its line.
//!
//! SUMMARY   `[section]`, `key = value`, comments after `;` (at the start of a line, or after white space inside it)
//!           or `#` (at the start), and continuation lines that start with white space.
//! SOURCE    CouchDB's `config` application. The parser of the `config` crate keeps inline comments and loses line
//!           numbers, hence our own.
//! DIFFERS   Any other line is an error; CouchDB drops it silently.

use std::path::Path;

use super::layer::Layer;
use super::names::home_of;
use super::origin::Origin;
use super::value::Raw;

/// Parses `text` as the `.ini` file `path`.
pub(super) fn read(path: &Path, text: &str) -> Layer {
    let mut layer = Layer::default();
    let mut section: Option<String> = None;
    // Whether a continuation line may follow.
    let mut open = false;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let origin = Origin::File {
            path: path.to_owned(),
            line: index + 1,
        };
        let content = without_comment(line).trim();
        if content.is_empty() {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            open = false;
            if !name.ends_with(']') {
                layer.problem(
                    &origin,
                    "the section's closing bracket is missing",
                    format!("write it as {content}]"),
                );
            }
            let name = name.trim_end_matches(']').trim();
            layer.section(name, origin);
            section = Some(name.to_owned());
        } else if let Some((key, value)) = content.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            open = section.is_some();
            match &section {
                Some(section) if value.is_empty() => {
                    layer.entry(section, key, Raw::Unset, origin);
                }
                Some(section) => layer.entry(section, key, Raw::Text(value.to_owned()), origin),
                None => {
                    layer.problem(
                        &origin,
                        format!("the key {key:?} is outside of any section"),
                        home_of(key),
                    );
                }
            }
        } else if let Some(entry) = layer.entries.last_mut()
            && open
            && line.starts_with([' ', '\t'])
        {
            entry.raw = match &entry.raw {
                Raw::Text(begun) => Raw::Text(format!("{begun} {content}")),
                _ => Raw::Text(content.to_owned()),
            };
        } else {
            layer.problem(
                &origin,
                // Not displayed: it may be a password.
                "the line is neither a [section], a key = value nor a ; comment",
                "correct the line",
            );
        }
    }
    layer
}

/// Returns the line up to its comment. A `;` counts only at the start or after white space, a `#` only at the start:
/// commands may contain others.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with([';', '#']) {
        return "";
    }
    let end = [" ;", "\t;"]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min();
    &line[..end.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(String, String, Raw, usize)> {
        let layer = read(Path::new("local.ini"), text);
        assert_eq!(layer.problems, []);
        let line = |origin| match origin {
            Origin::File { line, .. } => line,
            other => panic!("not from a file: {other}"),
        };
        layer
            .entries
            .into_iter()
            .map(|e| (e.section, e.key, e.raw, line(e.origin)))
            .collect()
    }

    fn text(value: &str) -> Raw {
        Raw::Text(value.to_owned())
    }

    #[test]
    fn inline_comments_end_a_value_and_other_semicolons_do_not() {
        let read = entries("; first\n[a]\nx = 1 ; one\ny=sh -c 'a;b'\t; two\n# third\nz = ;none\n");
        let expected = [
            ("a".into(), "x".into(), text("1"), 3),
            ("a".into(), "y".into(), text("sh -c 'a;b'"), 4),
            ("a".into(), "z".into(), Raw::Unset, 6),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_value_may_contain_equals_signs() {
        assert_eq!(entries("[q]\nl=A=1 run --x=y")[0].2, text("A=1 run --x=y"));
    }

    #[test]
    fn an_indented_line_continues_the_value_before_it() {
        assert_eq!(entries("[q]\r\nl = one\r\n  two\r\n")[0].2, text("one two"));
        assert_eq!(entries("[q]\nl =\n\ttwo\n")[0].2, text("two"));
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(entries("\u{feff}[q]\nl=1").len(), 1);
    }

    #[test]
    fn every_line_that_means_nothing_is_reported() {
        let layer = read(
            Path::new("l.ini"),
            "x=1\n[a\n[b]\nwhat is this\n  nor this\n",
        );
        let places: Vec<_> = layer.problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["l.ini:1", "l.ini:2", "l.ini:4", "l.ini:5"]);
    }

    #[test]
    fn a_line_that_means_nothing_is_reported_without_its_content() {
        let layer = read(Path::new("l.ini"), "[admins]\nann: sesame\n");
        let told = layer.problems[0].to_string();
        assert!(!told.contains("sesame"), "{told}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(
            text in "([\\[\\]a-z_.=; \t\n0-9]|\\[query_servers\\]\n|\\[log\\]\n|\\PC){0,60}"
        ) {
            read(Path::new("c.ini"), &text).settle();
        }
    }
}
