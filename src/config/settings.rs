//! A configuration as a list: every value with its name and its origin.
//!
//! SUMMARY   What `check-config` prints and a reload compares. Derived from the types, so that no
//!           key can be forgotten.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::keys::{self, Kind};
use super::origin::Origin;
use super::types::Config;
use super::value;

/// One value of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its section.
    pub section: Cow<'static, str>,
    /// Its key.
    pub key: String,
    /// Its value in normal form: durations in milliseconds, sizes in bytes.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

impl Setting {
    /// Returns the section as the heading of a TOML file has it, without the brackets.
    pub fn heading(&self) -> String {
        match keys::family(&self.section) {
            Some((family, name)) => format!("{family}.{}", bare_or_quoted(name)),
            None => self.section.clone().into_owned(),
        }
    }

    /// Returns what kind of value it is; a limit that is `infinity` is a word.
    fn kind(&self) -> Option<Kind> {
        let kind = keys::kind(&self.section, &self.key)?;
        Some(kind.of_value(&self.value))
    }

    /// Returns the value for people: with its unit, and without passwords.
    pub fn shown(&self) -> String {
        match self.kind() {
            Some(kind) => value::display(kind, &self.value),
            None => self.value.to_string(),
        }
    }

    /// Returns the value as an `.ini` has it: durations as a plain number in the unit of the key,
    /// sizes in bytes; without passwords.
    pub fn plain(&self) -> String {
        match self.kind() {
            Some(kind @ Kind::Duration { unit, .. }) => value::in_unit(&self.value, unit)
                .map_or_else(
                    || value::display(kind, &self.value),
                    |number| number.to_string(),
                ),
            Some(Kind::Bytes { .. }) => self.value.to_string(),
            _ => self.shown(),
        }
    }

    /// Returns the value as JSON has it: durations as a plain number in the unit of the key where
    /// they are one, sizes in bytes; without passwords.
    pub fn json(&self) -> Value {
        match self.kind() {
            Some(kind @ Kind::Duration { unit, .. }) => value::in_unit(&self.value, unit)
                .map_or_else(|| value::display(kind, &self.value).into(), Value::from),
            Some(_) if self.value.is_string() => self.shown().into(),
            _ => self.value.clone(),
        }
    }

    /// Returns the `key = value` that sets it in a TOML file, without passwords.
    pub fn toml(&self) -> String {
        let key = bare_or_quoted(&self.key);
        let value = match self.kind() {
            Some(kind @ Kind::Duration { unit, .. }) => match value::in_unit(&self.value, unit) {
                Some(number) => number.to_string(),
                None => quoted(&value::display(kind, &self.value)),
            },
            // The one choice that TOML has a type for.
            Some(Kind::Choice(_)) => match self.value.as_str() {
                Some(word @ ("true" | "false")) => word.to_owned(),
                word => quoted(word.unwrap_or_default()),
            },
            Some(kind) if self.value.is_string() => quoted(&value::display(kind, &self.value)),
            _ => self.value.to_string(),
        };
        format!("{key} = {value}")
    }

    /// Returns the unit of the plain number in [`Setting::toml`].
    pub fn unit(&self) -> Option<&'static str> {
        match self.kind()? {
            Kind::Duration { unit, .. } => value::in_unit(&self.value, unit).map(|_| unit.symbol()),
            Kind::Bytes { .. } => Some("bytes"),
            _ => None,
        }
    }
}

/// Returns a key of a TOML file.
fn bare_or_quoted(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !key.is_empty() && key.chars().all(bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// Returns the table of a section; a dot leads into another one.
fn find<'a>(sections: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    name.split('.')
        .try_fold(sections, |table, part| table.get(part)?.as_object())
}

/// Returns the text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Config {
    /// Returns every value, in the order of `config/default.toml`; languages by name.
    pub fn settings(&self) -> Vec<Setting> {
        let Ok(Value::Object(sections)) = serde_json::to_value(self) else {
            return Vec::new();
        };
        let empty = Map::new();
        let table = |section: &str| find(&sections, section);
        let mut settings = Vec::new();
        for &section in keys::SECTIONS {
            let values = table(section).unwrap_or(&empty);
            self.list(Cow::Borrowed(section), values, &mut settings);
        }
        for &family in keys::FAMILIES {
            for (name, values) in table(family).unwrap_or(&empty) {
                let section = Cow::Owned(format!("{family}.{name}"));
                let values = values.as_object().unwrap_or(&empty);
                self.list(section, values, &mut settings);
            }
        }
        settings
    }

    fn list(
        &self,
        section: Cow<'static, str>,
        values: &Map<String, Value>,
        settings: &mut Vec<Setting>,
    ) {
        // A table in a section is a section of its own: `replicator.shares`.
        let values = values.iter().filter(|(_, value)| !value.is_object());
        settings.extend(values.map(|(key, value)| Setting {
            section: section.clone(),
            key: key.clone(),
            value: value.clone(),
            origin: self.origin(&section, key),
        }));
    }
}
