//! Random requests, answered as a model of the tables answers them.
//!
//! SOURCE    The simulated database of policy::ownership's tests.

use std::collections::BTreeMap;

use super::*;
use policy::ownership::{Claim, Claimed, ListedDoc, Standing};
use test_support::TestRandom;

const DOCUMENTS: usize = 12;
const EPOCHS: usize = 4;

#[derive(Clone, Debug, Default)]
struct Row {
    wanted: bool,
    owner: Option<(Epoch, Claim)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    holds: bool,
    has_claimed: bool,
    is_leaving: bool,
}

#[derive(Debug, Default)]
struct Model {
    epochs: BTreeMap<Epoch, Lease>,
    docs: BTreeMap<DocId, Row>,
}

impl Model {
    fn holds(&self, epoch: Epoch) -> bool {
        self.epochs.get(&epoch).is_some_and(|lease| lease.holds)
    }

    fn counts(&self) -> Counts {
        let live = |lease: &&Lease| lease.holds && lease.has_claimed && !lease.is_leaving;
        Counts {
            wanted: self.docs.values().filter(|row| row.wanted).count(),
            live: self.epochs.values().filter(live).count(),
        }
    }

    fn is_free(&self, row: &Row) -> bool {
        row.wanted && !row.owner.is_some_and(|(epoch, _)| self.holds(epoch))
    }

    fn free(&self) -> Vec<DocId> {
        let free = self.docs.iter().filter(|(_, row)| self.is_free(row));
        free.map(|(id, _)| id.clone()).collect()
    }

    fn listed(&self, epoch: Epoch) -> Vec<ListedDoc> {
        let of_it = |(doc, row): (&DocId, &Row)| {
            let (_, claim) = row.owner.filter(|(owner, _)| *owner == epoch)?;
            Some(ListedDoc {
                doc: doc.clone(),
                claim,
                wanted: row.wanted,
                standing: Standing::Shared,
            })
        };
        self.docs.iter().filter_map(of_it).collect()
    }
}

/// Random requests about leases are answered as by the model of the database.
#[expect(
    clippy::too_many_lines,
    reason = "one arm for each request, with the model's answer"
)]
pub async fn random_requests_about_leases_match_a_model(
    place: &TestPlace,
    steps: usize,
    end_lease: impl Fn(u64),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let mut random = TestRandom::for_test("random_requests_about_leases_match_a_model");
    let (mut model, mut revisions) = (Model::default(), BTreeMap::new());
    let (mut epochs, mut last) = (Vec::new(), 0);
    for step in 0..steps {
        last += 1;
        let any = |random: &mut TestRandom, epochs: &[Epoch]| match epochs {
            [] => Epoch(1 << 63),
            epochs => epochs[random.below(epochs.len())],
        };
        let epoch = any(&mut random, &epochs);
        match random.below(12) {
            0..3 => {
                let id = format!("d{}", random.below(DOCUMENTS));
                let wanted = random.below(4) > 0;
                let body = if wanted { ASKS } else { DONE };
                let known = revisions.remove(&id);
                let revision = one(&store, edit(&id, known, body)).await.unwrap();
                revisions.insert(id.clone(), revision);
                model.docs.entry(id.into()).or_default().wanted = wanted;
            }
            3 => {
                let new = Epoch(last << 40);
                let former = (epochs.len() >= EPOCHS).then_some(epoch);
                let former: Vec<Epoch> = former.into_iter().collect();
                model.epochs.retain(|known, _| !former.contains(known));
                let taken = fleet.take_epoch(name("h"), new, former.clone()).await;
                let taken = taken.unwrap();
                let has_some = |epoch| {
                    let mut rows = model.docs.values();
                    rows.any(|row| row.owner.is_some_and(|(owner, _)| owner == epoch))
                };
                let over = model.epochs.iter().filter(|(_, lease)| !lease.holds);
                let over: Vec<Epoch> = over.map(|(epoch, _)| *epoch).collect();
                let gone: Vec<Epoch> = over.into_iter().filter(|one| !has_some(*one)).collect();
                model.epochs.retain(|known, _| !gone.contains(known));
                let lease = Lease {
                    holds: true,
                    has_claimed: false,
                    is_leaving: false,
                };
                model.epochs.insert(new, lease);
                epochs.retain(|known| !former.contains(known));
                epochs.push(new);
                assert_eq!(taken, model.counts(), "step {step}");
            }
            4..6 => {
                let leaving = random.below(8) == 0;
                let renewed = fleet.renew(epoch, leaving, Reach::default()).await.unwrap();
                let holds = model.holds(epoch);
                let expected = model.epochs.get_mut(&epoch).filter(|_| holds);
                let is_held = expected.map(|lease| lease.is_leaving |= leaving);
                let renewed = renewed.map(|(mut docs, counts)| {
                    docs.sort_by(|one, other| one.doc.cmp(&other.doc));
                    (docs, counts)
                });
                let expected = is_held.map(|()| (model.listed(epoch), model.counts()));
                assert_eq!(renewed, expected, "step {step}");
            }
            6..9 => {
                let max = random.below(5);
                let answer = fleet.claim(epoch, Request(last), max).await;
                let Claimed { docs, counts, .. } = answer.unwrap();
                let free = if model.holds(epoch) {
                    model.free()
                } else {
                    Vec::new()
                };
                assert_eq!(docs.len(), free.len().min(max), "step {step}");
                assert!(docs.iter().all(|doc| free.contains(doc)), "step {step}");
                for doc in docs {
                    model.docs.entry(doc).or_default().owner = Some((epoch, Request(last)));
                }
                let holds = model.holds(epoch);
                if let Some(lease) = model.epochs.get_mut(&epoch).filter(|_| holds) {
                    lease.has_claimed = true;
                }
                assert_eq!(counts, model.counts(), "step {step}");
            }
            9..11 => {
                let listed = model.listed(epoch).into_iter();
                let docs = listed.map(|listed| {
                    let is_late = random.below(4) == 0;
                    (listed.doc, Request(listed.claim.0 - u64::from(is_late)))
                });
                let docs: Vec<_> = docs.collect();
                fleet.release(epoch, docs.clone()).await.unwrap();
                for (doc, claim) in docs {
                    let row = model.docs.entry(doc).or_default();
                    row.owner.take_if(|owner| *owner == (epoch, claim));
                }
            }
            _ if random.below(3) == 0 => {
                fleet.depart(epoch).await.unwrap();
                model.epochs.remove(&epoch);
            }
            // Before the first request to the store there is no table of leases.
            _ if epochs.is_empty() => {}
            _ => {
                end_lease(epoch.0);
                if let Some(lease) = model.epochs.get_mut(&epoch) {
                    lease.holds = false;
                }
            }
        }
    }
    let known = fleet.daemons().await.unwrap();
    let mut known: Vec<Epoch> = known.into_iter().map(|(daemon, _)| daemon.epoch).collect();
    known.sort();
    assert_eq!(known, model.epochs.keys().copied().collect::<Vec<_>>());
}
