//! The simulated shared database: atomic transactions, its own clock, failovers that lose commits.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::schedule::Server;

/// A time in the simulation, in milliseconds.
pub(super) type Ms = u64;

pub(super) const fn ms(duration: Duration) -> Ms {
    duration.as_millis() as Ms
}

/// An epoch's row.
#[derive(Clone, Debug)]
struct EpochRow {
    daemon: usize,
    lease_until: Ms,
    /// Whether the daemon counts as alive: it has claimed, and is not leaving.
    live: bool,
}

/// A document's row.
#[derive(Clone, Debug, Default)]
pub(super) struct DocRow {
    pub(super) wanted: bool,
    pub(super) owner: Option<(Epoch, Claim)>,
}

/// A report that a daemon cannot reach a server.
#[derive(Clone, Copy, Debug)]
struct UnreachedRow {
    avoided_from: Ms,
    until: Ms,
    span: Ms,
}

/// Committed data.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    epochs: BTreeMap<Epoch, EpochRow>,
    unreached: BTreeMap<(Epoch, Server), UnreachedRow>,
    pub(super) docs: BTreeMap<DocId, DocRow>,
}

/// Mistakes of a database or its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mistakes {
    /// A release ends any claim of the epoch.
    pub(super) releases_any_claim: bool,
    /// Epochs are consecutive numbers: after a failover one is taken again.
    pub(super) counts_epochs: bool,
    /// Documents are claimed despite another's lease.
    pub(super) ignores_leases: bool,
    /// Claims do not skip closed documents.
    pub(super) claims_closed_documents: bool,
    /// Documents are closed to all that avoid their server, even if that is everyone.
    pub(super) closes_to_all: bool,
}

/// Returns the server of a document's replication.
pub(super) fn server_of(doc: &str) -> Server {
    let (_, number) = doc.rsplit_once('-').expect("it has a number");
    let number: usize = number.parse().expect("it has a number");
    format!("server-{}", number / 3 % 2).into()
}

/// A request to the database.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Core(OwnerAction),
    /// A document no longer wants its replication.
    Outcome {
        doc: DocId,
        owner: (Epoch, Claim),
    },
}

/// The database's answer.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Core(Event),
    Outcome { doc: DocId, claim: Claim },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    pub(super) tables: Tables,
    /// How far its clock is ahead of the world's.
    pub(super) ahead: Ms,
    /// It does not answer before this time.
    pub(super) down_until: Ms,
    /// Counts failovers: each ends all connections.
    pub(super) generation: u64,
    pub(super) mistakes: Mistakes,
    /// Every epoch that ever existed.
    pub(super) epochs: BTreeSet<Epoch>,
    /// Whether an epoch was taken twice.
    pub(super) has_repeated: bool,
    /// Documents listed as avoided: by which daemon, under which claim.
    pub(super) given_up: Vec<(DocId, usize, Epoch, Claim)>,
}

impl Database {
    fn now(&self, now: Ms) -> Ms {
        now + self.ahead
    }

    pub(super) fn lease_holds(&self, epoch: Epoch, now: Ms) -> bool {
        let row = self.tables.epochs.get(&epoch);
        row.is_some_and(|row| row.lease_until > self.now(now))
    }

    /// Returns the daemons that count as alive.
    pub(super) fn live(&self, now: Ms) -> BTreeSet<usize> {
        let now = self.now(now);
        let rows = self.tables.epochs.values();
        let live = rows.filter(|row| row.live && row.lease_until > now);
        live.map(|row| row.daemon).collect()
    }

    /// Whether a daemon's report that it cannot reach a server is in effect.
    pub(super) fn is_unreached(&self, epoch: Epoch, server: &Server, now: Ms) -> bool {
        let row = self.unreached(epoch, server);
        row.is_some_and(|row| row.until > self.now(now))
    }

    fn unreached(&self, epoch: Epoch, server: &Server) -> Option<&UnreachedRow> {
        self.tables.unreached.get(&(epoch, server.clone()))
    }

    fn live_epochs(&self, now: Ms) -> impl Iterator<Item = Epoch> {
        let now = self.now(now);
        let rows = self.tables.epochs.iter();
        rows.filter(move |(_, row)| row.live && row.lease_until > now)
            .map(|(epoch, _)| *epoch)
    }

