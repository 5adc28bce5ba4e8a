//! What the service reports about itself: welcome, `_up`, health, drain, fleet, audit, `_openapi`, `_system`
//! and metrics.
//!
//! SOURCE    chttpd_misc: handle_welcome_req/2, handle_up_req/1; chttpd_node: get_stats/0.

use actix_web::http::StatusCode;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use blocking::Turns;
use bytes::Bytes;
use serde_json::json;
use settee_client::DrainState;

use super::access::Order;
use super::answer::{self, Answer, HttpResult, Refusal};
use super::body::no_thread;
use super::params::Params;
use super::request::segments;
use super::{HttpContext, Shared};
use crate::actors::proc_manager::{GetStatus, PoolsSnapshot};
use crate::audit::Done;
use crate::health::findings::Kind;
use crate::messages::proc_manager::{GetProcCount, GetStaleProcCount};
use crate::metrics::{PROMETHEUS_CONTENT_TYPE, Snapshot, prometheus_text, stats_at, stats_json};

/// How many requests for pools or metrics are answered at a time, each on its own thread; the others wait.
const READINGS_MAX: usize = 2;

static READINGS: Turns = Turns::new(READINGS_MAX);

/// Describes one pool, or all, on a blocking thread.
pub(super) async fn pools<T: Send + 'static>(
    shared: &HttpContext,
    pool: Option<String>,
    describe: impl FnOnce(&PoolsSnapshot) -> T + Send + 'static,
) -> HttpResult<T> {
    let turn = READINGS.turn().await;
    let snapshot = shared.manager.call(GetStatus { pool }).await?;
    turn.run("status", move || describe(&snapshot))
        .await
        .map_err(no_thread)
}

/// `GET /`. The uuid is the store's, so that it survives restarts.
pub(super) async fn welcome(shared: Shared) -> Answer {
    let store = &shared.replications.database().store;
    answer::ok(&json!({
        "settee": "Welcome",
        "version": env!("CARGO_PKG_VERSION"),
        "uuid": store.likely_uuid().await,
        "features": ["query_servers", "scheduler"],
        "vendor": {"name": "Settee"},
    }))
}

/// `GET /_up`: 404 while the service stops or is drained, as CouchDB answers in maintenance mode; 503 while a problem
/// disables it, or with `?ready` prevents function calls, so that a load balancer routes around it.
pub(super) async fn up(params: Params, shared: Shared) -> Answer {
    if *shared.stopping.borrow() || shared.drain.is_on() {
        return answer::with_status(
            StatusCode::NOT_FOUND,
            &json!({"status": "maintenance_mode"}),
        );
    }
    let problems = shared
        .metrics
        .health()
        .disabling(params.get("ready").is_some());
    if problems.is_empty() {
        return answer::ok(&json!({"status": "ok"}));
    }
    answer::with_status(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({"status": "failing", "problems": problems}),
    )
}

/// `GET /_health`; with `?fleet=true`, the health of all daemons.
pub(super) async fn health(params: Params, shared: Shared) -> Answer {
    let own = shared.metrics.health().told();
    if params.boolean("fleet", false)? {
        answer::ok(&shared.replications.fleet_health(own).await)
    } else {
        answer::ok(&own)
    }
}

/// `DELETE /_health/KIND`; with `?subject`, only the problem of that subject.
pub(super) async fn acknowledge(
    kind: Path<String>,
    params: Params,
    shared: Shared,
    order: Order,
) -> Answer {
    let kind = kind.parse().ok().filter(|kind: &Kind| kind.is_loss());
    let reason = "only losses are acknowledged: documents_refused, records_dropped; other problems end with their cause";
    let kind = kind.ok_or_else(|| Refusal::bad_request(reason))?;
    let acknowledged = shared
        .metrics
        .health()
        .acknowledge(kind, params.get("subject"));
    if acknowledged.is_empty() {
        return Err(Refusal::not_found("there is no such problem"));
    }
    let subjects: Vec<&str> = acknowledged
        .iter()
        .map(|problem| &*problem.subject)
        .collect();
    order.did(Done::to(subjects.len()).asked(json!(subjects)));
    answer::ok(&json!({"ok": true, "acknowledged": acknowledged}))
}

