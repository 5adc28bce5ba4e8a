//! Supervision as in OTP: children are restarted within an intensity, and stopped in reverse order. Unlike in OTP, a
//! child may be stopped together with the previous one.
//!
//! SUMMARY   A [`Supervisor`] starts children in order, monitors them, restarts those that end, gives up if they fail
//!           too often, and stops all, last first.
//! PROMISES  A panicked child is restarted like a failed one (not so with actix's own supervisor). A child that does
//!           not end in time is abandoned, with a warning.
//! SOURCE    OTP supervisor: one_for_one, restart intensity and period, shutdown timeouts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use slog::{Logger, error, o, warn};

use crate::lock;
use crate::otp::{
    Deferred, Down, ExitReason, MonitorRef, Pid, PidGuard, RegisteredName, Replier, Tell, deferred,
};

/// How long a child may take to end: longer than any shutdown, whose deadline is the caller's.
const SHUTDOWN_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Stops a supervised actor. Its pid guard reports its end.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    /// Whether to end at once, without finishing pending work.
    pub now: bool,
}

/// A running child: how to monitor and stop it.
struct Running {
    pid: Pid,
    stop: Recipient<Stop>,
}

/// How a child is started, restarted and stopped.
pub(crate) struct ChildSpec {
    /// Its name, for the log.
    id: &'static str,
    /// Whether it is stopped together with the one started before it.
    is_beside: bool,
    /// The child, if it runs already.
    first: Option<Running>,
    /// Starts it; called again for each restart.
    start: Box<dyn FnMut() -> Running>,
}

impl ChildSpec {
    /// Describes an actor that `make` starts and restarts, each time with another pid.
    pub fn new<A>(id: &'static str, mut make: impl FnMut(PidGuard) -> Addr<A> + 'static) -> Self
    where
        A: Actor<Context = Context<A>> + Handler<Stop>,
    {
        let start = Box::new(move || {
            let pid_guard = PidGuard::new();
            let pid = pid_guard.pid();
            let stop = make(pid_guard).recipient();
            Running { pid, stop }
        });
        Self {
            id,
            is_beside: false,
            first: None,
            start,
        }
    }

    /// Makes the supervisor stop it together with the one started before it: neither needs the other.
    pub fn beside(self) -> Self {
        Self {
            is_beside: true,
            ..self
        }
    }

    /// Starts an actor, and describes how its successors are started under the same name.
    pub fn named<A>(
        id: &'static str,
        mut make: impl FnMut(PidGuard) -> Addr<A> + 'static,
    ) -> (RegisteredName<A>, Self)
    where
        A: Actor<Context = Context<A>> + Handler<Stop>,
    {
        let pid_guard = PidGuard::new();
        let pid = pid_guard.pid();
        let address = make(pid_guard);
        let name = RegisteredName::new(address.clone());
        let registered = name.clone();
        let mut spec = Self::new(id, move |pid_guard| {
            let address = make(pid_guard);
            registered.replace(address.clone());
            address
        });
        let stop = address.recipient();
        spec.first = Some(Running { pid, stop });
        (name, spec)
    }
}

/// The limit of restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intensity {
    /// Maximum restarts within the period; one more, and the supervisor gives up.
    pub restarts_max: usize,
    /// The period in which restarts are counted.
    pub period: Duration,
}

struct Child {
    spec: ChildSpec,
    running: Option<(Running, MonitorRef)>,
    /// Whether it was asked to end at once; `None` if it was not asked to end.
    asked: Option<bool>,
}

/// How often children were restarted, by name, including those that never failed. Clones share the counts.
pub(crate) type Restarts = Arc<Mutex<BTreeMap<&'static str, u64>>>;

/// Supervises its children.
pub(crate) struct Supervisor {
    children: Vec<Child>,
    intensity: Intensity,
    /// The times of restarts within the period.
    restarts: Vec<Instant>,
    restarted: Restarts,
    shutdown: Option<Shutdown>,
    shutdown_max: Duration,
    log: Logger,
    pid_guard: PidGuard,
}

/// A shutdown in progress: children end one after the other, or together with those marked `beside`, last started
/// first.
struct Shutdown {
    now: bool,
    waiting: Vec<Replier<()>>,
    timer: Option<SpawnHandle>,
    reason: ExitReason,
}

