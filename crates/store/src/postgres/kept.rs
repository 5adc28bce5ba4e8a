//! Pauses and priorities acknowledged by this daemon, which a failover of the database may lose.
//!
//! SUMMARY   [`Acknowledged`] remembers them; [`keep_again`] rewrites those of which the database has an older value.
//! PROMISES  The latest value set by any daemon wins: times are the database's.
//! CALLED    After a failover, before an owner reads the rows of jobs, and before an export.
//! LIMITS    Only the latest [`ACKNOWLEDGED_MAX`] are remembered.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Mutex;

use slog::warn;

use super::shared::{Param, Shared};
use crate::error::StoreResult;
use crate::lock;
use crate::observer::DatabaseRequest;

/// Maximum remembered writes.
const ACKNOWLEDGED_MAX: usize = 10_000;

const KEEP_AGAIN: &str = "WITH held AS MATERIALIZED (SELECT a.* \
     FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS a (doc_id, kept, kept_at) ORDER BY doc_id COLLATE \"C\") a \
     CROSS JOIN LATERAL (SELECT FROM settee.jobs WHERE doc_id = a.doc_id AND coalesce(kept_at, 0) < a.kept_at FOR UPDATE) j) \
     UPDATE settee.jobs j SET kept = h.kept, kept_at = h.kept_at FROM held h WHERE j.doc_id = h.doc_id RETURNING j.doc_id";

/// A committed write for a document's job.
pub(super) struct Kept {
    pub doc: String,
    pub value: Option<String>,
    /// In microseconds since 1970, by the database's clock.
    pub at: i64,
}

/// The latest writes, oldest first.
#[derive(Default)]
pub(super) struct Acknowledged(Mutex<VecDeque<Kept>>);

impl Acknowledged {
    pub fn note(&self, kept: Vec<Kept>) {
        let mut known = lock(&self.0);
        known.extend(kept);
        let surplus = known.len().saturating_sub(ACKNOWLEDGED_MAX);
        drop(known.drain(..surplus));
    }

    /// Returns the last write of each of these documents, or of all.
    fn last_of_each(&self, docs: Option<&[String]>) -> BTreeMap<String, (Option<String>, i64)> {
        let known = lock(&self.0);
        let docs: Option<HashSet<&String>> = docs.map(|docs| docs.iter().collect());
        let asked = |kept: &&Kept| docs.as_ref().is_none_or(|docs| docs.contains(&kept.doc));
        known
            .iter()
            .filter(asked)
            .map(|kept| (kept.doc.clone(), (kept.value.clone(), kept.at)))
            .collect()
    }
}

/// Rewrites what the database has lost for these documents, or for all.
pub(super) async fn keep_again(shared: &Shared, docs: Option<&[String]>) -> StoreResult<()> {
    let (ids, kept): (Vec<_>, Vec<_>) = shared.acknowledged.last_of_each(docs).into_iter().unzip();
    if ids.is_empty() {
        return Ok(());
    }
    let (values, times) = kept.into_iter().unzip();
    let params = [
        Param::Texts(ids),
        Param::OptionalTexts(values),
        Param::Integers(times),
    ];
    let rows = shared
        .rows(DatabaseRequest::Write, KEEP_AGAIN, &params)
        .await?;
    if !rows.is_empty() {
        warn!(shared.log, "pauses and priorities that the database has lost are written again"; "count" => rows.len(),
              "effect" => "what this service acknowledged is in effect again",
              "remedy" => "have the primary wait for its standby");
    }
    Ok(())
}
