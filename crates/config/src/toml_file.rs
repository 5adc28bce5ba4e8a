//! Parses a TOML file into entries, each with its line.
//!
//! SUMMARY   Sections are top-level tables, and keys are their entries; nothing is interpreted here.
//! PROMISES  Reports every syntax error of the file, not only the first. Quoted keys may have dots.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::keys;
use super::layer::Layer;
use super::names::home_of;
use super::origin::Origin;
use super::value::Raw;

/// Parses `text` as the TOML file `path`. `built_in` marks the defaults.
pub(super) fn read(path: &Path, text: &str, built_in: bool) -> Layer {
    let mut layer = Layer::default();
    let line_ends: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    let origin = |offset: usize| {
        if built_in {
            Origin::Default
        } else {
            Origin::File {
                path: path.to_owned(),
                line: line_ends.partition_point(|end| *end < offset) + 1,
            }
        }
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = origin(error.span().map_or(0, |span| span.start));
        layer.problem(
            &at,
            format!("this is not TOML ({})", error.message().replace('\n', ", ")),
            "correct the line",
        );
    }
    if !errors.is_empty() {
        return layer;
    }
    for (section, value) in document.get_ref() {
        let at = origin(section.span().start);
        let name = section.get_ref().as_ref();
        match value.get_ref() {
            DeValue::Table(table) => read_section(name, at, table, &origin, &mut layer),
            DeValue::Array(_) => {
                let shown = name.escape_debug();
                layer.problem(
                    &at,
                    format!("[[{shown}]] is a list of sections"),
                    format!("write it once, as [{shown}]"),
                );
            }
            _ => {
                layer.problem(
                    &at,
                    format!("the key {name:?} is outside of any section"),
                    home_of(name),
                );
            }
        }
    }
    // The parser sorts them by name.
    layer.sections.sort_by(|a, b| a.1.cmp(&b.1));
    layer.entries.sort_by(|a, b| a.origin.cmp(&b.origin));
    layer
}

/// Reads a section and the sections nested in it: `replicator.shares`, and those of a family, whose names have dots
/// only in quotes.
fn read_section(
    section: &str,
    at: Origin,
    table: &DeTable<'_>,
    origin: &impl Fn(usize) -> Origin,
    layer: &mut Layer,
) {
    let is_family = keys::families().any(|family| family == section);
    if !is_family {
        layer.section(section, at);
    }
    for (key, value) in table {
        let at = origin(key.span().start);
        let key = key.get_ref();
        let within = format!("{section}.{key}");
        match (value.get_ref(), keys::family(section)) {
            (DeValue::Table(inner), _)
                if is_family || keys::sections().any(|section| section == within) =>
            {
                read_section(&within, at, inner, origin, layer);
            }
            _ if is_family => {
                layer.problem(
                    &at,
                    format!("the key {key:?} is in [{section}], which has sections only"),
                    format!("put it under a section with a name: [{section}.NAME]"),
                );
            }
            (DeValue::Table(_), Some((family, name))) => {
                let whole = format!("{name}.{key}");
                layer.problem(
                    &at,
                    format!("[{}] is a table in a section", within.escape_debug()),
                    format!("write it [{family}.{whole:?}] if the name has a dot"),
                );
            }
            _ => layer.entry(section, key, raw(value), at),
        }
    }
}

/// Reads one value.
pub(super) fn value(text: &str) -> Option<Raw> {
    let text = format!("value = {text}");
    let table = DeTable::parse(&text).ok()?;
    let (_, value) = table.get_ref().iter().next()?;
    Some(raw(value))
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => {
            Raw::Integer(i128::from_str_radix(number.as_str(), number.radix()).ok())
        }
        DeValue::Float(number) => {
            // The parser has checked the form. Rust spells `nan` and `inf` as TOML does.
            number
                .as_str()
                .parse()
                .map_or(Raw::Other("a number out of range"), Raw::Float)
        }
        DeValue::Boolean(value) => Raw::Boolean(*value),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Array(array) => texts(array),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

fn texts(array: &DeArray<'_>) -> Raw {
    let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
    let texts: Option<Vec<String>> = array.iter().map(text).collect();
    texts.map_or(Raw::Other("a list"), Raw::Texts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(
            text in "([\\[\\]a-z_.=\"'{}# \n0-9-]|query_servers|log|\\PC){0,60}"
        ) {
            let layer = read(Path::new("c.toml"), &text, false);
            let lines = text.lines().count().max(1) + 1;
            for problem in layer.settle().problems {
                let line = problem.place.strip_prefix("c.toml:").and_then(|n| n.parse().ok());
                prop_assert!(line.is_some_and(|line: usize| line <= lines), "{problem}");
            }
        }
    }
}
