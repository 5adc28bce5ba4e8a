//! One layer of the configuration: what one source says, checked name by name and value by value.
//!
//! SUMMARY   Readers fill a [`Layer`]; [`Layer::settle`] turns it into normal values under
//!           canonical names, or into problems.
//! PROMISES  Every entry is either a value, a problem or a notice. A layer that is wrong is wrong
//!           even where a later layer overrides it: the mistake would surface at the worst time.
//! DIFFERS   CouchDB takes unknown sections and keys without a word.

use std::collections::{BTreeMap, BTreeSet};

use config::{Map, Source, Value, ValueKind};

use super::keys::{self, ADMINS, Kind, MANGO, NATIVE_QUERY_SERVERS, QUERY_SERVERS, SHARES};
use super::nearest::nearest;
use super::origin::{Notice, Origin, Problem};
use super::types::{LanguageCommand, language_name};
use super::value::{self, Raw};

/// The languages that have a query server inside this program.
const BUILTIN_LANGUAGES: &[&str] = &["javascript"];
/// The language whose absence means the built-in one.
const JAVASCRIPT: &str = "javascript";
/// Longest name of an admin, in bytes.
const ADMIN_NAME_MAX: usize = 256;

/// Keys of CouchDB that stand in sections of ours and belong to other parts of it. `None` is every
/// key: those sections are shared by many parts.
const FOREIGN_KEYS: &[(&str, Option<&[&str]>)] = &[
    ("couchdb", None),
    ("log", None),
    ("chttpd_auth", None),
    (
        "query_server_config",
        Some(&[
            "commit_freq",
            "group_info_timeout",
            "query_limit",
            "partition_query_limit",
        ]),
    ),
];

/// Keys of CouchDB that concern what there is none of here: a cluster, Erlang's sockets and HTTP
/// client.
const KEYS_WITHOUT_MEANING: &[(&str, &[&str])] = &[(
    keys::REPLICATOR,
    &[
        "cluster_quiet_period",
        "cluster_start_period",
        "db",
        "ibrowse_options",
        "socket_options",
        "ssl_certificate_max_depth",
        "valid_endpoint_protocols_log",
        "valid_ibrowse_options",
        "valid_socket_options",
        "verify_ssl_certificates_log",
    ],
)];

/// Longest name of a replicator database or a user that has a share, in bytes.
const SHARE_NAME_MAX: usize = 256;

/// One `section.key = value` with its place.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The section as written.
    pub section: String,
    /// The key as written.
    pub key: String,
    /// The value as written.
    pub raw: Raw,
    /// Where.
    pub origin: Origin,
}

/// What one source says, not yet checked.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// Whether it is a CouchDB file, in which other parts' sections stand too.
    pub ini: bool,
    /// Sections in order of appearance; in a file each with the line of its heading.
    pub sections: Vec<(String, Origin)>,
    /// Entries in order of appearance.
    pub entries: Vec<Entry>,
    /// What could not even be read.
    pub problems: Vec<Problem>,
    /// What was read and has no effect.
    pub notices: Vec<Notice>,
}

/// Section and key, in their canonical spelling.
pub(super) type Place = (String, String);

/// A checked layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    /// (section, key) -> normal value and origin; sorted, so that results are reproducible.
    pub values: BTreeMap<Place, (ValueKind, Origin)>,
    /// What goes back to the built-in default.
    pub unset: Vec<Place>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What has no effect.
    pub notices: Vec<Notice>,
}

impl Layer {
    /// Puts a parser's alphabetical order back into the order of the file.
    pub fn sort_by_origin(&mut self) {
        self.sections.sort_by(|a, b| a.1.cmp(&b.1));
        self.entries.sort_by(|a, b| a.origin.cmp(&b.origin));
    }

