//! The file of `settee jobs apply`: replications of many databases, in TOML.
//!
//! SUMMARY   [`read`] makes an [`Entry`] of each `[[replication]]`, with its line. [`Entry::documents`] makes the
//!           documents for given databases.
//! PROMISES  All mistakes of a file are reported at once, each with its line and a remedy. The file may refer to
//!           strings in the environment and in files: `{ env = "NAME" }`, `{ file = "PATH" }`; these are never in an
//!           error.

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::client::path;
use crate::config::nearest::slip;
use crate::replicator::selection::fits;
use replication::spec;

/// The placeholder for a database's name.
const PLACEHOLDER: &str = "{db}";

/// Members of an entry that are not members of its documents.
const OWN: [&str; 5] = ["name", "databases", "all_dbs", "match", "except"];

/// Members whose strings may be read from the environment or files.
const WITH_SECRETS: [&str; 6] = [
    "source",
    "target",
    "all_dbs",
    "proxy",
    "source_proxy",
    "target_proxy",
];

/// A mistake in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) line: usize,
    pub(super) what: String,
    pub(super) remedy: String,
}

/// A `[[replication]]`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) line: usize,
    /// The template for ids of its documents.
    name: String,
    /// The members of its documents; `source` and `target` are templates.
    members: Map<String, Value>,
    pub(super) databases: Databases,
}

/// The values of `{db}`.
#[derive(Clone, Debug)]
pub(super) enum Databases {
    /// No `{db}`, and one document.
    None,
    Listed(Vec<String>),
    /// The databases of a server, an endpoint like `source`.
    Of {
        server: Value,
        matching: Vec<String>,
        except: Vec<String>,
    },
}

/// A reference to a string outside of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    Env(&'a str),
    File(&'a str),
}

/// Resolves a reference; the error is a message.
pub(super) type Lookup<'a> = &'a dyn Fn(Reference<'_>) -> Result<String, String>;

/// Parses the file's text.
///
/// # Errors
/// All its mistakes.
pub(super) fn read(text: &str, lookup: Lookup<'_>) -> Result<Vec<Entry>, Vec<Mistake>> {
    let mut reading = Reading {
        line_ends: memchr::memchr_iter(b'\n', text.as_bytes()).collect(),
        lookup,
        mistakes: Vec::new(),
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = reading.line(error.span().map_or(0, |span| span.start));
        reading.mistake(
            line,
            format!("this is not TOML ({})", error.message().replace('\n', ", ")),
            "correct the line",
        );
    }
    let mut entries = Vec::new();
    if errors.is_empty() {
        for (name, value) in document.get_ref() {
            let line = reading.line(name.span().start);
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("replication", DeValue::Array(tables)) => {
                    entries.extend(tables.iter().filter_map(|table| reading.entry(table)));
                }
                (name, _) => {
                    reading.mistake(
                        line,
                        format!("{name:?} is not a list of replications"),
                        "the file can only have sections [[replication]]",
                    );
                }
            }
        }
        if entries.is_empty() && reading.mistakes.is_empty() {
            reading.mistake(
                1,
                "there is no replication in the file",
                "add a section [[replication]]",
            );
        }
    }
    if reading.mistakes.is_empty() {
        Ok(entries)
    } else {
        Err(reading.mistakes)
    }
}

struct Reading<'a> {
    line_ends: Vec<usize>,
    lookup: Lookup<'a>,
    mistakes: Vec<Mistake>,
}

