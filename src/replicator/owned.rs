//! Which documents this daemon owns, and when nothing is left of one, as a pure table.
//!
//! SUMMARY   [`OwnedDocs`] knows of each document under which lease it is owned, which of its versions was seen
//!           last, and how much is under way for it: orders to the scheduler, outcomes that are written.
//! PROMISES  What belongs to an earlier claim of a document changes nothing of a later one.
//! CALLED    By the ReplicatorDocuments actor, where the store is shared.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::lease::DocLease;
use policy::ownership::{Claim, DocId};

#[derive(Debug)]
struct OwnedDoc {
    lease: Arc<DocLease>,
    /// The sequence number of the version that was seen last; none until one was.
    seen: Option<u64>,
    /// What has to end before the document can be given back.
    under_way: usize,
    is_stopping: bool,
}

/// Something that is under way for a document, of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimWork {
    pub doc: DocId,
    pub claim: Claim,
}

/// The documents that are owned, or were and something of them is left.
#[derive(Debug, Default)]
pub(crate) struct OwnedDocs(FxHashMap<DocId, OwnedDoc>);

impl OwnedDocs {
    /// A document is owned from now on. Nothing of it has been seen.
    pub fn claimed(&mut self, doc: DocId, lease: Arc<DocLease>) {
        let owned = OwnedDoc {
            lease,
            seen: None,
            under_way: 0,
            is_stopping: false,
        };
        self.0.insert(doc, owned);
    }

    /// A document is not owned any more. Returns whether it was, by this claim.
    pub fn lost(&mut self, doc: &str, claim: Claim) -> bool {
        let is_it = self.of_claim(doc, claim).is_some();
        if is_it {
            self.0.remove(doc);
        }
        is_it
    }

    /// A document is to be given back. Returns whether its job is to stop.
    pub fn give_back(&mut self, doc: &str, claim: Claim) -> bool {
        let Some(owned) = self.of_claim(doc, claim) else {
            return false;
        };
        !std::mem::replace(&mut owned.is_stopping, true)
    }

    /// A version of a document was read. Returns whether to act upon it: the document is owned, and no later
    /// version was seen.
    pub fn see(&mut self, doc: &str, seq: u64) -> bool {
        let owned = self.0.get_mut(doc).filter(|owned| !owned.is_stopping);
        let Some(owned) = owned.filter(|owned| owned.seen.is_none_or(|seen| seen < seq)) else {
            return false;
        };
        owned.seen = Some(seq);
        true
    }

    /// Every document will be read again.
    pub fn forget_seen(&mut self) {
        self.0.values_mut().for_each(|owned| owned.seen = None);
    }

    /// Returns the lease of a document that may be acted upon.
    pub fn lease(&self, doc: &str) -> Option<&Arc<DocLease>> {
        let owned = self.0.get(doc).filter(|owned| !owned.is_stopping);
        owned.map(|owned| &owned.lease)
    }

    /// Whether a document is owned by a claim, stopping or not.
    pub fn has(&self, doc: &str, claim: Claim) -> bool {
        let owned = self.0.get(doc);
        owned.is_some_and(|owned| owned.lease.claim() == claim)
    }

    /// Begins something that has to end before a document is given back; none if it is not owned.
    pub fn begin(&mut self, doc: &str) -> Option<ClaimWork> {
        let (doc, _) = self.0.get_key_value(doc)?;
        let doc = Arc::clone(doc);
        let owned = self.0.get_mut(&doc)?;
        owned.under_way += 1;
        let claim = owned.lease.claim();
        Some(ClaimWork { doc, claim })
    }

    /// It has ended.
    pub fn end(&mut self, work: &ClaimWork) {
        if let Some(owned) = self.of_claim(&work.doc, work.claim) {
            owned.under_way -= 1;
        }
    }

