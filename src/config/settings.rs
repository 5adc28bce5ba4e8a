//! A configuration as a list: every value with its name and its origin.
//!
//! SUMMARY   What `check-config` prints and a reload compares. Derived from the types, so that no
//!           key can be forgotten.

use serde_json::{Map, Value};

use super::keys;
use super::origin::Origin;
use super::types::Config;
use super::value;

/// One value of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its section.
    pub section: &'static str,
    /// Its key.
    pub key: String,
    /// Its value in normal form: durations in milliseconds, sizes in bytes.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

impl Setting {
    /// Returns the value for people: with its unit, and without passwords.
    pub fn shown(&self) -> String {
        match keys::kind(self.section, &self.key) {
            Some(kind) => value::display(kind, &self.value),
            None => self.value.to_string(),
        }
    }
}

impl Config {
    /// Returns every value, in the order of `config/default.toml`; languages by name.
    pub fn settings(&self) -> Vec<Setting> {
        let Ok(Value::Object(sections)) = serde_json::to_value(self) else {
            return Vec::new();
        };
        let empty = Map::new();
        let mut settings = Vec::new();
        for &section in keys::SECTIONS {
            let table = sections
                .get(section)
                .and_then(Value::as_object)
                .unwrap_or(&empty);
            settings.extend(table.iter().map(|(key, value)| Setting {
                section,
                key: key.clone(),
                value: value.clone(),
                origin: self.origin(section, key),
            }));
        }
        settings
    }
}
