//! Names of languages.
//!
//! DIFFERS   Names are case-insensitive, so each language has one pool and one limit (D16).

use std::fmt;
use std::sync::Arc;

/// A language's name, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LanguageName(Arc<str>);

impl LanguageName {
    /// Normalises a name.
    pub fn new(name: &str) -> Self {
        if name.chars().any(char::is_uppercase) {
            Self(Arc::from(name.to_lowercase()))
        } else {
            Self(Arc::from(name))
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LanguageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
