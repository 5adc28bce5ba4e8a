//! FleetStatus: publishes this daemon's jobs and problems to the fleet, reads those of the other daemons, and takes
//! their orders.
//!
//! SUMMARY   Four independent tasks: one writes statuses, one reports problems, one reads, one takes orders.
//! PROMISES  Statuses are written at most once per [`WRITE_EVERY`], and reports at most once per [`REPORT_EVERY`], one
//!           request at a time. Failed writes are repeated later, with the state at that time. With a new epoch, and
//!           after a failover, everything is reported again.
//! CALLED    Only started and stopped: its results are in [`ReplicatorApi`].
//! LIMITS    [`STATUSES_MAX`] statuses in a request; an order for a missing job is retried for [`ORDER_WAIT`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use actix::fut::wrap_future;
use actix::prelude::*;
use actix_rt::time::sleep;
use slog::{Logger, o, warn};

use crate::actors::replicator_api::fleet::READ_EVERY;
use crate::actors::replicator_api::{ReplicatorApi, orders};
use crate::audit::{AuditLog, Done};
use crate::health::HealthBoard;
use crate::health::report::Report;
use crate::otp::{PidGuard, Stop, system_time};
use policy::ownership::Epoch;
use store::StoreError;
use store::fleet::{Order, StatusOf, Topic};

/// Minimum time between writes of statuses.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Maximum statuses written by one request.
const STATUSES_MAX: usize = 500;

/// How often problems are checked for changes since the last report.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Interval at which an unchanged report is repeated: its age shows that it is still valid.
const REPORT_AGAIN: Duration = Duration::from_secs(20);

/// How often job progress is sampled.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// How often orders are polled without a notification.
const ORDERS_EVERY: Duration = Duration::from_secs(10);

/// How long an order for a missing job is retried.
const ORDER_WAIT: Duration = Duration::from_secs(10);
const ORDER_RETRY: Duration = Duration::from_millis(500);

/// See the module's documentation.
pub(crate) struct FleetStatus {
    replications: ReplicatorApi,
    health: HealthBoard,
    audit: AuditLog,
    log: Logger,
    pid_guard: PidGuard,
}

impl FleetStatus {
    /// Creates the actor; its supervisor already monitors it. Without a fleet it does nothing.
    pub fn new(
        replications: ReplicatorApi,
        health: HealthBoard,
        audit: AuditLog,
        log: &Logger,
        pid_guard: PidGuard,
    ) -> Self {
        Self {
            replications,
            health,
            audit,
            log: log.new(o!("component" => "fleet_status")),
            pid_guard,
        }
    }
}

impl Actor for FleetStatus {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let (api, log) = (self.replications.clone(), self.log.clone());
        ctx.spawn(wrap_future(write(api.clone(), log.clone())));
        let health = self.health.clone();
        ctx.spawn(wrap_future(report(api.clone(), health, log.clone())));
        ctx.spawn(wrap_future(read(api.clone(), log.clone())));
        ctx.spawn(wrap_future(take_orders(api, self.audit.clone(), log)));
    }
}

impl Handler<Stop> for FleetStatus {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.pid_guard.shut_down(ctx);
    }
}

/// Logs an outage once.
struct Outage {
    log: Logger,
    effect: &'static str,
    is_told: bool,
}

impl Outage {
    const fn new(log: Logger, effect: &'static str) -> Self {
        Self {
            log,
            effect,
            is_told: false,
        }
    }

    fn note<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.is_told = false;
                Some(value)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    warn!(self.log, "cannot exchange status with the other daemons"; "error" => %error,
                          "effect" => self.effect);
                }
                None
            }
        }
    }
}

