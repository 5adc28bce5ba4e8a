//! Lists of jobs: which are selected, in which order, and how many have the same reason.
//!
//! SUMMARY   [`ReplicatorApi::each_selected`] walks over the jobs; lists and orders are made of it.
//! PROMISES  Who may not see all jobs sees their own.
//! LIMITS    The scheduler is asked for [`JOBS_MAX`] jobs at a time. Of all others than those that are shown, a list
//!           keeps a name and a time.

use std::collections::HashMap;

use serde_json::{Value, json};
use settee_client::{JobsQuery, JobsSort};

use super::{ReplicatorApi, ReplicatorError, view};
use crate::messages::replication_scheduler::{GetJobs, GetJobsById, JOBS_MAX, JobInfo};
use crate::replicator::document::members;
use crate::replicator::selection::{Groups, JobFacts, Selection, Trouble};
use replication::id::ReplicationId;

/// Whose jobs are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Everybody's.
    All,
    /// Those of a user: of documents that the user owns, and those that the user asked for without one.
    Of(String),
}

/// A row of a list.
enum Found {
    Job(ReplicationId),
    /// A document without a job.
    Doc(Value),
}

impl ReplicatorApi {
    /// Returns jobs as `_scheduler/jobs` does, or how many have the same reason.
    ///
    /// # Errors
    /// The selection is wrong, the store fails, or the service ends.
    pub async fn list(&self, query: &JobsQuery, whose: &Whose) -> Result<Value, ReplicatorError> {
        let mut selection = Selection::new(&query.select).map_err(ReplicatorError::Selection)?;
        let (skip, limit) = (query.skip, query.limit);
        let is_plain = query.sort == JobsSort::Id && !query.groups && selection.is_of_states();
        if is_plain && *whose == Whose::All {
            let (total, jobs) = self.some_jobs(selection.states(), skip, limit).await?;
            let jobs: Vec<Value> = jobs.iter().map(view::job).collect();
            return Ok(json!({"total_rows": total, "offset": skip.min(total), "jobs": jobs}));
        }
        let (mut groups, mut found) = (Groups::default(), Vec::new());
        let is_sorted = query.sort == JobsSort::Trouble;
        let each = |info: &JobInfo, facts: &JobFacts<'_>| {
            groups.add(facts);
            if !query.groups {
                let place = is_sorted.then(|| Trouble::of(facts, info.since));
                found.push((place, Found::Job(info.id.clone())));
            }
        };
        self.each_selected(&mut selection, whose, each).await?;
        let each = |doc: &Value, facts: &JobFacts<'_>, since| {
            groups.add(facts);
            if !query.groups {
                let place = is_sorted.then(|| Trouble::of(facts, since));
                found.push((place, Found::Doc(doc.clone())));
            }
        };
        self.each_settled(&mut selection, whose, each).await?;
        let (total, states) = (groups.total(), json!(groups.states()));
        if query.groups {
            let groups = groups.into_groups();
            return Ok(json!({"total_rows": total, "states": states, "groups": groups}));
        }
        // Without places that is the order of their ids, in which they came.
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let page = found.into_iter().skip(skip).take(limit);
        let jobs = self.rows(page.map(|(_, one)| one).collect()).await?;
        let offset = skip.min(total);
        let mut list = json!({"total_rows": total, "offset": offset, "jobs": jobs});
        if !is_plain {
            list["states"] = states;
        }
        Ok(list)
    }

    /// Returns jobs and documents as users see them; jobs that are gone by now are left out.
    async fn rows(&self, found: Vec<Found>) -> Result<Vec<Value>, ReplicatorError> {
        let mut rows = Vec::new();
        for part in found.chunks(JOBS_MAX) {
            let ids = part.iter().filter_map(|one| match one {
                Found::Job(id) => Some(id.clone()),
                Found::Doc(_) => None,
            });
            let ids = ids.collect();
            let mut infos = self.scheduler(GetJobsById { ids }).await?.into_iter();
            rows.extend(part.iter().filter_map(|one| match one {
                Found::Job(_) => infos.next().flatten().map(|info| view::job(&info)),
                Found::Doc(doc) => Some(doc.clone()),
            }));
        }
        Ok(rows)
    }

    /// Looks at each job that is selected, in the order of their ids.
    ///
    /// # Errors
    /// The store fails, or the service ends.
    pub(super) async fn each_selected(
        &self,
        selection: &mut Selection,
        whose: &Whose,
        mut each: impl FnMut(&JobInfo, &JobFacts<'_>),
    ) -> Result<(), ReplicatorError> {
        let mut after = None;
        loop {
            let order = GetJobs {
                after,
                skip: 0,
                limit: JOBS_MAX,
                states: selection.states(),
            };
            let mut page = self.scheduler(order).await?.jobs;
            after = page.last().map(|job| job.id.to_string());
            if after.is_none() {
                return Ok(());
            }
            if let Whose::Of(user) = whose {
                page = self.own(page, user).await?;
            }
            for info in &page {
                info.facts(|facts| {
                    if selection.fits(facts) {
                        each(info, facts);
                    }
                });
            }
        }
    }

    /// Returns those of some jobs that are a user's.
    async fn own(&self, jobs: Vec<JobInfo>, user: &str) -> Result<Vec<JobInfo>, ReplicatorError> {
        let doc = |job: &JobInfo| job.replication.doc.as_ref().map(|doc| doc.id.clone());
        let ids = jobs.iter().filter_map(doc).collect();
        let documents = self.database().store().documents(ids).await?;
        let owners: HashMap<String, Option<String>> = documents
            .into_iter()
            .flatten()
            .map(|document| (document.id.clone(), members(&document).text("owner")))
            .collect();
        let is_own = |job: &JobInfo| match doc(job) {
            Some(doc) => owners.get(&doc).is_some_and(|o| o.as_deref() == Some(user)),
            None => job.replication.user.name.as_deref() == Some(user),
        };
        Ok(jobs.into_iter().filter(is_own).collect())
    }

    /// Returns the id of a job of its own name or of its document's, for a user who may see it.
    ///
    /// # Errors
    /// There is none, the store fails, or the service ends.
    pub(crate) async fn find(&self, name: &str, whose: &Whose) -> Result<JobInfo, ReplicatorError> {
        let info = self.info(name).await?;
        let found = match whose {
            Whose::All => Some(info),
            Whose::Of(user) => self.own(vec![info], user).await?.pop(),
        };
        found.ok_or(ReplicatorError::Missing)
    }
}
