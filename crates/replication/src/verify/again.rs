//! Rechecks revisions missing at the target, before they are reported.
//!
//! SUMMARY   A replication that is still running delivers some of them meanwhile, and writes at the source replace
//!           others. Revisions that are missing after [`LOOKS_MAX`] checks and are still leaves of the source are
//!           reported.

use std::time::Duration;

use tokio::time::sleep;

use super::reading::{by_id, chunks};
use super::{Comparison, Difference, Leaf, Step, leaves};
use crate::crash::Crash;
use crate::worker::missing::revs_diff;

/// Number of checks.
const LOOKS_MAX: u32 = 4;

/// Time before the second check; doubled for each later one.
const PAUSE: Duration = Duration::from_millis(500);

impl Comparison {
    /// Rechecks revisions until they are present, or the maximum is reached. Returns those still missing as
    /// differences.
    pub(super) async fn look_again(&self, suspects: Vec<Leaf>) -> Result<Step, Crash> {
        let mut step = Step::default();
        let mut open = by_id(&suspects);
        for look in 0..LOOKS_MAX {
            if open.is_empty() {
                return Ok(step);
            }
            if look > 0 {
                sleep(PAUSE * (1 << (look - 1))).await;
            }
            let mut missing = Vec::new();
            for chunk in chunks(open) {
                missing.extend(revs_diff(&self.target.database, chunk).await?.0);
            }
            open = missing;
        }
        for chunk in chunks(open) {
            let there = self.source.read(chunk.clone(), false).await?;
            for leaf in chunk.into_iter().flat_map(leaves) {
                match there.get(&leaf) {
                    Some(seen) if seen.rev == leaf.rev => {
                        step.differences.push(self.missing(leaf));
                    }
                    // Replaced or purged since: the replication need not deliver it.
                    _ => step.counts.changed += 1,
                }
            }
        }
        Ok(step)
    }

    fn missing(&self, leaf: Leaf) -> Difference {
        let known = |rev| self.refused.get(&(leaf.id.clone(), rev));
        match known(Some(leaf.rev.clone())).or_else(|| known(None)) {
            Some(doc) => Difference::Refused(doc.clone()),
            None => Difference::Missing(leaf),
        }
    }
}
