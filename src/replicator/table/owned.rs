//! Which documents this daemon owns, and when one can be released.
//!
//! SUMMARY   For each owned document the table has its lease, the latest version seen, and its pending work: orders
//!           to the scheduler, outcomes being written.
//! PROMISES  The work of an earlier claim of a document never affects a later one. The lease of an ended claim is
//!           never valid.
//! CALLED    By the ReplicatorDocuments actor, if the store is shared.

use std::sync::Arc;

use super::{DocTable, Known};
use crate::replicator::lease::DocLease;
use policy::ownership::{Claim, DocId};

#[derive(Debug)]
pub(super) struct OwnedDoc {
    lease: Arc<DocLease>,
    /// The sequence number of the latest version seen, if any.
    seen: Option<u64>,
    /// The number of pieces of work that must end before the document can be released.
    under_way: usize,
    is_stopping: bool,
}

/// However a claim ends, no write of a checkpoint or an outcome begins under it afterwards.
impl Drop for OwnedDoc {
    fn drop(&mut self) {
        self.lease.lose();
    }
}

/// Pending work for a document, under one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimWork {
    pub doc: DocId,
    pub claim: Claim,
}

impl Known {
    fn owned_by(&mut self, claim: Claim) -> Option<&mut OwnedDoc> {
        self.owned
            .as_deref_mut()
            .filter(|owned| owned.lease.claim == claim)
    }
}

impl DocTable {
    /// A document is owned from now on. None of its versions has been seen.
    pub fn claimed(&mut self, doc: &str, lease: Arc<DocLease>) {
        let owned = OwnedDoc {
            lease,
            seen: None,
            under_way: 0,
            is_stopping: false,
        };
        self.change(doc, |known| known.owned = Some(Box::new(owned)));
    }

    /// Ends a claim of a document. Returns whether the document was owned under it.
    pub fn lost(&mut self, doc: &str, claim: Claim) -> bool {
        self.change(doc, |known| {
            let is_it = known.owned_by(claim).is_some();
            known.owned.take_if(|_| is_it).is_some()
        })
    }

    /// Begins to release a document. Returns whether its job must stop.
    pub fn give_back(&mut self, doc: &str, claim: Claim) -> bool {
        let known = self.known.get_mut(doc);
        let owned = known.and_then(|known| known.owned_by(claim));
        owned.is_some_and(|owned| !std::mem::replace(&mut owned.is_stopping, true))
    }

    /// A version of a document was read. Returns whether to act on it: the document is owned and not stopping, and
    /// neither this version nor a later one was seen before.
    pub fn see(&mut self, doc: &str, seq: u64) -> bool {
        let known = self.known.get_mut(doc);
        let owned = known.and_then(|known| known.owned.as_deref_mut());
        let owned = owned.filter(|owned| !owned.is_stopping);
        let Some(owned) = owned.filter(|owned| owned.seen.is_none_or(|seen| seen < seq)) else {
            return false;
        };
        owned.seen = Some(seq);
        true
    }

    /// The next version of each document is acted on, whatever its number.
    pub(super) fn forget_seen(&mut self) {
        let known = self.known.values_mut();
        for owned in known.filter_map(|known| known.owned.as_deref_mut()) {
            owned.seen = None;
        }
    }

    /// Returns the lease of a document that this daemon may act on.
    pub fn lease(&self, doc: &str) -> Option<Arc<DocLease>> {
        let owned = self.owned(doc).filter(|owned| !owned.is_stopping);
        owned.map(|owned| Arc::clone(&owned.lease))
    }

    /// Returns whether a document is owned under this claim, stopping or not.
    pub fn has(&self, doc: &str, claim: Claim) -> bool {
        self.owned(doc)
            .is_some_and(|owned| owned.lease.claim == claim)
    }

    /// Begins work that must end before a document is released; `None` if it is not owned.
    pub fn begin(&mut self, doc: &str) -> Option<ClaimWork> {
        let (name, _) = self.known.get_key_value(doc)?;
        let name = Arc::clone(name);
        let owned = self.known.get_mut(doc)?.owned.as_deref_mut()?;
        owned.under_way += 1;
        Some(ClaimWork {
            doc: name,
            claim: owned.lease.claim,
        })
    }

    /// Ends work that [`Self::begin`] began.
    pub fn end(&mut self, work: &ClaimWork) {
        let known = self.known.get_mut(&work.doc);
        if let Some(owned) = known.and_then(|known| known.owned_by(work.claim)) {
            owned.under_way -= 1;
        }
    }

