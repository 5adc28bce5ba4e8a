//! FleetMember: owns documents for this daemon if several daemons share a store.
//!
//! SUMMARY   Runs [`Ownership`]: sends its requests to the database, notifies ReplicatorDocuments of owned, released
//!           and lost documents, and tells jobs until when they may begin checkpoints.
//! PROMISES  Decides nothing and never waits. However it ends, its leases become invalid at once; its successor
//!           starts with another epoch. The same applies when ReplicatorDocuments ends.
//! CALLED    By the database's answers, by a timer, and by ReplicatorDocuments ([`DocStopped`]).
//! LIMITS    On shutdown it takes at most [`LEAVE_MAX`] plus [`DEPART_MAX`]; documents not released by then become
//!           free when the lease expires.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use actix::fut::{wrap_future, wrap_stream};
use actix::prelude::*;
use futures_util::stream;
use slog::{Logger, info, o, warn};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::actors::changes;
use crate::actors::replicator_documents::ReplicatorDocuments;
use crate::config::password::random;
use crate::drain::Drain;
use crate::messages::fleet_member::{
    DocStopped, JoinFleet, OwnedChange, OwnedChanges, ServerReach,
};
use crate::metrics::FleetMetrics;
use crate::metrics::fleet::Renewal;
use crate::otp::{
    BootClock, DeadlineTimer, Down, ExitReason, PidGuard, RegisteredName, Stop, Tell,
};
use crate::replicator::lease::{DocLease, EpochLease};
use policy::ownership::{Epoch, Event, OwnerAction, Ownership, Reach, Request};
use store::StoreError;
use store::fleet::{DaemonName, FleetStore, Topic};

/// Maximum time between checks of the clock: timers stop while the machine sleeps.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long to wait for a restarting ReplicatorDocuments.
const JOIN_WAIT: Duration = Duration::from_millis(200);

/// How long jobs may take for a last checkpoint on shutdown.
const LEAVE_JOBS_MAX: Duration = Duration::from_millis(4000);

/// How long to wait on shutdown until all documents are released.
const LEAVE_MAX: Duration = Duration::from_millis(4500);

/// [`LEAVE_JOBS_MAX`] and [`LEAVE_MAX`] for an immediate shutdown.
const LEAVE_NOW_JOBS_MAX: Duration = Duration::from_secs(1);
const LEAVE_NOW_MAX: Duration = Duration::from_millis(1500);

/// How long the removal of the epoch may take.
const DEPART_MAX: Duration = Duration::from_millis(500);

/// Maximum number of remembered epochs that may exist although the answer was lost. At most one epoch a second is
/// requested, so the leases of older epochs have expired.
const ASKED_MAX: usize = 32;

/// The options of a member.
#[derive(Clone)]
pub(crate) struct FleetMemberOptions {
    /// The shared store.
    pub fleet: Arc<dyn FleetStore>,
    /// This daemon's published name.
    pub name: DaemonName,
    /// Acts on the documents.
    pub documents: RegisteredName<ReplicatorDocuments>,
    /// The clock of leases.
    pub clock: BootClock,
    /// The epoch of this daemon's lease; `None` without a lease.
    pub epoch: watch::Sender<Option<Epoch>>,
    /// Whether the daemon is drained.
    pub drain: Drain,
    /// Reports which servers are reachable.
    pub servers: broadcast::Sender<ServerReach>,
    pub metrics: Arc<FleetMetrics>,
    pub log: Logger,
}

/// One daemon of a fleet.
pub(crate) struct FleetMember {
    options: FleetMemberOptions,
    core: Ownership,
    lease: Option<Arc<EpochLease>>,
    /// Epochs requested since the last lease: they may exist even if the answer was lost.
    asked: VecDeque<Epoch>,
    timer: DeadlineTimer<Duration>,
    /// How long jobs may take to stop, once the service is shutting down.
    leaving: Option<Duration>,
    /// Whether the epoch is being removed: everything else is ignored.
    is_departing: bool,
    log: Logger,
    pid_guard: PidGuard,
}