    /// Forgets a document of which nothing is left. Returns by which claim it was owned; none while something is.
    /// A document that has no row asks for nothing, or has its outcome.
    pub fn settle(&mut self, doc: &str, has_row: bool) -> Option<ClaimWork> {
        let owned = self.0.get(doc)?;
        let is_over = owned.is_stopping || owned.seen.is_some();
        if has_row || owned.under_way > 0 || !is_over {
            return None;
        }
        let (doc, owned) = self.0.remove_entry(doc)?;
        let claim = owned.lease.claim();
        Some(ClaimWork { doc, claim })
    }

    /// Returns all of them.
    pub fn all(&self) -> Vec<ClaimWork> {
        let all = self.0.iter().map(|(doc, owned)| ClaimWork {
            doc: Arc::clone(doc),
            claim: owned.lease.claim(),
        });
        all.collect()
    }

    fn of_claim(&mut self, doc: &str, claim: Claim) -> Option<&mut OwnedDoc> {
        let owned = self.0.get_mut(doc)?;
        Some(owned).filter(|owned| owned.lease.claim() == claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otp::boot_clock::BootClock;
    use crate::replicator::lease::EpochLease;
    use policy::ownership::{Epoch, Request};

    fn owned() -> OwnedDocs {
        let mut docs = OwnedDocs::default();
        claim(&mut docs, 1);
        docs
    }

    fn claim(docs: &mut OwnedDocs, number: u64) {
        let lease = EpochLease::new(Epoch(1), BootClock::default());
        docs.claimed("d".into(), DocLease::new(lease.into(), Request(number)));
    }

    fn work(number: u64) -> ClaimWork {
        ClaimWork {
            doc: "d".into(),
            claim: Request(number),
        }
    }

    #[test]
    fn only_owned_documents_are_acted_upon_and_no_version_after_a_later_one() {
        let mut docs = owned();
        assert!(!docs.see("other", 9));
        assert!(
            docs.see("d", 5),
            "an update that came before the claim was read"
        );
        assert!(!docs.see("d", 5) && !docs.see("d", 4));
        assert!(docs.see("d", 6));
        docs.forget_seen();
        assert!(docs.see("d", 6), "the scheduler has begun anew");
        assert!(docs.give_back("d", Request(1)));
        assert!(!docs.see("d", 7) && docs.lease("d").is_none());
    }

    #[test]
    fn a_document_is_given_back_when_nothing_is_under_way_for_it() {
        let mut docs = owned();
        assert_eq!(docs.settle("d", false), None, "it was not read yet");
        assert!(docs.see("d", 1));
        assert_eq!(docs.settle("d", true), None, "its job is there");
        let writing = docs.begin("d").unwrap();
        assert_eq!(
            docs.settle("d", false),
            None,
            "its outcome is being written"
        );
        docs.end(&writing);
        assert_eq!(docs.settle("d", false), Some(work(1)));
        assert_eq!(docs.settle("d", false), None, "once");
    }

    #[test]
    fn a_document_that_was_not_read_yet_is_given_back_at_once() {
        let mut docs = owned();
        assert!(docs.give_back("d", Request(1)) && !docs.give_back("d", Request(1)));
        assert_eq!(docs.settle("d", false), Some(work(1)));
    }

    #[test]
    fn news_of_an_earlier_claim_mean_nothing_to_a_later_one() {
        let mut docs = owned();
        let before = docs.begin("d").unwrap();
        assert!(docs.lost("d", Request(1)) && !docs.lost("d", Request(1)));
        claim(&mut docs, 2);
        let now = docs.begin("d").unwrap();
        assert!(!docs.lost("d", Request(1)) && !docs.give_back("d", Request(1)));
        assert!(!docs.has("d", Request(1)) && docs.has("d", Request(2)));
        docs.end(&before);
        assert!(docs.give_back("d", Request(2)));
        assert_eq!(
            docs.settle("d", false),
            None,
            "the later one's is under way"
        );
        docs.end(&now);
        assert_eq!(docs.settle("d", false), Some(work(2)));
        assert!(docs.all().is_empty());
    }
}
