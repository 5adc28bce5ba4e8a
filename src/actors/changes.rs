//! How an actor follows a watch channel: the configuration, or the notices of the database.
//!
//! CALLED    By actors that act on each change: the listener, the service manager, the pressure gauge, the member of a fleet.

use actix::fut::wrap_stream;
use actix::prelude::*;
use futures_util::stream;
use tokio::sync::watch;

/// Has an actor act after each change, for as long as both live. The end of the sender is no reason to end.
pub(super) fn follow<A: Actor<Context = Context<A>>, T: Send + Sync + 'static>(
    changes: watch::Receiver<T>,
    ctx: &mut Context<A>,
    act: fn(&mut A, &mut Context<A>),
) {
    let changes = stream::unfold(changes, async |mut changes| {
        changes.changed().await.ok().map(|()| ((), changes))
    });
    let acts = wrap_stream(changes).map(move |(), actor, ctx| act(actor, ctx));
    ctx.spawn(acts.finish());
}
