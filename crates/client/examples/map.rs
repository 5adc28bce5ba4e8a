//! Maps a document on a process of a running service. Run: `cargo run -p settee-client --example map -- SOCKET`.

use serde_json::json;
use settee_client::{Client, ClientError, Mapping};

/// Prints the rows.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result<(), ClientError> {
    let socket = std::env::args().nth(1);
    let socket = socket.unwrap_or_else(|| "/run/settee/settee.sock".into());
    println!("{}", rows(&socket).await?);
    Ok(())
}

/// Returns, for each document and each function, a list of rows `[key, value]`, as JSON.
pub async fn rows(socket: &str) -> Result<String, ClientError> {
    let client = Client::connect(socket).await?;
    let mapping = Mapping {
        lang: "javascript",
        db: Some("shop"),
        lib: None,
        funs: &["function(doc) { emit(doc.customer, doc.total) }"],
        docs: &[json!({"_id": "a", "customer": "Alma", "total": 7})],
    };
    Ok(client.map_docs(mapping).await?.get().to_owned())
}
