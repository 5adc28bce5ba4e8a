//! What the service says of itself: welcome, `_up`, `_system`, its numbers.
//!
//! SOURCE    chttpd_misc: handle_welcome_req/2, handle_up_req/1; chttpd_node: get_stats/0.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::HttpContext;
use super::answer::{self, Answer};
use super::request::segments;
use super::routes::ask;
use crate::messages::proc_manager::{GetProcCount, GetStaleProcCount, GetStatus};
use crate::metrics::{PROMETHEUS_CONTENT_TYPE, Snapshot, prometheus_text, stats_at, stats_json};

/// `GET /`. The uuid is that of the store, so that it stays over restarts.
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

/// `GET /_up`: 404 while the service stops, as CouchDB says it of maintenance, so that a balancer
/// sends nobody here any more.
pub(super) async fn up(shared: Data<HttpContext>) -> Answer {
    let (code, status) = match *shared.stopping().borrow() {
        false => (StatusCode::OK, "ok"),
        true => (StatusCode::NOT_FOUND, "maintenance_mode"),
    };
    Ok(answer::with_status(code, &json!({"status": status})))
}

/// `GET /_node/_local/_system`.
pub(super) async fn system(shared: Data<HttpContext>) -> Answer {
    Ok(answer::ok(&json!({
        "os_proc_count": ask(&shared.manager, GetProcCount).await?,
        "stale_proc_count": ask(&shared.manager, GetStaleProcCount).await?,
    })))
}

/// `GET /_node/_local/_stats`, and below it a part of it.
pub(super) async fn stats(request: HttpRequest, shared: Data<HttpContext>) -> Answer {
    let stats = stats_json(&snapshot(&shared).await);
    let path = segments(request.path())?;
    Ok(answer::ok(stats_at(&stats, &path[3..].join("/"))))
}

/// `GET /_node/_local/_prometheus` and `/metrics`.
pub(super) async fn prometheus(shared: Data<HttpContext>) -> Answer {
    let text = prometheus_text(&snapshot(&shared).await);
    Ok(HttpResponse::Ok()
        .content_type(PROMETHEUS_CONTENT_TYPE)
        .body(text))
}

/// Reads all numbers. While there is no manager there are no pools.
async fn snapshot(shared: &HttpContext) -> Snapshot {
    let status = ask(&shared.manager, GetStatus { pool: None }).await;
    shared.metrics.snapshot(&status.unwrap_or_default())
}