impl Reading<'_> {
    fn line(&self, offset: usize) -> usize {
        self.line_ends.partition_point(|end| *end < offset) + 1
    }

    fn mistake(&mut self, line: usize, what: impl Into<String>, remedy: impl Into<String>) {
        let (what, remedy) = (what.into(), remedy.into());
        self.mistakes.push(Mistake { line, what, remedy });
    }

    fn entry(&mut self, table: &Spanned<DeValue<'_>>) -> Option<Entry> {
        let line = self.line(table.span().start);
        let DeValue::Table(members) = table.get_ref() else {
            self.mistake(
                line,
                "a replication is not a table",
                "write [[replication]]",
            );
            return None;
        };
        let before = self.mistakes.len();
        let mut read = Map::new();
        for (name, value) in members {
            let line = self.line(name.span().start);
            let name = name.get_ref().as_ref();
            let known: Vec<&str> = OWN.into_iter().chain(spec::members()).collect();
            if !known.contains(&name) {
                let remedy = match slip(name, &known) {
                    Some(meant) => format!("write {meant}"),
                    None => "docs/replication.md lists the members of a document".to_owned(),
                };
                self.mistake(line, format!("there is no member {name:?}"), remedy);
                continue;
            }
            if let Some(value) = self.value(value, WITH_SECRETS.contains(&name)) {
                read.insert(name.to_owned(), value);
            }
        }
        (before == self.mistakes.len()).then(|| self.made(line, read))?
    }

    fn made(&mut self, line: usize, mut members: Map<String, Value>) -> Option<Entry> {
        let before = self.mistakes.len();
        let Some(Value::String(name)) = members.remove("name") else {
            self.mistake(
                line,
                "the replication has no name, or it is not a string",
                "add name = \"..\", the id of its document",
            );
            return None;
        };
        for side in ["source", "target"] {
            if !members.contains_key(side) {
                self.mistake(
                    line,
                    format!("the replication has no {side}"),
                    format!("add {side} = \"..\", the URL of a database"),
                );
            }
        }
        let mut texts = |name: &str| match members.remove(name) {
            None => Vec::new(),
            Some(Value::String(text)) => vec![text],
            Some(value) => serde_json::from_value(value).unwrap_or_else(|_| {
                self.mistake(
                    line,
                    format!("{name} is not a list of strings"),
                    format!("write {name} = [\"..\", \"..\"]"),
                );
                Vec::new()
            }),
        };
        let listed = texts("databases");
        let (matching, except) = (texts("match"), texts("except"));
        let databases = match members.remove("all_dbs") {
            Some(_) if !listed.is_empty() => {
                self.mistake(
                    line,
                    "the replication has both databases and all_dbs",
                    "leave one of them out",
                );
                Databases::None
            }
            Some(server) => Databases::Of {
                server,
                matching,
                except,
            },
            None if !matching.is_empty() || !except.is_empty() => {
                self.mistake(
                    line,
                    "match and except choose among all_dbs, which is missing",
                    "add all_dbs = \"http://..\", or leave them out",
                );
                Databases::None
            }
            None if listed.is_empty() => Databases::None,
            None => Databases::Listed(listed),
        };
        let templates = [
            ("name", Some(name.as_str())),
            ("source", members.get("source").and_then(url_of)),
            ("target", members.get("target").and_then(url_of)),
        ];
        self.check_templates(line, &templates, !matches!(databases, Databases::None));
        (before == self.mistakes.len()).then_some(Entry {
            line,
            name,
            members,
            databases,
        })
    }

    fn check_templates(&mut self, line: usize, all: &[(&str, Option<&str>); 3], has_names: bool) {
        for (member, text) in all {
            if let Some(unknown) = text.and_then(unknown_placeholder) {
                // A URL may have a password with braces.
                let shown = match *member {
                    "name" => unknown,
                    _ => "text in braces",
                };
                self.mistake(
                    line,
                    format!("{member} has {shown}, which stands for nothing"),
                    format!("write {PLACEHOLDER}, the name of a database"),
                );
            }
        }
        let has = |text: Option<&str>| text.is_some_and(|text| text.contains(PLACEHOLDER));
        let [(_, name), (_, source), (_, target)] = *all;
        if has_names {
            if !has(name) {
                self.mistake(
                    line,
                    "name is the same for all databases",
                    format!("write {PLACEHOLDER} in it"),
                );
            }
            if !has(source) && !has(target) {
                self.mistake(
                    line,
                    "source and target are the same for all databases",
                    format!("write {PLACEHOLDER} in one of them, or in both"),
                );
            }
        } else if has(name) || has(source) || has(target) {
            self.mistake(
                line,
                format!("{PLACEHOLDER} stands for nothing: there are no databases"),
                "add databases = [\"..\"], or all_dbs = \"http://..\"",
            );
        }
    }

    /// Reads a value as JSON; `None` after a mistake.
    fn value(&mut self, value: &Spanned<DeValue<'_>>, has_secrets: bool) -> Option<Value> {
        let line = self.line(value.span().start);
        match value.get_ref() {
            DeValue::String(text) => Some(json!(text)),
            DeValue::Boolean(value) => Some(json!(value)),
            DeValue::Integer(number) => {
                let read = i64::from_str_radix(number.as_str(), number.radix());
                self.some(
                    read.ok().map(Value::from),
                    line,
                    "the number is out of range",
                )
            }
            DeValue::Float(number) => {
                let read = number
                    .as_str()
                    .parse::<f64>()
                    .ok()
                    .and_then(serde_json::Number::from_f64);
                self.some(read.map(Value::Number), line, "JSON has no such number")
            }
            DeValue::Datetime(_) => self.some(None, line, "JSON has no dates"),
            DeValue::Array(array) => {
                let read: Vec<Option<Value>> = array
                    .iter()
                    .map(|value| self.value(value, has_secrets))
                    .collect();
                read.into_iter()
                    .collect::<Option<Vec<Value>>>()
                    .map(Value::Array)
            }
            DeValue::Table(table) => {
                let reference = reference(table).filter(|_| has_secrets && table.len() == 1);
                match reference.map(self.lookup) {
                    None => self.table(table, has_secrets),
                    Some(Ok(text)) => Some(Value::String(text)),
                    Some(Err(why)) => {
                        self.mistake(line, why, "set it, or correct its name");
                        None
                    }
                }
            }
        }
    }

    fn table(&mut self, table: &DeTable<'_>, has_secrets: bool) -> Option<Value> {
        let read: Vec<Option<(String, Value)>> = table
            .iter()
            .map(|(name, value)| {
                Some((name.get_ref().to_string(), self.value(value, has_secrets)?))
            })
            .collect();
        let read: Option<Map<String, Value>> = read.into_iter().collect();
        read.map(Value::Object)
    }

    fn some(&mut self, value: Option<Value>, line: usize, what: &str) -> Option<Value> {
        if value.is_none() {
            self.mistake(line, what, "write it as a string, or leave it out");
        }
        value
    }
}

