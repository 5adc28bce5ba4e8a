//! Reads a TOML file into entries, each with its line.
//!
//! SUMMARY   Sections are top-level tables, keys their entries; nothing is interpreted here.
//! PROMISES  Every syntax error of the file is reported, not only the first. Keys with dots
//!           survive when they are quoted.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::keys;
use super::layer::Layer;
use super::names::home_of;
use super::origin::Origin;
use super::value::Raw;

/// Reads `text` as the TOML file `path`. `built_in` marks the defaults.
pub(super) fn read(path: &Path, text: &str, built_in: bool) -> Layer {
    let mut layer = Layer::default();
    let line_ends: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    let origin = |offset: usize| match built_in {
        true => Origin::Default,
        false => Origin::File {
            path: path.to_owned(),
            line: line_ends.partition_point(|end| *end < offset) + 1,
        },
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = origin(error.span().map_or(0, |span| span.start));
        let what = format!("this is not TOML ({})", error.message().replace('\n', ", "));
        layer.problem(&at, what, "correct the line");
    }
    if !errors.is_empty() {
        return layer;
    }
    for (section, value) in document.get_ref() {
        let at = origin(section.span().start);
        let name = section.get_ref().as_ref();
        match value.get_ref() {
            DeValue::Table(members) if keys::FAMILIES.contains(&name) => {
                read_family(name, members, &origin, &mut layer);
            }
            DeValue::Table(table) => read_section(name, at, table, &origin, &mut layer),
            DeValue::Array(_) => {
                let shown = name.escape_debug();
                let what = format!("[[{shown}]] is a list of sections");
                layer.problem(&at, what, format!("write it once, as [{shown}]"));
            }
            _ => {
                let what = format!("the key {name:?} stands outside of any section");
                layer.problem(&at, what, home_of(name));
            }
        }
    }
    layer.sort_by_origin();
    layer
}

/// Reads a section, and the tables in it that are sections of their own: `replicator.shares`.
fn read_section(
    section: &str,
    at: Origin,
    table: &DeTable<'_>,
    origin: &impl Fn(usize) -> Origin,
    layer: &mut Layer,
) {
    layer.section(section, at);
    for (key, value) in table {
        let at = origin(key.span().start);
        let within = format!("{section}.{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if keys::SECTIONS.contains(&within.as_str()) => {
                read_section(&within, at, inner, origin, layer);
            }
            _ => layer.entry(section, key.get_ref(), raw(value), at),
        }
    }
}

/// Reads the sections `[FAMILY.NAME]` of a family. Dots of names are dots only in quotes.
fn read_family(
    family: &str,
    members: &DeTable<'_>,
    origin: &impl Fn(usize) -> Origin,
    layer: &mut Layer,
) {
    for (name, value) in members {
        let at = origin(name.span().start);
        let name = name.get_ref();
        let DeValue::Table(table) = value.get_ref() else {
            let what = format!("the key {name:?} stands in [{family}], which has sections only");
            let remedy = format!("put it under a section with a name: [{family}.NAME]");
            layer.problem(&at, what, remedy);
            continue;
        };
        let section = format!("{family}.{name}");
        layer.section(&section, at);
        for (key, value) in table {
            let at = origin(key.span().start);
            if value.get_ref().is_table() {
                let whole = format!("{name}.{}", key.get_ref());
                let shown = whole.escape_debug();
                let what = format!("[{family}.{shown}] is a table in a section");
                let remedy = format!("write it [{family}.{whole:?}] if the name has a dot");
                layer.problem(&at, what, remedy);
            } else {
                layer.entry(&section, key.get_ref(), raw(value), at);
            }
        }
    }
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => {
            Raw::Integer(i128::from_str_radix(number.as_str(), number.radix()).ok())
        }
        DeValue::Float(number) => {
            // The parser has checked the form; only `nan` and `inf` need Rust's own spelling,
            // which is the same.
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
            for problem in layer.settle(&[]).problems {
                let line = problem.place.strip_prefix("c.toml:").and_then(|n| n.parse().ok());
                prop_assert!(line.is_some_and(|line: usize| line <= lines), "{problem}");
            }
        }
    }
}
