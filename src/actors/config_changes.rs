//! How an actor follows the configuration.
//!
//! CALLED    By actors that act on a change: the listener, the service manager, the pressure gauge.

use std::sync::Arc;

use actix::fut::wrap_stream;
use actix::prelude::*;
use futures_util::stream;
use tokio::sync::watch;

use crate::config::Config;

/// Has an actor act after each change of the configuration, for as long as both live. That nobody can
/// change it any more is no reason to end.
pub(super) fn follow<A: Actor<Context = Context<A>>>(
    changes: watch::Receiver<Arc<Config>>,
    ctx: &mut Context<A>,
    act: fn(&mut A, &mut Context<A>),
) {
    let changes = stream::unfold(changes, async |mut changes| {
        changes.changed().await.ok().map(|()| ((), changes))
    });
    let acts = wrap_stream(changes).map(move |(), actor, ctx| act(actor, ctx));
    ctx.spawn(acts.finish());
}
