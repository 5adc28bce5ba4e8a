//! Values that are other ones under stress: `${stress?{10}:{300}}`.
//!
//! SUMMARY   [`expand`] takes the places of a text that depend on stress away; [`Stressed`] is a
//!           value in both states, which travels through the layers as a number where the two are
//!           the same, and as text where they are not.
//! SOURCE    Postfix's `${name?value}`, `${name:value}` and `${name?{value}:{value}}`, for the one
//!           name `stress`.
//! LIMITS    No nesting.

use std::fmt;

/// A value without and with stress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stressed<T> {
    /// Without.
    pub normal: T,
    /// With.
    pub stressed: T,
}

impl<T> Stressed<T> {
    /// Returns the value for a state.
    pub fn under(self, stress: bool) -> T {
        if stress { self.stressed } else { self.normal }
    }

    /// Returns it with both values turned into others.
    pub fn map<U>(self, mut turn: impl FnMut(T) -> U) -> Stressed<U> {
        Stressed {
            normal: turn(self.normal),
            stressed: turn(self.stressed),
        }
    }

    /// Reads both values of a text.
    ///
    /// # Errors
    /// Those of `read`, for either.
    pub fn parse<E>(text: &str, mut read: impl FnMut(&str) -> Result<T, E>) -> Result<Self, E> {
        Ok(Self {
            normal: read(&expand(text, false))?,
            stressed: read(&expand(text, true))?,
        })
    }
}

/// Numbers that may depend on stress.
pub(super) mod count {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Stressed;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Stressed<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value.normal == value.stressed {
            true => to.serialize_u64(value.normal),
            false => to.collect_str(value),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Stressed<u64>, D::Error> {
        match Either::deserialize(from)? {
            Either::Number(number) => Ok(number.into()),
            Either::Text(text) => Stressed::parse(&text, str::parse).map_err(Error::custom),
        }
    }
}

/// Durations that may depend on stress, in milliseconds.
pub(super) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::{Stressed, count};

    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Stressed<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let number = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        count::serialize(&value.map(number), to)
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Stressed<Duration>, D::Error> {
        Ok(count::deserialize(from)?.map(Duration::from_millis))
    }
}

/// Such durations that may be missing.
pub(super) mod milliseconds_or_none {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::{Stressed, milliseconds};

    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Option<Stressed<Duration>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(duration) => milliseconds::serialize(duration, to),
            None => to.serialize_none(),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Stressed<Duration>>, D::Error> {
        milliseconds::deserialize(from).map(Some)
    }
}

impl<T> From<T> for Stressed<T>
where
    T: Copy,
{
    fn from(value: T) -> Self {
        Self {
            normal: value,
            stressed: value,
        }
    }
}

impl<T: fmt::Display + PartialEq> fmt::Display for Stressed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.normal == self.stressed {
            return self.normal.fmt(f);
        }
        write!(f, "{START}?{{{}}}:{{{}}}}}", self.stressed, self.normal)
    }
}

/// How a place that depends on stress begins.
const START: &str = "${stress";

/// What stands for the word `yes` under stress, and for nothing without.
const WORD: &str = "{stress}";

/// Returns the text as it is in one state. What only looks like a place that depends on stress is
/// left as it is.
pub fn expand(text: &str, stress: bool) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        // The one is part of the other: `${stress}` is the shell's.
        let next = [START, WORD].iter().filter_map(|what| rest.find(what));
        let Some(at) = next.min() else {
            expanded.push_str(rest);
            return expanded;
        };
        let (before, from) = rest.split_at(at);
        expanded.push_str(before);
        if let Some(after) = from.strip_prefix(WORD) {
            expanded.push_str(if stress { "yes" } else { "" });
            rest = after;
        } else if let Some((place, after)) = Place::read(&from[START.len()..]) {
            expanded.push_str(if stress { place.stressed } else { place.normal });
            rest = after;
        } else {
            let (start, after) = from.split_at(START.len());
            expanded.push_str(start);
            rest = after;
        }
    }
}

/// Returns whether a text depends on stress.
pub fn depends_on_stress(text: &str) -> bool {
    expand(text, false) != expand(text, true)
}

/// What stands in one place.
struct Place<'a> {
    normal: &'a str,
    stressed: &'a str,
}

impl<'a> Place<'a> {
    /// Reads what follows [`START`]. Returns it with what comes after.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        match text.split_at_checked(1)? {
            ("?", text) => match braced(text) {
                Some((stressed, text)) => match text.strip_prefix(':') {
                    Some(text) => {
                        let (normal, text) = braced(text)?;
                        Some((Self { normal, stressed }, text.strip_prefix('}')?))
                    }
                    None => Some((
                        Self {
                            normal: "",
                            stressed,
                        },
                        text.strip_prefix('}')?,
                    )),
                },
                None => {
                    let (stressed, text) = text.split_once('}')?;
                    Some((
                        Self {
                            normal: "",
                            stressed,
                        },
                        text,
                    ))
                }
            },
            (":", text) => {
                let (normal, text) = match braced(text) {
                    Some((normal, text)) => (normal, text.strip_prefix('}')?),
                    None => text.split_once('}')?,
                };
                Some((
                    Self {
                        normal,
                        stressed: "",
                    },
                    text,
                ))
            }
            _ => None,
        }
    }
}

/// Reads `{TEXT}`.
fn braced(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('{')?.split_once('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> (String, String) {
        (expand(text, false), expand(text, true))
    }

    fn pair(normal: &str, stressed: &str) -> (String, String) {
        (normal.into(), stressed.into())
    }

    #[test]
    fn a_place_has_one_text_without_stress_and_one_with() {
        assert_eq!(both("${stress?{10}:{300}}"), pair("300", "10"));
        assert_eq!(both("a ${stress?{x y}:{}} b"), pair("a  b", "a x y b"));
        assert_eq!(both("${stress?-q}"), pair("", "-q"));
        assert_eq!(both("${stress?{-q}}"), pair("", "-q"));
        assert_eq!(both("${stress:-v}"), pair("-v", ""));
        assert_eq!(both("${stress:{-v}}"), pair("-v", ""));
    }

    #[test]
    fn the_word_is_yes_under_stress_and_nothing_without() {
        assert_eq!(
            both("run --stress={stress} x"),
            pair("run --stress= x", "run --stress=yes x")
        );
    }

    #[test]
    fn several_places_are_each_taken_for_themselves() {
        assert_eq!(
            both("${stress?a}{stress}${stress:b}${stress?{1}:{2}}"),
            pair("b2", "ayes1")
        );
    }

    #[test]
    fn what_only_looks_like_a_place_is_left_alone() {
        for text in [
            "${stress",
            "${stress?{a",
            "${stress?{a}:b}",
            "${stress?{a}:{b}",
            "${stressed?a}",
            "${stress-x}",
            "$stress",
            "{STRESS}",
            "é${stress?é",
        ] {
            assert_eq!(both(text), pair(text, text), "{text}");
            assert!(!depends_on_stress(text));
        }
    }

    #[test]
    fn a_value_in_both_states_is_written_as_it_is_read() {
        for text in ["${stress?{10}:{300}}", "5"] {
            let value = Stressed::parse(text, str::parse::<u32>);
            assert_eq!(value.map(|value| value.to_string()), Ok(text.to_owned()));
        }
        let value = Stressed::parse("1${stress?0}", str::parse::<u32>);
        assert_eq!(value.map(|v| (v.under(false), v.under(true))), Ok((1, 10)));
        assert!(Stressed::parse("${stress?{x}:{1}}", str::parse::<u32>).is_err());
    }
}
