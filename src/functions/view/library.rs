//! The modules of a view, read by `settee map` from a directory.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

/// Modules by name.
pub type Library = BTreeMap<String, Module>;

/// A module, or a directory of them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Module {
    /// A source.
    Source(String),
    /// More modules.
    Directory(Library),
}

impl Module {
    /// Writes modules in the form of `add_lib`.
    pub fn library(modules: &Library) -> Box<RawValue> {
        to_raw_value(modules).expect("VW-7: strings by name can be written")
    }
}
