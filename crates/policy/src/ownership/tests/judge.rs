//! Checks the invariants FL-1 to FL-7 after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::daemon::Daemon;
use super::database::{Ms, ms, server_of};
use super::world::World;
use super::*;

/// Allowance for slow local clocks and message delays, on top of the bounds.
const SLACK: Ms = 1_000;

#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The time of the latest fault.
    last_fault: Ms,
    last_failover: Option<Ms>,
    /// The time of the latest arrival or departure of a daemon or document.
    last_change: Ms,
    /// When the latest report on servers takes effect: it decides who may claim documents.
    last_standing: Ms,
    live: BTreeSet<usize>,
    /// Daemon -> the time since which it has been well.
    well: BTreeMap<usize, Ms>,
    /// Document -> the time since which no owner has run its job.
    unserved: BTreeMap<DocId, Ms>,
    /// Document -> when its job was stopped; removed once a daemon serves it.
    stopped: BTreeMap<DocId, Ms>,
    /// Document -> the time since which its owner cannot reach its server, while another daemon could.
    unreached: BTreeMap<DocId, Ms>,
    /// When a daemon last gave up a document because of its server, and under which claim.
    given_up: BTreeMap<(DocId, usize), (Ms, Epoch, Claim)>,
    /// The number of listed abandonments that have been checked.
    given_up_seen: usize,
    /// The longest time between a stop and the next owner.
    pub(super) handover_max: Ms,
    pub(super) unserved_max: Ms,
    /// The longest time with an owner that cannot reach the server.
    pub(super) unreached_max: Ms,
    /// The first violation.
    pub(super) violation: Option<String>,
}

impl Judge {
    pub(super) fn fault(&mut self, now: Ms) {
        self.last_fault = self.last_fault.max(now);
        self.changed(now);
    }

    pub(super) fn changed(&mut self, now: Ms) {
        self.last_change = self.last_change.max(now);
    }

    /// A daemon reports that it cannot reach a server, or can again. The report takes effect after a delay.
    pub(super) fn reports_reach(&mut self, now: Ms) {
        let effective = now + ms(RENEW_EVERY + SETTLE) + SLACK;
        self.last_standing = self.last_standing.max(effective);
    }

    pub(super) fn failover(&mut self, now: Ms, up: Ms) {
        self.last_failover = Some(now);
        // Documents may be lost and claimed again only much later.
        self.unserved.clear();
        self.fault(up);
    }

    pub(super) fn seen(&mut self, live: BTreeSet<usize>, now: Ms) {
        if self.live != live {
            self.live = live;
            self.changed(now);
        }
    }

    pub(super) fn stopped(&mut self, doc: &DocId, now: Ms) {
        self.stopped.insert(doc.clone(), now);
    }

    /// Whether a failover may have lost data that daemons rely on.
    fn is_after_failover(&self, now: Ms) -> bool {
        let window = ms(LEASE - STOP_BEFORE_END) + SLACK;
        self.last_failover.is_some_and(|at| now <= at + window)
    }

    pub(super) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    /// A checkpoint request is sent.
    pub(super) fn sends(&mut self, now: Ms, lease_holds: bool) {
        let holds = lease_holds || self.is_after_failover(now);
        self.require(holds, || {
            format!("FL-3: a checkpoint begins or continues outside a lease at {now}")
        });
    }

    /// A checkpoint is abandoned because of the lease.
    pub(super) fn gives_up(&mut self, doc: &DocId, now: Ms, lease_holds: bool) {
        self.require(!lease_holds, || {
            format!("FL-5: a checkpoint of {doc} is abandoned under a renewed lease at {now}")
        });
    }