fn reference<'a>(table: &'a DeTable<'_>) -> Option<Reference<'a>> {
    let (name, value) = table.iter().next()?;
    let text = value.get_ref().as_str()?;
    match name.get_ref().as_ref() {
        "env" => Some(Reference::Env(text)),
        "file" => Some(Reference::File(text)),
        _ => None,
    }
}

/// The URL of an endpoint.
fn url_of(endpoint: &Value) -> Option<&str> {
    endpoint.as_str().or_else(|| endpoint["url"].as_str())
}

/// Returns text in braces that is not a placeholder.
fn unknown_placeholder(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let length = rest[open..]
            .find('}')
            .map_or(rest.len() - open, |close| close + 1);
        let found = &rest[open..open + length];
        if found != PLACEHOLDER {
            return Some(found);
        }
        rest = &rest[open + length..];
    }
    None
}

impl Entry {
    /// Returns its documents with their ids: one for each database, or a single one.
    pub(super) fn documents(&self, databases: &[String]) -> Vec<(String, Map<String, Value>)> {
        if let Databases::None = self.databases {
            return vec![(self.name.clone(), self.members.clone())];
        }
        let document = |db: &String| {
            let mut members = self.members.clone();
            for side in ["source", "target"] {
                match &mut members[side] {
                    Value::String(url) => *url = filled(url, db),
                    endpoint => {
                        if let Some(Value::String(url)) = endpoint.get_mut("url") {
                            *url = filled(url, db);
                        }
                    }
                }
            }
            (self.name.replace(PLACEHOLDER, db), members)
        };
        databases.iter().map(document).collect()
    }
}

/// Inserts a database's name into a URL.
fn filled(url: &str, db: &str) -> String {
    url.replace(PLACEHOLDER, path([db]).trim_start_matches('/'))
}

impl Databases {
    /// Returns whether the entry includes a database of the server.
    pub(super) fn takes(&self, db: &str) -> bool {
        match self {
            Self::Of {
                matching, except, ..
            } => {
                let is_one = |patterns: &[String]| patterns.iter().any(|one| fits(one, db));
                (matching.is_empty() || is_one(matching)) && !is_one(except)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