impl Supervisor {
    /// Creates a supervisor, which starts its children with itself, in this order.
    pub fn new(
        children: Vec<ChildSpec>,
        intensity: Intensity,
        restarted: Restarts,
        log: &Logger,
    ) -> Self {
        lock(&restarted).extend(children.iter().map(|spec| (spec.id, 0)));
        let child = |spec| Child {
            spec,
            running: None,
            asked: None,
        };
        Self {
            children: children.into_iter().map(child).collect(),
            intensity,
            restarts: Vec::new(),
            restarted,
            shutdown: None,
            shutdown_max: SHUTDOWN_MAX,
            log: log.new(o!("component" => "supervisor")),
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns its pid, by which others monitor it.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn start_child(&mut self, index: usize, ctx: &mut Context<Self>) {
        let child = &mut self.children[index];
        let first = child.spec.first.take();
        let running = first.unwrap_or_else(&mut child.spec.start);
        let monitor = running.pid.monitor(ctx.address().recipient());
        child.running = Some((running, monitor));
    }

    fn child_ended(&mut self, index: usize, reason: &ExitReason, ctx: &mut Context<Self>) {
        let id = self.children[index].spec.id;
        warn!(self.log, "child ended"; "actor" => id, "error" => %reason,
              "effect" => "it is started again");
        if self.may_restart() {
            *lock(&self.restarted).entry(id).or_default() += 1;
            return self.start_child(index, ctx);
        }
        error!(self.log, "children fail too often, giving up"; "actor" => id,
               "limit" => self.intensity.restarts_max,
               "period_ms" => u64::try_from(self.intensity.period.as_millis()).unwrap_or(u64::MAX));
        let reason = ExitReason::Failed(format!("{id} failed too often: {reason}"));
        self.shut_down(true, reason, None, ctx);
    }

    fn may_restart(&mut self) -> bool {
        let now = Instant::now();
        let period = self.intensity.period;
        self.restarts.retain(|at| now.duration_since(*at) <= period);
        self.restarts.push(now);
        self.restarts.len() <= self.intensity.restarts_max
    }

    fn shut_down(
        &mut self,
        now: bool,
        reason: ExitReason,
        waiter: Option<Replier<()>>,
        ctx: &mut Context<Self>,
    ) {
        let shutdown = self.shutdown.get_or_insert(Shutdown {
            now,
            waiting: Vec::new(),
            timer: None,
            reason,
        });
        shutdown.now |= now;
        shutdown.waiting.extend(waiter);
        self.stop_last(ctx);
    }

    /// Stops the last running child, together with those marked `beside`, or ends itself if none is left.
    fn stop_last(&mut self, ctx: &mut Context<Self>) {
        let Some(shutdown) = &mut self.shutdown else {
            return;
        };
        let last = last_running(&mut self.children);
        let how = Some(shutdown.now);
        if !last.is_empty() && last.iter().all(|child| child.asked == how) {
            return;
        }
        if let Some(timer) = shutdown.timer.take() {
            ctx.cancel_future(timer);
        }
        if last.is_empty() {
            for waiter in shutdown.waiting.drain(..) {
                let _ = waiter.send(());
            }
            return self.pid_guard.end(shutdown.reason.clone(), ctx);
        }
        for child in last.iter_mut().rev() {
            child.asked = how;
            if let Some((running, _)) = &child.running {
                running.stop.tell(Stop { now: shutdown.now });
            }
        }
        shutdown.timer = Some(ctx.run_later(self.shutdown_max, |supervisor, ctx| {
            supervisor.abandon_last(ctx);
        }));
    }

    fn abandon_last(&mut self, ctx: &mut Context<Self>) {
        for child in last_running(&mut self.children) {
            if child.running.take().is_some() {
                warn!(self.log, "child did not end in time and is left behind"; "actor" => child.spec.id);
            }
        }
        self.stop_last(ctx);
    }
}

/// Returns the last running child, with those stopped together with it; empty if none runs.
fn last_running(children: &mut [Child]) -> &mut [Child] {
    let Some(last) = children.iter().rposition(|child| child.running.is_some()) else {
        return &mut [];
    };
    let beside = children[..=last]
        .iter()
        .rev()
        .take_while(|child| child.spec.is_beside)
        .count();
    &mut children[last.saturating_sub(beside)..=last]
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        (0..self.children.len()).for_each(|index| self.start_child(index, ctx));
    }
}

impl Handler<Down> for Supervisor {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        let is_it = |child: &Child| {
            child
                .running
                .as_ref()
                .is_some_and(|(_, m)| *m == msg.monitor)
        };
        let Some(index) = self.children.iter().position(is_it) else {
            return;
        };
        self.children[index].running = None;
        if self.shutdown.is_some() {
            self.stop_last(ctx);
        } else {
            self.child_ended(index, &msg.reason, ctx);
        }
    }
}

impl Handler<Stop> for Supervisor {
    type Result = Deferred<()>;

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) -> Self::Result {
        let (answer, replier) = deferred();
        self.shut_down(msg.now, ExitReason::Shutdown, Some(replier), ctx);
        answer
    }
}

#[cfg(test)]
mod tests;