/// `GET /_drain`.
pub(super) async fn drain_state(shared: Shared) -> Answer {
    let since = shared.drain.since();
    let snapshot = shared.manager.call(GetStatus { pool: None }).await;
    // A manager that is restarting counts as without work, and so does a scheduler below.
    let pools = snapshot
        .map(|snapshot| snapshot.summary())
        .unwrap_or_default()
        .pools;
    answer::ok(&DrainState {
        draining: since.is_some(),
        since: since.map(|since| since.to_string()),
        waiting: pools.iter().map(|pool| u64::from(pool.waiting)).sum(),
        lent: pools.iter().map(|pool| u64::from(pool.used)).sum(),
        running: shared.replications.running_here().await,
    })
}

/// `PUT /_drain`.
pub(super) async fn drain(shared: Shared, order: Order) -> Answer {
    set_drained(shared, &order, true).await
}

/// `DELETE /_drain`.
pub(super) async fn undrain(shared: Shared, order: Order) -> Answer {
    set_drained(shared, &order, false).await
}

async fn set_drained(shared: Shared, order: &Order, is_drained: bool) -> Answer {
    let changes = shared.drain.set(is_drained);
    let before = json!({"draining": changes != is_drained});
    order.did(Done::after(usize::from(changes), before));
    drain_state(shared).await
}

/// `GET /_fleet`; no daemons if this one does not share its store.
pub(super) async fn fleet(shared: Shared) -> Answer {
    let daemons = shared.replications.daemons().await;
    answer::ok(&daemons.unwrap_or_else(|| json!({"daemons": [], "age_s": null})))
}

/// `GET /_audit`.
pub(super) async fn audit(params: Params, shared: Shared) -> Answer {
    answer::ok(&shared.audit.page(params.limit()?))
}

/// `GET /_openapi`: the page, which a test compares with the operations.
pub(super) async fn openapi() -> Answer {
    answer::raw(Bytes::from_static(include_bytes!(
        "../../docs/openapi.json"
    )))
}

/// `GET /_node/_local/_system`.
pub(super) async fn system(shared: Shared) -> Answer {
    answer::ok(&json!({
        "os_proc_count": shared.manager.call(GetProcCount).await?,
        "stale_proc_count": shared.manager.call(GetStaleProcCount).await?,
    }))
}

/// `GET /_node/_local/_stats`, or the part of it that a longer path names.
pub(super) async fn stats(request: HttpRequest, shared: Shared) -> Answer {
    answer::ok(stats_at(
        &read(&shared, stats_json).await?,
        &segments(request.path())?[3..].join("/"),
    ))
}

/// `GET /_node/_local/_prometheus` and `/metrics`.
pub(super) async fn prometheus(shared: Shared) -> Answer {
    let text = read(&shared, prometheus_text).await?;
    Ok(HttpResponse::Ok()
        .content_type(PROMETHEUS_CONTENT_TYPE)
        .body(text))
}

/// Takes a snapshot of all metrics and formats it, on a blocking thread. Without a manager, it has no pools.
async fn read<T: Send + 'static>(shared: &HttpContext, form: fn(&Snapshot) -> T) -> HttpResult<T> {
    let turn = READINGS.turn().await;
    let snapshot = shared.manager.call(GetStatus { pool: None }).await;
    let metrics = shared.metrics.clone();
    turn.run("metrics", move || {
        let status = snapshot.map(|snapshot| snapshot.summary());
        form(&metrics.snapshot(&status.unwrap_or_default()))
    })
    .await
    .map_err(no_thread)
}
