//! `_active_tasks`: running streams and replications.
//!
//! SOURCE    couch_task_status.
//! DIFFERS   There are no tasks of indexers and compactions, which only CouchDB runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Value, json};

use super::Shared;
use super::answer::{self, Answer};
use crate::lock;
use store::unix_now;

/// `GET /_active_tasks`: streams, and replications.
pub(super) async fn list(shared: Shared) -> Answer {
    let mut tasks = shared.tasks.list();
    tasks.extend(shared.replications.tasks().await?);
    answer::ok(&tasks)
}

/// A running task.
pub(super) struct Task {
    number: u64,
    language: String,
    started_on: u64,
    updated_on: AtomicU64,
    /// Documents received.
    pub docs_read: AtomicU64,
    /// Documents answered.
    pub docs_written: AtomicU64,
}

impl Task {
    /// Records activity.
    pub fn touch(&self) {
        self.updated_on.store(unix_now(), Ordering::Relaxed);
    }
}

/// The running tasks.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<Weak<Task>>>);

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Tasks {
    /// Begins a task; it ends when the last handle to it is dropped.
    pub(super) fn begin(&self, language: &str) -> Arc<Task> {
        let task = Arc::new(Task {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            language: language.to_owned(),
            started_on: unix_now(),
            updated_on: AtomicU64::new(unix_now()),
            docs_read: AtomicU64::new(0),
            docs_written: AtomicU64::new(0),
        });
        let mut tasks = lock(&self.0);
        tasks.retain(|known| known.strong_count() > 0);
        tasks.push(Arc::downgrade(&task));
        drop(tasks);
        task
    }

    /// Returns the running tasks, oldest first.
    pub fn list(&self) -> Vec<Value> {
        let running: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        running
            .iter()
            .map(|task| {
                json!({
                    "node": "_local",
                    "pid": format!("<{}>", task.number),
                    "type": "query_map",
                    "language": task.language,
                    "docs_read": task.docs_read.load(Ordering::Relaxed),
                    "docs_written": task.docs_written.load(Ordering::Relaxed),
                    "started_on": task.started_on,
                    "updated_on": task.updated_on.load(Ordering::Relaxed),
                })
            })
            .collect()
    }
}
