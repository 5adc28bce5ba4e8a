//! `/_fleet`: the daemons that share one database.

use actix_web::web::Data;
use serde_json::json;

use super::HttpContext;
use super::answer::{self, Answer};

/// `GET /_fleet`; no daemons if this one does not share its store.
pub(super) async fn list(shared: Data<HttpContext>) -> Answer {
    let daemons = shared.replications.daemons().await;
    let none = || json!({"daemons": [], "age_s": null});
    Ok(answer::ok(&daemons.unwrap_or_else(none)))
}
