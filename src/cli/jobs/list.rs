//! `settee jobs list`: jobs, those in trouble first, or their number by reason.

use serde_json::{Value, json};
use settee_client::{JobGroup, JobSelection, JobsQuery, JobsSort};

use super::super::exit::{CliError, CliResult, Exit};
use super::super::output;
use super::super::service_socket::Service;
use super::super::status_table::{OLD_S, joined};
use super::super::table::{
    Cell, Layout, columns, count, duration, number, or_dash, spaced, state, text,
};
use super::super::terminal::TableArgs;
use super::super::watch::WatchArgs;
use super::shown;
use crate::otp::system_time;
use crate::replicator::DocState;
use policy::schedule::WallTime;

/// Default number of listed jobs.
const LIMIT: usize = 1000;

/// Jobs fetched at a time.
const PAGE: usize = 500;

/// Maximum length of a transient job's source, and of its target, in the table, in characters.
const SIDE_MAX: usize = 32;

/// Which jobs.
#[derive(clap::Args)]
pub(super) struct SelectArgs {
    /// Only jobs whose document or id matches: * is any text, ? one character.
    #[arg(long = "match", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Only jobs in these states, with commas between them: running, pending, crashing, paused; for lists, restart and
    /// delete also documents without a job: initializing (not processed yet), error (cannot start yet), failed (for
    /// good), completed.
    #[arg(long, value_delimiter = ',', value_parser = known_state)]
    states: Vec<String>,
    /// Only jobs whose source matches, a URL without credentials: 'http://db7.example:5984/*'.
    #[arg(long, value_name = "PATTERN")]
    source: Option<String>,
    /// Only jobs whose target matches.
    #[arg(long, value_name = "PATTERN")]
    target: Option<String>,
    /// Only jobs whose reason matches: 'name not found: *'.
    #[arg(long, value_name = "PATTERN")]
    reason: Option<String>,
    /// Only jobs of daemons of a fleet whose address matches: 'db7.example:*'.
    #[arg(long, value_name = "PATTERN")]
    daemon: Option<String>,
}

impl SelectArgs {
    /// Returns the selection with additional names.
    pub(super) fn selection(&self, names: &[String]) -> JobSelection {
        JobSelection {
            patterns: [names, &self.patterns].concat(),
            states: self.states.clone(),
            source: self.source.clone(),
            target: self.target.clone(),
            reason: self.reason.clone(),
            daemon: self.daemon.clone(),
            all: false,
        }
    }
}

#[derive(clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// Count jobs by reason instead of listing them.
    #[arg(long, value_name = "WHAT", value_parser = ["reason"])]
    group_by: Option<String>,
    /// Show ids of all jobs, not only of transient ones.
    #[arg(long)]
    ids: bool,
    /// Maximum number of jobs.
    #[arg(long, default_value_t = LIMIT)]
    limit: usize,
    /// Repeat every second until interrupted. On a terminal, the top of the table stays on the screen.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    table: TableArgs,
}

fn known_state(text: &str) -> Result<String, String> {
    let word = text.trim().to_ascii_lowercase();
    match DocState::of_name(&word) {
        Some(_) => Ok(word),
        None => Err(format!("a state is one of {}", DocState::names())),
    }
}

/// Prints the list, once or repeatedly.
pub(super) async fn list(service: &Service, args: &ListArgs, json: bool) -> CliResult {
    WatchArgs {
        json,
        watch: args.watch,
        table: args.table.clone(),
    }
    .show(async || page(service, args, json).await)
    .await
}

/// All states, in the order of the summary.
const STATES: [DocState; 8] = [
    DocState::Running,
    DocState::Pending,
    DocState::Crashing,
    DocState::Error,
    DocState::Paused,
    DocState::Initializing,
    DocState::Failed,
    DocState::Completed,
];

pub(super) fn any_state() -> Vec<String> {
    STATES.map(|state| state.name().to_owned()).to_vec()
}

/// Returns the states listed by default: all but completed, which is the last.
pub(super) fn usual() -> Vec<String> {
    let mut states = any_state();
    states.pop();
    states
}

