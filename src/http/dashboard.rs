//! `/_dashboard`: a page that shows pools, who waits, services and jobs, live.
//!
//! SUMMARY   The page and its two files hold no data and are given to everybody; [`state`] is what the
//!           page asks for once a second, made of the values that `status`, `_scheduler/jobs` and
//!           `_active_tasks` show.
//! PROMISES  Who may not see something there does not see it here. The page loads nothing from
//!           elsewhere, runs no script but its own, and shows what children and other servers say
//!           as text.
//! LIMITS    [`JOBS_MAX`] jobs, those that need attention first; [`TASKS_MAX`] views that are being
//!           mapped.

use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::access::Visitor;
use super::answer::{self, Answer, Refusal};
use super::request::allow;
use super::{Shared, pools_api};
use crate::auth::rights::Right;
use policy::schedule::JobState;

/// How many jobs the page shows.
const JOBS_MAX: usize = 50;

/// How many running tasks beside replications the page shows.
const TASKS_MAX: usize = 50;

/// The states of jobs, those first that somebody should look at.
const SHOWN_FIRST: [JobState; 3] = [JobState::Crashing, JobState::Running, JobState::Pending];

/// Only what comes from here, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Answers a request for `/_dashboard` and what is below.
pub(super) async fn answer(
    path: &[&str],
    request: &HttpRequest,
    shared: &Shared,
    visitor: &Visitor,
) -> Answer {
    allow(request, &[Method::GET])?;
    match path {
        [] => Ok(file(
            "text/html; charset=utf-8",
            include_str!("dashboard/page.html"),
        )),
        ["page.css"] => Ok(file(
            "text/css; charset=utf-8",
            include_str!("dashboard/page.css"),
        )),
        ["page.js"] => Ok(file(
            "text/javascript; charset=utf-8",
            include_str!("dashboard/page.js"),
        )),
        ["state"] => state(shared, visitor).await,
        _ => Err(Refusal::not_found("missing: there is nothing at this path")),
    }
}

fn file(content_type: &str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(content_type)
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .body(text)
}

/// Everything that this visitor may see.
async fn state(shared: &Shared, visitor: &Visitor) -> Answer {
    visitor.needs(Right::Look).map_err(Refusal::for_a_form)?;
    let status = pools_api::status(None, shared).await?;
    let mut tasks = shared.tasks.list();
    tasks.truncate(TASKS_MAX);
    let jobs = jobs(shared).await?;
    Ok(answer::ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "user": visitor.name,
        "status": status,
        "tasks": tasks,
        "jobs": jobs,
    })))
}

/// Counts the jobs, and shows some: first those that crash, then those that run.
async fn jobs(shared: &Shared) -> Result<Value, Refusal> {
    let replications = &shared.replications;
    let census = replications.census().await?;
    let mut shown = Vec::new();
    for state in SHOWN_FIRST {
        let states = [state.name().to_owned()];
        let room = JOBS_MAX - shown.len();
        if room == 0 {
            // To look for more would be to look at every job.
            break;
        }
        shown.extend(replications.jobs(0, room, &states).await?.1);
    }
    Ok(json!({
        "total": census.total,
        "running": census.running,
        "pending": census.pending,
        "crashed": census.crashed,
        "paused": census.paused,
        "shown": shown,
    }))
}
