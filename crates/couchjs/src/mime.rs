//! Content types of `provides` and `registerType`, and their choice by an Accept header.
//!
//! SOURCE    CouchDB's render.js and mimeparse.js, with their oddities: candidates are ordered as text, so with more
//!           than ten, position "9" comes after "10".

use std::collections::HashMap;

/// The types registered from the beginning.
const PREDEFINED: [(&str, &[&str]); 15] = [
    ("all", &["*/*"]),
    ("text", &["text/plain; charset=utf-8", "txt"]),
    ("html", &["text/html; charset=utf-8"]),
    ("xhtml", &["application/xhtml+xml", "xhtml"]),
    ("xml", &["application/xml", "text/xml", "application/x-xml"]),
    (
        "js",
        &[
            "text/javascript",
            "application/javascript",
            "application/x-javascript",
        ],
    ),
    ("css", &["text/css"]),
    ("ics", &["text/calendar"]),
    ("csv", &["text/csv"]),
    ("rss", &["application/rss+xml"]),
    ("atom", &["application/atom+xml"]),
    ("yaml", &["application/x-yaml", "text/yaml"]),
    ("multipart_form", &["multipart/form-data"]),
    ("url_encoded_form", &["application/x-www-form-urlencoded"]),
    ("json", &["application/json", "text/x-json"]),
];

/// Keys (`html`) and their content types.
pub(super) struct Registry {
    /// Maximum memory of the tables, in bytes.
    bytes_max: usize,
    /// How much memory the tables take, in bytes.
    pub bytes: usize,
    /// Key -> types, in order.
    types: HashMap<String, Vec<String>>,
    /// Type -> the latest key registered for it.
    keys: HashMap<String, String>,
}

impl Registry {
    /// Makes a registry of the predefined types with this much memory for others.
    pub fn new(bytes_max: usize) -> Self {
        let mut registry = Registry {
            bytes_max,
            bytes: 0,
            types: HashMap::new(),
            keys: HashMap::new(),
        };
        for (key, types) in PREDEFINED {
            registry.register(
                key.to_owned(),
                types.iter().map(|&t| t.to_owned()).collect(),
            );
        }
        registry.bytes_max += registry.bytes;
        registry
    }

    /// Registers a function's `[KEY, [TYPE, ..]]`; ignores JSON of any other form.
    ///
    /// # Errors
    /// The memory is exhausted: returns the limit in bytes.
    pub fn register_json(&mut self, json: &str) -> Result<(), usize> {
        let left = self.bytes_max.saturating_sub(self.bytes);
        if json.len() > self.bytes_max {
            return Err(self.bytes_max);
        }
        let Ok((key, types)) = serde_json::from_str::<(String, Vec<String>)>(json) else {
            return Ok(());
        };
        let is_new = |name: &&String| self.key_of(name) != Some(&key);
        let names = types
            .iter()
            .filter(is_new)
            .map(|name| size(name) + size(&key));
        let replaced = self
            .types
            .get(&key)
            .map_or(0, |types| list_size(&key, types));
        if names.sum::<usize>() + list_size(&key, &types) > left + replaced {
            return Err(self.bytes_max);
        }
        self.register(key, types);
        Ok(())
    }

    /// Replaces the types of `key`.
    pub fn register(&mut self, key: String, types: Vec<String>) {
        for name in &types {
            self.bytes += size(&key);
            match self.keys.insert(name.clone(), key.clone()) {
                Some(replaced) => self.bytes -= size(&replaced),
                None => self.bytes += size(name),
            }
        }
        self.bytes += list_size(&key, &types);
        if let Some(replaced) = self.types.insert(key.clone(), types) {
            self.bytes -= list_size(&key, &replaced);
        }
    }

    pub fn types_of(&self, key: &str) -> Option<&[String]> {
        self.types.get(key).map(Vec::as_slice)
    }

    pub fn key_of(&self, name: &str) -> Option<&str> {
        self.keys.get(name).map(String::as_str)
    }
}

/// The overhead of a string in the tables: its entry, and the allocator's.
const TEXT_BYTES: usize = 64;

/// Returns the memory of a string in the tables, in bytes.
fn size(text: &str) -> usize {
    text.len() + TEXT_BYTES
}

/// Returns the memory of a key with its types, in bytes.
fn list_size(key: &str, types: &[String]) -> usize {
    size(key) + types.iter().map(|name| size(name)).sum::<usize>()
}

