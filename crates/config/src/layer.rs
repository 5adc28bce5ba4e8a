//! One layer of the configuration: one source, validated name by name and value by value.
//!
//! SUMMARY   Readers fill a [`Layer`]; [`Layer::settle`] converts it to normal values under canonical names, or to
//!           problems.
//! PROMISES  Every entry becomes a value, a problem or a notice. A mistake in a layer is reported even if a later layer
//!           overrides it: otherwise it would surface only when the override is removed.
//! DIFFERS   CouchDB accepts unknown sections and keys silently.

use std::collections::{BTreeMap, HashSet};

use config::{Map, Source};
use serde::Deserialize;
use serde_json::{Value, json};

use super::keys::{self, QUERY_SERVERS};
use super::names::{self, NameVerdict};
use super::origin::{Notice, Origin, Problem};
use super::types::LanguageCommand;
use super::value::{Fault, Raw};

/// The only language with a query server inside this program, used if it has no command.
const JAVASCRIPT: &str = "javascript";

/// One `section.key = value` with its origin.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The section as written.
    pub section: String,
    /// The key as written.
    pub key: String,
    /// The value as written.
    pub raw: Raw,
    pub origin: Origin,
}

/// The entries of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    /// Sections in order of appearance; in a file each with the line of its heading.
    pub sections: Vec<(String, Origin)>,
    /// Entries in order of appearance, not yet checked.
    pub entries: Vec<Entry>,
    /// Section and key, in their canonical spelling -> checked value and its origin.
    pub values: BTreeMap<(String, String), (Value, Origin)>,
    /// Keys that return to the built-in default.
    pub unset: Vec<(String, String)>,
    pub problems: Vec<Problem>,
    /// Entries without effect.
    pub notices: Vec<Notice>,
}

impl Layer {
    pub fn section(&mut self, name: impl Into<String>, origin: Origin) {
        self.sections.push((name.into(), origin));
    }

    pub fn entry(&mut self, section: &str, key: &str, raw: Raw, origin: Origin) {
        let (section, key) = (section.to_owned(), key.to_owned());
        self.entries.push(Entry {
            section,
            key,
            raw,
            origin,
        });
    }

    /// Adds a value as text, with its section.
    pub fn text(&mut self, section: &str, key: &str, text: String, origin: Origin) {
        self.section(section, origin.clone());
        self.entry(section, key, Raw::Text(text), origin);
    }

    pub fn problem(&mut self, at: &Origin, what: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(Problem::new(at, what, remedy));
    }

    pub fn notice(&mut self, origin: Origin, text: impl Into<String>) {
        self.notices.push(Notice {
            origin,
            text: text.into(),
        });
    }

    fn tell(&mut self, origin: Origin, told: NameVerdict) {
        match told {
            NameVerdict::Problem(fault) => self.problem(&origin, fault.what, fault.remedy),
            NameVerdict::Notice(text) => self.notice(origin, text),
        }
    }

    /// Checks every name and value.
    pub fn settle(mut self) -> Self {
        let entries = std::mem::take(&mut self.entries);
        let entries_in: HashSet<String> = entries.iter().map(|e| e.section.clone()).collect();
        for (section, origin) in self.sections.clone() {
            if !names::is_section(&section) {
                let told = names::unknown_section(&section, origin.is_ini());
                self.tell(origin, told);
            } else if keys::family(&section).is_some() && !entries_in.contains(&section) {
                let section = section.escape_debug();
                self.notice(origin, format!("[{section}] is empty and has no effect"));
            }
        }
        let mut spelling = BTreeMap::new();
        for entry in entries {
            if names::is_section(&entry.section) {
                self.settle_entry(entry, &mut spelling);
            }
        }
        self.notices.sort_by(|a, b| a.origin.cmp(&b.origin));
        self
    }

    fn settle_entry(
        &mut self,
        mut entry: Entry,
        spelling: &mut BTreeMap<(String, String), (String, Origin)>,
    ) {
        entry.section = keys::section_name(&entry.section);
        let key = match names::key_name(&entry) {
            Ok(key) => key,
            Err(told) => return self.tell(entry.origin, told),
        };
        let (spelt, origin) = (entry.key, entry.origin);
        let place = (entry.section, key);
        let (section, key) = &place;
        let now = (spelt.clone(), origin.clone());
        match spelling.insert(place.clone(), now) {
            Some((earlier, first)) if origin.is_ini() && earlier == spelt => self.notice(
                origin.clone(),
                format!("[{section}] {spelt} is also set at {first}; this one applies"),
            ),
            Some((earlier, first)) => {
                return self.problem(
                    &origin,
                    format!("[{section}] {spelt} is set already, as {earlier:?} at {first}"),
                    "keep one of the two",
                );
            }
            None => {}
        }
        if entry.raw == Raw::Unset {
            self.values.remove(&place);
            return self.unset.push(place);
        }
        let read = keys::kind(section, key)
            .expect("layer: the key has been found")
            .read(&entry.raw)
            .and_then(|value| match section.as_str() {
                QUERY_SERVERS => command(key, value),
                _ => Ok(value),
            });
        match read {
            Ok(value) => {
                self.unset.retain(|unset| *unset != place);
                self.values.insert(place, (value, origin));
            }
            Err(Fault { what, remedy }) => {
                self.problem(&origin, format!("[{section}] {spelt}: {what}"), remedy);
            }
        }
    }
}

/// The `config` crate does the layering itself: each layer is one of its sources.
impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, config::Value>, config::ConfigError> {
        let mut all = json!({});
        for ((section, key), (value, _)) in &self.values {
            // `[pools.NAME]` is the table NAME of `pools`, and shares are a table of `replicator`.
            let (outer, inner) = section.split_once('.').unwrap_or((section, key));
            if section == outer {
                all[outer][key] = value.clone()
            } else {
                all[outer][inner][key] = value.clone()
            }
        }
        Map::deserialize(all).map_err(|error| config::ConfigError::Message(error.to_string()))
    }
}

/// Returns the command's normal form: for JavaScript, absent and `builtin` are the same.
fn command(language: &str, value: Value) -> Result<Value, Fault> {
    let builtin = LanguageCommand::BUILTIN;
    let word = value.as_str().unwrap_or_default().to_lowercase();
    match (word.is_empty(), language == JAVASCRIPT) {
        (false, _) if word != builtin => Ok(value),
        (_, true) => Ok(builtin.into()),
        (true, false) => Err(Fault::new(
            "the command is empty",
            "give the command that starts its query server, or leave the language out",
        )),
        (false, false) => Err(Fault::new(
            format!("there is no built-in query server for {language:?}"),
            format!("give a command; only {JAVASCRIPT} is built in"),
        )),
    }
}
