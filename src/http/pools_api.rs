//! `/_pools`: pools as an operator sees and shapes them over HTTP.
//!
//! SUMMARY   `GET` shows, `PUT` adds or changes, `DELETE` removes; `POST` of `_terminate_stale` and
//!           `_unthrottle` does what the names say. Bodies are the keys of a section `[pools.NAME]`.
//! PROMISES  The changes that were made are the answer. A body cannot bring a command. Whatever
//!           changes something takes an operator.
//! SOURCE    The calls `add_pool`, `remove_pool` and `reconfigure_pool` of the client socket.

use actix::dev::ToEnvelope;
use actix::{Context, Handler, Message};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Map, Value, json};

use super::access::Visitor;
use super::answer::{self, Answer, Refusal};
use super::params::Params;
use super::request::{allow, require_json};
use super::{Shared, body, routes};
use crate::actors::proc_manager::ProcManager;
use crate::auth::rights::Right;
use crate::config::keys::CALLERS;
use crate::config::language_name;
use crate::messages::client_error::ErrorReply;
use crate::messages::pools::{
    AddPool, PoolChange, PoolError, ReconfigurePool, RemovePool, TerminateStaleOf, UnthrottlePool,
};
use crate::messages::proc_manager::GetStatus;
use crate::query_server::status::{PoolStatus, ServiceStatus};
use policy::pool::RemoveMode;

/// The parameter that asks for what would change, and changes nothing.
const DRY_RUN: &str = "dry_run";

/// Answers a request for `/_pools` and what is below.
pub(super) async fn answer(
    path: &[&str],
    request: &HttpRequest,
    payload: web::Payload,
    shared: &Shared,
    visitor: &Visitor,
) -> Answer {
    const GET: &[Method] = &[Method::GET];
    const POST: &[Method] = &[Method::POST];
    match path {
        [] => {
            allow(request, GET)?;
            visitor.needs(Right::Look)?;
            let pools = status(None, shared).await?.pools;
            let rows: Vec<Value> = pools.iter().map(without_procs).collect();
            Ok(answer::ok(
                &json!({"total_rows": rows.len(), "pools": rows}),
            ))
        }
        [name] => {
            allow(request, &[Method::GET, Method::PUT, Method::DELETE])?;
            match *request.method() {
                Method::PUT => {
                    visitor.needs(Right::Operate)?;
                    require_json(request)?;
                    put(name, request, payload, (shared, visitor)).await
                }
                Method::DELETE => {
                    visitor.needs(Right::Operate)?;
                    delete(name, request, shared).await
                }
                _ => {
                    visitor.needs(Right::Look)?;
                    Ok(answer::ok(&without_procs(&one(name, shared).await?)))
                }
            }
        }
        [name, "_procs"] => {
            allow(request, GET)?;
            visitor.needs(Right::Look)?;
            let procs = one(name, shared).await?.procs;
            Ok(answer::ok(
                &json!({"total_rows": procs.len(), "procs": procs}),
            ))
        }
        [name, "_terminate_stale"] => {
            allow(request, POST)?;
            visitor.needs(Right::Operate)?;
            require_json(request)?;
            let name = (*name).to_owned();
            tell(shared, TerminateStaleOf { name }).await??;
            Ok(answer::done())
        }
        [name, "_unthrottle"] => {
            allow(request, POST)?;
            visitor.needs(Right::Operate)?;
            require_json(request)?;
            let name = (*name).to_owned();
            let lifted = tell(shared, UnthrottlePool { name }).await??;
            Ok(answer::ok(&json!({"ok": true, "was_throttled": lifted})))
        }
        _ => Err(Refusal::not_found("missing: there is nothing at this path")),
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        ErrorReply::from(error).into()
    }
}

