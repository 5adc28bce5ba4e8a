//! Looks again for revisions that the target missed, before they are reported.
//!
//! SUMMARY   A replication that is still running brings some of them meanwhile, and writes at the source replace
//!           others. What is left after [`LOOKS_MAX`] looks, and still is a leaf of the source, is missing.

use std::time::Duration;

use tokio::time::sleep;

use super::reading::chunks;
use super::{Comparison, Difference, Leaf, Step, leaves};
use crate::crash::Crash;
use crate::worker::missing::{Wanted, revs_diff};

/// How often missing revisions are searched for again.
const LOOKS_MAX: u32 = 4;

/// The time before the second look; each later one is twice as long after the one before.
const PAUSE: Duration = Duration::from_millis(500);

impl Comparison {
    /// Looks for revisions until they are there, or were looked for often enough.
    pub(super) async fn look_again(&self, suspects: Vec<Leaf>) -> Result<Step, Crash> {
        let mut step = Step::default();
        let mut open = wanted(suspects);
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
                    // Replaced or purged since: the replication need not bring it.
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
            None => Difference::Missing { leaf },
        }
    }
}

fn wanted(suspects: Vec<Leaf>) -> Vec<Wanted> {
    let one = |leaf: Leaf| Wanted {
        id: leaf.id,
        revs: vec![leaf.rev],
        ancestors: Vec::new(),
    };
    let mut wanted: Vec<Wanted> = Vec::with_capacity(suspects.len());
    for leaf in suspects {
        // Leaves of a document come one behind the other.
        match wanted.last_mut().filter(|last| last.id == leaf.id) {
            Some(last) => last.revs.push(leaf.rev),
            None => wanted.push(one(leaf)),
        }
    }
    wanted
}