    /// Checks every name and value. `natives` are the known in-process languages.
    pub fn settle(self, natives: &[&str]) -> Settled {
        let Self {
            ini,
            sections,
            entries,
            problems,
            notices,
        } = self;
        let mut settled = Settled {
            problems,
            notices,
            ..Settled::default()
        };
        for (section, origin) in &sections {
            if !keys::is_section(section) {
                settled.unknown_section(section, origin, ini);
            } else if let Some((family, name)) = keys::family(section)
                && !fits(family, name)
            {
                settled.unfit_name(family, name, origin);
            }
        }
        let entries_in: BTreeSet<String> =
            entries.iter().map(|entry| entry.section.clone()).collect();
        let mut spelling = BTreeMap::new();
        for mut entry in entries {
            if !keys::is_section(&entry.section) {
                continue;
            }
            if let Some((family, name)) = keys::family(&entry.section) {
                if !fits(family, name) {
                    continue;
                }
                // Users have their names to log in with.
                if family != keys::USERS {
                    entry.section = format!("{family}.{}", language_name(name));
                }
            }
            let Some(key) = settled.known_key(&entry, ini, natives) else {
                continue;
            };
            let place = (entry.section.clone(), key);
            let spelt = (entry.key.clone(), entry.origin.clone());
            if let Some((earlier, first)) = spelling.insert(place.clone(), spelt) {
                let repeated = ini && earlier == entry.key;
                if !settled.set_twice(&entry, &earlier, &first, repeated) {
                    continue;
                }
            }
            settled.take(place, entry);
        }
        for (section, origin) in sections {
            let is_empty = !entries_in.contains(&section);
            if is_empty && keys::family(&section).is_some_and(|(family, name)| fits(family, name)) {
                let text = format!("[{}] is empty and has no effect", section.escape_debug());
                settled.notices.push(Notice { origin, text });
            }
        }
        settled.notices.sort_by(|a, b| a.origin.cmp(&b.origin));
        settled
    }
}

impl Settled {
    fn unfit_name(&mut self, family: &str, name: &str, origin: &Origin) {
        self.problems.push(Problem::new(
            origin,
            format!("{name:?} cannot be the name of a section [{family}.NAME]"),
            format!("use {}", name_rule(family)),
        ));
    }

    fn unknown_section(&mut self, section: &str, origin: &Origin, ini: bool) {
        let (head, name) = section.split_once('.').unwrap_or((section, "NAME"));
        let family = nearest(head, keys::FAMILIES.iter().copied()).filter(|near| near.likely);
        if let Some(family) = family {
            self.problems.push(Problem::new(
                origin,
                format!("there is no section [{}]", section.escape_debug()),
                format!("did you mean [{}.{}]?", family.name, name.escape_debug()),
            ));
            return;
        }
        let near = nearest(section, keys::SECTIONS.iter().copied());
        if ini && !near.is_some_and(|near| near.likely) {
            let text = format!(
                "[{}] is another part of CouchDB's and was passed over",
                section.escape_debug()
            );
            self.notices.push(Notice {
                origin: origin.clone(),
                text,
            });
            return;
        }
        let remedy = suggestion(section, keys::SECTIONS);
        let what = format!("there is no section [{}]", section.escape_debug());
        self.problems.push(Problem::new(origin, what, remedy));
    }

    /// Returns the key's canonical name, or notes what is wrong with it.
    fn known_key(&mut self, entry: &Entry, ini: bool, natives: &[&str]) -> Option<String> {
        match entry.section.as_str() {
            QUERY_SERVERS => self.language(entry),
            NATIVE_QUERY_SERVERS => self.native_language(entry, ini, natives),
            ADMINS => self.admin(entry),
            SHARES => self.share(entry),
            section => {
                if keys::find(section, &entry.key).is_some() {
                    return Some(entry.key.clone());
                }
                self.unknown_key(entry, ini);
                None
            }
        }
    }

    fn unknown_key(&mut self, entry: &Entry, ini: bool) {
        let Entry {
            section,
            key,
            origin,
            ..
        } = entry;
        let known = keys::names(section);
        if without_meaning(section, key) {
            self.notices.push(Notice {
                origin: origin.clone(),
                text: format!("[{section}] {key} has no meaning here and was passed over"),
            });
            return;
        }
        let likely = nearest(key, known.iter().copied()).is_some_and(|near| near.likely);
        if ini && !likely && foreign(section, key) {
            let key = key.escape_debug();
            let text =
                format!("[{section}] {key} is another part of CouchDB's and was passed over");
            self.notices.push(Notice {
                origin: origin.clone(),
                text,
            });
            return;
        }
        let elsewhere = keys::KEYS.iter().find(|other| other.name == *key);
        let remedy = match elsewhere.filter(|_| keys::family(section).is_none()) {
            Some(other) => format!("it belongs in section [{}]", other.section),
            None => suggestion(key, &known),
        };
        let what = format!("there is no key {key:?} in section [{section}]");
        self.problems.push(Problem::new(origin, what, remedy));
    }

