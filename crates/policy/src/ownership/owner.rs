//! One daemon's side of ownership: its epoch, its lease, its claims, what it gives back.
//!
//! SUMMARY   Every event first times out old requests and an expiring lease; then it is handled; then due requests
//!           are sent to the database.
//! PROMISES  Total: an answer without its request changes nothing. At most one renewal, and one claim or release, are
//!           in flight.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHasher};

use super::event::{
    Claim, Claimed, Counts, DocId, Epoch, Event, ListedDoc, OwnerAction, Reach, Request, Standing,
};
use super::held::{HeldDocs, Hold};
use super::reach::ToldServers;
use super::{
    BATCH, CLAIM_EVERY, CLAIM_GAP_MIN, LEASE, RENEW_EVERY, REQUEST_MAX, RETRY_AFTER,
    STOP_BEFORE_END,
};

/// An epoch, and when its lease was last requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) epoch: Epoch,
    /// When the request that took or renewed it was sent.
    pub(super) sent: Duration,
}

impl Lease {
    /// Returns when everything is given up unless the lease is renewed.
    fn stop_at(&self) -> Duration {
        self.sent + LEASE - STOP_BEFORE_END
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    request: Request,
    at: Duration,
}

/// A renewal in flight.
#[derive(Clone, Debug)]
struct Renewal {
    sent: Sent,
    /// Whether it reports that the daemon is leaving.
    leaving: bool,
    reach: Reach,
}

/// Requests besides renewals.
#[derive(Clone, Debug)]
enum Order {
    Claim { most: usize },
    Release(Vec<(DocId, Claim)>),
}

/// The daemon's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    /// It gives everything back.
    Leaving,
    Gone,
}

/// Whether the daemon owns nothing for now, but stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    Off,
    On,
    /// Once it has given everything back, it claims its share again, under a new epoch: late messages cannot revive an
    /// epoch that was reported as leaving.
    Ending,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The daemon's name, which determines the documents it gives back first.
    daemon: Arc<str>,
    pub(super) lease: Option<Lease>,
    /// An abandoned epoch that may still be in the database.
    former: Option<Epoch>,
    pub(super) docs: HeldDocs,
    counts: Counts,
    /// The request that returned the counts.
    counted: Request,
    renewal: Option<Renewal>,
    pub(super) servers: ToldServers,
    order: Option<(Sent, Order)>,
    renew_at: Duration,
    /// When requests besides renewals may be sent.
    order_at: Duration,
    claim_at: Duration,
    /// When free documents were last requested.
    claimed_at: Duration,
    last_request: Request,
    phase: Phase,
    drain: Drain,
}

impl Ownership {
    /// Returns a daemon that owns nothing. Its name must be unique.
    pub fn new(daemon: impl Into<Arc<str>>) -> Self {
        Self {
            daemon: daemon.into(),
            lease: None,
            former: None,
            docs: HeldDocs::default(),
            counts: Counts::default(),
            counted: Request(0),
            renewal: None,
            servers: ToldServers::default(),
            order: None,
            renew_at: Duration::ZERO,
            order_at: Duration::ZERO,
            claim_at: Duration::ZERO,
            claimed_at: Duration::ZERO,
            last_request: Request(0),
            phase: Phase::Working,
            drain: Drain::Off,
        }
    }

    /// Handles an event and appends the actions to `out`, in order.
    pub fn handle(&mut self, event: Event, now: Duration, out: &mut Vec<OwnerAction>) {
        if self.phase == Phase::Gone {
            return;
        }
        self.time_out(now);
        if self.lease.is_some_and(|lease| lease.stop_at() <= now) {
            self.give_up(now, out);
        }
        match event {
            Event::Tick => {}
            Event::EpochTaken {
                request,
                epoch,
                counts,
            } => {
                if let Some(Renewal { sent, .. }) = self.take_renewal(request) {
                    self.former = None;
                    self.renewed(epoch, sent.at);
                    self.servers.begin_anew();
                    (self.order_at, self.claim_at) = (now, now);
                    if self.gives_away() {
                        self.renew_at = now;
                    }
                    self.hear(request, counts, out);
                }
            }
            Event::Renewed {
                request,
                docs,
                counts,
            } => self.listed(request, docs, counts, now, out),
            Event::NotRenewed { request } => {
                if self.take_renewal(request).is_some() {
                    self.give_up(now, out);
                }
            }
            Event::Claimed { request, claimed } => self.claimed(request, claimed, now, out),
            Event::Released { request } => self.released(request),
            Event::Failed { request } => self.failed(request, now),
            Event::Notified => {
                self.claim_at = self.claim_at.min(now.max(self.claimed_at + CLAIM_GAP_MIN));
            }
            Event::Stopped { doc, claim } => {
                let held = self.docs.get(&doc);
                if held.is_some_and(|held| held.claim == claim) {
                    self.docs.set(&doc, Hold::Unused);
                }
            }
            Event::ServerReach { server, answers } => {
                self.servers.tell(server, answers, now, self.last_request);
            }
            Event::Stop => {
                self.phase = Phase::Leaving;
                self.give_all_back(now, out);
            }
            Event::Drain => {
                self.drain = Drain::On;
                self.give_all_back(now, out);
            }
            Event::Undrain if self.drain == Drain::On => self.drain = Drain::Ending,
            Event::Undrain => {}
        }
        self.ask(now, out);
    }

