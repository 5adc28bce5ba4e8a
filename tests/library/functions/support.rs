//! Shared by the tests of function calls: a pool, and calls as JSON.

use serde_json::{Value, json};
use settee::functions::QueryServers;
use settee::messages::client_error::ErrorReply;
use settee::messages::function::FunctionRequest;
use settee::query_server::known_ddocs::KnownDdocs;
use settee_testkit::{ScriptedChild, TestPool, TestPoolBuilder};

use crate::support::program::SETTEE;

/// A pool, and a client of it that runs functions.
pub struct Functions {
    pub pool: TestPool,
    pub servers: QueryServers,
    language: String,
}

impl Functions {
    /// A pool of built-in JavaScript processes.
    pub fn javascript() -> Self {
        let command = format!("{} couchjs", SETTEE);
        Self::on(
            TestPool::builder().command("javascript", &command),
            "javascript",
        )
    }

    /// A scripted child, as the language `scripted`.
    pub fn scripted(child: &ScriptedChild) -> Self {
        Self::on(TestPool::builder().script("scripted", child), "scripted")
    }

    pub fn on(builder: TestPoolBuilder, language: &str) -> Self {
        let pool = builder.start();
        let servers = QueryServers::new(pool.caller());
        let language = language.to_owned();
        Self {
            pool,
            servers,
            language,
        }
    }

    /// Performs a call. Arguments without `ddoc` get `lang`; others get `db`, and their `ddoc` gets `_id`, `_rev` and
    /// `language`.
    pub async fn perform(&self, name: &str, arguments: Value) -> Result<Value, Value> {
        let text = self.perform_text(name, arguments).await?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    /// Like [`Self::perform`], but returns the value's JSON text unchanged.
    pub async fn perform_text(&self, name: &str, mut arguments: Value) -> Result<String, Value> {
        match arguments.get_mut("ddoc") {
            Some(ddoc) => {
                // The revision follows from the content.
                let text = ddoc.to_string();
                let hash = text
                    .bytes()
                    .fold(7u64, |hash, byte| hash * 31 % 1_000_003 + u64::from(byte));
                let rev = if text == "{}" {
                    "1-a".into()
                } else {
                    format!("1-{hash}")
                };
                ddoc["_id"] = json!("_design/d");
                ddoc["_rev"] = json!(rev);
                ddoc["language"] = json!(self.language);
                arguments["db"] = json!("shop");
            }
            None => arguments["lang"] = json!(self.language),
        }
        let error = |error: ErrorReply| serde_json::to_value(error).unwrap();
        let (arguments, ddocs) = (arguments.to_string(), KnownDdocs::default());
        let request = FunctionRequest::parse(name.parse().unwrap(), &arguments, &ddocs);
        let value = self.servers.perform(request.map_err(error)?.call).await;
        let value = value.map_err(|reason| error(reason.into()))?;
        Ok(String::from_utf8(value.to_vec()).unwrap())
    }

    pub async fn ok(&self, name: &str, arguments: Value) -> Value {
        match self.perform(name, arguments).await {
            Ok(value) => value,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    pub async fn error(&self, name: &str, arguments: Value) -> Value {
        match self.perform(name, arguments).await {
            Ok(value) => panic!("{name} has the value {value}"),
            Err(error) => error,
        }
    }

    /// Stops the pool, and checks that no process is left.
    pub async fn quiet(self) {
        drop(self.servers);
        self.pool.assert_quiet().await;
    }
}
