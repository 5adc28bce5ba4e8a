//! Lines of the protocol: a command and its arguments as JSON text, without an engine.

use std::array;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::failure::{Failure, cut};
use super::text::unquote;
use json::cursor::{Elements, Members};
use json::string::unescape;

/// A command line: a JSON array whose first element is the name.
pub(super) struct Command<'a> {
    /// The name as JavaScript would convert it: `undefined` for an empty array.
    pub name: String,
    arguments: [Option<&'a str>; ARGUMENTS_MAX],
}

/// Maximum number of arguments of any command.
const ARGUMENTS_MAX: usize = 3;

/// Reads the named members of an object; a very long value is read as `true`.
pub(super) fn members(json: &str, names: &[&str]) -> Value {
    let mut found = Map::new();
    for (name, value) in Members::of(json) {
        let name = unescape(name);
        if names.contains(&&*name) {
            let value = if value.len() > TREE_BYTES_MAX {
                Value::Bool(true)
            } else {
                serde_json::from_str(value).unwrap_or_default()
            };
            found.insert(name.into_owned(), value);
        }
    }
    Value::Object(found)
}

impl<'a> Command<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// A line that is not JSON is fatal: it is unknown how many answers the parent waits for. For JSON other than an
    /// array, CouchDB answers with a TypeError.
    pub fn parse(line: &'a str) -> Result<Self, Failure> {
        let mut elements = Elements::of(line);
        let name = elements.next();
        let arguments = array::from_fn(|_| elements.next());
        if elements.is_list() {
            let name = name.map_or_else(|| "undefined".to_owned(), as_text);
            return Ok(Command { name, arguments });
        }
        Err(match serde_json::from_str::<&RawValue>(line) {
            Ok(_) => Failure::type_error("a command must be a list, like [\"reset\"]"),
            Err(error) => Failure::fatal("invalid_json", &format!("not a line of JSON: {error}")),
        })
    }

    /// The JSON text of an argument, `None` if it is missing.
    pub fn argument(&self, index: usize) -> Option<&'a str> {
        *self.arguments.get(index)?
    }
}

/// Maximum length of JSON text parsed to a tree of values, in bytes: the tree takes many times as much.
pub(super) const TREE_BYTES_MAX: usize = 64 << 10;

/// The result of String() for a JSON value; a long value other than a string is only cut.
pub(super) fn as_text(json: &str) -> String {
    if let Some(text) = unquote(json) {
        return text.into_owned();
    }
    if json.len() > TREE_BYTES_MAX {
        return cut(json).into_owned();
    }
    match serde_json::from_str(json) {
        Ok(value) => value_as_text(&value),
        Err(_) => json.to_owned(),
    }
}

pub(super) fn value_as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let item = |item: &Value| {
                if item.is_null() {
                    String::new()
                } else {
                    value_as_text(item)
                }
            };
            items.iter().map(item).collect::<Vec<_>>().join(",")
        }
        Value::Object(_) => "[object Object]".to_owned(),
        other => other.to_string(),
    }
}

/// The JSON text of the only argument of a `map_doc` line as the parent writes it. It is not validated: the engine
/// parses it, and parsing it twice would add a tenth to its time.
pub(super) fn only_document(line: &str) -> Option<&str> {
    line.strip_prefix("[\"map_doc\",")?
        .trim_end()
        .strip_suffix(']')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(line: &str) -> String {
        Command::parse(line).map(|command| command.name).unwrap()
    }

    #[test]
    fn names_are_read_as_javascript_would_write_them() {
        assert_eq!(name(r#" [ "re\u0073et" , {} ] "#), "reset");
        assert_eq!(name("[]"), "undefined");
        assert_eq!(name("[42,1]"), "42");
        assert_eq!(name("[null]"), "null");
        assert_eq!(name(r#"[{"a":1}]"#), "[object Object]");
        assert_eq!(name(r#"[["a",null,[1]]]"#), "a,,1");
    }

    #[test]
    fn arguments_keep_their_text() {
        let command = Command::parse(r#"["x", {"a": 1.0} ,2]"#).ok().unwrap();
        assert_eq!(command.argument(0), Some(r#"{"a": 1.0}"#));
        assert_eq!(command.argument(1), Some("2"));
        assert_eq!(command.argument(2), None);
    }

    #[test]
    fn members_are_read_by_their_names() {
        let long = format!("[{}1]", "1,".repeat(TREE_BYTES_MAX));
        let json = format!(r#"{{"a":1,"b":[2],"\u0061":3,"c":{long},"long":{long}}}"#);
        let found = members(&json, &["a", "b", "long", "missing"]);
        assert_eq!(found, serde_json::json!({"a": 3, "b": [2], "long": true}));
        assert_eq!(members("null", &["a"]), serde_json::json!({}));
    }

    #[test]
    fn deep_nesting_is_taken_apart_without_recursion() {
        let line = format!("[\"x\",{}{}]", "[".repeat(500_000), "]".repeat(500_000));
        assert_eq!(
            Command::parse(&line)
                .map(|command| command.argument(0).unwrap().len())
                .unwrap(),
            1_000_000
        );
    }

    #[test]
    fn what_is_not_an_array_is_an_error_and_what_is_not_json_is_fatal() {
        for (line, fatal) in [
            ("{}", false),
            ("null", false),
            ("{", true),
            (" ", true),
            ("[1] x", true),
        ] {
            assert_eq!(
                Command::parse(line)
                    .err()
                    .map(|failure| matches!(failure, Failure::Error { fatal: true, .. })),
                Some(fatal),
                "{line}"
            );
        }
    }
}
