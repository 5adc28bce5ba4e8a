//! The grouping of a view's rows for reduction.

use std::borrow::Cow;

use json::cursor::Elements;

/// Which rows form a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All rows.
    None,
    /// Rows with equal keys.
    Exact,
    /// Rows whose keys are arrays with equal first elements, or equal keys. Not 0, which is [`Grouping::None`].
    Level(usize),
}

impl Grouping {
    /// Returns the shown key of a row's group.
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

    /// Returns a group's key for errors.
    pub(super) fn named(self, key: &str) -> Option<String> {
        (self != Self::None).then(|| key.to_owned())
    }
}

/// Returns a group's result in printed form.
pub(super) fn line(key: &str, value: &str) -> Vec<u8> {
    format!("{{\"key\":{key},\"value\":{value}}}\n").into_bytes()
}
