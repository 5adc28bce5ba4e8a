//! The shared database, simulated: atomic transactions, a clock of its own, failovers that lose commits.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

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

/// What is committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    epochs: BTreeMap<Epoch, EpochRow>,
    pub(super) docs: BTreeMap<DocId, DocRow>,
}

/// Mistakes that a database, or who asks it, could make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mistakes {
    /// A release ends whatever claim of the epoch there is.
    pub(super) releases_any_claim: bool,
    /// Epochs are counted by the database.
    pub(super) counts_epochs: bool,
    /// Documents are claimed whoever's lease they are under.
    pub(super) ignores_leases: bool,
}

/// What is asked of the database.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Core(OwnerAction),
    /// A document asks for nothing any more.
    Outcome {
        doc: DocId,
        owner: (Epoch, Claim),
    },
}

/// What it answers.
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
    /// It answers nothing before.
    pub(super) down_until: Ms,
    /// Counts failovers: connections end with each.
    pub(super) generation: u64,
    pub(super) mistakes: Mistakes,
    /// Every epoch there ever was.
    pub(super) epochs: BTreeSet<Epoch>,
    /// Whether an epoch was taken twice.
    pub(super) has_repeated: bool,
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

    /// Carries a transaction out. `random` gives an epoch, and the order in which documents are claimed.
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
            }) => {
                let holds = self.lease_holds(epoch, now);
                let row = self.tables.epochs.get_mut(&epoch).filter(|_| holds);
                let Some(row) = row else {
                    return Some(Answer::Core(Event::NotRenewed { request }));
                };
                row.lease_until = lease_until;
                row.live &= !leaving;
                Event::Renewed {
                    request,
                    docs: self.listed(epoch),
                    counts: self.counts(now),
                }
            }
            Ask::Core(OwnerAction::Claim {
                request,
                epoch,
                most,
            }) => {
                let docs = self.claim(epoch, request, most, now, random);
                Event::Claimed {
                    request,
                    docs,
                    counts: self.counts(now),
                }
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

    fn listed(&self, epoch: Epoch) -> Vec<ListedDoc> {
        let of_it = |(doc, row): (&DocId, &DocRow)| {
            let (owner, claim) = row.owner?;
            (owner == epoch).then(|| ListedDoc {
                doc: doc.clone(),
                claim,
                wanted: row.wanted,
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
    ) -> Vec<DocId> {
        if !self.lease_holds(epoch, now) {
            return Vec::new();
        }
        let row = self.tables.epochs.get_mut(&epoch);
        row.expect("its lease holds").live = true;
        let free = self
            .tables
            .docs
            .iter()
            .filter(|(_, row)| self.is_free(row, now));
        let mut free: Vec<DocId> = free.map(|(doc, _)| doc.clone()).collect();
        let mut claimed = Vec::new();
        while claimed.len() < most && !free.is_empty() {
            let doc = free.swap_remove(random.below(free.len()));
            let row = self.tables.docs.get_mut(&doc).expect("it is free");
            row.owner = Some((epoch, request));
            claimed.push(doc);
        }
        claimed
    }
}
