//! The audit: each order and each change is one record.
//!
//! SUMMARY   A [`PendingOrder`] is begun when an order arrives. It collects the order's target and effect, and
//!           becomes a record when the order is answered: in the log, and among the last [`KEPT_MAX`], which `audit`
//!           lists.
//! PROMISES  An order has one record, even if its sender disconnects or its task is dropped. Nothing waits for the
//!           log. A record contains no documents, passwords or other credentials.
//! CALLED    By HTTP for each operation that `operations` marks as changing something, at HUP, and when orders of
//!           other daemons are carried out.
//! LIMITS    A value in a record has at most [`TEXT_BYTES_MAX`] bytes; longer ones are cut. The in-memory records end
//!           with the service.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use settee_client::status::{Holder, KilledProc};
use settee_client::{
    AuditPage, AuditRecord, BulkAnswer, BulkOrder, JobOrder, JobSelection, PoolChange,
};
use slog::{Logger, info};

use crate::config::reload::{Change, Effect};
use crate::lock;
use crate::logging::Losses;
use crate::otp::system_time;

/// Maximum records in memory.
pub(crate) const KEPT_MAX: usize = 1000;

/// Maximum length of a record's text, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Maximum names of jobs and documents listed in a record.
const NAMES_MAX: usize = 50;

/// The records of the service. Cheap to clone.
#[derive(Clone)]
pub struct AuditLog {
    records: Arc<Mutex<VecDeque<Arc<AuditRecord>>>>,
    log: Logger,
    /// Losses of the log, if it is required for orders.
    required: Option<Arc<Losses>>,
}

/// The sender of an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sender {
    who: Option<String>,
    from: String,
    request_id: Option<String>,
}

/// The effect of an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    count: Option<usize>,
    before: Value,
    asked: Value,
    /// Why it was not done completely.
    error: Option<String>,
}

impl AuditLog {
    /// Keeps records, and writes them to a log; `required` counts the log's losses, if orders are refused while it
    /// cannot be written.
    pub(crate) fn new(log: Logger, required: Option<Arc<Losses>>) -> Self {
        Self {
            records: Arc::default(),
            log,
            required,
        }
    }

    /// Returns why orders are refused now: the last record could not be written. The record of the refused order is the
    /// next attempt to write one.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.required.as_ref()?.failure()
    }

    /// Begins an order.
    pub(crate) fn begin(&self, sender: Sender, what: &str) -> PendingOrder {
        let record = AuditRecord {
            who: sender.who.unwrap_or_else(|| "anyone".to_owned()),
            from: sender.from,
            what: what.to_owned(),
            request_id: sender.request_id,
            ..AuditRecord::default()
        };
        PendingOrder {
            log: self.clone(),
            record: RefCell::new(Some(record)),
        }
    }

    fn note(&self, record: AuditRecord) {
        let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
        info!(self.log, "audit"; "who" => &record.who, "from" => &record.from, "what" => &record.what,
              "on" => &record.on, "count" => record.count, "before" => text(&record.before),
              "asked" => text(&record.asked), "error" => &record.error, "request_id" => &record.request_id);
        let mut records = lock(&self.records);
        if records.len() == KEPT_MAX {
            records.pop_front();
        }
        records.push_back(Arc::new(record));
    }

    /// Returns the latest records, newest first.
    pub(crate) fn page(&self, limit: usize) -> AuditPage {
        let records = lock(&self.records);
        let total_rows = records.len();
        let latest: Vec<_> = records.iter().rev().take(limit).cloned().collect();
        drop(records);
        AuditPage {
            total_rows,
            records: latest
                .iter()
                .map(|record| AuditRecord::clone(record))
                .collect(),
        }
    }
}

impl Sender {
    /// Returns the sender at the other end of a connection to an interface: `socket`, `http`.
    pub(crate) fn of(interface: &str, holder: &Holder, request_id: Option<String>) -> Self {
        let Holder {
            uid,
            pid,
            user,
            peer,
            ..
        } = holder;
        let mut from = interface.to_owned();
        for (name, number) in [("uid", uid), ("pid", pid)] {
            from += &number.map_or_else(String::new, |number| format!(" {name} {number}"));
        }
        from += &peer
            .as_ref()
            .map_or_else(String::new, |peer| format!(" {peer}"));
        Self {
            who: user.clone().or(uid.map(|uid| format!("uid {uid}"))),
            from,
            request_id,
        }
    }

    /// Returns a sender without a connection: a signal, another daemon.
    pub(crate) fn known(who: Option<&str>, from: impl Into<String>) -> Self {
        Self {
            who: who.map(str::to_owned),
            from: from.into(),
            request_id: None,
        }
    }
}

/// An unanswered order. Becomes a record when it is finished or dropped.
pub(crate) struct PendingOrder {
    log: AuditLog,
    record: RefCell<Option<AuditRecord>>,
}