impl FleetMember {
    /// Creates a member that owns nothing; its supervisor already monitors it.
    pub fn new(options: FleetMemberOptions, pid_guard: PidGuard) -> Self {
        // Two daemons may have the same address.
        let number = u64::from_le_bytes(random());
        Self {
            core: Ownership::new(format!("{} {number:016x}", options.name.address)),
            lease: None,
            asked: VecDeque::new(),
            timer: DeadlineTimer::default(),
            leaving: None,
            is_departing: false,
            log: options.log.new(o!("component" => "fleet_member")),
            options,
            pid_guard,
        }
    }

    /// Makes ReplicatorDocuments forget earlier ownership, then begins.
    fn join(&mut self, ctx: &mut Context<Self>) {
        let joining = self.options.documents.address().send(JoinFleet {
            member: ctx.address().recipient(),
        });
        ctx.spawn(wrap_future(joining).map(|joined, actor: &mut Self, ctx| {
            if actor.leaving.is_some() {
                return;
            }
            let Ok(documents) = joined else {
                // ReplicatorDocuments is restarting.
                ctx.run_later(JOIN_WAIT, Self::join);
                return;
            };
            documents.monitor(ctx.address().recipient());
            changes::follow(
                actor.options.fleet.told(Topic::Claims),
                ctx,
                |actor, ctx| actor.event(Event::Notified, ctx),
            );
            changes::follow(actor.options.drain.follow(), ctx, Self::follow_drain);
            if actor.options.drain.is_on() {
                actor.follow_drain(ctx);
            }
            actor.hear_of_servers(ctx);
            actor.event(Event::Tick, ctx);
        }));
    }

    /// Releases everything while the daemon is drained, and claims its share again afterwards.
    fn follow_drain(&mut self, ctx: &mut Context<Self>) {
        let event = if self.options.drain.is_on() {
            Event::Drain
        } else {
            Event::Undrain
        };
        self.event(event, ctx);
    }

