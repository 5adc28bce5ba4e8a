//! The table of all documents, shared by its writers and readers.
//!
//! SUMMARY   [`DocStates`] is [`DocTable`] behind a lock. The store, ReplicatorDocuments and the scheduler report
//!           every change to it.
//! PROMISES  A written document is in the table before its writer is answered.
//! CALLED    By the store's thread, by both actors, and by HTTP; the lock is held for at most one page.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use super::doc_state::DocState;
use super::members::DocMembers;
use super::state::{COMPLETED, FAILED, STATE};
use super::table::{DESIGN, DocTable};
use crate::lock;
use policy::counted::Class;
use store::Watcher;

/// All documents.
#[derive(Debug, Default)]
pub struct DocStates {
    table: Mutex<DocTable>,
    /// Whether lists are still incomplete.
    is_loading: watch::Sender<bool>,
}

/// The lock, held until the end of the statement or `match` that took it. Once lists are complete, releasing it
/// wakes [`DocStates::loaded`].
pub(crate) struct Locked<'s> {
    table: MutexGuard<'s, DocTable>,
    is_loading: &'s watch::Sender<bool>,
}

impl Deref for Locked<'_> {
    type Target = DocTable;

    fn deref(&self) -> &DocTable {
        &self.table
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut DocTable {
        &mut self.table
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let is_loading = self.table.loading().is_some();
        if *self.is_loading.borrow() != is_loading {
            self.is_loading.send_replace(is_loading);
        }
    }
}

impl DocStates {
    /// Takes the lock for one statement.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked {
            table: lock(&self.table),
            is_loading: &self.is_loading,
        }
    }

    /// Waits until lists are complete. Safe to cancel.
    pub(crate) async fn loaded(&self) {
        // Cannot fail: `self` keeps the sender.
        drop(
            self.is_loading
                .subscribe()
                .wait_for(|is_loading| !is_loading)
                .await,
        );
    }
}

impl Watcher for DocStates {
    /// 0 except for design documents and documents whose replication has completed or failed.
    fn class(&self, id: &str, body: &str) -> Class {
        if id.starts_with("_design/") {
            return DESIGN;
        }
        if !body.contains(STATE) {
            return 0;
        }
        let state = DocMembers::parse(body)
            .ok()
            .and_then(|body| body.text(STATE));
        match state.as_deref() {
            Some(COMPLETED) => DocState::Completed.class(),
            Some(FAILED) => DocState::Failed.class(),
            _ => 0,
        }
    }

    fn opened(&self, documents: Vec<(String, Class)>) {
        self.lock().opened(documents);
    }

    fn written(&self, documents: Vec<(String, Option<Class>)>) {
        self.lock().written(documents);
    }
}
