//! The built-in cases, by the language of their functions.

use crate::case::{Case, CaseError};

/// The languages of the cases. `none` is for those without functions.
pub const LANGUAGES: [&str; 6] = ["javascript", "python", "perl", "ruby", "lua", NO_LANGUAGE];

/// The name for no language.
pub const NO_LANGUAGE: &str = "none";

macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("cases/", $folder, $name, ".jsonl")))),*]
    };
}

/// Requirements for every query server, in any language: (file, cases).
const COMMON: &[(&str, &str)] = files!("": "common" "basic");

/// Cases for every detail of CouchDB's own JavaScript server: (file, cases).
const JAVASCRIPT: &[(&str, &str)] = files!("javascript/":
    "compile" "ddoc" "ddoc-filters" "ddoc-lists" "ddoc-rewrites" "ddoc-shows" "ddoc-updates"
    "ddoc-validate" "index" "language" "lib" "log" "map" "policy" "protocol" "reduce" "reset"
    "sandbox" "own-compile" "own-ddoc" "own-ddoc-filters" "own-ddoc-lists" "own-ddoc-rewrites"
    "own-ddoc-shows" "own-ddoc-updates" "own-ddoc-validate" "own-index" "own-language" "own-lib"
    "own-log" "own-map" "own-policy" "own-protocol" "own-reduce" "own-reset" "own-sandbox");

/// Returns the files of cases for a language.
pub fn files(language: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let more = match language {
        "javascript" => JAVASCRIPT,
        _ => &[],
    };
    COMMON.iter().chain(more).copied()
}

/// Returns the cases in one file for a language.
///
/// # Errors
/// A line is not a case.
pub fn cases_of(text: &str, language: &str) -> Result<Vec<Case>, CaseError> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .filter_map(|line| Case::parse(line, language).transpose())
        .collect()
}

/// Returns the number of built-in cases, in any language.
pub fn known() -> usize {
    files("javascript").map(|(_, text)| count(text)).sum()
}

/// Returns whether there are built-in cases with functions in a language.
pub fn has_functions(language: &str) -> bool {
    language != NO_LANGUAGE && LANGUAGES.contains(&language)
}

/// Returns the number of cases in a file.
pub fn count(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

/// Returns all cases for a language, in order.
///
/// # Errors
/// See [`cases_of`]; a test proves that the built-in ones have none.
pub fn cases(language: &str) -> Result<Vec<Case>, CaseError> {
    let texts: Vec<&str> = files(language).map(|(_, text)| text).collect();
    cases_of(&texts.join("\n"), language)
}

/// Returns the smallest case with a function: a server that passes it runs functions of this language.
pub fn first_function(language: &str) -> Option<Case> {
    let name = format!("\"id\": \"{FIRST_FUNCTION}\"");
    let line = COMMON
        .iter()
        .flat_map(|(_, text)| text.lines())
        .find(|line| line.contains(&name))?;
    Case::parse(line, language).ok().flatten()
}

/// The id of [`first_function`].
const FIRST_FUNCTION: &str = "basic/map/one-row";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_built_in_case_is_valid_and_has_a_unique_name() {
        for language in LANGUAGES {
            let cases = cases(language).unwrap();
            let names: HashSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
            assert_eq!(names.len(), cases.len(), "{language}");
            assert!(cases.iter().all(|case| !case.why.is_empty()), "{language}");
        }
    }

    #[test]
    fn every_language_has_its_first_function() {
        for language in LANGUAGES {
            let first = first_function(language);
            assert_eq!(first.is_some(), language != NO_LANGUAGE, "{language}");
        }
    }

    #[test]
    fn every_file_of_cases_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cases");
        let mut count = 0;
        for folder in [folder.to_owned(), format!("{folder}/javascript")] {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            for entry in entries.filter(|entry| entry.path().is_file()) {
                let stem = entry
                    .path()
                    .file_stem()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                assert!(files("javascript").any(|(name, _)| name == stem), "{stem}");
                count += 1;
            }
        }
        assert_eq!(count, files("javascript").count());
    }
}