    /// Releases a document that is stopping or was read, and has neither a row nor pending work: it requests nothing,
    /// or has its outcome. Returns its claim; `None` if it is not released.
    pub fn settle(&mut self, doc: &str) -> Option<ClaimWork> {
        let (name, known) = self.known.get_key_value(doc)?;
        let owned = known.owned.as_ref()?;
        let is_over = owned.is_stopping || owned.seen.is_some();
        if known.row.is_some() || owned.under_way > 0 || !is_over {
            return None;
        }
        let (doc, claim) = (Arc::clone(name), owned.lease.claim);
        self.change(&doc, |known| known.owned = None);
        Some(ClaimWork { doc, claim })
    }

    /// Returns all owned documents.
    pub fn all_owned(&self) -> Vec<ClaimWork> {
        self.known
            .iter()
            .filter_map(|(doc, known)| {
                Some(ClaimWork {
                    doc: Arc::clone(doc),
                    claim: known.owned.as_ref()?.lease.claim,
                })
            })
            .collect()
    }

    fn owned(&self, doc: &str) -> Option<&OwnedDoc> {
        self.known.get(doc)?.owned.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::otp::BootClock;
    use crate::replicator::lease::EpochLease;
    use crate::replicator::table::RowState;
    use policy::ownership::{Epoch, Request};

    fn owned_doc() -> DocTable {
        let mut docs = DocTable::default();
        claim(&mut docs, 1);
        docs
    }

    fn claim(docs: &mut DocTable, number: u64) {
        let lease = EpochLease::new(Epoch(1), BootClock::default());
        docs.claimed("d", DocLease::new(lease.into(), Request(number), false));
    }

    fn work(number: u64) -> ClaimWork {
        ClaimWork {
            doc: "d".into(),
            claim: Request(number),
        }
    }

    #[test]
    fn only_newer_versions_of_owned_documents_are_acted_upon() {
        let mut docs = owned_doc();
        assert!(!docs.see("other", 9));
        assert!(docs.see("d", 5), "the first version read after the claim");
        assert!(!docs.see("d", 5) && !docs.see("d", 4));
        assert!(docs.see("d", 6));
        docs.forget_jobs();
        assert!(docs.see("d", 6), "the scheduler has restarted");
        assert!(docs.give_back("d", Request(1)));
        assert!(!docs.see("d", 7) && docs.lease("d").is_none());
    }

    #[test]
    fn a_document_is_released_when_no_work_for_it_is_left() {
        let mut docs = owned_doc();
        assert_eq!(docs.settle("d"), None, "it was not read yet");
        assert!(docs.see("d", 1));
        docs.set_row("d", Some(RowState::Scheduled));
        assert_eq!(docs.settle("d"), None, "it has a job");
        docs.set_row("d", None);
        let writing = docs.begin("d").unwrap();
        assert_eq!(docs.settle("d"), None, "its outcome is being written");
        docs.end(&writing);
        assert_eq!(docs.settle("d"), Some(work(1)));
        assert_eq!(docs.settle("d"), None, "once");
    }

    #[test]
    fn a_lease_holds_until_its_claim_ends_in_any_way() {
        let ends: [fn(&mut DocTable); 5] = [
            |docs| {
                docs.lost("d", Request(1));
            },
            |docs| {
                docs.give_back("d", Request(1));
                docs.settle("d");
            },
            |docs| claim(docs, 2),
            DocTable::forget_rows,
            |docs| drop(std::mem::take(docs)),
        ];
        for end in ends {
            let mut docs = DocTable::default();
            let clock = BootClock::default();
            let epoch = Arc::new(EpochLease::new(Epoch(1), clock.clone()));
            epoch.set_until(clock.now() + Duration::from_secs(3600));
            let lease = DocLease::new(epoch, Request(1), false);
            docs.claimed("d", Arc::clone(&lease));
            docs.lost("d", Request(7));
            assert!(lease.holds());
            end(&mut docs);
            assert!(!lease.holds());
        }
    }

    #[test]
    fn an_unread_document_is_released_at_once() {
        let mut docs = owned_doc();
        assert!(docs.give_back("d", Request(1)) && !docs.give_back("d", Request(1)));
        assert_eq!(docs.settle("d"), Some(work(1)));
    }

    #[test]
    fn reports_of_an_earlier_claim_do_not_affect_a_later_one() {
        let mut docs = owned_doc();
        let before = docs.begin("d").unwrap();
        assert!(docs.lost("d", Request(1)) && !docs.lost("d", Request(1)));
        claim(&mut docs, 2);
        let now = docs.begin("d").unwrap();
        assert!(!docs.lost("d", Request(1)) && !docs.give_back("d", Request(1)));
        assert!(!docs.has("d", Request(1)) && docs.has("d", Request(2)));
        docs.end(&before);
        assert!(docs.give_back("d", Request(2)));
        assert_eq!(docs.settle("d"), None, "work of the later claim is pending");
        docs.end(&now);
        assert_eq!(docs.settle("d"), Some(work(2)));
        assert!(docs.all_owned().is_empty() && docs.known.is_empty());
    }
}
