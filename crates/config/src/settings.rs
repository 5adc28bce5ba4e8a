//! A configuration as a list: every value with its name and its origin.
//!
//! SUMMARY   Printed by `check-config` and compared by a reload. Derived from the types, so no key can be missing.

use serde_json::Value;

use super::keys;
use super::origin::Origin;
use super::types::Config;
use super::value::{self, Kind};

/// One value of a configuration.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its section.
    pub section: String,
    /// Its key.
    pub key: String,
    kind: Kind,
    /// Its value in normal form.
    pub(super) value: Value,
    /// Its origin.
    pub origin: Origin,
}

impl Setting {
    /// Returns the set values of a section, in the order of its keys.
    pub(super) fn of_section(
        section: &str,
        values: &Value,
        origin: impl Fn(&str) -> Origin,
    ) -> Vec<Self> {
        values
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| {
                // A table in a section is a section itself: `replicator.shares`.
                let kind = keys::kind(section, key)?;
                let is_set = !value.is_null() || kind.none().is_some();
                is_set.then(|| Self {
                    section: section.to_owned(),
                    key: key.clone(),
                    kind,
                    value: value.clone(),
                    origin: origin(key),
                })
            })
            .collect()
    }

    /// Returns its section and its key.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.section, &self.key)
    }

    /// Returns the section's heading in a TOML file, without brackets.
    pub fn heading(&self) -> String {
        match keys::family(&self.section) {
            Some((family, name)) => format!("{family}.{}", bare_or_quoted(name)),
            None => self.section.clone(),
        }
    }

    /// Returns the value for display: with its unit, without passwords.
    pub fn shown(&self) -> String {
        value::display(self.kind, &self.value)
    }

    /// Returns the value for an `.ini`: durations as plain numbers in the key's unit, sizes in bytes; without
    /// passwords.
    pub fn plain(&self) -> String {
        self.number()
            .map_or_else(|| self.shown(), |number| number.to_string())
    }

    /// Returns the value as JSON: durations as plain numbers in the key's unit where possible, sizes in bytes;
    /// without passwords.
    pub fn json(&self) -> Value {
        match (self.number(), &self.value) {
            (Some(number), _) => number.into(),
            (None, Value::Bool(_) | Value::Number(_)) => self.value.clone(),
            _ => self.shown().into(),
        }
    }

    /// Returns the line `key = value` for a TOML file, without passwords.
    pub fn toml(&self) -> String {
        let value = match (self.kind, self.json()) {
            // The only words of choices that are TOML booleans.
            (Kind::Choice(..), Value::String(word)) if word == "true" || word == "false" => word,
            (_, Value::String(text)) => quoted(&text),
            (_, value) => value.to_string(),
        };
        format!("{} = {value}", bare_or_quoted(&self.key))
    }

    /// Returns the unit of a plain number in [`Setting::toml`].
    pub fn unit(&self) -> Option<&'static str> {
        self.number()?;
        Some(self.kind.unit()).filter(|unit| !unit.is_empty())
    }

    fn number(&self) -> Option<u64> {
        let (kind, value) = value::resolved(self.kind, &self.value);
        value::number(kind, value)
    }
}

/// Returns a key for a TOML file.
fn bare_or_quoted(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        quoted(key)
    }
}

/// Returns the text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Config {
    /// Returns every value, in the order of `config/default.toml`; languages by name.
    pub fn settings(&self) -> Vec<Setting> {
        let sections = serde_json::to_value(self).expect("settings: every value is JSON");
        // A dot separates nested tables.
        let table = |name: &str| name.split('.').fold(&sections, |table, part| &table[part]);
        let fixed = keys::sections().map(|section| (section.to_owned(), table(section)));
        let of_families = keys::families().flat_map(|family| {
            table(family)
                .as_object()
                .into_iter()
                .flatten()
                .map(move |(name, values)| (format!("{family}.{name}"), values))
        });
        fixed
            .chain(of_families)
            .flat_map(|(section, values)| {
                Setting::of_section(&section, values, |key| self.origin(&section, key))
            })
            .collect()
    }
}
