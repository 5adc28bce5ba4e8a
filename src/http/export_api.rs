//! `/_scheduler/_export` and `_import`: one file of replications, for `settee jobs`.
//!
//! PROMISES  Credentials leave the service only if `secrets=true`.
//! LIMITS    Only for users of this machine. At most [`EXPORTS_MAX`] exports run at a time.

use actix_web::HttpRequest;
use actix_web::web::{Bytes, Payload};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::Order;
use super::answer::{self, Answer, Piece, Pieces, Refusal, streamed};
use super::params::Params;
use super::request::{IsJson, NDJSON};
use super::{Shared, body};
use crate::audit::Done;
use crate::messages::arguments::Arguments;
use crate::replicator::document::DocumentError;
use crate::replicator::{Refused, export_lines};
use store::{ExportLines, ExportRow, Imported};

/// Maximum concurrent exports: each holds a snapshot of the store.
const EXPORTS_MAX: usize = 4;

static EXPORTS: Semaphore = Semaphore::const_new(EXPORTS_MAX);

/// An export that is being sent.
struct Export {
    lines: ExportLines,
    _turn: SemaphorePermit<'static>,
}

impl Pieces for Export {
    async fn next(&mut self) -> Piece {
        Ok(self.lines.next().await?.map(Bytes::from))
    }
}

/// `GET /_scheduler/_export`: streams all replications as lines.
pub(super) async fn export(params: Params, shared: Shared) -> Answer {
    let secrets = params.boolean("secrets", false)?;
    let _turn = EXPORTS
        .acquire()
        .await
        .expect("exports: nothing closes the semaphore");
    let snapshot = shared.replications.database().store.snapshot().await?;
    let lines = export_lines(snapshot, secrets);
    streamed(NDJSON, Export { lines, _turn }).await
}

#[derive(Deserialize)]
struct Import {
    rows: Vec<ExportRow>,
}

/// `POST /_scheduler/_import`: answers with the result of each row, in order.
pub(super) async fn import(
    _: IsJson,
    request: HttpRequest,
    payload: Payload,
    shared: Shared,
    order: Order,
) -> Answer {
    let body = body::read(&request, payload, &shared).await?;
    let text = body.text()?;
    Arguments::of_order(text, &["rows"])?;
    let Import { rows } = serde_json::from_str(text)
        .map_err(|error| Refusal::bad_request(format!("the body: {error}")))?;
    let rows: Vec<Value> = shared
        .replications
        .database()
        .import(rows)
        .await?
        .iter()
        .map(imported_row)
        .collect();
    order.did(Done::of_documents(&rows));
    answer::ok(&rows)
}

/// Returns the result of an imported document.
fn imported_row(result: &Result<(String, Imported), Refused>) -> Value {
    match result {
        Ok((id, Imported::Created)) => json!({"id": id, "ok": "created"}),
        Ok((id, Imported::Unchanged)) => json!({"id": id, "ok": "unchanged"}),
        Ok((id, Imported::Conflict)) => json!({
            "id": id,
            "error": DocumentError::Conflict.name(),
            "reason": "another document has this id, and was not changed",
        }),
        Err((id, error)) => {
            json!({"id": id, "error": error.name(), "reason": error.to_string()})
        }
    }
}
