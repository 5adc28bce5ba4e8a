//! What was set over HTTP: one more layer, on top of all others.
//!
//! SUMMARY   Kept in memory: it outlives a reload, and ends with the service.
//! LIMITS    Commands of languages, admins and the secret of sessions are not for it; whoever fills
//!           it sees to that.
//! DIFFERS   CouchDB writes what was set into its last file.

use std::collections::BTreeMap;

use super::layer::Layer;
use super::origin::Origin;
use super::value::Raw;

/// Values by section and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    values: BTreeMap<(String, String), String>,
}

impl Overlay {
    /// Sets a value, as text.
    pub(crate) fn set(&mut self, section: &str, key: &str, value: String) {
        let place = (section.to_owned(), key.to_owned());
        self.values.insert(place, value);
    }

    /// Takes a value back. Returns whether there was one.
    pub(crate) fn remove(&mut self, section: &str, key: &str) -> bool {
        let place = (section.to_owned(), key.to_owned());
        self.values.remove(&place).is_some()
    }

    pub(super) fn layer(&self) -> Layer {
        let mut layer = Layer::default();
        for ((section, key), value) in &self.values {
            layer.section(section, Origin::Http);
            layer.entry(section, key, Raw::Text(value.clone()), Origin::Http);
        }
        layer
    }
}
