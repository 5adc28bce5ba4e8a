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

use super::held::{Held, HeldDocs, Hold};
use super::reach::ToldServers;
use super::{
    BATCH, CLAIM_EVERY, CLAIM_GAP_MIN, Claim, Claimed, Counts, DocId, Epoch, Event, LEASE,
    ListedDoc, OwnerAction, RENEW_EVERY, REQUEST_MAX, RETRY_AFTER, Reach, Request, STOP_BEFORE_END,
    Standing,
};

/// An epoch, and when its lease was last requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub epoch: Epoch,
    /// When the request that took or renewed it was sent.
    pub sent: Duration,
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

/// The daemon's phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Working,
    /// It owns nothing for now, but stays.
    Drained,
    /// Once it has given everything back, it claims its share again, under a new epoch: late messages cannot revive an
    /// epoch that was reported as leaving.
    Undraining,
    /// It gives everything back.
    Leaving,
    Gone,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
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
    /// The claim or release in flight.
    order: Option<(Sent, OwnerAction)>,
    renew_at: Duration,
    /// When requests besides renewals may be sent.
    order_at: Duration,
    claim_at: Duration,
    /// When free documents were last requested.
    claimed_at: Duration,
    last_request: Request,
    phase: Phase,
    /// The time of the event that is being handled, and its actions.
    now: Duration,
    out: Vec<OwnerAction>,
}

impl Ownership {
    /// Returns a daemon that owns nothing. Its name must be unique.
    pub fn new(daemon: impl Into<Arc<str>>) -> Self {
        Self {
            daemon: daemon.into(),
            ..Self::default()
        }
    }

