//! Lets an actor follow a watch channel: the configuration, or the database's notifications.
//!
//! CALLED    By actors that act on each change: the listener, the service manager, the pressure gauge, the fleet
//!           member.

use actix::fut::wrap_stream;
use actix::prelude::*;
use futures_util::stream;
use tokio::sync::watch;

/// Calls `act` after each change, until the actor or the channel's sender ends. The actor does not end with the sender.
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