    /// Returns when [`Event::Tick`] is due next.
    pub fn next_wake(&self) -> Option<Duration> {
        if self.phase == Phase::Gone {
            return None;
        }
        let renewal = self.renewal.as_ref();
        let renewal = renewal.map_or(self.renew_at, |renewal| renewal.sent.at + REQUEST_MAX);
        let order = match &self.order {
            Some((sent, _)) => Some(sent.at + REQUEST_MAX),
            None if self.lease.is_none() => None,
            None if self.docs.has_unused() => Some(self.order_at),
            None if !self.gives_away() => Some(self.order_at.max(self.claim_at)),
            None => None,
        };
        let stop = self.lease.map(|lease| lease.stop_at());
        [Some(renewal), order, stop].into_iter().flatten().min()
    }

    /// Returns how long a checkpoint started now may take unless the lease is renewed; `None` if it must not start:
    /// the lease is about to end, or is missing.
    pub fn may_checkpoint(&self, now: Duration) -> Option<Duration> {
        let left = self.lease?.stop_at().checked_sub(now)?;
        Some(left).filter(|left| !left.is_zero())
    }

    /// Returns the epoch whose lease is held.
    pub fn epoch(&self) -> Option<Epoch> {
        self.lease.map(|lease| lease.epoch)
    }

    /// Returns whether a document is owned, under any claim.
    pub fn owns(&self, doc: &str) -> bool {
        self.docs.get(doc).is_some_and(|held| held.is_owned())
    }

    /// Returns how many documents are owned and not being given back.
    pub const fn owned(&self) -> usize {
        self.docs.owned()
    }

    /// Returns how many documents are owned, including those being given back.
    pub fn owned_or_stopping(&self) -> usize {
        self.docs.owned_or_stopping()
    }

    /// Whether the daemon was stopped and has given everything back.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Whether it releases everything, and claims nothing.
    fn gives_away(&self) -> bool {
        self.phase != Phase::Working || self.drain != Drain::Off
    }

    /// Returns how many documents this daemon should own: an equal share, rounded up.
    fn share(&self) -> usize {
        if self.gives_away() {
            0
        } else {
            self.counts.wanted.div_ceil(self.counts.live.max(1))
        }
    }

    fn take_renewal(&mut self, request: Request) -> Option<Renewal> {
        self.renewal
            .take_if(|renewal| renewal.sent.request == request)
    }

    fn take_order(&mut self, request: Request) -> Option<Order> {
        let order = self.order.take_if(|(sent, _)| sent.request == request);
        order.map(|(_, order)| order)
    }

    fn next_request(&mut self) -> Request {
        self.last_request.0 += 1;
        self.last_request
    }

    /// Times out requests.
    fn time_out(&mut self, now: Duration) {
        let late = |sent: &Sent| sent.at + REQUEST_MAX <= now;
        let renewal = self.renewal.as_ref().map(|renewal| &renewal.sent);
        let order = self.order.as_ref().map(|(sent, _)| sent);
        let both: Vec<_> = renewal
            .into_iter()
            .chain(order)
            .filter(|sent| late(sent))
            .collect();
        let requests: Vec<_> = both.into_iter().map(|sent| sent.request).collect();
        requests
            .into_iter()
            .for_each(|request| self.failed(request, now));
    }

    fn failed(&mut self, request: Request, now: Duration) {
        if self.take_renewal(request).is_some() {
            self.renew_at = now + RETRY_AFTER;
        }
        if self.take_order(request).is_some() {
            self.order_at = now + RETRY_AFTER;
        }
    }

