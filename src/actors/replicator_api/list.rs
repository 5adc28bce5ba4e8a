//! Lists of jobs: selected, sorted, or counted by reason.
//!
//! SUMMARY   [`ReplicatorApi::each_selected`] walks over the jobs, for lists and orders.
//! PROMISES  A user who may not see all jobs sees their own.
//! LIMITS    The scheduler is queried for [`JOBS_MAX`] jobs at a time. Until it reads its page, a list holds only the
//!           id and the sort key of each of this daemon's jobs.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use settee_client::{JobsQuery, JobsSort};

use super::{Job, OtherJob, ReplicatorApi, ReplicatorError, ReplicatorResult};
use crate::messages::replication_scheduler::{GetJobs, GetJobsById, JOBS_MAX};
use crate::replicator::document::members;
use crate::replicator::selection::{Groups, JobFacts, Selection, Trouble};
use crate::replicator::status::JobBody;
use replication::id::ReplicationId;

/// The owner of the jobs to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// All users'.
    All,
    /// A user's: of documents owned by the user, and transient ones requested by the user.
    Of(String),
}

/// A row of a list.
enum Found {
    Job(ReplicationId),
    /// A job of another daemon.
    Other(OtherJob),
    /// A document without a job.
    Doc(Value),
}

impl Found {
    /// Returns the id of a job.
    fn id(&self) -> String {
        match self {
            Self::Job(id) => id.to_string(),
            Self::Other(other) => other.job().map(|job| job.id.clone()).unwrap_or_default(),
            Self::Doc(_) => String::new(),
        }
    }
}

impl ReplicatorApi {
    /// Returns jobs as in `_scheduler/jobs`, or their number by reason.
    ///
    /// # Errors
    /// The selection is invalid, the store fails, or the service is shutting down.
    pub async fn list(&self, query: &JobsQuery, whose: &Whose) -> ReplicatorResult<Value> {
        let mut selection = Selection::new(&query.select).map_err(ReplicatorError::Selection)?;
        let (skip, limit) = (query.skip, query.limit);
        // Checked before reading: a list that is complete now is complete after the read.
        let is_loading = self.is_loading();
        let is_plain = query.sort == JobsSort::Id && !query.groups && selection.is_of_states();
        let fleet = self.fresh_fleet().await;
        if is_plain && *whose == Whose::All && fleet.is_none_or(|fleet| fleet.others().is_empty()) {
            let (total, jobs) = self.some_jobs(selection.states(), skip, limit).await?;
            let jobs: Vec<Value> = jobs.iter().map(|info| self.shown(info)).collect();
            return Ok(self.with_notes(
                json!({"total_rows": total, "offset": skip.min(total), "jobs": jobs}),
                is_loading,
            ));
        }
        let (mut groups, mut found) = (Groups::default(), Vec::new());
        let is_sorted = query.sort == JobsSort::Trouble;
        self.each_selected(&mut selection, whose, |job, facts| {
            groups.add(facts);
            if !query.groups {
                let (since, one) = match job {
                    Job::Own(info) => (info.shown.since, Found::Job(info.id)),
                    Job::Other(other) => (
                        other.job().map(JobBody::since).unwrap_or_default(),
                        Found::Other(other),
                    ),
                };
                found.push((is_sorted.then(|| Trouble::of(facts, since)), one));
            }
        })
        .await?;
        if fleet.is_some() && !is_sorted {
            found.sort_by_cached_key(|(_, one)| one.id());
        }
        self.each_settled(&mut selection, whose, |doc, facts, since| {
            groups.add(facts);
            if !query.groups {
                let place = is_sorted.then(|| Trouble::of(facts, since));
                found.push((place, Found::Doc(doc.clone())));
            }
        })
        .await?;
        let (total, states) = (groups.total, json!(groups.states));
        if query.groups {
            let groups = groups.into_groups();
            return Ok(self.with_notes(
                json!({"total_rows": total, "states": states, "groups": groups}),
                is_loading,
            ));
        }
        // Without a sort order, this keeps the order of ids.
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let page = found.into_iter().skip(skip).take(limit);
        let jobs = self.rows(page.map(|(_, one)| one).collect()).await?;
        let offset = skip.min(total);
        let mut list = json!({"total_rows": total, "offset": offset, "jobs": jobs});
        if !is_plain {
            list["states"] = states;
        }
        Ok(self.with_notes(list, is_loading))
    }

    /// Adds whether the list is incomplete, and in a fleet the age of other daemons' reports.
    fn with_notes(&self, mut list: Value, is_loading: bool) -> Value {
        if is_loading {
            list["loading"] = true.into();
        }
        if let Some(fleet) = self.fleet() {
            list["age_s"] = fleet.age_s().into();
        }
        list
    }

