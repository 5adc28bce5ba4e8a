//! Which rows of a view are reduced together.

use std::borrow::Cow;

use json::cursor::Elements;

/// Which rows are one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All rows.
    None,
    /// Rows of one key.
    Exact,
    /// Rows whose keys are arrays with the same first elements, or the same key. Not 0, which is
    /// [`Grouping::None`].
    Level(usize),
}

impl Grouping {
    /// Returns the key under which the group of a row's key is shown.
    pub(super) fn key_of(self, key: &str) -> Cow<'_, str> {
        match self {
            Self::None => Cow::Borrowed("null"),
            Self::Level(level) if key.starts_with('[') => {
                let first: Vec<&str> = Elements::of(key).take(level).collect();
                Cow::Owned(format!("[{}]", first.join(",")))
            }
            Self::Exact | Self::Level(_) => Cow::Borrowed(key),
        }
    }

    /// Returns the key of a group as errors name it.
    pub(super) fn named(self, key: &str) -> Option<String> {
        (self != Self::None).then(|| key.to_owned())
    }
}

/// Returns a group's result as it is printed.
pub(super) fn line(key: &str, value: &str) -> Vec<u8> {
    format!("{{\"key\":{key},\"value\":{value}}}\n").into_bytes()
}