    fn language(&mut self, entry: &Entry) -> Option<String> {
        let name = language_name(&entry.key);
        if name == MANGO {
            self.problems.push(Problem::new(
                &entry.origin,
                format!("language {name:?}, Mango, is inside this program and takes no command"),
                "leave it out, or give the language another name",
            ));
            return None;
        }
        if !value::is_name(&name) {
            self.problems.push(Problem::new(
                &entry.origin,
                format!("{:?} cannot be the name of a language", entry.key),
                format!("use {}", value::NAME_RULE),
            ));
            return None;
        }
        Some(name)
    }

    /// A name with a colon could never log in.
    fn admin(&mut self, entry: &Entry) -> Option<String> {
        let name = &entry.key;
        let unfit = name.is_empty()
            || name.len() > ADMIN_NAME_MAX
            || name.contains(|c: char| c == ':' || c.is_control());
        if unfit {
            self.problems.push(Problem::new(
                &entry.origin,
                format!("{name:?} cannot be the name of an admin"),
                format!("use 1 to {ADMIN_NAME_MAX} bytes without colons"),
            ));
            return None;
        }
        Some(name.clone())
    }

    fn share(&mut self, entry: &Entry) -> Option<String> {
        let name = &entry.key;
        if name.is_empty() || name.len() > SHARE_NAME_MAX || name.contains(char::is_control) {
            self.problems.push(Problem::new(
                &entry.origin,
                format!("{name:?} cannot be the name of a database or a user"),
                format!("use 1 to {SHARE_NAME_MAX} bytes"),
            ));
            return None;
        }
        Some(name.clone())
    }

    fn native_language(&mut self, entry: &Entry, ini: bool, natives: &[&str]) -> Option<String> {
        let name = language_name(&entry.key);
        if name == MANGO {
            self.always_on(entry);
            return None;
        }
        if natives.contains(&name.as_str()) || entry.origin == Origin::Default {
            return Some(name);
        }
        let off = match &entry.raw {
            Raw::Text(text) => text == "false",
            raw => *raw == Raw::Unset,
        };
        if ini && off {
            let text = format!("[{NATIVE_QUERY_SERVERS}] {name} is off and not known here");
            self.notices.push(Notice {
                origin: entry.origin.clone(),
                text,
            });
            return None;
        }
        self.problems.push(Problem::new(
            &entry.origin,
            format!("there is no in-process language {:?}", entry.key),
            suggestion(&name, natives),
        ));
        None
    }

    /// Mango cannot be switched off.
    fn always_on(&mut self, entry: &Entry) {
        let origin = entry.origin.clone();
        let what = format!(
            "[{NATIVE_QUERY_SERVERS}] {}, Mango, is always on",
            entry.key
        );
        if matches!(
            value::parse(Kind::Boolean, &entry.raw),
            Ok(ValueKind::Boolean(true))
        ) {
            let text = format!("{what}; the key has no effect");
            self.notices.push(Notice { origin, text });
        } else {
            self.problems
                .push(Problem::new(origin, what, "leave the key out"));
        }
    }

    /// Notes a key that stands twice in one layer. Returns whether the second one counts.
    fn set_twice(&mut self, entry: &Entry, earlier: &str, first: &Origin, repeated: bool) -> bool {
        let (section, key) = (&entry.section, &entry.key);
        if repeated {
            let text = format!("[{section}] {key} stood before at {first}; this one counts");
            self.notices.push(Notice {
                origin: entry.origin.clone(),
                text,
            });
            return true;
        }
        self.problems.push(Problem::new(
            &entry.origin,
            format!("[{section}] {key} is set already, as {earlier:?} at {first}"),
            "keep one of the two",
        ));
        false
    }

