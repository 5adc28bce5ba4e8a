//! Copies of the store, a few rows with each call.
//!
//! SUMMARY   `begin_backup` holds the store as it is at that moment for this connection; each `backup_rows`
//!           answers the next rows of it, none at the end.
//! PROMISES  What is held is let go at the end, with the connection, and when the client has asked for
//!           nothing for [`IDLE_MAX`].

use std::rc::{Rc, Weak};
use std::time::Duration;

use super::session::Session;
use super::ticket::Ticket;
use crate::messages::client_error::ErrorReply;
use crate::store::{Dump, Store};

/// How long a client may take over the rows that it got.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A copy that is being made over a connection.
#[derive(Default)]
pub(super) struct Backup {
    dump: Option<Dump>,
    /// How many calls there were, so that a timer knows whether it is about the last one.
    calls: u64,
}

impl Backup {
    /// Returns whether a copy is being made.
    pub(super) fn is_begun(&self) -> bool {
        self.dump.is_some()
    }
}

/// Answers `begin_backup`. Whoever may enter the socket is the operator.
pub(super) fn begin(ticket: Ticket) {
    answer(ticket, async |store, session| {
        let dump = store.begin_dump().await.map_err(refusal)?;
        keep(session, dump);
        Ok(serde_json::Value::Bool(true))
    });
}

/// Answers `backup_rows`.
pub(super) fn rows(ticket: Ticket) {
    answer(ticket, async |store, session| {
        let dump = session.backup.borrow_mut().dump.take();
        let dump = dump.ok_or_else(|| {
            ErrorReply::bad_request(
                "no copy is being made over this connection: begin_backup first",
            )
        })?;
        let (dump, rows) = store.dump(dump).await.map_err(refusal)?;
        if !rows.is_empty() {
            keep(session, dump);
        }
        serde_json::to_value(rows).map_err(|error| ErrorReply::store(error.to_string()))
    });
}

fn answer(
    ticket: Ticket,
    work: impl AsyncFnOnce(&Store, &Rc<Session>) -> Result<serde_json::Value, ErrorReply> + 'static,
) {
    let Some(replications) = ticket.session().services.replications.clone() else {
        return ticket.error(&ErrorReply::not_found("this service replicates nothing"));
    };
    // Ends with the answer of the store.
    actix_rt::spawn(async move {
        let session = Rc::clone(ticket.session());
        match work(replications.database().store(), &session).await {
            Ok(value) => ticket.ok(&value),
            Err(error) => ticket.error(&error),
        }
    });
}

fn refusal(error: crate::store::StoreError) -> ErrorReply {
    ErrorReply::store(error.to_string())
}

/// Holds a copy until the next call, or until nobody has called for too long.
fn keep(session: &Rc<Session>, dump: Dump) {
    let calls = {
        let mut backup = session.backup.borrow_mut();
        backup.dump = Some(dump);
        backup.calls += 1;
        backup.calls
    };
    let session: Weak<Session> = Rc::downgrade(session);
    actix_rt::spawn(async move {
        actix_rt::time::sleep(IDLE_MAX).await;
        if let Some(session) = session.upgrade() {
            let mut backup = session.backup.borrow_mut();
            if backup.calls == calls {
                backup.dump = None;
            }
        }
    });
}
