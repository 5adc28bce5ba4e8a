//! Carrying out a client's calls about jobs.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::ticket::Ticket;
use crate::actors::replicator_api::{ReplicatorApi, ReplicatorError, Whose};
use crate::messages::client_error::ErrorReply;
use crate::messages::job_call::JobCall;
use crate::messages::proc_manager::GetProcError;
use crate::replicator::Refused;
use crate::replicator::document::{DocumentError, Person};
use crate::store::Imported;

/// Answers a call about jobs. Everybody on the socket counts as an operator; rights were checked before.
pub(super) fn jobs(ticket: Ticket, call: JobCall) {
    let replications = ticket.session().services.replications.clone();
    // Ends with the answers of the scheduler and the store.
    actix_rt::spawn(async move {
        match answer(&replications, call).await {
            Ok(value) => ticket.ok(&value),
            Err(error) => ticket.error(&refusal(&error)),
        }
    });
}

async fn answer(
    replications: &ReplicatorApi,
    call: JobCall,
) -> Result<Box<RawValue>, ReplicatorError> {
    let operator = Person {
        name: None,
        is_admin: true,
    };
    let database = replications.database();
    Ok(match call {
        JobCall::List(query) => raw(&replications.list(&query, &Whose::All).await?),
        JobCall::Show { job } => raw(&replications.job(&job, &Whose::All).await?),
        JobCall::OrderMany(order) => {
            let ordered = replications.order_jobs(&order, &Whose::All, &operator);
            raw(&ordered.await?)
        }
        JobCall::Export { after, secrets } => raw(&database.export(after, secrets).await?),
        JobCall::Import { docs, replace } => {
            let imported = database.import(&docs, replace).await?;
            raw(&imported.iter().map(imported_row).collect::<Vec<_>>())
        }
        JobCall::Order { job, order } => {
            let ordered = replications.order(&job, order, &Whose::All, &operator);
            raw(&ordered.await?)
        }
    })
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("jobs: texts and numbers can be written")
}

/// Returns what became of a document that was imported.
fn imported_row(result: &Result<(String, Imported), Refused>) -> Value {
    match result {
        Ok((id, Imported::Created)) => json!({"id": id, "ok": "created"}),
        Ok((id, Imported::Unchanged)) => json!({"id": id, "ok": "unchanged"}),
        Ok((id, Imported::Replaced)) => json!({"id": id, "ok": "replaced"}),
        Ok((id, Imported::Conflict)) => json!({
            "id": id,
            "error": DocumentError::Conflict.name(),
            "reason": "another document is there, and stays as it is",
        }),
        Err((id, error)) => {
            json!({"id": id, "error": error.name(), "reason": error.to_string()})
        }
    }
}

fn refusal(error: &ReplicatorError) -> ErrorReply {
    match error {
        ReplicatorError::Missing => {
            ErrorReply::not_found("there is no job of this document or with this id")
        }
        ReplicatorError::Selection(why) => ErrorReply::bad_request(why),
        ReplicatorError::Unexpected { .. } => ErrorReply::conflict(error.to_string()),
        ReplicatorError::ShuttingDown => GetProcError::ShuttingDown.into(),
        error => ErrorReply::store(error.to_string()),
    }
}