    /// Handles an event and appends the actions to `out`, in order.
    pub fn handle(&mut self, event: Event, now: Duration, out: &mut Vec<OwnerAction>) {
        if self.phase == Phase::Gone {
            return;
        }
        self.now = now;
        self.out = std::mem::take(out);
        self.time_out();
        if self.lease.is_some_and(|lease| lease.stop_at() <= self.now) {
            self.give_up();
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
                    // The new epoch has not reported the recovered servers as unreachable.
                    self.servers.back.clear();
                    (self.order_at, self.claim_at) = (self.now, self.now);
                    if self.gives_away() {
                        self.renew_at = self.now;
                    }
                    self.hear(request, counts);
                }
            }
            Event::Renewed {
                request,
                docs,
                counts,
            } => self.listed(request, docs, counts),
            Event::NotRenewed { request } => {
                if self.take_renewal(request).is_some() {
                    self.give_up();
                }
            }
            Event::Claimed { request, claimed } => self.claimed(request, claimed),
            Event::Released { request } => self.released(request),
            Event::Failed { request } => self.failed(request),
            Event::Notified => {
                self.claim_at = self
                    .claim_at
                    .min(self.now.max(self.claimed_at + CLAIM_GAP_MIN));
            }
            Event::Stopped { doc, claim } => {
                let held = self.docs.rows.get(&doc);
                if held.is_some_and(|held| held.claim == claim) {
                    self.docs.set(&doc, Hold::Unused);
                }
            }
            Event::ServerReach { server, answers } => {
                self.servers
                    .tell(server, answers, self.now, self.last_request);
            }
            Event::Stop => {
                self.phase = Phase::Leaving;
                self.give_all_back();
            }
            Event::Drain => {
                if self.phase != Phase::Leaving {
                    self.phase = Phase::Drained;
                }
                self.give_all_back();
            }
            Event::Undrain if self.phase == Phase::Drained => self.phase = Phase::Undraining,
            Event::Undrain => {}
        }
        self.ask();
        *out = std::mem::take(&mut self.out);
    }

    /// Returns when [`Event::Tick`] is due next; `None` once the daemon was stopped and has given everything back.
    pub fn next_wake(&self) -> Option<Duration> {
        if self.phase == Phase::Gone {
            return None;
        }
        let renewal = self.renewal.as_ref();
        let renewal = renewal.map_or(self.renew_at, |renewal| renewal.sent.at + REQUEST_MAX);
        let order = match &self.order {
            Some((sent, _)) => Some(sent.at + REQUEST_MAX),
            None if self.lease.is_none() => None,
            None if !self.docs.unused.is_empty() => Some(self.order_at),
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

    /// Returns how many documents are owned and not being given back.
    pub const fn owned(&self) -> usize {
        self.docs.owned
    }

    /// Returns how many documents are owned, including those being given back.
    pub fn owned_or_stopping(&self) -> usize {
        self.docs.rows.len() - self.docs.unused.len()
    }

    /// Whether it releases everything, and claims nothing.
    fn gives_away(&self) -> bool {
        self.phase != Phase::Working
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

    fn take_order(&mut self, request: Request) -> Option<OwnerAction> {
        let order = self.order.take_if(|(sent, _)| sent.request == request);
        order.map(|(_, order)| order)
    }

    fn next_request(&mut self) -> Request {
        self.last_request.0 += 1;
        self.last_request
    }

    /// Times out requests.
    fn time_out(&mut self) {
        let renewal = self.renewal.as_ref().map(|renewal| renewal.sent);
        let order = self.order.as_ref().map(|(sent, _)| *sent);
        for Sent { request, at } in renewal.into_iter().chain(order) {
            if at + REQUEST_MAX <= self.now {
                self.failed(request);
            }
        }
    }

    fn failed(&mut self, request: Request) {
        if self.take_renewal(request).is_some() {
            self.renew_at = self.now + RETRY_AFTER;
        }
        if self.take_order(request).is_some() {
            self.order_at = self.now + RETRY_AFTER;
        }
    }

    /// Gives everything up; a new epoch will be taken.
    fn give_up(&mut self) {
        let docs = std::mem::take(&mut self.docs);
        let owned = docs.rows.iter().filter(|(_, held)| held.is_owned());
        self.out.extend(owned.map(|(doc, held)| OwnerAction::Lost {
            doc: doc.clone(),
            claim: held.claim,
        }));
        let lease = self.lease.take();
        self.former = lease.map(|lease| lease.epoch).or(self.former);
        (self.renewal, self.order) = (None, None);
        self.renew_at = self.now;
    }

    fn renewed(&mut self, epoch: Epoch, sent: Duration) {
        self.lease = Some(Lease { epoch, sent });
        self.renew_at = sent + RENEW_EVERY;
    }

    /// The lease was renewed: compares the listed claims with the known ones.
    fn listed(&mut self, request: Request, docs: Vec<ListedDoc>, counts: Counts) {
        let Some((renewal, lease)) = self.take_renewal(request).zip(self.lease) else {
            return;
        };
        self.renewed(lease.epoch, renewal.sent.at);
        self.servers.answered(request, &renewal.reach);
        if self.gives_away() && !renewal.leaving {
            self.renew_at = self.now;
        }
        let listed: FxHashMap<_, _> = docs
            .into_iter()
            .map(|listed| (listed.doc.clone(), listed))
            .collect();
        // Documents known only since the renewal was sent are compared by the next one.
        let seen = self
            .docs
            .rows
            .iter()
            .filter(|(_, held)| held.known < request);
        let is_listed = |doc: &DocId, claim| listed.get(doc).is_some_and(|row| row.claim == claim);
        let missing: Vec<_> = seen
            .filter(|(doc, held)| !is_listed(doc, held.claim))
            .map(|(doc, _)| doc.clone())
            .collect();
        missing.iter().for_each(|doc| self.lose(doc));
        let claiming = self.order.as_ref().map(|(sent, _)| sent.request);
        let (mut over, mut avoided) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for row in listed.into_values() {
            let (doc, claim) = (row.doc, row.claim);
            match self.docs.rows.get(&doc) {
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
                // The claim still awaits its answer, which adds its documents.
                None if claiming == Some(claim) => {}
                None => {
                    let held = Held {
                        claim,
                        known: request,
                        hold: Hold::Unused,
                        is_extra: false,
                    };
                    self.docs.insert(doc, held);
                }
            }
        }
        self.give_back(over);
        for (server, given_up) in avoided {
            let docs = given_up.len();
            self.out.push(OwnerAction::GiveUp { server, docs });
            self.give_back(given_up);
        }
        self.hear(request, counts);
    }

    fn lose(&mut self, doc: &DocId) {
        if let Some(held) = self.docs.remove(doc).filter(|held| held.is_owned()) {
            self.out.push(OwnerAction::Lost {
                doc: doc.clone(),
                claim: held.claim,
            });
        }
    }

    fn claimed(&mut self, request: Request, claimed: Claimed) {
        let Some(OwnerAction::Claim { most, .. }) = self.take_order(request) else {
            return;
        };
        let is_full = claimed.docs.len() >= most;
        let has_more = claimed.extra.len() >= BATCH;
        let docs = claimed.docs.into_iter().map(|doc| (doc, false));
        let extra = claimed.extra.into_iter().map(|doc| (doc, true));
        for (doc, is_extra) in docs.chain(extra) {
            // The document was free, so an older claim to it is void.
            self.lose(&doc);
            let hold = if self.gives_away() {
                Hold::Unused
            } else {
                Hold::Owned
            };
            let held = Held {
                claim: request,
                known: self.last_request,
                hold,
                is_extra,
            };
            self.docs.insert(doc.clone(), held);
            if hold == Hold::Owned {
                self.out.push(OwnerAction::Claimed {
                    doc,
                    claim: request,
                    is_extra,
                });
            }
        }
        self.hear(request, claimed.counts);
        // A full answer may be incomplete.
        if has_more || (is_full && self.docs.shared() < self.share()) {
            self.claim_at = self.now;
        }
    }

    fn released(&mut self, request: Request) {
        if let Some(OwnerAction::Release { docs, .. }) = self.take_order(request) {
            for (doc, claim) in docs {
                let held = self.docs.rows.get(&doc);
                if held.is_some_and(|held| held.claim == claim) {
                    self.docs.remove(&doc);
                }
            }
        }
    }

    /// Updates the counts, and gives the surplus back.
    fn hear(&mut self, request: Request, counts: Counts) {
        if request < self.counted {
            return;
        }
        (self.counts, self.counted) = (counts, request);
        let owned = self.docs.owned - self.docs.extra_owned;
        let surplus = owned.saturating_sub(self.share());
        if surplus == 0 {
            return;
        }
        let shared = self.docs.running().filter(|(_, held)| !held.is_extra);
        let mut docs: Vec<_> = own(shared).collect();
        docs.sort_by_cached_key(|(doc, _)| self.distance(doc));
        let last = docs.split_off(docs.len() - surplus);
        self.give_back(last);
    }

    /// Returns a document's distance from this daemon; each daemon orders documents differently.
    fn distance(&self, doc: &str) -> u64 {
        let mut hasher = FxHasher::default();
        (doc, &self.daemon).hash(&mut hasher);
        hasher.finish()
    }

    /// Gives everything back, and reports at once that the daemon is leaving.
    fn give_all_back(&mut self) {
        self.renew_at = self.now;
        let all: Vec<_> = own(self.docs.running()).collect();
        self.give_back(all);
    }

    fn give_back(&mut self, docs: Vec<(DocId, Claim)>) {
        for (doc, claim) in docs {
            if self.docs.is_running(&doc) {
                self.docs.set(&doc, Hold::Stopping);
                self.out.push(OwnerAction::GiveBack { doc, claim });
            }
        }
    }

    /// Sends due requests to the database.
    fn ask(&mut self) {
        let has_nothing = self.docs.rows.is_empty() && self.order.is_none();
        if has_nothing && self.phase == Phase::Leaving {
            self.phase = Phase::Gone;
            let epoch = self.epoch().or(self.former);
            return self.out.push(OwnerAction::Depart { epoch });
        }
        if has_nothing && self.phase == Phase::Undraining {
            self.phase = Phase::Working;
            self.give_up();
        }
        let is_leaving = self.gives_away();
        if self.renewal.is_none() && self.renew_at <= self.now {
            let request = self.next_request();
            let reach = self.servers.reach(self.now);
            self.out.push(match self.lease {
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
                sent: Sent {
                    request,
                    at: self.now,
                },
                leaving: is_leaving,
                reach,
            });
        }
        let Some(Lease { epoch, .. }) = self.lease else {
            return;
        };
        let releases = !self.docs.unused.is_empty();
        let claims = !is_leaving && self.claim_at <= self.now;
        if self.order.is_some() || self.order_at > self.now || !(releases || claims) {
            return;
        }
        let request = self.next_request();
        let order = if releases {
            OwnerAction::Release {
                request,
                epoch,
                docs: self.docs.unused(BATCH),
            }
        } else {
            (self.claimed_at, self.claim_at) = (self.now, self.now + CLAIM_EVERY);
            OwnerAction::Claim {
                request,
                epoch,
                most: self.share().saturating_sub(self.docs.shared()).min(BATCH),
            }
        };
        self.out.push(order.clone());
        let sent = Sent {
            request,
            at: self.now,
        };
        self.order = Some((sent, order));
    }
}

fn own<'a>(
    docs: impl Iterator<Item = (&'a DocId, &'a Held)>,
) -> impl Iterator<Item = (DocId, Claim)> {
    docs.map(|(doc, held)| (doc.clone(), held.claim))
}