    /// Passes reports on servers to the core. A missed one does no harm: unreachable servers are reported repeatedly,
    /// and a report expires.
    fn hear_of_servers(&self, ctx: &mut Context<Self>) {
        let told = self.options.servers.subscribe();
        let told = stream::unfold(told, |mut told| async move {
            loop {
                match told.recv().await {
                    Ok(one) => return Some((one, told)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        let heard =
            wrap_stream(told).map(|ServerReach { server, answers }, actor: &mut Self, ctx| {
                actor.event(Event::ServerReach { server, answers }, ctx);
            });
        ctx.spawn(heard.finish());
    }

    /// Passes an event to the core, and carries out its actions.
    fn event(&mut self, event: Event, ctx: &mut Context<Self>) {
        if self.is_departing {
            return;
        }
        let (now, mut actions) = (self.options.clock.now(), Vec::new());
        self.core.handle(event, now, &mut actions);
        let lost = actions
            .iter()
            .filter(|action| matches!(action, OwnerAction::Lost { .. }));
        self.keep_lease(now, lost.count());
        let mut changes = Vec::new();
        for action in actions {
            self.perform(action, &mut changes, ctx);
        }
        if !changes.is_empty() {
            self.tell(changes);
        }
        self.watch(now, ctx);
    }

    /// Updates the jobs' lease; `lost` documents were lost just now.
    fn keep_lease(&mut self, now: Duration, lost: usize) {
        let epoch = self.core.epoch();
        if self.lease.as_ref().map(|lease| lease.epoch) != epoch {
            if let Some(former) = self.end_lease()
                && self.leaving.is_none()
                && lost > 0
            {
                warn!(self.log, "lease lost"; "epoch" => format!("{:016x}", former.0), "count" => lost,
                      "effect" => "its replications are killed without checkpoints; the daemons that claim them continue",
                      "remedy" => "make sure that the database answers within 10 s, and that this machine is not suspended");
            }
            if epoch.is_some() {
                // The taken epoch was requested last, and removed the others.
                self.asked.clear();
            }
            self.lease = epoch.map(|epoch| {
                info!(self.log, "epoch taken"; "epoch" => format!("{:016x}", epoch.0));
                Arc::new(EpochLease::new(epoch, self.options.clock.clone()))
            });
            self.options.epoch.send_replace(epoch);
        }
        if let Some(lease) = &self.lease {
            let left = self.core.may_checkpoint(now);
            lease.set_until(left.map_or(Duration::ZERO, |left| now + left));
        }
    }

    /// Ends the lease; returns its epoch, if there was one.
    fn end_lease(&mut self) -> Option<Epoch> {
        let lease = self.lease.take()?;
        lease.end();
        self.options.epoch.send_replace(None);
        Some(lease.epoch)
    }

    fn tell(&self, changes: Vec<OwnedChange>) {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for change in &changes {
            *counts.entry(change.into()).or_default() += 1;
        }
        for (what, count) in counts {
            info!(self.log, "replications change owners"; "because" => what, "count" => count);
        }
        self.options.documents.tell(OwnedChanges(changes));
    }

    fn perform(
        &mut self,
        action: OwnerAction,
        changes: &mut Vec<OwnedChange>,
        ctx: &mut Context<Self>,
    ) {
        let fleet = Arc::clone(&self.options.fleet);
        match action {
            OwnerAction::Claimed {
                doc,
                claim,
                is_extra,
            } => {
                let Some(lease) = &self.lease else {
                    return;
                };
                let lease = DocLease::new(Arc::clone(lease), claim, is_extra);
                self.options.metrics.takeovers.one();
                changes.push(OwnedChange::Claimed { doc, lease });
            }
            OwnerAction::GiveUp { server, docs } => {
                warn!(self.log, "replications are given up, as this daemon does not reach a server"; "server" => &*server,
                      "count" => docs, "effect" => "daemons that reach it may take them over",
                      "remedy" => "find out why this machine cannot reach the server");
            }
            OwnerAction::Lost { doc, claim } => changes.push(OwnedChange::Lost { doc, claim }),
            OwnerAction::GiveBack { doc, claim } => changes.push(OwnedChange::GiveBack {
                doc,
                claim,
                within: self.leaving.unwrap_or(Duration::MAX),
            }),
            OwnerAction::Depart { epoch } => self.depart(epoch, ctx),
            OwnerAction::TakeEpoch { request, former } => self.take_epoch(request, former, ctx),
            OwnerAction::Renew {
                request,
                epoch,
                leaving,
                reach,
            } => self.renew(request, epoch, leaving, reach, ctx),
            OwnerAction::Claim {
                request,
                epoch,
                most,
            } => {
                let claiming = async move {
                    Ok(Event::Claimed {
                        request,
                        claimed: fleet.claim(epoch, request, most).await?,
                    })
                };
                self.ask(request, claiming, ctx);
            }
            OwnerAction::Release {
                request,
                epoch,
                docs,
            } => {
                let releasing = async move {
                    fleet.release(epoch, docs).await?;
                    Ok(Event::Released { request })
                };
                self.ask(request, releasing, ctx);
            }
        }
    }

    /// Requests a new epoch, which replaces all that this daemon may have.
    fn take_epoch(&mut self, request: Request, former: Option<Epoch>, ctx: &mut Context<Self>) {
        let (fleet, name) = (Arc::clone(&self.options.fleet), self.options.name.clone());
        let epoch = Epoch(u64::from_le_bytes(random()));
        let former = former.into_iter().chain(self.asked.iter().copied());
        let former = former.collect();
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(epoch);
        let taking = async move {
            Ok(Event::EpochTaken {
                request,
                epoch,
                counts: fleet.take_epoch(name, epoch, former).await?,
            })
        };
        self.ask(request, taking, ctx);
    }

    fn renew(
        &self,
        request: Request,
        epoch: Epoch,
        leaving: bool,
        reach: Reach,
        ctx: &mut Context<Self>,
    ) {
        let fleet = Arc::clone(&self.options.fleet);
        let metrics = Arc::clone(&self.options.metrics);
        let renewing = async move {
            let renewed = fleet.renew(epoch, leaving, reach).await;
            metrics.renewals.one(match &renewed {
                Ok(Some(_)) => Renewal::Renewed,
                Ok(None) => Renewal::Over,
                Err(_) => Renewal::Failed,
            });
            Ok(match renewed? {
                Some((docs, counts)) => Event::Renewed {
                    request,
                    docs,
                    counts,
                },
                None => Event::NotRenewed { request },
            })
        };
        self.ask(request, renewing, ctx);
    }

    /// Waits for the database's answer to a request.
    fn ask(
        &self,
        request: Request,
        asking: impl Future<Output = Result<Event, StoreError>> + 'static,
        ctx: &mut Context<Self>,
    ) {
        let asking = async move { asking.await.unwrap_or(Event::Failed { request }) };
        ctx.spawn(wrap_future(asking).map(|event, actor: &mut Self, ctx| actor.event(event, ctx)));
    }

    /// Removes the epoch, and ends.
    fn depart(&mut self, epoch: Option<Epoch>, ctx: &mut Context<Self>) {
        self.is_departing = true;
        self.end_lease();
        let fleet = Arc::clone(&self.options.fleet);
        let epochs: Vec<Epoch> = epoch.into_iter().chain(self.asked.drain(..)).collect();
        let departing = async move {
            let all = async {
                for epoch in epochs {
                    drop(fleet.depart(epoch).await);
                }
            };
            // Epochs that remain expire with their leases.
            drop(actix_rt::time::timeout(DEPART_MAX, all).await);
        };
        ctx.spawn(wrap_future(departing).map(|(), actor: &mut Self, ctx| {
            actor.pid_guard.shut_down(ctx);
        }));
    }

    /// Leaves without waiting for documents: no checkpoint begins from now on.
    fn leave_now(&mut self, ctx: &mut Context<Self>) {
        if self.is_departing {
            return;
        }
        let left = self.core.owned_or_stopping();
        warn!(self.log, "leaving the fleet before all replications have stopped"; "count" => left,
              "effect" => "those still running continue elsewhere from their last checkpoint");
        self.depart(self.core.epoch(), ctx);
    }

    /// Sets the timer for the core's next event.
    fn watch(&mut self, now: Duration, ctx: &mut Context<Self>) {
        if let Some(at) = self.core.next_wake() {
            let at = at.min(now + LOOK_MAX);
            let look = |member: &mut Self, ctx: &mut Context<Self>| {
                member.timer.fired();
                member.event(Event::Tick, ctx);
            };
            self.timer.look_by(at, at.saturating_sub(now), ctx, look);
        }
    }
}

/// However this ends, its jobs write no checkpoint afterwards.
impl Drop for FleetMember {
    fn drop(&mut self) {
        self.end_lease();
    }
}

impl Actor for FleetMember {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.join(ctx);
    }
}

impl Handler<DocStopped> for FleetMember {
    type Result = ();

    fn handle(&mut self, msg: DocStopped, ctx: &mut Self::Context) {
        let DocStopped { doc, claim } = msg;
        self.event(Event::Stopped { doc, claim }, ctx);
    }
}

/// ReplicatorDocuments failed, and has lost its table of owned documents.
impl Handler<Down> for FleetMember {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        self.pid_guard.ending(ExitReason::Failed(format!(
            "replicator_documents ended: {}",
            msg.reason
        )));
        ctx.terminate();
    }
}

/// Releases everything, and then ends.
impl Handler<Stop> for FleetMember {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        let (jobs_max, leave_max) = if msg.now {
            (LEAVE_NOW_JOBS_MAX, LEAVE_NOW_MAX)
        } else {
            (LEAVE_JOBS_MAX, LEAVE_MAX)
        };
        let is_first = self.leaving.replace(jobs_max).is_none();
        ctx.run_later(leave_max, Self::leave_now);
        if is_first {
            info!(self.log, "leaving the fleet"; "count" => self.core.owned());
            self.event(Event::Stop, ctx);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
