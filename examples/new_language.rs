//! A program that adds a language: `field`, whose functions are the names of fields and run inside the
//! program. A view `type` emits each document's field `type`.
//!
//! `cargo run --example new_language -- serve`, and likewise `map --language field`, `conform --language field`.

use std::process::ExitCode;

use serde_json::{Value, json};
use settee::Daemon;
use settee::actors::language::Language;
use settee::actors::native_process::NativeServer;
use settee::languages::native::NativeLanguage;
use settee::query_server::abilities::Ability;

/// The server: one command in, one answer out.
#[derive(Default)]
struct Fields(Vec<String>);

impl NativeServer for Fields {
    fn prompt(&mut self, command: &str) -> String {
        let command: Value = serde_json::from_str(command).unwrap_or_default();
        match (command[0].as_str(), &command[1]) {
            (Some("reset"), _) => self.0.clear(),
            (Some("add_fun"), Value::String(field)) => self.0.push(field.clone()),
            (Some("map_doc"), doc) => {
                let emit = |key: &Value| json!([[key, null]]);
                let rows = |field: &String| doc.get(field).map_or(json!([]), emit);
                return self.0.iter().map(rows).collect::<Value>().to_string();
            }
            _ => return json!(["error", "unknown_command", command]).to_string(),
        }
        "true".into()
    }
}

/// The language: a server for each process. It has no libraries, design documents or the like.
pub fn field() -> impl Language {
    NativeLanguage::new(|_| Fields::default()).with_abilities(&[Ability::Pipelining])
}

pub fn main() -> ExitCode {
    Daemon::builder().language("field", field()).run()
}
