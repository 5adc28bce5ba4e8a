//! Reads environment variables into entries.
//!
//! SUMMARY   `SETTEE__SECTION__KEY`, in upper or lower case, sets any key. `SETTEE__REPLICATOR__SHARES__NAME` sets the
//!           share of a case-sensitive name. `COUCHDB_QUERY_SERVER_LANGUAGE` sets a language's command, as for CouchDB,
//!           and overrides `SETTEE__QUERY_SERVERS__LANGUAGE`.
//! PROMISES  The environment is passed in as data, so tests need no variables.
//! SOURCE    `couch_proc_manager`, `get_servers_from_env`.
//! DIFFERS   CouchDB keeps the case of a language, so lower-case ones are never found, and accepts an empty name.

use std::ffi::{OsStr, OsString};

use super::keys::{self, MANGO, QUERY_SERVERS, REPLICATOR, SHARES};
use super::layer::Layer;
use super::origin::Origin;
use super::value::Raw;

/// Prefix of variables that set any key.
const PREFIX: &str = "SETTEE__";
/// Prefix of a share's key in the replicator's section.
const SHARES_PREFIX: &str = "SHARES__";
/// Prefix of CouchDB's variables that set a command.
const COUCHDB_PREFIX: &str = "COUCHDB_QUERY_SERVER_";
/// Prefix of CouchDB's variables that once named an Erlang module; not supported.
const COUCHDB_NATIVE_PREFIX: &str = "COUCHDB_NATIVE_QUERY_SERVER_";

/// Reads the `SETTEE__` variables.
pub(super) fn own(variables: &[(OsString, OsString)]) -> Layer {
    let mut layer = Layer::default();
    for (name, value) in variables {
        let name = name.to_string_lossy();
        let Some(rest) = strip_prefix(&name, PREFIX) else {
            continue;
        };
        let origin = Origin::Environment(name.to_string());
        let Some((section, key)) = rest.split_once("__") else {
            layer.problem(
                &origin,
                "the name has no key",
                format!("name it {PREFIX}SECTION__KEY, with two underscores between"),
            );
            continue;
        };
        let section = section.to_lowercase();
        let (section, key) = if section == REPLICATOR
            && let Some(name) = strip_prefix(key, SHARES_PREFIX)
        {
            // Names of databases and users keep their case.
            (SHARES.to_owned(), name.to_owned())
        } else if !keys::families().any(|family| family == section) {
            (section, key.to_lowercase())
        // The last part is the key: a section's name may have underscores.
        } else if let Some((name, key)) = key.rsplit_once("__") {
            let section = format!("{section}.{}", name.to_lowercase());
            (section, key.to_lowercase())
        } else {
            layer.problem(
                &origin,
                format!("the name lacks the NAME and KEY of a section [{section}.NAME]"),
                format!("name it {PREFIX}{}__NAME__KEY", section.to_uppercase()),
            );
            continue;
        };
        layer.section(&section, origin.clone());
        push(&mut layer, &section, &key, value, origin);
    }
    layer
}

/// Reads CouchDB's variables.
pub(super) fn couchdb(variables: &[(OsString, OsString)]) -> Layer {
    let mut layer = Layer::default();
    for (name, value) in variables {
        let name = name.to_string_lossy();
        let origin = Origin::Environment(name.to_string());
        if name.starts_with(COUCHDB_NATIVE_PREFIX) {
            layer.notice(
                origin,
                "in-process languages are enabled in [native_query_servers]; the variable \
                 has no effect",
            );
            continue;
        }
        let Some(language) = name.strip_prefix(COUCHDB_PREFIX) else {
            continue;
        };
        let unusable = match (language.is_empty(), value.is_empty()) {
            (true, _) => Some("the name of the language is empty; the variable has no effect"),
            (_, true) => Some("the command is empty; the variable has no effect"),
            _ if language.eq_ignore_ascii_case(MANGO) => {
                Some("Mango is inside this program; the variable has no effect")
            }
            _ => None,
        };
        match unusable {
            Some(text) => layer.notice(origin, text),
            None => push(&mut layer, QUERY_SERVERS, language, value, origin),
        }
    }
    layer
}

fn push(layer: &mut Layer, section: &str, key: &str, value: &OsStr, origin: Origin) {
    match value.to_str() {
        Some(text) => layer.entry(section, key, Raw::Text(text.to_owned()), origin),
        None => layer.problem(&origin, "the value is not UTF-8", "correct it"),
    }
}

/// Strips an ASCII prefix, ignoring case.
pub(super) fn strip_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    name.get(..prefix.len())?
        .eq_ignore_ascii_case(prefix)
        .then(|| &name[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn entries(layer: &Layer) -> Vec<(&str, &str, &Raw)> {
        layer
            .entries
            .iter()
            .map(|e| (e.section.as_str(), e.key.as_str(), &e.raw))
            .collect()
    }

    #[test]
    fn names_of_own_variables_ignore_case() {
        let layer = own(&variables(&[
            ("SETTEE__LOG__LEVEL", "debug"),
            ("settee__couchdb__os_process_timeout", "7000"),
            ("SETTEE_LOG", "x"),
            ("PATH", "/bin"),
        ]));
        let (debug, timeout) = (Raw::Text("debug".into()), Raw::Text("7000".into()));
        let expected = [
            ("log", "level", &debug),
            ("couchdb", "os_process_timeout", &timeout),
        ];
        assert_eq!(entries(&layer), expected);
        assert_eq!(layer.problems, []);
    }

    #[test]
    fn a_variable_without_a_key_is_a_problem() {
        let layer = own(&variables(&[("SETTEE__LOG", "debug")]));
        assert_eq!(layer.problems[0].place, "environment variable SETTEE__LOG");
    }

    #[test]
    fn a_command_in_a_couchdb_variable_may_contain_an_equals_sign() {
        let layer = couchdb(&variables(&[(
            "COUCHDB_QUERY_SERVER_PYTHON",
            "A=1 couchpy",
        )]));
        let python = Raw::Text("A=1 couchpy".into());
        assert_eq!(entries(&layer), [(QUERY_SERVERS, "PYTHON", &python)]);
    }

    #[test]
    fn couchdb_variables_without_effect_are_ignored_with_a_notice() {
        let layer = couchdb(&variables(&[
            ("COUCHDB_QUERY_SERVER_", "x"),
            ("COUCHDB_QUERY_SERVER_PYTHON", ""),
            ("COUCHDB_NATIVE_QUERY_SERVER_ERLANG", "{m, f, []}"),
        ]));
        assert!(layer.entries.is_empty());
        assert_eq!(layer.notices.len(), 3);
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_utf_8_is_a_problem() {
        use std::os::unix::ffi::OsStringExt;
        let bad = OsString::from_vec(vec![0xff]);
        let layer = own(&[("SETTEE__LOG__LEVEL".into(), bad)]);
        assert_eq!(layer.problems.len(), 1);
    }
}
