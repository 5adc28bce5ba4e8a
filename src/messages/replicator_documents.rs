//! Messages to the actor that turns replicator documents into jobs.

use actix::Message;

use crate::replicator::rows::Row;

/// Asks how far documents are on their way to jobs; the answers are in the same order.
#[derive(Clone, Debug)]
pub(crate) struct GetRows {
    /// Ids of documents.
    pub docs: Vec<String>,
}

impl Message for GetRows {
    type Result = Vec<Option<Row>>;
}
