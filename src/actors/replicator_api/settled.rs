//! Documents that have no job but appear in lists of jobs: completed, failed, or not yet able to start.
//!
//! LIMITS    All documents in the requested states are read, [`super::BATCH`] at a time.

use serde_json::Value;

use super::list::Whose;
use super::orders::{Ordered, Outcome};
use super::{ReplicatorApi, ReplicatorError, ReplicatorResult};
use crate::replicator::selection::{JobFacts, Selection};
use crate::replicator::state::listed_reason;
use crate::replicator::wish::afresh;
use crate::replicator::{DocState, Page};
use policy::schedule::WallTime;
use store::Document;

impl ReplicatorApi {
    /// Calls `each` for the selected documents, in the order of ids: with the document as in `_scheduler/docs` plus the
    /// further members of a job, with its facts, and with the time of its state.
    ///
    /// # Errors
    /// The store fails, or the service is shutting down.
    pub(super) async fn each_settled(
        &self,
        selection: &mut Selection,
        whose: &Whose,
        mut each: impl FnMut(&Value, &JobFacts<'_>, WallTime),
    ) -> ReplicatorResult<()> {
        // A store not needed so far has no documents, and is not created for a list.
        if selection.doc_states.is_empty() || self.existing_store().is_none() {
            return Ok(());
        }
        let (_, _, docs) = self.docs(Page::default(), &selection.doc_states).await?;
        for doc in docs {
            let mut doc: Value = serde_json::from_str(doc.get()).unwrap_or_default();
            let id = doc["doc_id"].as_str().unwrap_or_default().to_owned();
            if let Whose::Of(user) = whose
                && self.database().owner(&id).await?.as_ref() != Some(user)
            {
                continue;
            }
            let words = doc["reason"].as_str().map(str::to_owned);
            let reason = words.or_else(|| doc["info"]["error"].as_str().map(listed_reason));
            let text = |name: &str| doc[name].as_str().unwrap_or_default().to_owned();
            let (source, target) = (text("source"), text("target"));
            let state = doc["state"].as_str().and_then(DocState::of_name);
            let since = text("last_updated");
            doc["document"] = id.as_str().into();
            doc["since"] = since.as_str().into();
            doc["reason"] = reason.clone().into();
            let facts = JobFacts {
                id: doc["id"].as_str().unwrap_or_default(),
                doc: Some(&id),
                state: state.unwrap_or(DocState::Initializing),
                source: &source,
                target: &target,
                reason: reason.as_deref(),
                daemon: doc["daemon"].as_str(),
            };
            if selection.fits(&facts) {
                each(&doc, &facts, WallTime::parse(&since).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Makes a document's replication run again, by removing its outcome.
    ///
    /// # Errors
    /// The document is gone, or the store fails.
    pub(super) async fn run_again(&self, doc: &str) -> Outcome {
        let change = |document: &Document| Some(afresh(document));
        self.database()
            .store
            .change(None, doc, Box::new(change))
            .await?
            .map(|_| Ordered::Done)
            .ok_or(ReplicatorError::Missing)
    }
}