impl PendingOrder {
    /// Returns the log for its record.
    pub(crate) fn audit(&self) -> &AuditLog {
        &self.log
    }

    fn edit(&self, edit: impl FnOnce(&mut AuditRecord)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            edit(record);
        }
    }

    /// Renames the operation: one path may serve several calls.
    pub(crate) fn is(&self, what: &str) {
        self.edit(|record| what.clone_into(&mut record.what));
    }

    /// Sets its target.
    pub(crate) fn on(&self, on: impl Into<String>) {
        self.edit(|record| record.on = cut(on.into()));
    }

    /// Sets its effect.
    pub(crate) fn did(&self, done: Done) {
        self.edit(|record| {
            record.count = done.count.map(|count| count as u64);
            record.before = cut_value(done.before);
            record.asked = cut_value(done.asked);
            record.error = done.error.map(cut);
        });
    }

    /// Suppresses the record: a dry run changes nothing.
    pub(crate) fn forget(&self) {
        self.record.take();
    }

    /// Makes the record, if there is none yet. The error is why the order was refused or has failed.
    pub(crate) fn finish(&self, error: Option<&str>) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        if let Some(error) = error {
            record.error = Some(cut(error.to_owned()));
        }
        record.ts = system_time().to_string();
        self.log.note(record);
    }
}

/// The sender has disconnected, or the task was dropped: the order may have taken effect.
impl Drop for PendingOrder {
    fn drop(&mut self) {
        self.finish(Some("disconnected"));
    }
}

impl Done {
    /// Returns an effect on this many objects whose earlier states are unknown.
    pub(crate) fn to(count: usize) -> Self {
        Self {
            count: Some(count),
            ..Self::default()
        }
    }

    /// Returns an effect on this many objects with these earlier states.
    pub(crate) fn after(count: usize, before: Value) -> Self {
        Self {
            before,
            ..Self::to(count)
        }
    }

    /// Adds the requested values.
    pub(crate) fn asked(self, asked: Value) -> Self {
        Self { asked, ..self }
    }

    /// Returns the results for documents, from the rows of the answer.
    pub(crate) fn of_documents(rows: &[Value]) -> Self {
        let ids: Vec<&str> = rows
            .iter()
            .filter(|row| row["error"].is_null())
            .filter_map(|row| row["id"].as_str())
            .collect();
        Self::to(ids.len())
            .asked(json!({"documents": some(&ids)}))
            .without(rows.len() - ids.len())
    }

    /// Records how many were selected but not affected.
    fn without(self, failed: usize) -> Self {
        let error = (failed > 0).then(|| format!("{failed} refused"));
        Self { error, ..self }
    }

    /// Returns the effect on a pool.
    pub(crate) fn of_pool(changes: &[PoolChange]) -> Self {
        let (mut before, mut asked) = (Map::new(), Map::new());
        let mut count = 0;
        for change in changes {
            match change {
                PoolChange::Set {
                    name,
                    value,
                    before: was,
                } => {
                    count += 1;
                    asked.insert(name.clone(), value.clone());
                    if !was.is_null() {
                        before.insert(name.clone(), was.clone());
                    }
                }
                PoolChange::Remove {
                    mode, before: was, ..
                } => {
                    count += 1;
                    asked.insert("mode".to_owned(), mode.clone().into());
                    before.extend(was.clone());
                }
                PoolChange::Add(_) => count += 1,
                // Consequences of the others.
                PoolChange::Start(_)
                | PoolChange::StopIdle(_)
                | PoolChange::StopReturned(_)
                | PoolChange::StopUsed(_)
                | PoolChange::ShrinkQueue(_) => {}
            }
        }
        Self::after(count, object(before)).asked(object(asked))
    }

    /// Returns the effect on the configuration, with secrets hidden.
    pub(crate) fn of_config(changes: &[Change]) -> Self {
        let applied = |change: &&Change| change.effect != Effect::Overridden;
        let (mut before, mut asked) = (Map::new(), Map::new());
        for change in changes.iter().filter(applied) {
            let name = format!("[{}] {}", change.section, change.key);
            for (values, value) in [(&mut before, &change.old), (&mut asked, &change.new)] {
                if let Some(value) = value {
                    values.insert(name.clone(), value.clone().into());
                }
            }
        }
        let count = changes.iter().filter(applied).count();
        Self::after(count, object(before)).asked(object(asked))
    }

    /// Returns the effect on a process.
    pub(crate) fn of_kill(killed: &KilledProc, now: bool) -> Self {
        let proc = &killed.proc;
        let mut before = json!({
            "state": proc.state, "os_pid": proc.os_pid, "request_id": proc.request_id, "db": proc.db,
            "ddoc": proc.ddoc, "function": proc.function,
        });
        if let Some(members) = before.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        Self::after(usize::from(killed.how != "ending"), before).asked(json!({"now": now}))
    }

