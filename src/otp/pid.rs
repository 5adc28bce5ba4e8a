//! Monitors: exactly one `Down` when the watched actor ends, for any reason.
//!
//! SUMMARY   A [`PidGuard`] is owned by the watched party: an actor, a connection or a plain task; others refer to it
//!           by a [`Pid`].
//! PROMISES  Every monitor gets one [`Down`], even if it is set after the actor's death, and after a panic, a dropped
//!           future or the end of an arbiter: `Drop` sends the notice, because nothing else runs in all these cases
//!           (`Actor::stopped` does not).
//! SOURCE    Erlang's `monitor/2`, and `demonitor/2` with `flush`; couch_proc_manager's use of them.
//! LIMITS    Only within one process. The reason is the latest one given to [`PidGuard::ending`]; an actor that gave
//!           none was killed or panicked.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::otp::Tell;
use actix::{ActorContext, Message, Recipient};
use strum::Display;

/// Identifies one monitor; unique in the program, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorRef(u64);

/// Identifies one watched actor; unique in the program, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(pub u64);

/// Why an actor ended.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[strum(serialize_all = "lowercase")]
pub enum ExitReason {
    /// It had finished: its peer closed, its work was done.
    Normal,
    /// It was stopped.
    Shutdown,
    /// It failed, with a message for the log.
    #[strum(to_string = "{0}")]
    Failed(String),
    /// It ended without a report while a panic was unwinding.
    Panicked,
    /// It ended without a report: its actor, future or arbiter was dropped.
    Killed,
}

/// A monitored actor ended (Erlang's `DOWN`).
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Down {
    /// The monitor that fired.
    pub monitor: MonitorRef,
    /// The actor that ended.
    pub actor: ActorId,
    /// The reason.
    pub reason: ExitReason,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The watchers of a living actor, or why it ended.
enum State {
    Alive {
        monitors: Vec<(MonitorRef, Recipient<Down>)>,
        ending: Option<ExitReason>,
    },
    Dead(ExitReason),
}

/// Owned by the watched actor; dropping it is the actor's death.
pub struct PidGuard {
    pid: Pid,
}

impl PidGuard {
    /// Creates a guard without monitors.
    #[allow(
        clippy::new_without_default,
        reason = "a new identity is not a default"
    )]
    pub fn new() -> Self {
        let state = State::Alive {
            monitors: Vec::new(),
            ending: None,
        };
        Self {
            pid: Pid {
                actor: ActorId(next_number()),
                state: Arc::new(Mutex::new(state)),
            },
        }
    }

    /// Returns the pid, by which others watch this actor.
    pub fn pid(&self) -> Pid {
        self.pid.clone()
    }

    /// Sets why the actor is about to end; the latest reason counts.
    pub fn ending(&self, reason: ExitReason) {
        if let State::Alive { ending, .. } = &mut *lock(&self.pid.state) {
            *ending = Some(reason);
        }
    }

    /// Stops its actor for this reason.
    pub fn end(&self, reason: ExitReason, ctx: &mut impl ActorContext) {
        self.ending(reason);
        ctx.stop();
    }

    /// Stops its actor, which was asked to end.
    pub fn shut_down(&self, ctx: &mut impl ActorContext) {
        self.end(ExitReason::Shutdown, ctx);
    }
}

impl Drop for PidGuard {
    fn drop(&mut self) {
        let silent_reason = if std::thread::panicking() {
            ExitReason::Panicked
        } else {
            ExitReason::Killed
        };
        let mut state = lock(&self.pid.state);
        let State::Alive { monitors, ending } = &mut *state else {
            return;
        };
        let monitors = std::mem::take(monitors);
        let reason = ending.take().unwrap_or(silent_reason);
        *state = State::Dead(reason.clone());
        drop(state);
        for (monitor, watcher) in monitors {
            self.pid.notify(&watcher, monitor, &reason);
        }
    }
}

/// The id of a watched actor. Cheap to clone, and does not keep the actor alive.
#[derive(Clone)]
pub struct Pid {
    actor: ActorId,
    state: Arc<Mutex<State>>,
}

impl Pid {
    /// Returns the actor's id.
    pub fn id(&self) -> ActorId {
        self.actor
    }

    /// Returns whether the actor has not ended yet.
    pub fn is_alive(&self) -> bool {
        matches!(*lock(&self.state), State::Alive { .. })
    }

    /// Watches the actor: `watcher` gets exactly one [`Down`], at once if it is already dead.
    pub fn monitor(&self, watcher: Recipient<Down>) -> MonitorRef {
        let monitor = MonitorRef(next_number());
        let mut state = lock(&self.state);
        match &mut *state {
            State::Alive { monitors, .. } => monitors.push((monitor, watcher)),
            State::Dead(reason) => {
                let reason = reason.clone();
                drop(state);
                self.notify(&watcher, monitor, &reason);
            }
        }
        monitor
    }

    /// Watches the actor until the returned value is dropped.
    pub fn watch(&self, watcher: Recipient<Down>) -> Watch {
        Watch {
            monitor: self.monitor(watcher),
            pid: self.clone(),
        }
    }

