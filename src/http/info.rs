//! What the service says of itself: welcome, `_up`, `_system`, its numbers.
//!
//! SOURCE    chttpd_misc: handle_welcome_req/2, handle_up_req/1; chttpd_node: get_stats/0.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde_json::json;

use super::answer::{self, Answer, Refusal};
use super::{Shared, routes};
use crate::messages::proc_manager::{GetProcCount, GetStaleProcCount, GetStatus};
use crate::metrics::{PROMETHEUS_CONTENT_TYPE, Snapshot, prometheus_text, stats_at, stats_json};

/// `GET /`. The uuid is that of the store, so that it stays over restarts.
pub(super) async fn welcome(shared: &Shared) -> HttpResponse {
    let store = shared.replications.database().store();
    answer::ok(&json!({
        "settee": "Welcome",
        "version": env!("CARGO_PKG_VERSION"),
        "uuid": store.likely_uuid().await,
        "features": ["query_servers", "scheduler"],
        "vendor": {"name": "Settee"},
    }))
}

/// `GET /_up`: 404 while the service stops, as CouchDB says it of maintenance, so that a balancer
/// sends nobody here any more.
pub(super) fn up(shared: &Shared) -> Answer {
    Ok(match shared.is_stopping() {
        false => answer::ok(&json!({"status": "ok"})),
        true => answer::with_status(
            StatusCode::NOT_FOUND,
            &json!({"status": "maintenance_mode"}),
        ),
    })
}

/// `GET /_node/_local/_system`.
pub(super) async fn system(shared: &Shared) -> Answer {
    let counts = shared.gateway.run(|inside| async move {
        let manager = inside.manager.address();
        let all = manager.send(GetProcCount).await.ok()?;
        let stale = manager.send(GetStaleProcCount).await.ok()?;
        Some((all, stale))
    });
    let (all, stale) = counts.await?.ok_or_else(routes::shutting_down)?;
    Ok(answer::ok(
        &json!({"os_proc_count": all, "stale_proc_count": stale}),
    ))
}

/// `GET /_node/_local/_stats`, and below it a part of it.
pub(super) async fn stats(path: &[&str], shared: &Shared) -> Answer {
    let stats = stats_json(&snapshot(shared).await?);
    Ok(answer::ok(stats_at(&stats, &path.join("/"))))
}

/// `GET /_node/_local/_prometheus` and `/metrics`.
pub(super) async fn prometheus(shared: &Shared) -> Answer {
    let text = prometheus_text(&snapshot(shared).await?);
    Ok(HttpResponse::Ok()
        .content_type(PROMETHEUS_CONTENT_TYPE)
        .body(text))
}

/// Reads all numbers. While there is no manager there are no pools.
async fn snapshot(shared: &Shared) -> Result<Snapshot, Refusal> {
    let status = shared.gateway.run(|inside| async move {
        let status = inside.manager.address().send(GetStatus { pool: None });
        status.await.unwrap_or_default()
    });
    Ok(shared.metrics.snapshot(&status.await?))
}
