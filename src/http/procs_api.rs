//! `/_procs`: lists processes and their activity, and ends one.

use actix_web::web::{Data, Path};
use serde_json::json;

use super::HttpContext;
use super::access::{Order, User};
use super::answer::{self, Answer, Refusal};
use super::body::no_thread;
use super::params::Params;
use crate::actors::pool_reporter::procs;
use crate::audit::Done;
use crate::messages::client_error::ErrorReply;
use crate::messages::ps::{KillError, KillProc, ListProcs};

impl From<KillError> for Refusal {
    fn from(error: KillError) -> Self {
        ErrorReply::from(error).into()
    }
}

/// `GET /_procs`.
pub(super) async fn list(params: Params, shared: Data<HttpContext>) -> Answer {
    let pool = params.get("pool").map(str::to_owned);
    let known = shared.manager.call(ListProcs { pool }).await??;
    let page = procs::page(known).await.map_err(no_thread)?;
    Ok(answer::ok(&page))
}

/// `DELETE /_procs/POOL/NUMBER`.
pub(super) async fn kill(
    name: Path<(String, String)>,
    params: Params,
    shared: Data<HttpContext>,
    user: User,
    order: Order,
) -> Answer {
    let (pool, number) = name.into_inner();
    let now = params.boolean("now", false)?;
    let kill = KillProc {
        name: format!("{pool}/{number}"),
        now,
        who: user.principal().who,
    };
    let killed = shared.manager.call(kill).await??;
    order.did(Done::of_kill(&killed, now));
    Ok(answer::ok(
        &json!({"ok": true, "how": killed.how, "proc": killed.proc}),
    ))
}
