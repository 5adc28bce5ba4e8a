//! Replication jobs: selections, orders and results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::operator::with_query;

/// An order for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Stop it until it is resumed.
    Pause,
    /// Let it run.
    Resume,
    /// Restart it and clear its failures.
    Restart,
    /// Set its priority: jobs with higher ones run first.
    Priority(i8),
}

/// A selection of jobs: those that match every given member. In patterns `*` matches any text and `?` one character.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobSelection {
    /// The id of the document or the job matches one of these patterns.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// The job is in one of these states: `running`, `pending`, `crashing`, `paused`; or its document without a job is
    /// `initializing`, `error`, `completed` or `failed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// The source's shown URL matches this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The target's shown URL matches this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The reason matches this pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The address of its daemon matches this pattern. With a single daemon nothing matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// Every job. Orders require this for a selection without any other member.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl JobSelection {
    /// Returns whether no member is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a list of jobs is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobsSort {
    /// By id.
    #[default]
    Id,
    /// Crashing jobs first, then those in error, failed, paused, pending, running, initializing and completed ones;
    /// within a state, those longest in it first.
    Trouble,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsQuery {
    /// The selected jobs.
    pub select: JobSelection,
    /// How the jobs are sorted.
    pub sort: JobsSort,
    /// Whether to count them by reason instead.
    pub groups: bool,
    /// Number of jobs to skip.
    pub skip: usize,
    /// Maximum number of jobs.
    pub limit: usize,
}

impl JobsQuery {
    /// Returns the list's path. The answer is an object with `total_rows`, `offset`, `jobs`, and `states` unless the
    /// query only selects states of jobs; with [`Self::groups`], an object with `total_rows`, `states` and `groups`,
    /// each a [`JobGroup`]. While `loading` is true, the service is still reading its documents after a start, and some
    /// jobs are missing.
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

/// The kind of an order for many jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkOrderName {
    /// Restart them and clear their failures.
    Restart,
    /// Stop them until they are resumed.
    Pause,
    /// Let them run.
    Resume,
    /// Set their priority.
    Priority,
    /// End transient jobs.
    Cancel,
    /// Delete their documents, which ends them.
    Delete,
}

/// An order for many jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkOrder {
    /// The order.
    pub order: BulkOrderName,
    /// Their priority, with [`BulkOrderName::Priority`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// The selected jobs.
    pub select: JobSelection,
    /// Whether only to report the affected jobs.
    #[serde(default)]
    pub dry_run: bool,
    /// Maximum affected jobs: if more are selected, nothing is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<usize>,
}

/// The result of an order for many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkAnswer {
    /// Number of selected jobs.
    pub total: usize,
    /// Number of jobs for which the order was carried out, or passed to another daemon; 0 with `dry_run`.
    pub done: usize,
    /// Number of jobs whose order was passed to another daemon.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub told: usize,
    /// Number of jobs for which the order failed.
    pub failed: usize,
    /// Whether the service was still reading its documents after a start, although the order waited: jobs of unread
    /// documents were not reached. Repeat the order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loading: bool,
    /// Number of unread documents, as far as known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: usize,
    /// Names without `*` and `?` in the selection that match no job.
    pub missing: Vec<String>,
    /// The selected jobs, counted by reason, largest group first.
    pub groups: Vec<JobGroup>,
    /// The result of each job, failures first.
    pub results: Vec<JobResult>,
    /// Number of results omitted for lack of space.
    pub results_left_out: usize,
}

/// Jobs with the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGroup {
    /// Why they do not run; `None` for running jobs.
    pub reason: Option<String>,
    /// Their number.
    pub count: usize,
    /// State -> number of jobs.
    pub states: BTreeMap<String, usize>,
    /// The document of one of them, or the id of a transient one.
    pub example: String,
}

/// The result of an order for one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The job's id.
    pub id: String,
    /// Its document.
    pub document: Option<String>,
    /// Whether the order was carried out, or passed to another daemon.
    pub ok: bool,
    /// The address of the daemon that it was passed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    /// Why it failed, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Why it failed or is delayed, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

pub(super) fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}
