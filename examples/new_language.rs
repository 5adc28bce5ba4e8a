//! A new language in one file: `field`, whose functions are the names of fields.
//! A view `"type"` emits each document's field `type`. Run: `cargo run --example new_language`.

use futures_util::future::{LocalBoxFuture, ready};
use serde_json::{Value, json};
use settee::actors::language::{Language, StartContext};
use settee::actors::native_process::{NativeProcess, NativeServer};
use settee::messages::opener::StartError;
use settee::messages::process::ProcessRef;
use settee::testkit::TestPool;

type Start = LocalBoxFuture<'static, Result<ProcessRef, StartError>>;

/// The language: starts a server inside this program.
pub struct FieldLanguage;

impl Language for FieldLanguage {
    fn describe(&self) -> String {
        "native: field".into()
    }
    fn start(&self, context: StartContext) -> Start {
        Box::pin(ready(NativeProcess::start_with(Fields::default(), context)))
    }
}

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

/// Borrows one process of it and maps one document.
#[actix::main]
pub async fn main() {
    let pool = TestPool::builder().language("field", FieldLanguage).start();
    let mut client = pool.client("view");
    client.takes(pool.any()).await;
    let added = client.prompts(r#"["add_fun","type"]"#).await;
    assert_eq!(added.as_deref(), Ok("true"));
    let rows = client.prompts(r#"["map_doc",{"type":"post"}]"#).await;
    assert_eq!(rows.as_deref(), Ok(r#"[[["post",null]]]"#));
    client.returns().await;
    pool.assert_quiet().await;
}