    /// Returns the living daemons that a document is closed to.
    fn closed_to(&self, doc: &str, now: Ms) -> BTreeSet<Epoch> {
        let server = server_of(doc);
        let has_alternative = self
            .live_epochs(now)
            .any(|epoch| !self.is_unreached(epoch, &server, now));
        if !has_alternative && !self.mistakes.closes_to_all {
            return BTreeSet::new();
        }
        let avoids = |epoch: &Epoch| {
            let row = self.unreached(*epoch, &server);
            row.is_some_and(|row| row.avoided_from <= self.now(now) && row.until > self.now(now))
        };
        self.live_epochs(now).filter(avoids).collect()
    }

    fn standing(&self, doc: &str, epoch: Epoch, now: Ms) -> Standing {
        let closed_to = self.closed_to(doc, now);
        if closed_to.contains(&epoch) {
            return Standing::Avoided(server_of(doc));
        }
        match closed_to.is_empty() {
            true => Standing::Shared,
            false => Standing::Extra,
        }
    }

    /// Records a renewal's reports on servers.
    fn note_reach(&mut self, epoch: Epoch, reach: Reach, now: Ms) {
        let now = self.now(now);
        for server in reach.unreached {
            let new = UnreachedRow {
                avoided_from: now + ms(SETTLE),
                until: now + ms(AVOID_FOR),
                span: ms(AVOID_FOR),
            };
            let row = self.tables.unreached.entry((epoch, server)).or_insert(new);
            if row.until <= now || row.avoided_from == Ms::MAX {
                let is_soon = now < row.until + row.span;
                let span = if is_soon { row.span * 2 } else { ms(AVOID_FOR) };
                (row.span, row.avoided_from) = (span.min(ms(AVOID_MAX)), now + ms(SETTLE));
            }
            row.until = now + row.span;
        }
        for server in reach.back {
            if let Some(row) = self.tables.unreached.get_mut(&(epoch, server)) {
                let until = row.until.min(now + ms(SETTLE));
                (row.avoided_from, row.until) = (Ms::MAX, until);
            }
        }
    }

    pub(super) fn wanted(&self) -> usize {
        self.tables.docs.values().filter(|row| row.wanted).count()
    }

    fn counts(&self, now: Ms) -> Counts {
        Counts {
            wanted: self.wanted(),
            live: self.live(now).len(),
        }
    }

    fn is_free(&self, row: &DocRow, now: Ms) -> bool {
        let is_held = |(epoch, _)| self.lease_holds(epoch, now) && !self.mistakes.ignores_leases;
        row.wanted && !row.owner.is_some_and(is_held)
    }