    /// Gives everything up; a new epoch will be taken.
    fn give_up(&mut self, now: Duration, out: &mut Vec<OwnerAction>) {
        let docs = std::mem::take(&mut self.docs);
        let owned = docs.iter().filter(|(_, held)| held.is_owned());
        out.extend(owned.map(|(doc, held)| OwnerAction::Lost {
            doc: doc.clone(),
            claim: held.claim,
        }));
        let lease = self.lease.take();
        self.former = lease.map(|lease| lease.epoch).or(self.former);
        (self.renewal, self.order) = (None, None);
        self.renew_at = now;
    }

    fn renewed(&mut self, epoch: Epoch, sent: Duration) {
        self.lease = Some(Lease { epoch, sent });
        self.renew_at = sent + RENEW_EVERY;
    }

    /// The lease was renewed: compares the listed claims with the known ones.
    fn listed(
        &mut self,
        request: Request,
        docs: Vec<ListedDoc>,
        counts: Counts,
        now: Duration,
        out: &mut Vec<OwnerAction>,
    ) {
        let Some((renewal, lease)) = self.take_renewal(request).zip(self.lease) else {
            return;
        };
        self.renewed(lease.epoch, renewal.sent.at);
        self.servers.answered(request, &renewal.reach);
        if self.gives_away() && !renewal.leaving {
            self.renew_at = now;
        }
        let listed: FxHashMap<_, _> = docs
            .into_iter()
            .map(|listed| (listed.doc.clone(), listed))
            .collect();
        // Documents known only since the renewal was sent are compared by the next one.
        let seen = self.docs.iter().filter(|(_, held)| held.known < request);
        let is_listed = |doc: &DocId, claim| listed.get(doc).is_some_and(|row| row.claim == claim);
        let missing: Vec<_> = seen
            .filter(|(doc, held)| !is_listed(doc, held.claim))
            .map(|(doc, _)| doc.clone())
            .collect();
        missing.iter().for_each(|doc| self.lose(doc, out));
        let (mut over, mut avoided) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for row in listed.into_values() {
            let (doc, claim) = (row.doc, row.claim);
            match self.docs.get(&doc) {
                Some(held) if held.claim == claim => {
                    self.docs.set_extra(&doc, row.standing == Standing::Extra);
                    match row.standing {
                        _ if !row.wanted => over.push((doc, claim)),
                        Standing::Avoided(server) if self.docs.is_running(&doc) => {
                            avoided.entry(server).or_default().push((doc, claim));
                        }
                        Standing::Shared | Standing::Extra | Standing::Avoided(_) => {}
                    }
                }
                Some(_) => {}
                None if self.is_claiming(claim) => {}
                None => self.docs.insert(doc, claim, request, Hold::Unused),
            }
        }
        self.give_back(over, out);
        for (server, given_up) in avoided {
            let docs = given_up.len();
            out.push(OwnerAction::GiveUp { server, docs });
            self.give_back(given_up, out);
        }
        self.hear(request, counts, out);
    }

    /// Whether this claim still awaits its answer, which adds its documents.
    fn is_claiming(&self, claim: Claim) -> bool {
        self.order
            .as_ref()
            .is_some_and(|(sent, _)| sent.request == claim)
    }

    fn lose(&mut self, doc: &DocId, out: &mut Vec<OwnerAction>) {
        if let Some(held) = self.docs.remove(doc).filter(|held| held.is_owned()) {
            out.push(OwnerAction::Lost {
                doc: doc.clone(),
                claim: held.claim,
            });
        }
    }

    fn claimed(
        &mut self,
        request: Request,
        claimed: Claimed,
        now: Duration,
        out: &mut Vec<OwnerAction>,
    ) {
        let Some(Order::Claim { most }) = self.take_order(request) else {
            return;
        };
        let Claimed {
            docs,
            extra,
            counts,
        } = claimed;
        let is_full = docs.len() >= most;
        let has_more = extra.len() >= BATCH;
        let docs = docs.into_iter().map(|doc| (doc, false));
        for (doc, is_extra) in docs.chain(extra.into_iter().map(|doc| (doc, true))) {
            // The document was free, so an older claim to it is void.
            self.lose(&doc, out);
            let hold = if self.gives_away() {
                Hold::Unused
            } else {
                Hold::Owned
            };
            self.docs
                .insert(doc.clone(), request, self.last_request, hold);
            self.docs.set_extra(&doc, is_extra);
            if hold == Hold::Owned {
                out.push(OwnerAction::Claimed {
                    doc,
                    claim: request,
                    is_extra,
                });
            }
        }
        self.hear(request, counts, out);
        // A full answer may be incomplete.
        if has_more || (is_full && self.docs.shared() < self.share()) {
            self.claim_at = now;
        }
    }

