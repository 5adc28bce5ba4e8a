//! Carrying out a client's calls about jobs.

use serde_json::{Value, json};

use super::ticket::Ticket;
use crate::messages::client_error::ErrorReply;
use crate::messages::job_call::JobCall;
use crate::messages::proc_manager::GetProcError;
use crate::replicator::document::Person;
use crate::replicator::{Replications, ReplicatorError};

/// Answers a call about jobs. Whoever may enter the socket is the operator.
pub(super) fn jobs(ticket: Ticket, call: JobCall) {
    let Some(replications) = ticket.session().services.replications.clone() else {
        return ticket.error(&ErrorReply::not_found("this service replicates nothing"));
    };
    // Ends with the answers of the scheduler and the store.
    actix_rt::spawn(async move {
        match answer(&replications, call).await {
            Ok(value) => ticket.ok(&value),
            Err(error) => ticket.error(&refusal(&error)),
        }
    });
}

async fn answer(replications: &Replications, call: JobCall) -> Result<Value, ReplicatorError> {
    let operator = Person {
        name: None,
        is_admin: true,
    };
    match call {
        JobCall::List {
            skip,
            limit,
            states,
        } => {
            let (total, jobs) = replications.jobs(skip, limit, &states).await?;
            Ok(json!({"total_rows": total, "offset": skip.min(total), "jobs": jobs}))
        }
        JobCall::Show { job } => replications.job(&job).await,
        JobCall::Order { job, order } => replications.order(&job, order, &operator).await,
    }
}

fn refusal(error: &ReplicatorError) -> ErrorReply {
    match error {
        ReplicatorError::Missing => ErrorReply::not_found("there is no job with this id"),
        ReplicatorError::ShuttingDown => GetProcError::ShuttingDown.into(),
        error => ErrorReply::store(error.to_string()),
    }
}