/// Writes the state of this daemon's jobs.
async fn write(api: ReplicatorApi, log: Logger) {
    let Some(fleet) = api.fleet() else { return };
    let states = &api.database().states;
    let mut outage = Outage::new(
        log,
        "they do not learn the state of this one's replications",
    );
    let mut told = None;
    let (mut looked, mut looked_at) = (Instant::now(), system_time());
    loop {
        sleep(WRITE_EVERY).await;
        let Some(epoch) = fleet.epoch() else { continue };
        let now = Some((epoch, states.lock().renumberings()));
        if told != now {
            // An error means that the scheduler has ended: its successor reports all its jobs.
            let transient = api.transient().await.unwrap_or_default();
            states.lock().note_changed(transient);
            states.lock().note_all();
            told = now;
        }
        if looked.elapsed() >= PROGRESS_EVERY {
            let since = std::mem::replace(&mut looked_at, system_time());
            looked = Instant::now();
            let came_on = api.came_on(since).await.unwrap_or_default();
            states.lock().note_changed(came_on);
        }
        let changed = states.lock().take_changed(STATUSES_MAX);
        if changed.is_empty() {
            continue;
        }
        let is_written = match api.statuses(&changed).await {
            Ok(statuses) => outage
                .note(fleet.options.store.write_statuses(epoch, statuses).await)
                .is_some(),
            Err(_) => false,
        };
        if !is_written {
            states.lock().note_changed(changed);
        }
    }
}

/// Reports the problems of this daemon.
async fn report(api: ReplicatorApi, health: HealthBoard, log: Logger) {
    let Some(fleet) = api.fleet() else { return };
    let mut outage = Outage::new(log, "they do not learn this one's problems");
    let mut config = api.config();
    let mut settings = config.borrow_and_update().digests();
    let mut told: Option<(Epoch, String, actix_rt::time::Instant)> = None;
    loop {
        sleep(REPORT_EVERY).await;
        let health = health.told();
        // Without a name, the daemon has not checked its health yet.
        let Some(epoch) = fleet.epoch().filter(|_| !health.daemon.is_empty()) else {
            continue;
        };
        if config.has_changed().unwrap_or(false) {
            settings = config.borrow_and_update().digests();
        }
        let report = Report {
            health,
            settings: settings.clone(),
        };
        fleet.note_report(report.clone());
        let text = report.text();
        let is_told = told.as_ref().is_some_and(|(of, before, at)| {
            *of == epoch && *before == text && at.elapsed() < REPORT_AGAIN
        });
        if !is_told {
            let written = fleet.options.store.write_report(epoch, text.clone()).await;
            let now = actix_rt::time::Instant::now();
            told = outage.note(written).map(|()| (epoch, text, now));
        }
    }
}

/// Reads the state of the other daemons' jobs.
async fn read(api: ReplicatorApi, log: Logger) {
    let Some(fleet) = api.fleet() else { return };
    let mut outage = Outage::new(
        log,
        "lists show the last known state of their replications, with its age",
    );
    loop {
        outage.note(fleet.read().await);
        sleep(READ_EVERY).await;
    }
}

/// Takes orders of other daemons, and carries them out.
async fn take_orders(api: ReplicatorApi, audit: AuditLog, log: Logger) {
    let Some(fleet) = api.fleet() else { return };
    let store = &fleet.options.store;
    let mut told = store.told(Topic::Orders);
    let mut outage = Outage::new(log.clone(), "their orders are carried out later");
    let mut waiting: VecDeque<(Instant, Order)> = VecDeque::new();
    loop {
        if let Some(epoch) = fleet.epoch() {
            let orders = outage.note(store.take_orders(epoch).await);
            let now = Instant::now();
            waiting.extend(orders.into_iter().flatten().map(|order| (now, order)));
        }
        for (since, order) in std::mem::take(&mut waiting) {
            match api.take_order(&order).await {
                Ok(Some(done)) => record(&audit, &order, Ok(done)),
                // A document's job that starts later reads the order's settings from the store.
                Ok(None) if since.elapsed() >= ORDER_WAIT => {
                    record(&audit, &order, Err("not_found"));
                }
                Ok(None) | Err(_) => waiting.push_back((since, order)),
            }
        }
        let wait = if waiting.is_empty() {
            ORDERS_EVERY
        } else {
            ORDER_RETRY
        };
        tokio::select! {
            changed = told.changed() => {
                if changed.is_err() {
                    // The store is closed.
                    return;
                }
            }
            () = sleep(wait) => {}
        }
    }
}

/// Records another daemon's order.
fn record(audit: &AuditLog, order: &Order, result: Result<Done, &str>) {
    let (sender, what) = orders::sent(order);
    let pending = audit.begin(sender, what);
    let (StatusOf::Document(name) | StatusOf::Transient(name)) = &order.of;
    pending.on(&**name);
    let error = result.map(|done| pending.did(done)).err();
    pending.finish(error);
}

#[cfg(test)]
mod tests;