/// Adds a pool, or changes the one that is there.
async fn put(
    name: &str,
    request: &HttpRequest,
    payload: web::Payload,
    (shared, visitor): (&Shared, &Visitor),
) -> Answer {
    let body = body::read_at_most(body::ORDER_BYTES_MAX, request, payload, shared).await?;
    let text = body.text()?;
    let mut settings: Map<String, Value> = match text.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|_| {
            Refusal::bad_request("the body must be a JSON object of settings, {\"max\": 3}")
        })?,
    };
    // Who may run commands is not the operators' to say.
    if settings.contains_key(CALLERS) {
        visitor.needs(Right::Administer)?;
    }
    // A body may say again what the path says.
    let named = settings.remove("name");
    if named.is_some_and(|named| named.as_str().map(language_name) != Some(language_name(name))) {
        return Err(Refusal::bad_request(
            "the 'name' in the body is not that of the path",
        ));
    }
    let params = Params::of(request)?;
    if params.names().any(|name| name != DRY_RUN) {
        return Err(Refusal::bad_request("the query may be dry_run=true"));
    }
    let dry_run = params.boolean(DRY_RUN, false)?;
    let order = ReconfigurePool {
        name: name.to_owned(),
        settings,
        dry_run,
    };
    let again = order.clone();
    match tell(shared, order).await? {
        Err(PoolError::NotFound(_)) => {
            let ReconfigurePool { name, settings, .. } = again;
            let pool = name.clone();
            let order = AddPool {
                name,
                settings,
                dry_run,
            };
            let changes = tell(shared, order).await??;
            let code = match dry_run {
                true => StatusCode::OK,
                false => StatusCode::CREATED,
            };
            Ok(changed(code, &pool, &changes))
        }
        result => Ok(changed(StatusCode::OK, name, &result?)),
    }
}

async fn delete(name: &str, request: &HttpRequest, shared: &Shared) -> Answer {
    let params = Params::of(request)?;
    let wrong = || {
        Refusal::bad_request("the query may be mode=graceful or mode=immediate, and dry_run=true")
    };
    if params
        .names()
        .any(|name| !["mode", DRY_RUN].contains(&name))
    {
        return Err(wrong());
    }
    let mode = match params.get("mode") {
        None | Some("graceful") => RemoveMode::Graceful,
        Some("immediate") => RemoveMode::Immediate,
        Some(_) => return Err(wrong()),
    };
    let order = RemovePool {
        name: name.to_owned(),
        mode,
        dry_run: params.boolean(DRY_RUN, false)?,
    };
    let changes = tell(shared, order).await??;
    Ok(changed(StatusCode::OK, name, &changes))
}

fn changed(code: StatusCode, pool: &str, changes: &[PoolChange]) -> HttpResponse {
    let pool = language_name(pool);
    answer::with_status(code, &json!({"ok": true, "pool": pool, "changes": changes}))
}

/// The pool without its processes, which have a path of their own.
fn without_procs(pool: &PoolStatus) -> Value {
    let mut value = serde_json::to_value(pool).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("procs");
    }
    value
}

async fn one(name: &str, shared: &Shared) -> Result<PoolStatus, Refusal> {
    let name = language_name(name);
    let mut pools = status(Some(name.clone()), shared).await?.pools;
    // Of two with the name one is going.
    let staying = pools.iter().position(|pool| pool.removing.is_none());
    match pools.is_empty() {
        true => Err(PoolError::NotFound(name).into()),
        false => Ok(pools.swap_remove(staying.unwrap_or_default())),
    }
}

/// Returns the state of a pool, or of all of them.
pub(super) async fn status(
    pool: Option<String>,
    shared: &Shared,
) -> Result<ServiceStatus, Refusal> {
    tell(shared, GetStatus { pool }).await
}

/// Tells the manager something and returns what it answers.
async fn tell<M>(shared: &Shared, message: M) -> Result<M::Result, Refusal>
where
    M: Message + Send + 'static,
    M::Result: Send,
    ProcManager: Handler<M>,
    Context<ProcManager>: ToEnvelope<ProcManager, M>,
{
    let told = shared
        .gateway
        .run(|inside| async move { inside.manager.address().send(message).await });
    told.await?.map_err(|_| routes::shutting_down())
}