async fn page(service: &Service, args: &ListArgs, json: bool) -> CliResult<String> {
    let mut query = JobsQuery {
        select: args.select.selection(&[]),
        sort: JobsSort::Trouble,
        groups: args.group_by.is_some(),
        ..JobsQuery::default()
    };
    if query.select.states.is_empty() {
        query.select.states = usual();
    }
    let is_grouped = query.groups;
    let (rows, last) = fetch(service, query, args.limit).await?;
    Ok(match (json, is_grouped) {
        (true, _) => rows.iter().map(|line| format!("{line}\n")).collect(),
        (false, true) => {
            let groups: Vec<JobGroup> = rows
                .into_iter()
                .filter_map(|group| serde_json::from_value(group).ok())
                .collect();
            self::groups(&groups, args.table.layout()) + &summary(&last, None)
        }
        (false, false) => {
            let table = table(&rows, args.ids, system_time(), args.table.layout());
            table + &summary(&last, Some(rows.len()))
        }
    })
}

/// Counts jobs by state, including documents that failed permanently, cannot start yet or are not processed, but not
/// completed ones; `None` if there are none.
///
/// # Errors
/// The service does not answer.
pub(crate) async fn counted(service: &Service) -> CliResult<Option<String>> {
    let counts = counts(service).await?;
    Ok((counts["total_rows"] != 0).then(|| summary(&counts, None)))
}

/// Returns the counts of jobs and documents that are not completed: `total_rows` and `states`.
///
/// # Errors
/// The service does not answer.
pub(crate) async fn counts(service: &Service) -> CliResult<Value> {
    let query = JobsQuery {
        select: JobSelection {
            states: usual(),
            ..JobSelection::default()
        },
        limit: 0,
        ..JobsQuery::default()
    };
    let answer: Value = service.get(&query.path()).await?;
    Ok(json!({"total_rows": answer["total_rows"], "states": answer["states"]}))
}

/// Fetches at most `max` jobs, or all groups, of a query. Returns them, and the last answer without them; it is
/// `loading` if any answer was.
///
/// # Errors
/// The service does not answer.
pub(super) async fn fetch(
    service: &Service,
    mut query: JobsQuery,
    max: usize,
) -> CliResult<(Vec<Value>, Value)> {
    let member = if query.groups { "groups" } else { "jobs" };
    let mut rows = Vec::new();
    let mut is_loading = false;
    loop {
        query.skip = rows.len();
        query.limit = (max - rows.len()).min(PAGE);
        let mut answer: Value = service.get(&query.path()).await?;
        is_loading |= answer["loading"] == true;
        let page: Vec<Value> = serde_json::from_value(answer[member].take()).unwrap_or_default();
        let is_last = query.groups || page.is_empty();
        rows.extend(page);
        if is_last || rows.len() >= max {
            if is_loading {
                answer["loading"] = true.into();
            }
            return Ok((rows, answer));
        }
    }
}

/// Returns the query for jobs of a name or a pattern, in these states.
pub(super) fn named(name: &str, states: Vec<String>) -> JobsQuery {
    let select = JobSelection {
        patterns: vec![name.to_owned()],
        states,
        ..JobSelection::default()
    };
    JobsQuery {
        select,
        ..JobsQuery::default()
    }
}

/// Returns jobs and ended replications that match a name or a pattern.
///
/// # Errors
/// The service does not answer.
pub(super) async fn of_any_state(service: &Service, name: &str) -> CliResult<Vec<Value>> {
    let (jobs, _) = fetch(service, named(name, any_state()), usize::MAX).await?;
    Ok(jobs)
}

