//! A section of the configuration: one declaration for each key.
//!
//! SUMMARY   [`section!`] turns a list of keys into the struct of their values and the rows of [`super::keys`]. The
//!           rows drive parsing, nearest names, range errors, `check-config`, reload, changes over HTTP and the
//!           socket, `config/default.toml` and the tables of `docs/configuration.md`.
//! PROMISES  A key's name, sentence, type, default, bounds and unit, and who may set it and when, are declared in one
//!           place.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::toml_file;
use super::value::{Kind, Unit};

/// Declares a section. A key has
///
/// * its sentence for the page, in Markdown, with links relative to `docs/`;
/// * its name and type: its kind must parse a string to the value that serde expects for the type;
/// * its default as TOML; without one the key is unset and derived from others;
/// * its kind: allowed values, with bounds and unit;
/// * marks, the methods of [`Key`]: `unit("processes")` for counts, `at_start()`, `of_machine()`, `only_in_files(WHY)`,
///   `otherwise("WHAT HOLDS IF IT IS NOT SET")`.
///
/// Fields that are not keys are listed in `beside`. The struct derives what every section needs; the declaration adds
/// the rest.
macro_rules! section {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $section:ident {
            $(
                $(#[doc = $sentence:literal])+
                $key:ident: $type:ty $(= $default:literal)?, $kind:expr $(, $mark:ident($($with:expr)?))*;
            )*
        }
        $(beside { $( $(#[$other_attribute:meta])* $other:ident: $other_type:ty; )* })?
    ) => {
        #[derive(Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[$attribute])*
        $visibility struct $section {
            $( $(#[doc = $sentence])+ pub $key: $type, )*
            $($( $(#[$other_attribute])* pub $other: $other_type, )*)?
        }

        impl $crate::section::Declared for $section {
            const KEYS: &'static [$crate::section::Key] = &[
                $(
                    $crate::section::Key::new(stringify!($key), concat!($($sentence),+), $kind)
                        $(.default(stringify!($default)))?
                        $(.$mark($($with)?))*,
                )*
            ];

            fn declared() -> Self {
                // Parsed once: a reload needs it for each pool.
                static DECLARED: std::sync::LazyLock<$section> =
                    std::sync::LazyLock::new(|| $section {
                        $( $key: $section::default_of(stringify!($key)), )*
                        $($( $other: Default::default(), )*)?
                    });
                DECLARED.clone()
            }
        }
    };
}
pub(crate) use section;

/// A struct made by [`section!`].
pub(crate) trait Declared: Sized {
    /// Its keys, in the order of the declaration.
    const KEYS: &'static [Key];

    /// Returns the defaults.
    fn declared() -> Self;

    /// Returns the default of a key.
    fn default_of<T: DeserializeOwned>(name: &str) -> T {
        let value = Self::KEYS
            .iter()
            .find(|key| key.name == name)
            .map_or(Value::Null, Key::default_value);
        serde_json::from_value(value).expect("section: a default is a value of its key's type")
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its description, in Markdown with a leading blank on each line.
    sentence: &'static str,
    pub(super) kind: Kind,
    /// Its default as TOML; `None`: unset.
    pub(super) default: Option<&'static str>,
    /// The effective value if it is unset or zero, in Markdown.
    pub otherwise: Option<&'static str>,
    /// The unit of a count.
    pub(super) unit: Option<&'static str>,
    /// Whether a running service applies a new value.
    pub runtime: bool,
    /// Whether daemons of a fleet may differ in it: it depends on the machine's size, files or network, or may hold a
    /// secret.
    pub(super) is_of_machine: bool,
    /// Why it cannot be set over HTTP, unless its kind implies it.
    pub(super) only_in_files: Option<&'static str>,
}

impl Key {
    pub(crate) const fn new(name: &'static str, sentence: &'static str, kind: Kind) -> Self {
        Self {
            name,
            sentence,
            kind,
            default: None,
            otherwise: None,
            unit: None,
            runtime: true,
            is_of_machine: false,
            only_in_files: None,
        }
    }

    pub(crate) const fn default(mut self, toml: &'static str) -> Self {
        self.default = Some(toml);
        self
    }

    /// Marks it as requiring a restart.
    pub(crate) const fn at_start(mut self) -> Self {
        self.runtime = false;
        self
    }

    /// Marks it as one that daemons of a fleet may differ in.
    pub(crate) const fn of_machine(mut self) -> Self {
        self.is_of_machine = true;
        self
    }

    /// Marks it as one that HTTP cannot set.
    pub(crate) const fn only_in_files(mut self, why: &'static str) -> Self {
        self.only_in_files = Some(why);
        self
    }

    /// Sets the effective value while it is unset.
    pub(crate) const fn otherwise(mut self, what: &'static str) -> Self {
        self.otherwise = Some(what);
        self
    }

    /// Sets the unit of a count.
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Returns its description in Markdown.
    pub fn sentence(&self) -> &'static str {
        self.sentence.trim_start()
    }

    /// Returns the unit of a plain number; empty if none.
    pub(super) fn unit_name(&self) -> &'static str {
        self.unit.unwrap_or_else(|| self.kind.unit())
    }

    /// Returns its default in normal form; `null`: unset.
    fn default_value(&self) -> Value {
        let Some(text) = self.default else {
            return Value::Null;
        };
        let raw = toml_file::value(text).expect("section: a default is TOML");
        self.kind.read(&raw).unwrap_or_else(|fault| {
            panic!("section: the default of {} is invalid: {fault}", self.name)
        })
    }
}

impl Kind {
    /// Returns the unit of a plain number of this kind; empty if none.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Duration { unit, .. } => match unit {
                Unit::Milliseconds => "ms",
                Unit::Seconds => "s",
                Unit::Hours => "h",
            },
            Self::Bytes { .. } => "bytes",
            Self::OrZero(inner) | Self::OrNone(_, inner) => inner.unit(),
            _ => "",
        }
    }
}
