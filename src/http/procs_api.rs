//! `/_procs`: lists processes and their activity, and ends one.

use actix_web::web::Path;
use serde_json::json;

use super::Shared;
use super::access::{Order, User};
use super::answer::{self, Answer};
use super::body::no_thread;
use super::params::Params;
use crate::actors::proc_manager::procs;
use crate::audit::Done;
use crate::messages::client_error::ErrorReply;
use crate::messages::ps::{KillProc, ListProcs};

/// `GET /_procs`.
pub(super) async fn list(params: Params, shared: Shared) -> Answer {
    let pool = params.get("pool").map(str::to_owned);
    let known = shared.manager.call(ListProcs { pool }).await??;
    answer::ok(&procs::page(known).await.map_err(no_thread)?)
}

/// `DELETE /_procs/POOL/NUMBER`.
pub(super) async fn kill(
    name: Path<(String, String)>,
    params: Params,
    shared: Shared,
    user: User,
    order: Order,
) -> Answer {
    let (pool, number) = name.into_inner();
    let now = params.boolean("now", false)?;
    let killed = shared
        .manager
        .call(KillProc {
            name: format!("{pool}/{number}"),
            now,
            who: user.principal().who,
        })
        .await?
        .map_err(ErrorReply::from)?;
    order.did(Done::of_kill(&killed, now));
    answer::ok(&json!({"ok": true, "how": killed.how, "proc": killed.proc}))
}
