//! Orders between daemons of a fleet: leaving them for others, and executing those left for this one.
//!
//! PROMISES  Settings of a document's job are stored before the order is left: a later owner applies them. Rights
//!           were checked where the request arrived.

use std::sync::Arc;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use settee_client::BulkOrderName;

use super::fleet::OtherJob;
use super::statuses::replication_id;
use super::{ReplicatorApi, ReplicatorError, ReplicatorResult};
use crate::audit::{Done, Sender};
use crate::messages::replication_scheduler::{GetJob, JobInfo, OrderJobs, RemoveJob};
use crate::operations::Route;
use crate::otp::Tell;
use crate::replicator::JobOrder;
use store::fleet::{Order, StatusOf};

/// The content of an order.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct OrderBody {
    order: BulkOrderName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i8>,
    /// The sender; shown for a paused job.
    by: String,
    /// The address of the daemon that received the order.
    #[serde(default)]
    from: String,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ordered {
    /// It is done.
    Done,
    /// It was left for the daemon with this address; `unknown` if that has not reported the job yet.
    Told(Arc<str>),
    /// No daemon has the job: its next owner applies the stored settings.
    Kept,
}

/// The result of an order for one job.
pub(super) type Outcome = ReplicatorResult<Ordered>;

/// An order for jobs. Other daemons never get [`AnyOrder::Delete`]: documents are deleted here.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyOrder {
    Job(JobOrder),
    Cancel,
    Delete,
}

impl AnyOrder {
    /// Returns the order with this name; `None` for one without its priority.
    pub fn of(name: BulkOrderName, priority: Option<i8>) -> Option<Self> {
        Some(match name {
            BulkOrderName::Restart => Self::Job(JobOrder::Restart),
            BulkOrderName::Pause => Self::Job(JobOrder::Pause),
            BulkOrderName::Resume => Self::Job(JobOrder::Resume),
            BulkOrderName::Priority => Self::Job(JobOrder::Priority(priority?)),
            BulkOrderName::Cancel => Self::Cancel,
            BulkOrderName::Delete => Self::Delete,
        })
    }

    fn body(self, by: &str, from: &str) -> String {
        let (order, priority) = match self {
            Self::Cancel => (BulkOrderName::Cancel, None),
            Self::Delete => (BulkOrderName::Delete, None),
            Self::Job(JobOrder::Pause) => (BulkOrderName::Pause, None),
            Self::Job(JobOrder::Resume) => (BulkOrderName::Resume, None),
            Self::Job(JobOrder::Restart) => (BulkOrderName::Restart, None),
            Self::Job(JobOrder::Priority(level)) => (BulkOrderName::Priority, Some(level)),
        };
        serde_json::to_string(&OrderBody {
            order,
            priority,
            by: by.to_owned(),
            from: from.to_owned(),
        })
        .expect("orders: strings and numbers can be written")
    }

    /// Whether a later owner executes it from stored settings.
    fn is_kept(self, other: &OtherJob) -> bool {
        other.status.doc().is_some() && matches!(self, Self::Job(_))
    }
}

/// Returns the sender and the name of an order that another daemon left.
pub(crate) fn sent(order: &Order) -> (Sender, &'static str) {
    let Ok(body) = serde_json::from_str::<OrderBody>(&order.body) else {
        return (Sender::known(None, "daemon"), "unknown");
    };
    let what = match body.order {
        BulkOrderName::Restart => Route::RestartJob.into(),
        BulkOrderName::Pause => Route::PauseJob.into(),
        BulkOrderName::Resume => Route::ResumeJob.into(),
        BulkOrderName::Priority => Route::SetJobPriority.into(),
        BulkOrderName::Cancel | BulkOrderName::Delete => Route::OrderJobs.into(),
    };
    (
        Sender::known(Some(&body.by), format!("daemon {}", body.from).trim_end()),
        what,
    )
}