    /// Returns jobs and documents as users see them; omits jobs that have ended since.
    async fn rows(&self, found: Vec<Found>) -> ReplicatorResult<Vec<Value>> {
        let mut rows = Vec::new();
        for part in found.chunks(JOBS_MAX) {
            let ids = part
                .iter()
                .filter_map(|one| match one {
                    Found::Job(id) => Some(id.clone()),
                    Found::Other(_) | Found::Doc(_) => None,
                })
                .collect();
            let mut infos = self.scheduler(GetJobsById { ids }).await?.into_iter();
            rows.extend(part.iter().filter_map(|one| match one {
                Found::Job(_) => infos.next().flatten().map(|info| self.shown(&info)),
                Found::Other(other) => other.shown_job(),
                Found::Doc(doc) => Some(doc.clone()),
            }));
        }
        Ok(rows)
    }

    /// Visits each selected job: those of this daemon in the order of their ids, then others'.
    ///
    /// # Errors
    /// The store fails, or the service is shutting down.
    pub(super) async fn each_selected(
        &self,
        selection: &mut Selection,
        whose: &Whose,
        mut each: impl FnMut(Job, &JobFacts<'_>),
    ) -> ReplicatorResult<()> {
        let daemon = self.fleet().map(|fleet| Arc::clone(fleet.address()));
        let mut after = None;
        loop {
            let order = GetJobs {
                after,
                skip: 0,
                limit: JOBS_MAX,
                states: selection.states(),
            };
            let page = self.scheduler(order).await?.jobs;
            after = page.last().map(|job| job.id.to_string());
            if after.is_none() {
                break;
            }
            let page = page.into_iter().map(|info| Job::Own(Box::new(info)));
            for job in self.of(page.collect(), whose).await? {
                if let Job::Own(info) = &job {
                    info.facts(daemon.as_deref(), |facts| {
                        if selection.fits(facts) {
                            each(job.clone(), facts);
                        }
                    });
                }
            }
        }
        let Some(fleet) = self.fleet() else {
            return Ok(());
        };
        let states = selection.states();
        let others: Vec<Job> = fleet
            .others()
            .into_iter()
            .filter(|other| {
                let listed = other.job().and_then(JobBody::listed);
                listed.is_some_and(|it| states.contains(&it))
            })
            .map(Job::Other)
            .collect();
        for part in others.chunks(JOBS_MAX) {
            for job in self.of(part.to_vec(), whose).await? {
                let Job::Other(other) = &job else { continue };
                let facts = other.status.facts(&other.daemon, other.lost.as_deref());
                if let Some(facts) = facts.filter(|facts| selection.fits(facts)) {
                    each(job.clone(), &facts);
                }
            }
        }
        Ok(())
    }

    /// Returns the jobs that the user may see.
    async fn of(&self, jobs: Vec<Job>, whose: &Whose) -> ReplicatorResult<Vec<Job>> {
        let Whose::Of(user) = whose else {
            return Ok(jobs);
        };
        let ids = jobs
            .iter()
            .filter_map(Job::doc)
            .map(str::to_owned)
            .collect();
        let owners: HashMap<String, Option<String>> = self
            .database()
            .store
            .documents(ids)
            .await?
            .into_iter()
            .flatten()
            .map(|document| (document.id.clone(), members(&document).text("owner")))
            .collect();
        let own = jobs.into_iter().filter(|job| match job.doc() {
            Some(doc) => owners.get(doc).is_some_and(|o| o.as_deref() == Some(user)),
            None => job.user() == Some(user),
        });
        Ok(own.collect())
    }

    /// Returns a job by its or its document's name, if the user may see it.
    ///
    /// # Errors
    /// There is none, the store fails, or the service is shutting down.
    pub(super) async fn find(&self, name: &str, whose: &Whose) -> ReplicatorResult<Job> {
        let job = match self.info(name).await {
            Ok(info) => Job::Own(Box::new(info)),
            Err(ReplicatorError::Missing) => {
                let fleet = self.fresh_fleet().await;
                let other = fleet.and_then(|fleet| fleet.other_job(name));
                Job::Other(other.ok_or(ReplicatorError::Missing)?)
            }
            Err(error) => return Err(error),
        };
        self.of(vec![job], whose)
            .await?
            .pop()
            .ok_or(ReplicatorError::Missing)
    }
}

impl Job {
    pub(super) fn doc(&self) -> Option<&str> {
        match self {
            Self::Own(info) => Some(&info.replication.doc.as_ref()?.id),
            Self::Other(other) => other.status.doc(),
        }
    }

    /// Returns the user who requested a job without a document.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::Own(info) => info.replication.user.name.as_deref(),
            Self::Other(other) => other.job()?.user.as_deref(),
        }
    }
}
