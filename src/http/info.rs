//! What the service reports about itself: welcome, `_up`, health, drain, audit, `_openapi`, `_system` and metrics.
//!
//! SOURCE    chttpd_misc: handle_welcome_req/2, handle_up_req/1; chttpd_node: get_stats/0.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use blocking::Turns;
use bytes::Bytes;
use serde_json::json;

use super::HttpContext;
use super::access::Order;
use super::answer::{self, Answer, Refusal};
use super::body::no_thread;
use super::params::Params;
use super::request::segments;
use crate::actors::drained;
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
) -> Result<T, Refusal> {
    let turn = READINGS.turn().await;
    let snapshot = shared.manager.call(GetStatus { pool }).await?;
    let described = turn.run("status", move || describe(&snapshot)).await;
    described.map_err(no_thread)
}

/// `GET /`. The uuid is the store's, so that it survives restarts.
pub(super) async fn welcome(shared: Data<HttpContext>) -> Answer {
    let store = shared.replications.database().store();
    Ok(answer::ok(&json!({
        "settee": "Welcome",
        "version": env!("CARGO_PKG_VERSION"),
        "uuid": store.likely_uuid().await,
        "features": ["query_servers", "scheduler"],
        "vendor": {"name": "Settee"},
    })))
}

/// `GET /_up`: 404 while the service stops or is drained, as CouchDB answers in maintenance mode; 503 while a problem
/// disables it, or with `?ready` prevents function calls, so that a load balancer routes around it.
pub(super) async fn up(params: Params, shared: Data<HttpContext>) -> Answer {
    if *shared.stopping().borrow() || shared.drain.is_on() {
        let body = json!({"status": "maintenance_mode"});
        return Ok(answer::with_status(StatusCode::NOT_FOUND, &body));
    }
    let calls_alone = params.get("ready").is_some();
    let problems = shared.metrics.health().disabling(calls_alone);
    let (code, body) = match &problems[..] {
        [] => (StatusCode::OK, json!({"status": "ok"})),
        _ => {
            let body = json!({"status": "failing", "problems": problems});
            (StatusCode::SERVICE_UNAVAILABLE, body)
        }
    };
    Ok(answer::with_status(code, &body))
}

/// `GET /_health`; with `?fleet=true`, the health of all daemons.
pub(super) async fn health(params: Params, shared: Data<HttpContext>) -> Answer {
    let own = shared.metrics.health().told();
    Ok(if params.boolean("fleet", false)? {
        answer::ok(&shared.replications.fleet_health(own).await)
    } else {
        answer::ok(&own)
    })
}

/// `DELETE /_health/KIND`; with `?subject`, only the problem of that subject.
pub(super) async fn acknowledge(
    kind: Path<String>,
    params: Params,
    shared: Data<HttpContext>,
    order: Order,
) -> Answer {
    let kind = kind.parse().ok().filter(|kind: &Kind| kind.is_loss());
    let reason = "only losses are acknowledged: documents_refused, records_dropped; other problems end with their cause";
    let kind = kind.ok_or_else(|| Refusal::bad_request(reason))?;
    let subject = params.get("subject");
    let acknowledged = shared.metrics.health().acknowledge(kind, subject);
    if acknowledged.is_empty() {
        return Err(Refusal::not_found("there is no such problem"));
    }
    let subjects: Vec<&str> = acknowledged
        .iter()
        .map(|problem| &*problem.subject)
        .collect();
    order.did(Done::to(subjects.len()).asked(json!(subjects)));
    Ok(answer::ok(
        &json!({"ok": true, "acknowledged": acknowledged}),
    ))
}

/// `GET /_drain`.
pub(super) async fn drain_state(shared: Data<HttpContext>) -> Answer {
    let HttpContext {
        drain,
        manager,
        replications,
        ..
    } = &**shared;
    Ok(answer::ok(
        &drained::drain_state(drain, manager, replications).await,
    ))
}

/// `PUT /_drain`.
pub(super) async fn drain(shared: Data<HttpContext>, order: Order) -> Answer {
    order.did(drained::set_drained(&shared.drain, true));
    drain_state(shared).await
}

/// `DELETE /_drain`.
pub(super) async fn undrain(shared: Data<HttpContext>, order: Order) -> Answer {
    order.did(drained::set_drained(&shared.drain, false));
    drain_state(shared).await
}

/// `GET /_audit`.
pub(super) async fn audit(params: Params, shared: Data<HttpContext>) -> Answer {
    let limit = params.count("limit")?.unwrap_or(usize::MAX);
    Ok(answer::ok(&shared.audit.page(limit)))
}

/// `GET /_openapi`: the page, which a test compares with the operations.
pub(super) async fn openapi() -> Answer {
    let page = include_bytes!("../../docs/openapi.json");
    Ok(answer::raw(StatusCode::OK, Bytes::from_static(page)))
}

/// `GET /_node/_local/_system`.
pub(super) async fn system(shared: Data<HttpContext>) -> Answer {
    Ok(answer::ok(&json!({
        "os_proc_count": shared.manager.call(GetProcCount).await?,
        "stale_proc_count": shared.manager.call(GetStaleProcCount).await?,
    })))
}

/// `GET /_node/_local/_stats`, or the part of it that a longer path names.
pub(super) async fn stats(request: HttpRequest, shared: Data<HttpContext>) -> Answer {
    let stats = read(&shared, stats_json).await?;
    let path = segments(request.path())?;
    Ok(answer::ok(stats_at(&stats, &path[3..].join("/"))))
}

/// `GET /_node/_local/_prometheus` and `/metrics`.
pub(super) async fn prometheus(shared: Data<HttpContext>) -> Answer {
    let text = read(&shared, prometheus_text).await?;
    Ok(HttpResponse::Ok()
        .content_type(PROMETHEUS_CONTENT_TYPE)
        .body(text))
}

/// Takes a snapshot of all metrics and formats it, on a blocking thread. Without a manager, it has no pools.
async fn read<T: Send + 'static>(
    shared: &HttpContext,
    form: fn(&Snapshot) -> T,
) -> Result<T, Refusal> {
    let turn = READINGS.turn().await;
    let snapshot = shared.manager.call(GetStatus { pool: None }).await;
    let metrics = shared.metrics.clone();
    let read = turn.run("metrics", move || {
        let status = snapshot.map(|snapshot| snapshot.summary());
        form(&metrics.snapshot(&status.unwrap_or_default()))
    });
    let read = read.await;
    read.map_err(no_thread)
}
