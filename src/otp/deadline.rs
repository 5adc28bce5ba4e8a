//! A timer for the next of many deadlines (`erlang:start_timer`).
//!
//! SUMMARY   [`DeadlineTimer::look_by`] makes the actor check its deadlines by a time. An earlier timer is kept: the
//!           actor will find nothing due and set the next one, so that deadlines that only move later, like those of
//!           a stream of prompts, set no timers.

use std::time::Duration;

use actix::{Actor, AsyncContext, SpawnHandle};

/// The single timer of an actor with many deadlines, on the clock of `T`.
#[derive(Debug)]
pub struct DeadlineTimer<T>(Option<(T, SpawnHandle)>);

impl<T> Default for DeadlineTimer<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + Ord> DeadlineTimer<T> {
    /// Runs `look` after `wait`, at `deadline`, unless the timer is already set for an earlier time. `look` must first
    /// call [`fired`](Self::fired).
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

    /// Records that the timer has fired: the next deadline sets a new one.
    pub fn fired(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use actix::prelude::*;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    /// An actor with one deadline, which reports each check: its time, and whether something was due.
    struct Looker {
        timer: DeadlineTimer<Instant>,
        due: Option<Instant>,
        begun: Instant,
        looks: mpsc::UnboundedSender<(u64, bool)>,
    }

    impl Looker {
        fn watch(&mut self, ctx: &mut Context<Self>) {
            if let Some(due) = self.due {
                let wait = due.saturating_duration_since(Instant::now());
                self.timer.look_by(due, wait, ctx, Self::look);
            }
        }

        fn look(&mut self, ctx: &mut Context<Self>) {
            self.timer.fired();
            let is_due = self.due.take_if(|due| *due <= Instant::now()).is_some();
            // The test may have ended.
            let _ = self.looks.send((self.begun.elapsed().as_secs(), is_due));
            self.watch(ctx);
        }
    }

    impl Actor for Looker {
        type Context = Context<Self>;
    }

    /// Sets the deadline to this many seconds after the start, or to none.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Due(Option<u64>);

    impl Handler<Due> for Looker {
        type Result = ();

        fn handle(&mut self, msg: Due, ctx: &mut Self::Context) {
            let after = |seconds| self.begun + Duration::from_secs(seconds);
            self.due = msg.0.map(after);
            self.watch(ctx);
        }
    }

    /// Sends an actor deadlines, one after the other, and returns its checks in the next hour of paused time.
    async fn looks_after(deadlines: &[Option<u64>]) -> Vec<(u64, bool)> {
        let (looks, mut seen) = mpsc::unbounded_channel();
        let looker = Looker {
            timer: DeadlineTimer::default(),
            due: None,
            begun: Instant::now(),
            looks,
        };
        let looker = looker.start();
        for due in deadlines {
            looker.send(Due(*due)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3600)).await;
        std::iter::from_fn(|| seen.try_recv().ok()).collect()
    }

    #[actix_rt::test]
    async fn a_timer_fires_once_at_the_deadline() {
        tokio::time::pause();
        assert_eq!(looks_after(&[Some(10)]).await, [(10, true)]);
        assert_eq!(looks_after(&[Some(10), Some(10)]).await, [(10, true)]);
    }

    #[actix_rt::test]
    async fn an_advanced_deadline_is_checked_once_when_it_is_due() {
        tokio::time::pause();
        assert_eq!(looks_after(&[Some(10), Some(4)]).await, [(4, true)]);
    }

    #[actix_rt::test]
    async fn a_postponed_deadline_costs_one_early_check() {
        tokio::time::pause();
        let looks = looks_after(&[Some(4), Some(10), Some(20)]).await;
        assert_eq!(looks, [(4, false), (20, true)]);
    }

    #[actix_rt::test]
    async fn a_dropped_deadline_costs_one_last_check() {
        tokio::time::pause();
        assert_eq!(looks_after(&[Some(4), None]).await, [(4, false)]);
        assert_eq!(looks_after(&[None]).await, []);
    }
}
