//! Jobs of replications: selections, orders and results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::operator::with_query;

/// What can be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Stop it until it is resumed.
    Pause,
    /// Let it run.
    Resume,
    /// Restart it and forget its failures.
    Restart,
    /// Give it this priority: the higher, the sooner its turn.
    Priority(i8),
}

/// Some of the jobs: those that fit every member that is there. In patterns `*` stands for any text and `?` for one
/// character.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobSelection {
    /// The document or the id fits one of these patterns.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// It is in one of these states: `running`, `pending`, `crashing`, `paused`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// The source's URL, as it is shown, fits this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The target's URL, as it is shown, fits this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The reason fits this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The address of the daemon that has it fits this pattern. Where there is only one daemon nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// Every job. Orders take a selection without any other member only with this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl JobSelection {
    /// Returns whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The order of a list of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobsSort {
    /// That of their ids.
    #[default]
    Id,
    /// Crashing ones first, those that have been longest first; then paused, pending and running ones.
    Trouble,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsQuery {
    /// Which ones.
    pub select: JobSelection,
    /// In which order.
    pub sort: JobsSort,
    /// Counts them by reason instead.
    pub groups: bool,
    /// How many to skip.
    pub skip: usize,
    /// How many at most.
    pub limit: usize,
}

impl JobsQuery {
    /// Returns where the list is: in `_scheduler/jobs`, an object with `total_rows`, `offset` and `jobs`, and `states` where
    /// there is a selection or an order; or with `groups`, each a [`JobGroup`]. `loading` is true while the service still
    /// reads its documents after a start: then some are missing.
    pub fn path(&self) -> String {
        let Self { select, sort, .. } = self;
        let mut query = vec![
            ("skip", self.skip.to_string()),
            ("limit", self.limit.to_string()),
        ];
        query.extend(
            select
                .patterns
                .iter()
                .map(|pattern| ("match", pattern.clone())),
        );
        if !select.states.is_empty() {
            query.push(("states", select.states.join(",")));
        }
        let texts = [
            ("source", &select.source),
            ("target", &select.target),
            ("reason", &select.reason),
            ("daemon", &select.daemon),
        ];
        query.extend(
            texts
                .into_iter()
                .filter_map(|(name, text)| Some((name, text.clone()?))),
        );
        if *sort == JobsSort::Trouble {
            query.push(("sort", "trouble".to_owned()));
        }
        if self.groups {
            query.push(("group_by", "reason".to_owned()));
        }
        with_query("/_scheduler/jobs", query)
    }
}

/// What many jobs can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkOrderName {
    /// Restart them and forget their failures.
    Restart,
    /// Stop them until they are resumed.
    Pause,
    /// Let them run.
    Resume,
    /// Give them another priority.
    Priority,
    /// End transient jobs.
    Cancel,
    /// Delete their documents, and so end them.
    Delete,
}

/// An order for many jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkOrder {
    /// What they are to do.
    pub order: BulkOrderName,
    /// Their priority, with [`BulkOrderName::Priority`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// Which jobs.
    pub select: JobSelection,
    /// Whether only to tell which jobs they are.
    #[serde(default)]
    pub dry_run: bool,
    /// The most jobs that it may touch: if more are selected, nothing is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<usize>,
}

/// The result of an order for many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkAnswer {
    /// How many jobs were selected.
    pub total: usize,
    /// How many of them did it, or were passed to another daemon; none with `dry_run`.
    pub done: usize,
    /// How many of these were passed to another daemon.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub told: usize,
    /// How many of them did not.
    pub failed: usize,
    /// Whether the service had not read all its documents since its start, although the order waited for them: it did not
    /// reach the jobs of the others. Give it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loading: bool,
    /// How many documents that were, as far as it is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: usize,
    /// Names without `*` and `?` in the selection that are no job's.
    pub missing: Vec<String>,
    /// The selected jobs, counted by reason; the largest groups first.
    pub groups: Vec<JobGroup>,
    /// The result of each job, failures first.
    pub results: Vec<JobResult>,
    /// How many results there was no room for.
    pub results_left_out: usize,
}

/// Jobs with the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGroup {
    /// Why they do not run; none for jobs that run.
    pub reason: Option<String>,
    /// How many there are.
    pub count: usize,
    /// State -> how many of them are in it.
    pub states: BTreeMap<String, usize>,
    /// One of their documents, or the id of a transient one.
    pub example: String,
}

/// The result of an order for one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The job's id.
    pub id: String,
    /// Its document.
    pub document: Option<String>,
    /// Whether it was done, or passed to another daemon.
    pub ok: bool,
    /// The address of the daemon that it was passed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    /// Why not, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Why not, or not at once, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

const fn is_zero(count: &usize) -> bool {
    *count == 0
}
