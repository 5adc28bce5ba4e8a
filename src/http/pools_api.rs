//! `/_pools`: shows and changes pools over HTTP.
//!
//! SUMMARY   `GET` shows, `PUT` adds or changes, `DELETE` removes; `POST` of `_terminate_stale` and
//!           `_unthrottle` does what the names say. A body has keys of a section `[pools.NAME]`.
//! PROMISES  The answer lists the changes made. A body cannot set a command. Changes require an operator.
//! SOURCE    pidq: add_pool/1, remove_pool/2; pooler: pool_reconfigure/2.

use actix_web::http::StatusCode;
use actix_web::web::Path;
use serde_json::{Map, Value, json};

use super::access::{Order, User};
use super::answer::{self, Answer, Refusal};
use super::body::{AtMost, ORDER_BYTES_MAX};
use super::info::pools;
use super::params::Params;
use super::request::IsJson;
use super::{HttpContext, Shared};
use crate::actors::proc_manager::PoolsSnapshot;
use crate::audit::{Done, PendingOrder};
use crate::auth::rights::Right;
use crate::config::keys::CALLERS;
use crate::config::language_name;
use crate::messages::client_error::ErrorReply;
use crate::messages::pools::{
    AddPool, PoolChange, PoolError, PoolOrder, ReconfigurePool, RemovePool, UnthrottlePool,
};
use crate::messages::proc_manager::{SetThresholdTs, TerminateStaleProcs};
use crate::query_server::status::PoolStatus;
use policy::pool::RemoveMode;

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        ErrorReply::from(error).into()
    }
}

/// `POST /_reload_query_servers`.
pub(super) async fn reload(_: IsJson, shared: Shared, order: Order) -> Answer {
    let count = shared.manager.call(SetThresholdTs).await?;
    order.did(Done::to(count as usize));
    answer::done()
}

/// `GET /_status`.
pub(super) async fn status(shared: Shared) -> Answer {
    answer::raw(pools(&shared, None, |pools| answer::line(&pools.status())).await?)
}

/// `GET /_pools`.
pub(super) async fn list(shared: Shared) -> Answer {
    let text = pools(&shared, None, |pools| {
        let rows: Vec<Value> = pools.status().pools.iter().map(without_procs).collect();
        answer::line(&json!({"total_rows": rows.len(), "pools": rows}))
    });
    answer::raw(text.await?)
}

/// `GET /_pools/NAME`.
pub(super) async fn show(name: Path<String>, shared: Shared) -> Answer {
    answer::ok(&without_procs(&one(&name, &shared).await?))
}

/// `GET /_pools/NAME/_procs`.
pub(super) async fn procs(name: Path<String>, shared: Shared) -> Answer {
    let procs = one(&name, &shared).await?.procs;
    answer::ok(&json!({"total_rows": procs.len(), "procs": procs}))
}

/// `POST /_pools/NAME/_terminate_stale`.
pub(super) async fn terminate_stale(_: IsJson, name: Path<String>, shared: Shared) -> Answer {
    let name = name.into_inner();
    shared.manager.call(TerminateStaleProcs { name }).await??;
    answer::done()
}

/// `POST /_pools/NAME/_unthrottle`.
pub(super) async fn unthrottle(
    _: IsJson,
    name: Path<String>,
    shared: Shared,
    order: Order,
) -> Answer {
    let name = name.into_inner();
    let lifted = shared.manager.call(UnthrottlePool { name }).await??;
    order.did(Done::to(usize::from(lifted)));
    answer::ok(&json!({"ok": true, "was_throttled": lifted}))
}

/// `PUT /_pools/NAME`: adds a pool, or changes an existing one; `mode` allows only one of the two.
pub(super) async fn put(
    _: IsJson,
    name: Path<String>,
    body: AtMost<ORDER_BYTES_MAX>,
    params: Params,
    shared: Shared,
    user: User,
    order: Order,
) -> Answer {
    let mut settings: Map<String, Value> = match body.0.text()?.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|_| {
            Refusal::bad_request(
                "the body must be a JSON object of settings, {\"max\": 3} for example",
            )
        })?,
    };
    // An operator may not decide who runs commands.
    if settings.contains_key(CALLERS) {
        user.needs(Right::Administer)?;
    }
    // A body may repeat the name.
    let named = settings.remove("name");
    if named.is_some_and(|named| named.as_str().map(language_name) != Some(language_name(&name))) {
        return Err(Refusal::bad_request(
            "the 'name' in the body is not that of the path",
        ));
    }
    let (may_add, may_change) = match params.get("mode") {
        None => (true, true),
        Some("add") => (true, false),
        Some("change") => (false, true),
        Some(_) => return Err(Refusal::bad_request("mode must be add or change")),
    };
    let dry_run = params.boolean("dry_run", false)?;
    if dry_run {
        order.forget();
    }
    let wanted = PoolOrder {
        name: name.to_string(),
        settings,
        dry_run,
    };
    order.is("reconfigure_pool");
    if may_change {
        match shared.manager.call(ReconfigurePool(wanted.clone())).await? {
            Err(PoolError::NotFound(_)) if may_add => {}
            result => return changed(&order, StatusCode::OK, &name, &result?),
        }
    }
    order.is("add_pool");
    let changes = shared.manager.call(AddPool(wanted)).await??;
    let code = if dry_run {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    changed(&order, code, &name, &changes)
}

/// `DELETE /_pools/NAME`.
pub(super) async fn delete(
    name: Path<String>,
    params: Params,
    shared: Shared,
    order: Order,
) -> Answer {
    let mode = match params.get("mode") {
        None | Some("graceful") => RemoveMode::Graceful,
        Some("immediate") => RemoveMode::Immediate,
        Some(_) => return Err(Refusal::bad_request("mode must be graceful or immediate")),
    };
    let dry_run = params.boolean("dry_run", false)?;
    if dry_run {
        order.forget();
    }
    let removal = RemovePool {
        name: name.to_string(),
        mode,
        dry_run,
    };
    let changes = shared.manager.call(removal).await??;
    changed(&order, StatusCode::OK, &name, &changes)
}

/// Records and returns the changes of a pool.
fn changed(order: &PendingOrder, code: StatusCode, pool: &str, changes: &[PoolChange]) -> Answer {
    order.did(Done::of_pool(changes));
    let pool = language_name(pool);
    answer::with_status(code, &json!({"ok": true, "pool": pool, "changes": changes}))
}

/// Returns the pool without its processes, which have their own path.
fn without_procs(pool: &PoolStatus) -> Value {
    let mut value = serde_json::to_value(pool).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("procs");
    }
    value
}

async fn one(name: &str, shared: &HttpContext) -> Result<PoolStatus, Refusal> {
    let name = language_name(name);
    let pool = Some(name.clone());
    let mut pools = pools(shared, pool, PoolsSnapshot::status).await?.pools;
    // Of two pools with this name, one is being removed.
    let staying = pools.iter().position(|pool| pool.removing.is_none());
    if pools.is_empty() {
        Err(PoolError::NotFound(name).into())
    } else {
        Ok(pools.swap_remove(staying.unwrap_or_default()))
    }
}