/// A media type or range: `type/subtype;name=value`.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';');
        let full = parts.next().unwrap_or("").trim();
        let full = if full == "*" { "*/*" } else { full };
        let (kind, subtype) = full.split_once('/').unwrap_or((full, ""));
        let pair = |part: &'a str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (name.trim(), value.trim())
        };
        let parameters: Vec<_> = parts.map(pair).collect();
        let stated = parameters
            .iter()
            .find(|(name, _)| *name == "q")
            .map(|(_, value)| value.parse());
        let quality = match stated {
            Some(Ok(q)) if (0.0..=1.0).contains(&q) => q,
            _ => 1.0,
        };
        Range {
            kind: kind.trim(),
            subtype: subtype.trim(),
            parameters,
            quality,
        }
    }

    /// Returns how well this range of a header fits a type; `None`: it does not.
    fn fitness(&self, target: &Range<'_>) -> Option<i32> {
        let fits = |a: &str, b: &str| a == b || a == "*" || b == "*";
        if !fits(self.kind, target.kind) || !fits(self.subtype, target.subtype) {
            return None;
        }
        let equal = |pair: &&(&str, &str)| pair.0 != "q" && self.parameters.contains(pair);
        let parameters = target.parameters.iter().filter(equal).count() as i32;
        let kind = if self.kind == target.kind { 100 } else { 0 };
        let subtype = if self.subtype == target.subtype {
            10
        } else {
            0
        };
        Some(kind + subtype + parameters)
    }
}

/// Returns the best of `types` for an Accept header; the empty string if none matches.
pub(super) fn best_match<'a>(types: &'a [String], accept: &str) -> &'a str {
    let ranges: Vec<_> = accept.split(',').map(Range::parse).collect();
    let weigh = |(position, name): (usize, &'a String)| {
        let target = Range::parse(name);
        // The first of the best fitting ranges determines the quality.
        let mut best = (-1, 0.0);
        for range in &ranges {
            if let Some(fitness) = range.fitness(&target)
                && fitness > best.0
            {
                best = (fitness, range.quality);
            }
        }
        (format!("{},{},{position}", best.0, best.1), best.1, name)
    };
    match types
        .iter()
        .enumerate()
        .map(weigh)
        .max_by(|a, b| a.0.cmp(&b.0))
    {
        Some((_, quality, name)) if quality > 0.0 => name,
        _ => "",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn best(keys: &[&str], accept: &str) -> String {
        let registry = Registry::new(1000);
        let types = |key: &&str| registry.types_of(key).unwrap().to_vec();
        best_match(&keys.iter().flat_map(types).collect::<Vec<_>>(), accept).to_owned()
    }

    #[test]
    fn specific_ranges_win_over_quality() {
        assert_eq!(
            best(&["json", "html"], "text/*;q=1,application/json;q=0.1"),
            "application/json"
        );
        assert_eq!(
            best(&["json", "html"], "text/html;q=0.3,application/json;q=0.8"),
            "application/json"
        );
    }

    #[test]
    fn ties_go_to_the_last_candidate() {
        assert_eq!(best(&["json"], "*/*"), "text/x-json");
        assert_eq!(best(&["text"], "*/*"), "txt");
        assert_eq!(best(&["xml"], "*"), "application/x-xml");
    }

    #[test]
    fn parameters_add_to_the_fit() {
        assert_eq!(best(&["html"], "text/html"), "text/html; charset=utf-8");
        let types = [
            "text/plain".to_owned(),
            "text/plain; charset=utf-8".to_owned(),
        ];
        assert_eq!(best_match(&types, "text/plain;charset=utf-8"), types[1]);
    }

    #[test]
    fn quality_zero_is_no_match() {
        assert_eq!(best(&["html"], "text/html;q=0"), "");
        assert_eq!(best(&["html"], "image/png"), "");
        assert_eq!(best(&[], "*/*"), "");
    }

    #[test]
    fn more_than_ten_candidates_are_ordered_as_text() {
        let keys = ["yaml", "csv", "css", "js", "xml", "json", "html"];
        assert_eq!(best(&keys, "*/*"), "application/x-xml");
    }

    #[test]
    fn functions_register_as_much_as_there_is_room_for() {
        let mut registry = Registry::new(1000);
        let bytes_max = registry.bytes_max;
        // Registering the same again takes no more memory.
        for _ in 0..100 {
            assert_eq!(registry.register_json(r#"["web",["a/b","c/d"]]"#), Ok(()));
        }
        assert_eq!(registry.register_json("[7]"), Ok(()));
        let long = format!(r#"["long",["{}"]]"#, "x".repeat(600));
        assert_eq!(registry.register_json(&long), Err(bytes_max));
        let mut register = |n: usize| registry.register_json(&format!(r#"["web{n}",["a/{n}"]]"#));
        let registered = (0..100).take_while(|n| register(*n).is_ok()).count();
        assert!((1..10).contains(&registered), "{registered}");
        assert!(registry.bytes <= bytes_max);
        assert_eq!(registry.types_of("web").unwrap(), ["a/b", "c/d"]);
    }

    #[test]
    fn a_later_registration_replaces_the_types_of_a_key() {
        let mut registry = Registry::new(1000);
        registry.register(
            "web".to_owned(),
            vec!["text/html; charset=utf-8".to_owned()],
        );
        assert_eq!(registry.key_of("text/html; charset=utf-8"), Some("web"));
        registry.register("web".to_owned(), vec!["a/b".to_owned()]);
        assert_eq!(registry.types_of("web").unwrap(), ["a/b"]);
    }
}
