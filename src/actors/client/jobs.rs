//! Carrying out a client's calls about jobs.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::ticket::Ticket;
use crate::actors::replicator_api::{ReplicatorApi, ReplicatorError, Whose};
use crate::audit::Done;
use crate::messages::client_error::ErrorReply;
use crate::messages::job_call::JobCall;
use crate::messages::proc_manager::GetProcError;
use crate::replicator::document::{DocumentError, Incoming, Person};
use crate::replicator::{Database, Refused};
use store::Imported;

/// Answers a call about jobs. Everybody on the socket counts as an operator; rights were checked before.
pub(super) fn jobs(ticket: Ticket, call: JobCall) {
    let replications = ticket.session().services.replications.clone();
    // Ends with the answers of the scheduler and the store.
    actix_rt::spawn(async move {
        match answer(&replications, call).await {
            Ok((value, done)) => {
                ticket.did(done);
                ticket.ok(&value);
            }
            Err(error) => ticket.error(&refusal(&error)),
        }
    });
}

async fn answer(
    replications: &ReplicatorApi,
    call: JobCall,
) -> Result<(Box<RawValue>, Done), ReplicatorError> {
    let mut done = Done::default();
    let operator = Person {
        name: None,
        is_admin: true,
    };
    let database = replications.database();
    let value = match call {
        JobCall::List(query) => raw(&replications.list(&query, &Whose::All).await?),
        JobCall::Daemons => {
            let none = || json!({"daemons": [], "age_s": null});
            raw(&replications.daemons().await.unwrap_or_else(none))
        }
        JobCall::Show { job } => raw(&replications.job(&job, &Whose::All).await?),
        JobCall::OrderMany(order) => {
            let ordered = replications.order_jobs(&order, &Whose::All, &operator);
            let ordered = ordered.await?;
            done = Done::of_jobs(&order, &ordered);
            raw(&ordered)
        }
        JobCall::Export { after, secrets } => raw(&database.export(after, secrets).await?),
        JobCall::Import { docs, replace } => {
            let imported = database.import(&docs, replace).await?;
            let rows: Vec<Value> = imported.iter().map(imported_row).collect();
            done = Done::of_documents(&rows);
            raw(&rows)
        }
        JobCall::HoldCopy => raw(&database.store().hold_copy().await?),
        JobCall::CopyRows { copy, kind, after } => {
            raw(&database.store().copy_rows(copy, kind, after).await?)
        }
        JobCall::Write { docs } => {
            let rows = write(database, &docs, &operator).await?;
            done = Done::of_documents(&rows);
            raw(&rows)
        }
        JobCall::Order { job, order } => {
            let ordered = replications.order(&job, order, &Whose::All, &operator);
            let ordered = ordered.await?;
            done = Done::of_job(&ordered.before, order);
            raw(&ordered.job)
        }
    };
    Ok((value, done))
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("jobs: texts and numbers can be written")
}

/// Writes documents; returns what became of each, in their order.
async fn write(
    database: &Database,
    docs: &[String],
    operator: &Person,
) -> Result<Vec<Value>, ReplicatorError> {
    let mut read = Vec::with_capacity(docs.len());
    let mut results = Vec::with_capacity(docs.len());
    for text in docs {
        let incoming = Incoming::of(text);
        results.push(incoming.as_ref().err().map(
            |error| json!({"id": id_of(text), "error": error.name(), "reason": error.to_string()}),
        ));
        read.extend(incoming);
    }
    let mut written = database.write(read, operator).await?.into_iter();
    let results = results.into_iter().map(|result| match result {
        Some(refused) => refused,
        None => match written.next() {
            Some(Ok(written)) => json!({"id": written.id, "ok": "written"}),
            Some(Err((id, error))) => {
                json!({"id": id, "error": error.name(), "reason": error.to_string()})
            }
            None => Value::Null,
        },
    });
    Ok(results.collect())
}

/// Returns the id of a document that is not understood, if it has one.
fn id_of(text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value["_id"].as_str().unwrap_or_default().to_owned()
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
        ReplicatorError::Unexpected { .. } | ReplicatorError::Unowned => {
            ErrorReply::conflict(error.to_string())
        }
        ReplicatorError::ShuttingDown => GetProcError::ShuttingDown.into(),
        error => ErrorReply::store(error.to_string()),
    }
}