    /// Returns the effect on a job, from its earlier state.
    pub(crate) fn of_job(before: &Value, order: JobOrder) -> Self {
        let mut was = Map::new();
        for name in ["state", "priority", "reason"] {
            if !before[name].is_null() {
                was.insert(name.to_owned(), before[name].clone());
            }
        }
        let asked = match order {
            JobOrder::Priority(priority) => json!({"priority": priority}),
            JobOrder::Pause | JobOrder::Resume | JobOrder::Restart => Value::Null,
        };
        Self::after(1, object(was)).asked(asked)
    }

    /// Returns the effect on the jobs of a selection.
    pub(crate) fn of_jobs(order: &BulkOrder, answer: &BulkAnswer) -> Self {
        let mut states: Map<String, Value> = Map::new();
        for (state, count) in answer.groups.iter().flat_map(|group| &group.states) {
            let sum = states.entry(state).or_insert(0.into());
            *sum = (sum.as_u64().unwrap_or_default() + *count as u64).into();
        }
        let names: Vec<&str> = answer
            .results
            .iter()
            .filter(|result| result.ok)
            .map(|result| result.document.as_deref().unwrap_or(&result.id))
            .collect();
        let mut asked = json!({"order": order.order, "jobs": some(&names)});
        if let Some(priority) = order.priority {
            asked["priority"] = priority.into();
        }
        Self::after(answer.done, object(states))
            .asked(asked)
            .without(answer.failed)
    }
}

/// Returns an order's target for a selection of jobs.
pub(crate) fn selected(select: &JobSelection) -> String {
    serde_json::to_string(select).unwrap_or_default()
}

fn some<'a>(names: &'a [&'a str]) -> &'a [&'a str] {
    &names[..names.len().min(NAMES_MAX)]
}

fn object(members: Map<String, Value>) -> Value {
    if members.is_empty() {
        Value::Null
    } else {
        members.into()
    }
}

/// Cuts long strings.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("..");
    }
    text
}

/// Like [`cut`]: a value that is too long becomes the beginning of its text.
fn cut_value(value: Value) -> Value {
    let text = value.to_string();
    if text.len() > TEXT_BYTES_MAX {
        cut(text).into()
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use slog::o;

    use super::*;

    fn audit() -> AuditLog {
        AuditLog::new(Logger::root(slog::Discard, o!()), None)
    }

    #[test]
    fn the_last_thousand_are_kept_and_the_latest_comes_first() {
        let audit = audit();
        for number in 0..KEPT_MAX + 5 {
            let order = audit.begin(Sender::known(None, "signal HUP"), "reload_config");
            order.on(number.to_string());
            order.finish(None);
        }
        let page = audit.page(2);
        let on: Vec<&str> = page.records.iter().map(|record| &*record.on).collect();
        assert_eq!((page.total_rows, on), (KEPT_MAX, vec!["1004", "1003"]));
    }

    #[test]
    fn an_order_has_one_record_even_if_its_sender_disconnects() {
        let audit = audit();
        let order = audit.begin(Sender::default(), "reload");
        order.finish(Some("forbidden"));
        order.finish(None);
        drop(order);
        drop(audit.begin(Sender::default(), "reload"));
        audit.begin(Sender::default(), "reload").forget();
        let records = audit.page(KEPT_MAX).records;
        let errors: Vec<_> = records
            .iter()
            .map(|record| record.error.as_deref())
            .collect();
        assert_eq!(errors, [Some("disconnected"), Some("forbidden")]);
        assert_eq!(records[0].who, "anyone");
    }

    #[test]
    fn long_values_are_truncated() {
        let audit = audit();
        let order = audit.begin(Sender::default(), "put_doc");
        order.on("\u{e4}".repeat(TEXT_BYTES_MAX));
        order.did(Done::after(1, json!({"long": "x".repeat(TEXT_BYTES_MAX)})));
        order.finish(None);
        let record = audit.page(1).records.remove(0);
        assert_eq!(record.on.len(), TEXT_BYTES_MAX + 2);
        let before = record.before.as_str().map(str::len);
        assert_eq!(before, Some(TEXT_BYTES_MAX + 2));
    }

    #[test]
    fn a_sender_names_the_user_and_the_end_of_the_connection() {
        let local = Holder {
            uid: Some(7),
            pid: Some(42),
            ..Holder::default()
        };
        let sender = Sender::of("socket", &local, None);
        assert_eq!(sender.from, "socket uid 7 pid 42");
        assert_eq!(sender.who.as_deref(), Some("uid 7"));
        let far = Holder {
            user: Some("ann".to_owned()),
            peer: Some("10.0.0.7:4000".to_owned()),
            ..Holder::default()
        };
        let sender = Sender::of("http", &far, None);
        assert_eq!(sender.from, "http 10.0.0.7:4000");
        assert_eq!(sender.who.as_deref(), Some("ann"));
    }
}