impl ReplicatorApi {
    /// Stores the settings that an order changes in jobs of other daemons, and leaves the order for those daemons.
    /// Returns one result for each of `others`.
    pub(super) async fn order_others(
        &self,
        order: AnyOrder,
        others: Vec<&OtherJob>,
        by: &Arc<str>,
    ) -> Vec<Outcome> {
        let keeping = others.iter().map(|other| async {
            let (Some(doc), AnyOrder::Job(order)) = (other.status.doc(), order) else {
                return Ok(());
            };
            self.keep(order, doc, by).await
        });
        let kept: Vec<ReplicatorResult<()>> = join_all(keeping).await;
        let of = others
            .iter()
            .zip(&kept)
            .filter(|(_, kept)| kept.is_ok())
            .map(|(other, _)| other.status.of.clone());
        let mut left = self.leave(order, of.collect(), by).await.into_iter();
        let results = others.iter().zip(kept).map(|(other, kept)| {
            kept?;
            match left.next().unwrap_or(Ok(false))? {
                true => Ok(Ordered::Told(Arc::clone(&other.daemon))),
                false if order.is_kept(other) => Ok(Ordered::Kept),
                false => Err(ReplicatorError::Unowned),
            }
        });
        results.collect()
    }

    /// Leaves an order for the daemons that have these jobs. Returns for each whether there is one; nothing without a
    /// fleet.
    pub(super) async fn leave(
        &self,
        order: AnyOrder,
        of: Vec<StatusOf>,
        by: &str,
    ) -> Vec<ReplicatorResult<bool>> {
        let Some(fleet) = self.fleet().filter(|_| !of.is_empty()) else {
            return Vec::new();
        };
        let (count, body) = (of.len(), order.body(by, fleet.address()));
        let orders = of.into_iter().map(|of| {
            let body = body.clone();
            Order { of, body }
        });
        match fleet.options.store.leave_orders(orders.collect()).await {
            Ok(left) => left.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error.into()); count],
        }
    }

    /// Executes an order that another daemon left. Returns the result; `None` if the job does not exist, or not yet.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn take_order(&self, order: &Order) -> ReplicatorResult<Option<Done>> {
        let Ok(body) = serde_json::from_str::<OrderBody>(&order.body) else {
            // An order of a later version, unknown here.
            return Ok(Some(Done::to(0)));
        };
        let Some(info) = self.ordered(&order.of).await? else {
            return Ok(None);
        };
        let (before, id) = (self.shown(&info), info.id);
        let order = match AnyOrder::of(body.order, body.priority) {
            Some(AnyOrder::Cancel) => {
                // Not awaited: the orders after this one would wait for the end of its run.
                self.options.scheduler.tell(RemoveJob { id, doc: None });
                return Ok(Some(Done::after(1, before)));
            }
            Some(AnyOrder::Job(order)) => order,
            Some(AnyOrder::Delete) | None => return Ok(Some(Done::to(0))),
        };
        let by = body.by.into();
        let is_known = self
            .scheduler(OrderJobs {
                ids: vec![id],
                order,
                by,
            })
            .await?
            .first()
            .copied()
            .unwrap_or(false);
        Ok(is_known.then(|| Done::of_job(&before, order)))
    }

    /// Returns this daemon's job that an order concerns.
    async fn ordered(&self, of: &StatusOf) -> ReplicatorResult<Option<JobInfo>> {
        let (id, is_transient) = match of {
            StatusOf::Document(doc) => (self.table().job_of(doc), false),
            StatusOf::Transient(id) => (Some(Arc::clone(id)), true),
        };
        let Some(id) = id.map(|id| replication_id(&id)) else {
            return Ok(None);
        };
        let info = self.scheduler(GetJob { id }).await?;
        // By now the id may be that of a job of the other kind.
        Ok(info.filter(|info| info.replication.doc.is_none() == is_transient))
    }
}