    pub(super) fn after_each(&mut self, world: &World) {
        let now = world.now;
        for (at, daemon) in world.daemons.iter().enumerate() {
            match daemon.is_well() {
                true => drop(self.well.entry(at).or_insert(now)),
                false => drop(self.well.remove(&at)),
            }
        }
        let well_since = self.well.values().min().copied();
        let after_failover = self.is_after_failover(now);
        for (doc, row) in &world.database.tables.docs {
            let believers = world
                .daemons
                .iter()
                .filter(|daemon| daemon.believes(doc, now));
            let generation = world.database.generation;
            let all = believers.clone().count();
            let confirmed = believers.filter(|daemon| daemon.is_confirmed(doc, generation));
            let confirmed = confirmed.count();
            let holds = confirmed <= 1 && (all <= 1 || after_failover);
            self.require(holds, || {
                format!("FL-1: {all} daemons may write checkpoints of {doc} at {now}, {confirmed} confirmed")
            });
            let is_served = world.daemons.iter().any(|daemon| daemon.serves(doc));
            if is_served && let Some(at) = self.stopped.remove(doc) {
                self.handover_max = self.handover_max.max(now - at);
            }
            if is_served || !row.wanted {
                self.unserved.remove(doc);
                continue;
            }
            let since = *self.unserved.entry(doc.clone()).or_insert(now);
            let Some(well_since) = well_since else {
                continue;
            };
            let waited = now.saturating_sub(since.max(self.last_fault).max(well_since));
            self.unserved_max = self.unserved_max.max(waited);
            self.require(waited <= ms(OWNER_WITHIN), || {
                format!("FL-2: {doc} has had no owner for {waited} ms at {now}")
            });
        }
        let (epochs, repeated) = (world.database.epochs.len(), world.database.has_repeated);
        self.require(!repeated, || {
            format!("FL-4: one of {epochs} epochs was taken twice")
        });
        if now > self.last_change.max(self.last_standing) + ms(SHARE_WITHIN) {
            self.judge_shares(world);
        }
        self.judge_reach(world);
    }

    /// Documents are owned by daemons that reach their servers, and rarely change owners.
    fn judge_reach(&mut self, world: &World) {
        let now = world.now;
        for (doc, row) in &world.database.tables.docs {
            let server = server_of(doc);
            let could = |daemon: &Daemon| {
                let is_reported = |epoch| world.database.is_unreached(epoch, &server, now);
                daemon.is_well()
                    && daemon.reaches(&server)
                    && !daemon.core.epoch().is_none_or(is_reported)
            };
            let is_misplaced = |daemon: &Daemon| daemon.serves(doc) && !daemon.reaches(&server);
            if !row.wanted
                || !world.daemons.iter().any(is_misplaced)
                || !world.daemons.iter().any(could)
            {
                self.unreached.remove(doc);
                continue;
            }
            let since = *self.unreached.entry(doc.clone()).or_insert(now);
            let waited = now.saturating_sub(since.max(self.last_change));
            self.unreached_max = self.unreached_max.max(waited);
            self.require(waited <= ms(REACHED_WITHIN), || {
                format!("FL-6: {doc} has had an owner that does not reach its server for {waited} ms at {now}")
            });
        }
        let new = &world.database.given_up[self.given_up_seen..];
        self.given_up_seen = world.database.given_up.len();
        for (doc, at, epoch, claim) in new {
            let this = (now, *epoch, *claim);
            let before = self.given_up.insert((doc.clone(), *at), this);
            // The same abandonment is listed until its release.
            let before = before.filter(|before| (before.1, before.2) != (this.1, this.2));
            let settled = self.last_change.max(self.last_standing);
            let holds = before.is_none_or(|(at, ..)| at <= settled || now - at >= ms(AVOID_FOR));
            self.require(holds, || {
                format!("FL-7: daemon {at} gives up {doc} because of its server again at {now}")
            });
        }
    }

    /// Without recent changes, no living daemon exceeds its share.
    fn judge_shares(&mut self, world: &World) {
        let live: Vec<_> = world
            .daemons
            .iter()
            .filter(|daemon| daemon.life.is_some())
            .collect();
        if !live.iter().all(|daemon| daemon.is_well()) {
            return;
        }
        let share = world.database.wanted().div_ceil(live.len().max(1));
        for daemon in live {
            let docs = &daemon.core.docs;
            let owned = docs.owned - docs.extra_owned;
            self.require(owned <= share, || {
                format!(
                    "FL-2: a daemon has {owned} documents, more than its share of {share}, at {}",
                    world.now
                )
            });
        }
    }

    /// At the end, after enough time, every one-shot job whose server all daemons reach has its outcome.
    pub(super) fn at_the_end(&mut self, world: &World) {
        for (doc, row) in &world.database.tables.docs {
            let server = server_of(doc);
            // The document's owners may all have been unable to reach the server.
            let is_reached = world.daemons.iter().all(|daemon| daemon.reaches(&server));
            let is_over = !World::is_one_shot(doc) || !row.wanted || !is_reached;
            self.require(is_over, || format!("FL-4: {doc} has no outcome at the end"));
        }
    }
}
