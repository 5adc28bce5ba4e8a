//! `/_dashboard`: a page that shows pools, who waits, what functions cost, services and jobs, live.
//!
//! SUMMARY   The page and its files, modules without a build step, hold no data and are given to everybody;
//!           [`state`] is what every view asks for once a second, made of the values that `status`, `_functions`
//!           and `_active_tasks` show, how many jobs are in which state, and the daemons of a fleet.
//! PROMISES  A user sees here only what those pages show to the same user. The page loads nothing from
//!           elsewhere, runs no script but its own, and shows what children and other servers say
//!           as text.
//! LIMITS    [`FUNCTIONS_MAX`] functions, those that cost most; [`TASKS_MAX`] views that are being mapped.

use actix_web::http::header;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::HttpContext;
use super::access::User;
use super::answer::{self, Answer, Refusal};
use super::functions_api::costs;
use super::params::Params;
use crate::messages::proc_manager::GetStatus;

/// How many functions the page shows.
const FUNCTIONS_MAX: usize = 50;

/// How many running tasks beside replications the page shows.
const TASKS_MAX: usize = 50;

/// Only what comes from here, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// `GET /_dashboard`.
pub(super) async fn page() -> Answer {
    file(
        "text/html; charset=utf-8",
        include_str!("dashboard/page.html"),
    )
}

/// The files of the page, with their types.
const FILES: [(&str, &str, &str); 12] = [
    style("page.css", include_str!("dashboard/page.css")),
    script("page.js", include_str!("dashboard/page.js")),
    script("api.js", include_str!("dashboard/api.js")),
    script("charts.js", include_str!("dashboard/charts.js")),
    script("dom.js", include_str!("dashboard/dom.js")),
    script("fleet.js", include_str!("dashboard/fleet.js")),
    script("functions.js", include_str!("dashboard/functions.js")),
    script("jobs.js", include_str!("dashboard/jobs.js")),
    script("orders.js", include_str!("dashboard/orders.js")),
    script("overview.js", include_str!("dashboard/overview.js")),
    script("pools.js", include_str!("dashboard/pools.js")),
    script("words.js", include_str!("dashboard/words.js")),
];

const fn style(
    name: &'static str,
    text: &'static str,
) -> (&'static str, &'static str, &'static str) {
    (name, "text/css; charset=utf-8", text)
}

const fn script(
    name: &'static str,
    text: &'static str,
) -> (&'static str, &'static str, &'static str) {
    (name, "text/javascript; charset=utf-8", text)
}

/// `GET /_dashboard/FILE`.
pub(super) async fn part(name: Path<String>) -> Answer {
    let found = FILES.iter().find(|(known, ..)| **known == **name);
    let (_, content_type, text) = found.ok_or_else(Refusal::no_such_path)?;
    file(content_type, text)
}

fn file(content_type: &str, text: &'static str) -> Answer {
    Ok(HttpResponse::Ok()
        .content_type(content_type)
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .body(text))
}

/// `GET /_dashboard/state`: everything that this visitor may see. The parameters `period` and `sort` choose
/// functions.
pub(super) async fn state(request: HttpRequest, shared: Data<HttpContext>, user: User) -> Answer {
    let params = Params::of(&request)?;
    let functions = costs(&params, Some(FUNCTIONS_MAX), &shared, &user).await?;
    let status = shared.manager.call(GetStatus { pool: None }).await?;
    let mut tasks = shared.tasks.list();
    tasks.truncate(TASKS_MAX);
    let census = shared.replications.census().await?;
    let daemons = shared.replications.daemons().await;
    let mut state = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "health": shared.metrics.health().told(),
        "user": user.name,
        "may": user.rights.may(),
        "status": status,
        "functions": functions,
        "tasks": tasks,
        "jobs": {
            "total": census.total,
            "running": census.running,
            "pending": census.pending,
            "crashed": census.crashed,
            "paused": census.paused,
            "failed": shared.replications.failed_docs(),
        },
    });
    if shared.replications.is_loading() {
        state["jobs"]["loading"] = true.into();
    }
    if let Some(daemons) = daemons {
        state["fleet"] = daemons;
    }
    Ok(answer::ok(&state))
}
