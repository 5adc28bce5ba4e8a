//! A timer that looks at the next deadline of many (`erlang:start_timer`).
//!
//! SUMMARY   [`DeadlineTimer::look_by`] makes sure that the actor looks no later than then. A timer that fires
//!           earlier is left alone: the actor will find nothing due and set the next one, so that deadlines
//!           that only move away, as those of a stream of prompts do, set no timers.

use std::time::Duration;

use actix::{Actor, AsyncContext, SpawnHandle};

/// The one timer of an actor with many deadlines, which are on the clock of `T`.
#[derive(Debug)]
pub struct DeadlineTimer<T>(Option<(T, SpawnHandle)>);

impl<T> Default for DeadlineTimer<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + Ord> DeadlineTimer<T> {
    /// Has the actor `look` after `wait`, at `deadline`, unless it will look by then already. `look` begins with
    /// [`fired`](Self::fired).
    pub fn look_by<A>(
        &mut self,
        deadline: T,
        wait: Duration,
        ctx: &mut A::Context,
        look: fn(&mut A, &mut A::Context),
    ) where
        A: Actor<Context: AsyncContext<A>>,
    {
        if let Some((fires, handle)) = self.0 {
            if fires <= deadline {
                return;
            }
            ctx.cancel_future(handle);
        }
        self.0 = Some((deadline, ctx.run_later(wait, look)));
    }

    /// The timer has fired: the next deadline sets another one.
    pub fn fired(&mut self) {
        self.0 = None;
    }
}