    /// Carries out a transaction. `random` yields an epoch, and the order of claimed documents.
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    pub(super) fn carry_out(
        &mut self,
        daemon: usize,
        ask: Ask,
        now: Ms,
        random: &mut TestRandom,
    ) -> Option<Answer> {
        let lease_until = self.now(now) + ms(LEASE);
        let event = match ask {
            Ask::Outcome { doc, owner } => {
                let row = self.tables.docs.get_mut(&doc)?;
                if row.owner == Some(owner) {
                    row.wanted = false;
                }
                return Some(Answer::Outcome {
                    doc,
                    claim: owner.1,
                });
            }
            Ask::Core(OwnerAction::TakeEpoch { request, former }) => {
                former.map(|former| self.tables.epochs.remove(&former));
                let latest = self
                    .tables
                    .epochs
                    .keys()
                    .next_back()
                    .map_or(0, |last| last.0);
                let epoch = Epoch(match self.mistakes.counts_epochs {
                    true => latest + 1,
                    false => random.below(usize::MAX) as u64,
                });
                self.has_repeated |= !self.epochs.insert(epoch);
                let row = EpochRow {
                    daemon,
                    lease_until,
                    live: false,
                };
                self.tables.epochs.insert(epoch, row);
                Event::EpochTaken {
                    request,
                    epoch,
                    counts: self.counts(now),
                }
            }
            Ask::Core(OwnerAction::Renew {
                request,
                epoch,
                leaving,
                reach,
            }) => {
                let holds = self.lease_holds(epoch, now);
                let row = self.tables.epochs.get_mut(&epoch).filter(|_| holds);
                let Some(row) = row else {
                    return Some(Answer::Core(Event::NotRenewed { request }));
                };
                row.lease_until = lease_until;
                row.live &= !leaving;
                self.note_reach(epoch, reach, now);
                let docs = self.listed(epoch, now);
                let avoided = docs
                    .iter()
                    .filter(|row| matches!(row.standing, Standing::Avoided(_)));
                let avoided = avoided.map(|row| (row.doc.clone(), daemon, epoch, row.claim));
                self.given_up.extend(avoided);
                Event::Renewed {
                    request,
                    docs,
                    counts: self.counts(now),
                }
            }
            Ask::Core(OwnerAction::Claim {
                request,
                epoch,
                most,
            }) => {
                let (docs, extra) = self.claim(epoch, request, most, now, random);
                let counts = self.counts(now);
                let claimed = Claimed {
                    docs,
                    extra,
                    counts,
                };
                Event::Claimed { request, claimed }
            }
            Ask::Core(OwnerAction::Release {
                request,
                epoch,
                docs,
            }) => {
                for (doc, claim) in docs {
                    let row = self.tables.docs.get_mut(&doc);
                    let any = self.mistakes.releases_any_claim;
                    let is_it =
                        |owner: &mut (Epoch, Claim)| owner.0 == epoch && (any || owner.1 == claim);
                    row.and_then(|row| row.owner.take_if(is_it));
                }
                Event::Released { request }
            }
            Ask::Core(OwnerAction::Depart { epoch }) => {
                epoch.map(|epoch| self.tables.epochs.remove(&epoch));
                return None;
            }
            Ask::Core(other) => unreachable!("{other:?} is no request"),
        };
        Some(Answer::Core(event))
    }

    fn listed(&self, epoch: Epoch, now: Ms) -> Vec<ListedDoc> {
        let of_it = |(doc, row): (&DocId, &DocRow)| {
            let (owner, claim) = row.owner?;
            (owner == epoch).then(|| ListedDoc {
                doc: doc.clone(),
                claim,
                wanted: row.wanted,
                standing: self.standing(doc, epoch, now),
            })
        };
        self.tables.docs.iter().filter_map(of_it).collect()
    }

    fn claim(
        &mut self,
        epoch: Epoch,
        request: Request,
        most: usize,
        now: Ms,
        random: &mut TestRandom,
    ) -> (Vec<DocId>, Vec<DocId>) {
        if !self.lease_holds(epoch, now) {
            return Default::default();
        }
        let row = self.tables.epochs.get_mut(&epoch);
        row.expect("its lease holds").live = true;
        let (mut free, mut extra, mut room) = (Vec::new(), Vec::new(), BTreeMap::new());
        let live = self.live_epochs(now).count();
        for (doc, row) in self.tables.docs.iter().filter(|(_, row)| row.wanted) {
            let closed_to = match self.mistakes.claims_closed_documents {
                true => BTreeSet::new(),
                false => self.closed_to(doc, now),
            };
            let is_free = self.is_free(row, now);
            if closed_to.is_empty() {
                free.extend(is_free.then(|| doc.clone()));
            } else if !closed_to.contains(&epoch) {
                let open_to = live - closed_to.len();
                let (_, all, own) = room.entry(closed_to.clone()).or_insert((open_to, 0, 0));
                *all += 1;
                *own += usize::from(row.owner.is_some_and(|(owner, _)| owner == epoch));
                extra.extend(is_free.then(|| (doc.clone(), closed_to)));
            }
        }
        let mut claimed = Vec::new();
        while claimed.len() < most && !free.is_empty() {
            claimed.push(free.swap_remove(random.below(free.len())));
        }
        let mut extra_claimed = Vec::new();
        while !extra.is_empty() {
            let (doc, closed_to) = extra.swap_remove(random.below(extra.len()));
            let (open_to, all, own): &mut (usize, usize, usize) =
                room.get_mut(&closed_to).expect("it was counted");
            if *own < all.div_ceil(*open_to) {
                *own += 1;
                extra_claimed.push(doc);
            }
        }
        for doc in claimed.iter().chain(&extra_claimed) {
            let row = self.tables.docs.get_mut(doc).expect("it is free");
            row.owner = Some((epoch, request));
        }
        (claimed, extra_claimed)
    }
}