    fn released(&mut self, request: Request) {
        if let Some(Order::Release(docs)) = self.take_order(request) {
            for (doc, claim) in docs {
                if self.docs.get(&doc).is_some_and(|held| held.claim == claim) {
                    self.docs.remove(&doc);
                }
            }
        }
    }

    /// Updates the counts, and gives the surplus back.
    fn hear(&mut self, request: Request, counts: Counts, out: &mut Vec<OwnerAction>) {
        if request < self.counted {
            return;
        }
        (self.counts, self.counted) = (counts, request);
        let surplus = self.docs.shared_owned().saturating_sub(self.share());
        if surplus == 0 {
            return;
        }
        let mut docs: Vec<_> = own(self.docs.shared_running()).collect();
        docs.sort_by_cached_key(|(doc, _)| self.distance(doc));
        let last = docs.split_off(docs.len() - surplus);
        self.give_back(last, out);
    }

    /// Returns a document's distance from this daemon; each daemon orders documents differently.
    fn distance(&self, doc: &str) -> u64 {
        let mut hasher = FxHasher::default();
        (doc, &self.daemon).hash(&mut hasher);
        hasher.finish()
    }

    /// Gives everything back, and reports at once that the daemon is leaving.
    fn give_all_back(&mut self, now: Duration, out: &mut Vec<OwnerAction>) {
        self.renew_at = now;
        let all: Vec<_> = own(self.docs.running()).collect();
        self.give_back(all, out);
    }

    fn give_back(&mut self, docs: Vec<(DocId, Claim)>, out: &mut Vec<OwnerAction>) {
        for (doc, claim) in docs {
            if self.docs.is_running(&doc) {
                self.docs.set(&doc, Hold::Stopping);
                out.push(OwnerAction::GiveBack { doc, claim });
            }
        }
    }

    /// Sends due requests to the database.
    fn ask(&mut self, now: Duration, out: &mut Vec<OwnerAction>) {
        if self.drain == Drain::Ending && self.docs.len() == 0 && self.order.is_none() {
            self.drain = Drain::Off;
            self.give_up(now, out);
        }
        let is_leaving = self.gives_away();
        if self.phase == Phase::Leaving && self.docs.len() == 0 && self.order.is_none() {
            self.phase = Phase::Gone;
            let epoch = self.epoch().or(self.former);
            return out.push(OwnerAction::Depart { epoch });
        }
        if self.renewal.is_none() && self.renew_at <= now {
            let request = self.next_request();
            let reach = self.servers.reach(now);
            out.push(match self.lease {
                Some(Lease { epoch, .. }) => OwnerAction::Renew {
                    request,
                    epoch,
                    leaving: is_leaving,
                    reach: reach.clone(),
                },
                None => OwnerAction::TakeEpoch {
                    request,
                    former: self.former,
                },
            });
            self.renewal = Some(Renewal {
                sent: Sent { request, at: now },
                leaving: is_leaving,
                reach,
            });
        }
        let Some(Lease { epoch, .. }) = self.lease else {
            return;
        };
        if self.order.is_some() || self.order_at > now {
            return;
        }
        let order = if self.docs.has_unused() {
            Order::Release(self.docs.unused(BATCH))
        } else if !is_leaving && self.claim_at <= now {
            (self.claimed_at, self.claim_at) = (now, now + CLAIM_EVERY);
            let most = self.share().saturating_sub(self.docs.shared()).min(BATCH);
            Order::Claim { most }
        } else {
            return;
        };
        let request = self.next_request();
        out.push(match &order {
            Order::Claim { most } => OwnerAction::Claim {
                request,
                epoch,
                most: *most,
            },
            Order::Release(docs) => OwnerAction::Release {
                request,
                epoch,
                docs: docs.clone(),
            },
        });
        self.order = Some((Sent { request, at: now }, order));
    }
}

fn own<'a>(docs: impl Iterator<Item = (&'a DocId, Claim)>) -> impl Iterator<Item = (DocId, Claim)> {
    docs.map(|(doc, claim)| (doc.clone(), claim))
}
