//! `_active_tasks`: streams that run.
//!
//! SOURCE    couch_task_status.
//! DIFFERS   Nothing is kept of a task that is over.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::web::Data;
use serde_json::{Value, json};

use super::HttpContext;
use super::answer::{self, Answer};
use crate::store::unix_now;

/// `GET /_active_tasks`: streams, and replications.
pub(super) async fn list(shared: Data<HttpContext>) -> Answer {
    let mut tasks = shared.tasks.list();
    tasks.extend(shared.replications.tasks().await?);
    Ok(answer::ok(&tasks))
}

/// What is known of a running task.
pub(super) struct Task {
    language: String,
    started_on: u64,
    updated_on: AtomicU64,
    /// Documents that came.
    pub(super) docs_read: AtomicU64,
    /// Documents that were answered.
    pub(super) docs_written: AtomicU64,
}

impl Task {
    /// Notes that something went on.
    pub(super) fn touch(&self) {
        self.updated_on.store(unix_now(), Ordering::Relaxed);
    }
}

/// The tasks that run. Each takes itself out.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<BTreeMap<u64, Arc<Task>>>>);

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Tasks {
    /// Begins a task; it is over when the returned value is dropped.
    pub(super) fn begin(&self, language: &str) -> Running {
        let task = Arc::new(Task {
            language: language.to_owned(),
            started_on: unix_now(),
            updated_on: AtomicU64::new(unix_now()),
            docs_read: AtomicU64::new(0),
            docs_written: AtomicU64::new(0),
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::clone(&task));
        Running {
            number,
            tasks: self.clone(),
            task,
        }
    }

    /// Returns all that run, oldest first.
    pub(super) fn list(&self) -> Vec<Value> {
        let tasks = self.lock();
        let shown = tasks.iter().map(|(number, task)| {
            json!({
                "node": "_local",
                "pid": format!("<{number}>"),
                "type": "query_map",
                "language": task.language,
                "docs_read": task.docs_read.load(Ordering::Relaxed),
                "docs_written": task.docs_written.load(Ordering::Relaxed),
                "started_on": task.started_on,
                "updated_on": task.updated_on.load(Ordering::Relaxed),
            })
        });
        shown.collect()
    }

    /// What is locked is changed in single steps: a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task while it runs.
pub(super) struct Running {
    number: u64,
    tasks: Tasks,
    pub(super) task: Arc<Task>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.lock().remove(&self.number);
    }
}
