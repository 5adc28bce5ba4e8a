//! Reads a TOML file into entries, each with its line.
//!
//! SUMMARY   Sections are top-level tables, keys their entries; nothing is interpreted here.
//! PROMISES  Every syntax error of the file is reported, not only the first. Keys with dots
//!           survive when they are quoted.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::keys;
use super::layer::{Entry, Layer};
use super::origin::{Origin, Problem};
use super::value::Raw;

/// Reads `text` as the TOML file `path`. `built_in` marks the defaults.
pub(super) fn read(path: &Path, text: &str, built_in: bool) -> Layer {
    let mut layer = Layer::default();
    let lines = Lines::of(text);
    let origin = |offset: usize| match built_in {
        true => Origin::Default,
        false => Origin::File {
            path: path.to_owned(),
            line: lines.number(offset),
        },
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let offset = error.span().map_or(0, |span| span.start);
            let what = format!("this is not TOML ({})", error.message().replace('\n', ", "));
            layer
                .problems
                .push(Problem::new(origin(offset), what, "correct the line"));
        }
        return layer;
    }
    for (section, value) in document.get_ref() {
        let offset = section.span().start;
        let name = section.get_ref();
        let shown = name.escape_debug();
        match value.get_ref() {
            DeValue::Table(table) if keys::FAMILIES.contains(&name.as_ref()) => {
                family(name, table, &origin, &mut layer);
            }
            DeValue::Table(table) => {
                layer.sections.push((name.to_string(), origin(offset)));
                layer.entries.extend(entries(name, table, origin));
                for (key, inner) in table {
                    let DeValue::Table(inner) = inner.get_ref() else {
                        continue;
                    };
                    if let Some(name) = section_within(name, key.get_ref()) {
                        let origin_of = origin(key.span().start);
                        layer.sections.push((name.clone(), origin_of));
                        layer.entries.extend(entries(&name, inner, origin));
                    }
                }
            }
            DeValue::Array(_) => layer.problems.push(Problem::new(
                origin(offset),
                format!("[[{shown}]] is a list of sections"),
                format!("write it once, as [{shown}]"),
            )),
            _ => layer.problems.push(Problem::new(
                origin(offset),
                format!("the key {name:?} stands outside of any section"),
                super::layer::home_of(name),
            )),
        }
    }
    layer.sort_by_origin();
    layer
}

/// Reads the sections `[FAMILY.NAME]` of a family.
fn family(
    family: &str,
    members: &DeTable<'_>,
    origin: &impl Fn(usize) -> Origin,
    layer: &mut Layer,
) {
    for (name, value) in members {
        let origin_of_name = origin(name.span().start);
        let name = name.get_ref();
        let section = format!("{family}.{name}");
        match value.get_ref() {
            DeValue::Table(table) => {
                layer.sections.push((section.clone(), origin_of_name));
                layer.problems.extend(dotted(family, name, table, origin));
                let mut entries = entries(&section, table, origin);
                entries.retain(|entry| entry.raw != TABLE);
                layer.entries.extend(entries);
            }
            _ => layer.problems.push(Problem::new(
                origin_of_name,
                format!("the key {name:?} stands in [{family}], which has sections only"),
                format!("put it under a section with a name: [{family}.NAME]"),
            )),
        }
    }
}

/// What an entry is that is a table.
const TABLE: Raw = Raw::Other("a table");

/// Notes the tables in a section of a family: dots of names are dots only in quotes.
fn dotted(
    family: &str,
    name: &str,
    table: &DeTable<'_>,
    origin: &impl Fn(usize) -> Origin,
) -> Vec<Problem> {
    let tables = table.iter().filter(|(_, value)| value.get_ref().is_table());
    let problem = |key: &Spanned<std::borrow::Cow<'_, str>>| {
        let whole = format!("{name}.{}", key.get_ref());
        Problem::new(
            origin(key.span().start),
            format!(
                "[{family}.{}] is a table in a section",
                whole.escape_debug()
            ),
            format!("write it [{family}.{whole:?}] if the name has a dot"),
        )
    };
    tables.map(|(key, _)| problem(key)).collect()
}

fn entries(section: &str, table: &DeTable<'_>, origin: impl Fn(usize) -> Origin) -> Vec<Entry> {
    table
        .iter()
        .filter(|(key, value)| {
            !(matches!(value.get_ref(), DeValue::Table(_))
                && section_within(section, key.get_ref()).is_some())
        })
        .map(|(key, value)| Entry {
            section: section.to_owned(),
            key: key.get_ref().to_string(),
            raw: raw(value),
            origin: origin(key.span().start),
        })
        .collect()
}

/// Returns the name of a table in a section when it is a section of its own: `replicator.shares`.
fn section_within(section: &str, key: &str) -> Option<String> {
    let name = format!("{section}.{key}");
    keys::SECTIONS.contains(&name.as_str()).then_some(name)
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
        DeValue::Table(_) => TABLE,
    }
}

fn texts(array: &DeArray<'_>) -> Raw {
    let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
    let texts: Option<Vec<String>> = array.iter().map(text).collect();
    texts.map_or(Raw::Other("a list"), Raw::Texts)
}

/// Where the lines of a text start, to turn offsets into line numbers.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(memchr::memchr_iter(b'\n', text.as_bytes()).collect())
    }

    /// Returns the number of the line, counted from 1, that holds the byte at `offset`.
    fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
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