    /// Stops watching. A `Down` in flight still arrives, and is recognised by its reference.
    pub(crate) fn demonitor(&self, monitor: MonitorRef) {
        if let State::Alive { monitors, .. } = &mut *lock(&self.state) {
            monitors.retain(|(known, _)| *known != monitor);
        }
    }

    fn notify(&self, watcher: &Recipient<Down>, monitor: MonitorRef, reason: &ExitReason) {
        watcher.tell(Down {
            monitor,
            actor: self.actor,
            reason: reason.clone(),
        });
    }
}

/// A monitor that ends with its owner, so that an actor does not accumulate short-lived watchers.
#[derive(Debug)]
pub struct Watch {
    pid: Pid,
    monitor: MonitorRef,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pid.demonitor(self.monitor);
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({})", self.actor.0)
    }
}

#[cfg(test)]
mod tests {
    use actix::prelude::*;

    use super::*;
    use test_support::Probe;

    async fn reason_after(end: impl FnOnce(PidGuard)) -> ExitReason {
        let mut probe = Probe::<Down>::start();
        let pid_guard = PidGuard::new();
        let pid = pid_guard.pid();
        let monitor = pid.monitor(probe.recipient());
        assert!(pid.is_alive());
        end(pid_guard);
        assert!(!pid.is_alive());
        let down = probe.next().await;
        assert_eq!((down.monitor, down.actor), (monitor, pid.id()));
        down.reason
    }

    #[actix_rt::test]
    async fn a_watcher_is_notified_once_with_the_reason() {
        let reason = reason_after(|pid_guard| {
            pid_guard.ending(ExitReason::Shutdown);
            pid_guard.ending(ExitReason::Failed("no luck".into()));
        });
        assert_eq!(reason.await, ExitReason::Failed("no luck".into()));
        assert_eq!(reason_after(drop).await, ExitReason::Killed);
    }

    #[actix_rt::test]
    async fn a_watch_ends_with_its_owner() {
        let pid_guard = PidGuard::new();
        let mut probe = Probe::<Down>::start();
        let (kept, ended) = (pid_guard.pid(), pid_guard.pid());
        let kept = kept.watch(probe.recipient());
        drop(ended.watch(probe.recipient()));
        drop(pid_guard);
        assert_eq!(probe.next().await.monitor, kept.monitor);
        assert!(probe.take().is_empty());
    }

    #[actix_rt::test]
    async fn a_panic_is_reported() {
        let reason = reason_after(|pid_guard| {
            let unwinding = std::thread::spawn(move || {
                let _pid_guard = pid_guard;
                panic!("an actor that panics (meant to happen)");
            });
            assert!(unwinding.join().is_err());
        });
        assert_eq!(reason.await, ExitReason::Panicked);
    }

    #[actix_rt::test]
    async fn a_monitor_on_a_dead_party_fires_at_once() {
        let pid_guard = PidGuard::new();
        let pid = pid_guard.pid();
        pid_guard.ending(ExitReason::Normal);
        drop(pid_guard);
        let mut probe = Probe::<Down>::start();
        let monitor = pid.monitor(probe.recipient());
        let down = probe.next().await;
        assert_eq!((down.monitor, down.reason), (monitor, ExitReason::Normal));
    }

    #[actix_rt::test]
    async fn every_monitor_fires_unless_it_was_cancelled() {
        let mut probe = Probe::<Down>::start();
        let pid_guard = PidGuard::new();
        let pid = pid_guard.pid();
        let monitors: Vec<_> = (0..3).map(|_| pid.monitor(probe.recipient())).collect();
        pid.demonitor(monitors[1]);
        drop(pid_guard);
        let told = [probe.next().await.monitor, probe.next().await.monitor];
        assert_eq!(told, [monitors[0], monitors[2]]);
        assert_eq!(probe.take().len(), 0);
    }

    /// An actor that never gives a reason for its end.
    struct Silent(#[allow(dead_code, reason = "its drop is what matters")] PidGuard);

    impl Actor for Silent {
        type Context = Context<Self>;
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Burst;

    impl Handler<Burst> for Silent {
        type Result = ();

        fn handle(&mut self, _: Burst, _: &mut Self::Context) {
            panic!("an actor that panics (meant to happen)");
        }
    }

    #[actix_rt::test]
    async fn every_end_of_an_actor_is_reported() {
        let mut probe = Probe::<Down>::start();
        let start = || {
            let pid_guard = PidGuard::new();
            pid_guard.pid().monitor(probe.recipient());
            Silent(pid_guard).start()
        };
        let (panics, forgotten) = (start(), start());
        assert!(panics.send(Burst).await.is_err());
        drop(forgotten);
        let reasons = [probe.next().await.reason, probe.next().await.reason];
        assert_eq!(reasons, [ExitReason::Panicked, ExitReason::Killed]);
    }

    #[actix_rt::test]
    async fn the_end_of_an_arbiter_ends_its_actors() {
        let mut probe = Probe::<Down>::start();
        let pid_guard = PidGuard::new();
        pid_guard.pid().monitor(probe.recipient());
        let arbiter = Arbiter::new();
        let address = Silent::start_in_arbiter(&arbiter.handle(), |_| Silent(pid_guard));
        assert!(address.connected());
        arbiter.stop();
        assert_eq!(probe.next().await.reason, ExitReason::Killed);
    }
}
