//! Cases for a store whose daemons share the replications.
//!
//! SUMMARY   A case takes a place; some also take a function that ends the lease of the epoch with a given number.

mod claims;
mod faults;
mod model;
mod orders;
mod reach;
mod reports;
mod settings;
mod statuses;

pub use claims::*;
pub use faults::*;
pub use model::*;
pub use orders::*;
pub use reach::*;
pub use reports::*;
pub use settings::*;
pub use statuses::*;

use std::sync::Arc;

use super::{PATIENCE, TestPlace, edit, one};
use crate::Store;
use crate::document_store::Watcher;
use crate::fleet::{DaemonName, FleetStore};
use crate::revision::Revision;
use policy::counted::Class;
use policy::ownership::{Counts, DocId, Epoch, LEASE, Reach, Request};

/// The body of a document that requests a replication.
const ASKS: &str = "{}";
/// The body of one that does not.
const DONE: &str = "{\"done\":1}";

/// Documents request replications until they are [`DONE`].
#[derive(Debug)]
struct Asking;

impl Watcher for Asking {
    fn class(&self, _: &str, body: &str) -> Class {
        Class::from(body == DONE)
    }

    fn opened(&self, _: Vec<(String, Class)>) {}

    fn written(&self, _: Vec<(String, Option<Class>)>) {}
}

fn fleet_of(place: &TestPlace) -> (Store, Arc<dyn FleetStore>) {
    let store = place.watched(Arc::new(Asking));
    let fleet = store.fleet().unwrap();
    (store, fleet)
}

fn name(address: &str) -> DaemonName {
    DaemonName {
        address: address.into(),
        version: "1".into(),
    }
}

/// Takes an epoch; returns it and the counts.
async fn enter(fleet: &dyn FleetStore, epoch: u64) -> (Epoch, Counts) {
    let epoch = Epoch(epoch);
    let counts = fleet.take_epoch(name("host:1"), epoch, Vec::new()).await;
    (epoch, counts.unwrap())
}

async fn claim(fleet: &dyn FleetStore, epoch: Epoch, claim: u64, max: usize) -> Vec<DocId> {
    let claimed = fleet.claim(epoch, Request(claim), max).await.unwrap();
    assert_eq!(claimed.extra, []);
    let mut docs = claimed.docs;
    docs.sort();
    docs
}

/// Writes documents with these ids that request replications.
async fn ask(store: &Store, ids: &[&str]) -> Vec<Revision> {
    let edits = ids.iter().map(|id| edit(id, None, ASKS)).collect();
    let written = store.edit(edits).await.unwrap();
    written.into_iter().map(Result::unwrap).collect()
}

fn counts(wanted: usize, live: usize) -> Counts {
    Counts { wanted, live }
}

fn ids(ids: &[&str]) -> Vec<DocId> {
    ids.iter().map(|id| DocId::from(*id)).collect()
}
