//! Environment variables for query servers.
//!
//! PROMISES  Messages never contain values, which may be credentials.

use serde_json::Value;

use super::Raw;
use crate::environment::strip_prefix;
use crate::password::HIDDEN;

/// Prefixes of variables that configure the service or CouchDB, including passwords.
const KEPT_BACK: [&str; 2] = ["SETTEE_", "COUCHDB_"];

/// Returns the variables as a list, or the first mistake.
pub(super) fn read(raw: &Raw) -> Result<Value, String> {
    let mut entries = raw.entries().ok_or("the variables are not text")?;
    if entries == [""] {
        entries.clear();
    }
    let mut names: Vec<&str> = Vec::new();
    for (number, entry) in (1..).zip(&entries) {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*entry, None),
        };
        if !is_name(name) || entry.contains('\0') {
            return Err(format!("entry {number} is neither NAME=VALUE nor NAME"));
        }
        if KEPT_BACK
            .iter()
            .any(|start| strip_prefix(name, start).is_some())
        {
            return Err(format!(
                "{name} configures the service and may hold a password: query servers must not get it"
            ));
        }
        if value == Some(HIDDEN) {
            return Err(format!(
                "{name}: {HIDDEN} is what output shows instead of the value"
            ));
        }
        if names.contains(&name) {
            return Err(format!("{name} is listed twice"));
        }
        names.push(name);
    }
    Ok(entries.into_iter().map(Value::from).collect())
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ENV, display};
    use super::*;

    #[test]
    fn variables_are_a_list_or_a_string_with_commas() {
        let list = ["A=1,2", "B="].map(str::to_owned).to_vec();
        assert_eq!(read(&Raw::Texts(list)), Ok(json!(["A=1,2", "B="])));
        let text = Raw::Text("A=x y, HTTP_PROXY".into());
        assert_eq!(read(&text), Ok(json!(["A=x y", "HTTP_PROXY"])));
        assert_eq!(read(&Raw::Text(String::new())), Ok(json!([])));
    }

    #[test]
    fn no_query_server_gets_the_service_s_own_variables() {
        for name in ["SETTEE__ADMINS__ANN", "settee_x=1", "COUCHDB_PASSWORD"] {
            let told = read(&Raw::Text(name.into())).unwrap_err();
            assert!(told.contains("must not get it"), "{told}");
        }
        assert!(read(&Raw::Text("SETTEES".into())).is_ok());
    }

    #[test]
    fn a_value_is_never_shown() {
        let wrong = [
            "1A=secret",
            "A=1,secret word",
            "=secret",
            "A=secret,A=secret",
            "A B=secret",
        ];
        for wrong in wrong {
            let told = ENV.read(&Raw::Text(wrong.into())).unwrap_err();
            assert!(!told.to_string().contains("secret"), "{told}");
        }
        let value = ENV.read(&Raw::Text("A=secret,B".into())).unwrap();
        assert_eq!(display(ENV, &value), "A=***,B");
        assert!(ENV.read(&Raw::Text("A=***".into())).is_err());
    }
}