    fn take(&mut self, place: Place, entry: Entry) {
        if entry.raw == Raw::Unset {
            self.values.remove(&place);
            self.unset.push(place);
            return;
        }
        let kind = keys::kind(&place.0, &place.1).expect("layer: the key has been found");
        let parsed = value::parse(kind, &entry.raw).and_then(|value| match kind {
            Kind::Command => command(&place.1, value),
            _ => Ok(value),
        });
        match parsed {
            Ok(value) => {
                self.unset.retain(|unset| *unset != place);
                self.values.insert(place, (value, entry.origin));
            }
            Err(fault) => self.problems.push(Problem::new(
                entry.origin,
                format!("[{}] {}: {}", entry.section, entry.key, fault.what),
                fault.remedy,
            )),
        }
    }
}

/// The layering itself is the `config` crate's: each layer is one of its sources.
impl Source for Settled {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        let mut tables: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        for ((section, key), (value, origin)) in &self.values {
            let value = Value::new(Some(&origin.to_string()), value.clone());
            tables
                .entry(section)
                .or_default()
                .insert(key.clone(), value);
        }
        // The sections of a family are tables in one.
        let mut families: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        let mut all = Map::new();
        for (section, table) in tables {
            match keys::family(section) {
                Some((family, name)) => {
                    let members = families.entry(family).or_default();
                    members.insert(name.to_owned(), table.into());
                }
                None => {
                    all.insert(section.to_owned(), table.into());
                }
            }
        }
        all.extend(
            families
                .into_iter()
                .map(|(family, members)| (family.to_owned(), members.into())),
        );
        Ok(all)
    }
}

/// Returns the command in its normal form: absent and `builtin` are one for JavaScript.
fn command(language: &str, value: ValueKind) -> Result<ValueKind, value::Fault> {
    let ValueKind::String(text) = &value else {
        return Ok(value);
    };
    let word = text.to_lowercase();
    let builtin = LanguageCommand::BUILTIN;
    if word.is_empty() && language != JAVASCRIPT {
        return Err(value::Fault {
            what: "the command is empty".to_owned(),
            remedy: "give the command that starts its query server, or leave the language out"
                .to_owned(),
        });
    }
    if !word.is_empty() && word != builtin {
        return Ok(value);
    }
    if !BUILTIN_LANGUAGES.contains(&language) {
        return Err(value::Fault {
            what: format!("this program has no query server for {language:?} inside"),
            remedy: format!(
                "give a command; only {} is built in",
                BUILTIN_LANGUAGES.join(", ")
            ),
        });
    }
    Ok(ValueKind::String(builtin.to_owned()))
}

/// Returns whether a section of a family can have this name.
fn fits(family: &str, name: &str) -> bool {
    match family {
        keys::USERS => value::is_user_name(name),
        _ => value::is_name(name),
    }
}

fn name_rule(family: &str) -> &'static str {
    match family {
        keys::USERS => value::USER_NAME_RULE,
        _ => value::NAME_RULE,
    }
}

fn without_meaning(section: &str, key: &str) -> bool {
    KEYS_WITHOUT_MEANING
        .iter()
        .any(|(known, names)| *known == section && names.contains(&key))
}

fn foreign(section: &str, key: &str) -> bool {
    FOREIGN_KEYS
        .iter()
        .any(|(shared, names)| *shared == section && names.is_none_or(|names| names.contains(&key)))
}

/// Returns where a key that stands outside of any section belongs.
pub(super) fn home_of(key: &str) -> String {
    let Some(near) = nearest(key, keys::KEYS.iter().map(|known| known.name)) else {
        return "put it into a section".to_owned();
    };
    match keys::KEYS
        .iter()
        .find(|known| near.likely && known.name == near.name)
    {
        Some(known) => format!("put {} under [{}]", known.name, known.section),
        None => format!("put it under one of [{}]", keys::SECTIONS.join("], [")),
    }
}

/// Returns the advice for an unknown name: the nearest known one, or all when none is near.
fn suggestion(asked: &str, known: &[&str]) -> String {
    match nearest(asked, known.iter().copied()) {
        None => "there are none yet".to_owned(),
        Some(near) if near.likely => format!("did you mean {:?}?", near.name),
        Some(near) => {
            format!(
                "the nearest known one is {:?}, of {}",
                near.name,
                known.join(", ")
            )
        }
    }
}
