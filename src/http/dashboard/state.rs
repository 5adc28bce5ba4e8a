//! `/_dashboard/state`: the data that the dashboard's views poll once a second.
//!
//! SUMMARY   [`state`] answers with the data common to all visitors who may look, cached by [`StateMemo`] for at least
//!           [`FRESH_FOR`], and with the visitor's identity: many open pages cost little more than one.
//! PROMISES  Of concurrent requests, one computes the state and the others wait for it. If jobs cannot be listed, the
//!           state says why.
//! LIMITS    [`FUNCTIONS_MAX`] functions, those in trouble first; [`TASKS_MAX`] views that are being mapped;
//!           [`JOBS_MAX`] jobs, those in trouble first; [`REASONS_MAX`] reasons. A state is cached [`REST`] times as
//!           long as it took to make, at most [`FRESH_MAX`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::HttpRequest;
use serde_json::{Value, json};
use settee_client::{JobSelection, JobsQuery, JobsSort};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::super::access::{User, Visitor};
use super::super::answer::{self, Answer, HttpResult, Refusal};
use super::super::compress::Text;
use super::super::functions_api::costs;
use super::super::info::pools;
use super::super::{HttpContext, Shared};
use crate::actors::replicator_api::Whose;
use crate::lock;
use crate::messages::costs::{CostsQuery, Period, SortBy};
use crate::replicator::DocState;
use policy::schedule::JobState;

/// Maximum functions shown.
const FUNCTIONS_MAX: usize = 8;

/// Maximum number of running tasks shown besides replications.
const TASKS_MAX: usize = 50;

/// Maximum jobs shown in the first view.
const JOBS_MAX: usize = 8;

/// Maximum reasons of failing jobs shown.
const REASONS_MAX: usize = 10;

/// Minimum cache time of a state.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Cache time, as a multiple of the time to make the state.
const REST: u32 = 20;

/// Maximum cache time.
const FRESH_MAX: Duration = Duration::from_secs(10);

/// Time limit of the list of jobs, for which many daemons or a store may have to answer.
const JOBS_WITHIN: Duration = Duration::from_secs(3);

/// Maximum visitors for whom the whole text is cached.
const VISITORS_MAX: usize = 64;

/// The latest state, or the one being made.
#[derive(Debug, Default)]
pub(crate) struct StateMemo(Mutex<Place>);

/// The place of one state; concurrent requests wait for it while it is being made.
type Place = Arc<OnceCell<Made>>;

/// A completed state.
#[derive(Debug)]
struct Made {
    /// When it expires.
    until: Instant,
    /// The members of the object, without braces.
    members: String,
    /// The whole text for each visitor, by the members that identify the visitor.
    texts: Mutex<HashMap<String, Arc<Text>>>,
}

impl StateMemo {
    /// Returns the place of the latest state if it is fresh or not yet made, otherwise a new place.
    fn place(&self) -> Place {
        let mut place = lock(&self.0);
        if place.get().is_some_and(|made| made.until <= Instant::now()) {
            *place = Arc::default();
        }
        Arc::clone(&place)
    }
}

impl Made {
    fn text_for(&self, visitor: &Visitor) -> Arc<Text> {
        let who = json!({"user": visitor.name, "may": visitor.rights.may()}).to_string();
        let who = &who[1..who.len() - 1];
        let mut texts = lock(&self.texts);
        if let Some(text) = texts.get(who) {
            return Arc::clone(text);
        }
        let text = Arc::new(Text::passing(
            format!("{{{who},{}}}\n", self.members).into(),
        ));
        if texts.len() < VISITORS_MAX {
            texts.insert(who.to_owned(), Arc::clone(&text));
        }
        text
    }
}

/// `GET /_dashboard/state`: everything that this visitor may see.
pub(crate) async fn state(request: HttpRequest, shared: Shared, user: User) -> Answer {
    let place = shared.dashboard.place();
    let made = place.get_or_try_init(|| make(&shared, &user)).await?;
    Ok(made
        .text_for(&user)
        .answer(&request, answer::json_response()))
}

async fn make(shared: &HttpContext, user: &User) -> HttpResult<Made> {
    let begun = Instant::now();
    let status = pools(shared, None, |pools| json!(pools.status()).to_string()).await?;
    let query = CostsQuery {
        period: Period::Minute,
        sort: SortBy::Trouble,
        limit: FUNCTIONS_MAX,
    };
    let functions = costs(query, shared, user).await?;
    let mut tasks = shared.tasks.list();
    tasks.truncate(TASKS_MAX);
    let replications = &shared.replications;
    let daemons = replications.daemons().await;
    let mut state = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "health": replications.fleet_health(shared.metrics.health().told()).await,
        "functions": functions,
        "tasks": tasks,
        "jobs": jobs(shared).await?,
    });
    if let Some(daemons) = daemons {
        state["fleet"] = daemons;
    }
    let members = state.to_string();
    let fresh_for = begun
        .elapsed()
        .saturating_mul(REST)
        .clamp(FRESH_FOR, FRESH_MAX);
    Ok(Made {
        until: Instant::now() + fresh_for,
        members: format!("{},\"status\":{status}", &members[1..members.len() - 1]),
        texts: Mutex::default(),
    })
}

/// Returns the number of jobs by state, and the jobs in the worst trouble.
async fn jobs(shared: &HttpContext) -> HttpResult<Value> {
    let replications = &shared.replications;
    let census = replications.census().await?;
    let mut jobs = json!({
        "total": census.total,
        "running": census.running,
        "pending": census.pending,
        "crashed": census.crashed,
        "paused": census.paused,
        "failed": replications.failed_docs(),
        "first": [],
        "reasons": [],
    });
    if replications.is_loading() {
        jobs["loading"] = true.into();
    }
    match timeout(JOBS_WITHIN, worst(shared, census.crashed > 0)).await {
        Ok(Ok((first, reasons))) => (jobs["first"], jobs["reasons"]) = (first, reasons),
        Ok(Err(refusal)) => jobs["error"] = refusal.reason().into(),
        Err(_) => {
            let seconds = JOBS_WITHIN.as_secs();
            jobs["error"] = format!("no list within {seconds} s").into();
        }
    }
    Ok(jobs)
}

/// Returns the jobs in the worst trouble, and the reasons why jobs fail.
async fn worst(shared: &HttpContext, some_fail: bool) -> HttpResult<(Value, Value)> {
    let list =
        async |query| Ok::<Value, Refusal>(shared.replications.list(&query, &Whose::All).await?);
    let first = JobsQuery {
        sort: JobsSort::Trouble,
        limit: JOBS_MAX,
        ..JobsQuery::default()
    };
    let first = list(first).await?["jobs"].take();
    if !some_fail {
        return Ok((first, json!([])));
    }
    let crashing = DocState::from(JobState::Crashing);
    let groups = JobsQuery {
        select: JobSelection {
            states: vec![crashing.name().to_owned()],
            ..JobSelection::default()
        },
        groups: true,
        ..JobsQuery::default()
    };
    let mut reasons = list(groups).await?["groups"].take();
    if let Some(reasons) = reasons.as_array_mut() {
        reasons.truncate(REASONS_MAX);
    }
    Ok((first, reasons))
}