/// Returns the documents that a job's target refused.
pub(super) fn refusals(job: &Value) -> impl Iterator<Item = &Value> {
    [&job["refused"], &job["info"]["refused"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
}

/// Prints the documents that jobs and ended replications could not replicate.
///
/// # Errors
/// There is no such job, or the service does not answer.
pub(super) async fn refused(service: &Service, name: &str, json: bool) -> CliResult {
    let jobs = of_any_state(service, name).await?;
    if jobs.is_empty() {
        return Err(CliError::at(
            Exit::NotFound,
            service.socket.display(),
            format!("no such job: {name}"),
            "`settee jobs` lists them",
        ));
    }
    let docs: Vec<&Value> = jobs.iter().flat_map(refusals).collect();
    let all: u64 = jobs
        .iter()
        .filter_map(|job| job["info"]["doc_write_failures"].as_u64())
        .sum();
    if json {
        return output::print(
            &docs
                .iter()
                .map(|doc| format!("{doc}\n"))
                .collect::<String>(),
        );
    }
    let row = |doc: &&Value| {
        let cell = |title, name: &str| text(title, shown(&doc[name]));
        vec![
            cell("REFUSED", "id"),
            cell("REVISION", "rev"),
            cell("ERROR", "error"),
            cell("REASON", "reason"),
        ]
    };
    let table = spaced(columns(docs.iter().map(row), Layout::default()));
    output::print(&format!(
        "{table}{}\n",
        known_refused(all, docs.len() as u64)
    ))
}

/// Returns how many documents were refused, and how many of these are known.
fn known_refused(all: u64, known: u64) -> String {
    let refused = format!("{} refused", count(all, "document"));
    match (all, known) {
        (all, known) if all <= known => refused,
        (_, 0) => format!(
            "{refused}; it is no longer known which: lines \"document was not replicated\" of the log name them"
        ),
        _ => format!("{refused}, the latest {known} are shown"),
    }
}

/// Returns the number of jobs by state, how many are shown, and whether the data is old or incomplete.
fn summary(answer: &Value, shown: Option<usize>) -> String {
    let total = answer["total_rows"].as_u64().unwrap_or(0);
    let states = STATES.map(DocState::name).into_iter();
    let counts =
        states.filter_map(|state| Some(format!("{} {state}", answer["states"][state].as_u64()?)));
    let counts = joined(counts, ", ").map_or_else(String::new, |counts| format!(": {counts}"));
    let first = match shown {
        Some(shown) if (shown as u64) < total => format!("; the first {shown} are shown"),
        _ => String::new(),
    };
    let age = answer["age_s"].as_u64().filter(|age| *age >= OLD_S);
    let age = age.map_or_else(String::new, |age| {
        let age = duration(age * 1000);
        format!("; those of other daemons as of {age} ago, because the database does not answer")
    });
    let loading = if answer["loading"] == true {
        "; incomplete: the service is still loading its documents"
    } else {
        ""
    };
    format!("{}{counts}{first}{age}{loading}\n", count(total, "job"))
}

/// Returns jobs as a table.
fn table(jobs: &[Value], ids: bool, now: WallTime, layout: Layout) -> String {
    let has_ids = ids || jobs.iter().any(|job| job["document"].is_null());
    let mut daemons: Vec<&Value> = jobs.iter().map(|job| &job["daemon"]).collect();
    daemons.dedup();
    let has_several = daemons.len() > 1;
    let rows = jobs.iter().map(|job| {
        let mut cells = row(job, now);
        if has_several {
            cells.push(text("DAEMON", shown(&job["daemon"])).rank(6));
        }
        if has_ids {
            let is_shown = ids || job["document"].is_null();
            let id = if is_shown {
                shown(&job["id"])
            } else {
                String::new()
            };
            cells.push(text("ID", id).whole());
        }
        cells
    });
    spaced(columns(rows, layout))
}

fn row(job: &Value, now: WallTime) -> Vec<Cell> {
    let time = |name: &str| WallTime::parse(job[name].as_str()?);
    let span = |from: WallTime, to: WallTime| {
        duration(u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX))
    };
    let doing = if job["paused"].is_object() {
        DocState::Paused.name().to_owned()
    } else {
        shown(&job["state"])
    };
    let name = match job["document"].as_str() {
        Some(document) => document.to_owned(),
        None => format!("{} -> {}", side(&job["source"]), side(&job["target"])),
    };
    vec![
        text("DOCUMENT", name).whole(),
        state("STATE", doing),
        number("SINCE", or_dash(time("since").map(|at| span(at, now)))).rank(2),
        number(
            "NEXT TRY",
            or_dash(time("next_try").map(|at| span(now, at))),
        )
        .rank(1),
        number("WRITTEN", shown(&job["info"]["docs_written"])).rank(4),
        number("REFUSED", shown(&job["info"]["doc_write_failures"])).rank(3),
        number("PENDING", shown(&job["info"]["changes_pending"])),
        number(
            "PROGRESS",
            or_dash(time("last_progress").map(|at| span(at, now))),
        )
        .rank(5),
        text("REASON", or_dash(job["reason"].as_str())),
    ]
}

/// Returns the source or the target of a transient job, without its scheme and cut to [`SIDE_MAX`].
fn side(url: &Value) -> String {
    let url = shown(url);
    let short = url
        .split_once("://")
        .map_or(&*url, |(_, rest)| rest)
        .trim_end_matches('/');
    match short.char_indices().nth(SIDE_MAX) {
        Some((end, _)) => format!("{}..", &short[..end]),
        None => short.to_owned(),
    }
}

/// Returns groups as lines.
pub(super) fn groups(groups: &[JobGroup], layout: Layout) -> String {
    let row = |group: &JobGroup| {
        let states = group.states.iter();
        let states = joined(states.map(|(state, n)| format!("{n} {state}")), ", ");
        vec![
            number("JOBS", format!("{} x", group.count)),
            text("REASON", or_dash(group.reason.as_deref())),
            text("STATES", states.unwrap_or_default()),
            text("SUCH AS", &group.example),
        ]
    };
    spaced(columns(groups.iter().map(row), layout))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn refused_documents_with_forgotten_names_are_reported_as_such() {
        assert_eq!(known_refused(0, 0), "0 documents refused");
        assert_eq!(known_refused(1, 1), "1 document refused");
        assert_eq!(
            known_refused(25, 20),
            "25 documents refused, the latest 20 are shown"
        );
        let unknown = known_refused(5, 0);
        assert!(
            unknown.starts_with("5 documents refused; it is no longer known which"),
            "{unknown}"
        );
    }

    #[test]
    fn a_table_has_one_line_per_job_with_ages_and_an_id_only_if_the_job_has_no_document() {
        let jobs = [
            json!({"id": "a+continuous", "state": "crashing", "document": "d",
             "source": "http://s/a/", "target": "http://t/b/", "info": {"docs_written": 11,
             "doc_write_failures": 1, "changes_pending": null}, "since": "2026-11-22T10:00:00Z",
             "next_try": "2026-11-22T10:05:30Z", "last_progress": "2026-11-22T09:00:00Z",
             "reason": "database missing"}),
            json!({"id": "b", "state": "pending", "document": null, "paused": {"by": "x"}, "info": null,
             "source": "http://s/c/", "target": "http://t/d/", "since": "2026-11-22T10:04:30Z",
             "next_try": null, "last_progress": null, "reason": "paused by x"}),
        ];
        let now = WallTime::parse("2026-11-22T10:05:00Z").unwrap();
        let expected = "\
DOCUMENT    STATE     SINCE  NEXT TRY  WRITTEN  REFUSED  PENDING  PROGRESS  REASON            ID
d           crashing  5m00s     30.0s       11        1        -     1h05m  database missing
s/c -> t/d  paused    30.0s         -        -        -        -         -  paused by x       b

";
        assert_eq!(table(&jobs, false, now, Layout::default()), expected);
        assert!(
            table(&jobs, true, now, Layout::default()).contains("database missing  a+continuous\n")
        );
        assert!(table(&jobs[..1], false, now, Layout::default()).contains("  REASON\n"));
        let mut of_fleet = jobs.clone();
        of_fleet[0]["daemon"] = "one.example:5984".into();
        of_fleet[1]["daemon"] = "two.example:5984".into();
        let text = table(&of_fleet, false, now, Layout::default());
        assert!(
            text.contains("REASON            DAEMON            ID\n"),
            "{text}"
        );
        assert!(
            text.contains("database missing  one.example:5984\n"),
            "{text}"
        );
        let answer = json!({"total_rows": 3, "states": {"crashing": 2, "paused": 1}});
        let said = summary(&answer, Some(2));
        assert_eq!(
            said,
            "3 jobs: 2 crashing, 1 paused; the first 2 are shown\n"
        );
        assert_eq!(summary(&json!({"total_rows": 0}), Some(0)), "0 jobs\n");
        assert_eq!(
            summary(&json!({"total_rows": 1, "loading": true}), Some(1)),
            "1 job; incomplete: the service is still loading its documents\n"
        );
    }

    #[test]
    fn a_group_is_a_line_with_its_states_and_an_example() {
        let group = JobGroup {
            reason: Some("database missing".to_owned()),
            count: 97,
            states: [("crashing".to_owned(), 96), ("pending".to_owned(), 1)].into(),
            example: "shop".to_owned(),
        };
        let expected = "\
JOBS  REASON            STATES                  SUCH AS
97 x  database missing  96 crashing, 1 pending  shop

";
        assert_eq!(groups(&[group], Layout::default()), expected);
    }
}
