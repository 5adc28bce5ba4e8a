//! One turn of the ProcManager: passes an event to the core, carries out its actions, and checks the tables.
//!
//! SUMMARY   A timer checks every invariant. Development builds also do so in every turn, up to
//!           [`ROWS_MAX_EACH_EVENT`] rows; there a violation ends the manager.
//! PROMISES  State of the current event is in the [`Turn`], not in the manager's fields. The timer's checks take at
//!           most a thousandth of the arbiter's time, and are skipped if the tables are too large to be scanned in
//!           one turn. A violation is counted each time and logged once for each invariant and manager.
//! LIMITS    A violation that vanishes between two checks is missed.

use std::time::{Duration, Instant};

use actix::prelude::*;
use slog::{Logger, error};

use super::ProcManager;
use super::requests::{Answer, Waiting};
use crate::messages::proc_manager::ProcFailure;
use crate::metrics::{IsolateEvent, Metrics};
use crate::query_server::prompt;
use crate::query_server::prompt_error::shorten;
use policy::invariants::{Invariant, Violation, violations};
use policy::pool::{Event, PoolAction, Pools, RequestId};
use policy::time::Timestamp;

/// Minimum time between two checks.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// Minimum time to the next check, as a multiple of a check's duration.
const REST: u32 = 1000;

/// Maximum processes, openings and requests checked: about two milliseconds of work.
const ROWS_MAX: usize = 4096;

/// The same for the check after every event: the tables of most tests are smaller.
const ROWS_MAX_EACH_EVENT: usize = 128;

/// State of the current event.
pub(super) struct Turn {
    pub now: Timestamp,
    /// The new request, until it is known whether it has to wait in the table.
    pub arriving: Option<(RequestId, Waiting)>,
    /// Its answer, if immediate.
    pub answer: Option<Answer>,
    /// The failure, for requests refused because of it.
    pub cause: Option<ProcFailure>,
}

impl Turn {
    pub const fn at(now: Timestamp) -> Self {
        Self {
            now,
            arriving: None,
            answer: None,
            cause: None,
        }
    }
}

/// The violations found so far.
#[derive(Default)]
pub(super) struct Findings {
    logged: [bool; Invariant::ALL.len()],
}

impl Findings {
    /// Counts a violation, and logs the first one of its kind.
    fn note(&mut self, violation: &Violation, metrics: &Metrics, log: &Logger) {
        metrics.invariant_violated(violation.id);
        if !std::mem::replace(&mut self.logged[violation.id as usize], true) {
            error!(log, "the tables of the process manager are inconsistent";
                   "error" => shorten(&violation.to_string()),
                   "effect" => "requests may wait, or processes be left unused, for no reason",
                   "remedy" => "restart the service, and please report this");
        }
    }

    /// Checks the tables, unless they are too large. Returns the duration, or zero if not checked.
    fn check(&mut self, core: &Pools, metrics: &Metrics, log: &Logger) -> Duration {
        if core.row_count() > ROWS_MAX {
            return Duration::ZERO;
        }
        // Real time, which paused time in tests does not affect.
        let start = Instant::now();
        for violation in violations(core) {
            self.note(&violation, metrics, log);
        }
        start.elapsed()
    }
}

impl ProcManager {
    /// Passes an event to the core, and carries out its actions.
    pub(super) fn event(&mut self, event: Event, ctx: &mut Context<Self>) {
        self.turn(&mut Turn::at(self.clock.now()), event, ctx);
    }

    /// As [`Self::event`], for an event that a failure caused.
    pub(super) fn failed(&mut self, cause: ProcFailure, event: Event, ctx: &mut Context<Self>) {
        let mut turn = Turn::at(self.clock.now());
        turn.cause = Some(cause);
        self.turn(&mut turn, event, ctx);
    }

    /// As [`Self::event`], for related events: the invariants hold only after the last one.
    pub(super) fn events(&mut self, events: Vec<Event>, ctx: &mut Context<Self>) {
        for event in events {
            self.step(&mut Turn::at(self.clock.now()), event, ctx);
        }
        self.assert_invariants();
    }

    pub(super) fn turn(&mut self, turn: &mut Turn, event: Event, ctx: &mut Context<Self>) {
        self.step(turn, event, ctx);
        self.assert_invariants();
    }

    fn step(&mut self, turn: &mut Turn, event: Event, ctx: &mut Context<Self>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(event, turn.now, &mut actions);
        for action in actions.drain(..) {
            self.perform(action, turn, ctx);
        }
        self.actions = actions;
        turn.cause = None;
        self.tell_watchers();
        self.warn_if_full();
        self.watch_deadline(turn.now, ctx);
    }

    fn perform(&mut self, action: PoolAction, turn: &mut Turn, ctx: &mut Context<Self>) {
        if let PoolAction::Teach { proc, select, .. } | PoolAction::Assign { proc, select, .. } =
            &action
            && select.as_ref().is_some_and(|select| select.is_new)
        {
            let metrics = self.metrics_of(proc.pool);
            metrics.count().isolates.one(IsolateEvent::Made);
        }
        match action {
            PoolAction::Open { proc, .. } => self.open(proc, ctx),
            PoolAction::Teach {
                proc,
                request,
                select,
            } => self.teach(proc, request, select, turn, ctx),
            PoolAction::Reset { proc } => {
                let line = prompt::reset(&self.settings.reset_config);
                self.help(proc, line, None, ctx);
            }
            PoolAction::Forget { proc } => {
                self.metrics_of(proc.pool).count().forgets.one();
                let line = prompt::forget(&self.settings.reset_config);
                self.help(proc, line, None, ctx);
            }
            PoolAction::Assign {
                request,
                proc,
                token,
                reset,
                select,
            } => self.assign(request, (proc, token), (reset, select), turn, ctx),
            PoolAction::Refuse { request, why } => self.refuse(request, why, turn),
            PoolAction::ProcRevoked {
                client,
                proc,
                token,
                why,
            } => self.tell_holder(client, (proc, token), why),
            PoolAction::PoolGone { pool } => self.pool_gone(pool),
            PoolAction::Warn(pool, warning) => self.warn(pool, warning, turn.now),
            PoolAction::Stop { proc, why } => {
                self.metrics_of(proc.pool).count().stops.one(why);
                self.stop(proc, why.is_polite(), None);
            }
        }
    }

    fn watch_deadline(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        if let Some(deadline) = self.core.next_deadline() {
            self.timer.look_by(
                deadline,
                deadline.since(now),
                ctx,
                |manager: &mut Self, ctx| {
                    manager.timer.fired();
                    manager.event(Event::Tick, ctx);
                },
            );
        }
    }

    /// Checks the tables after `wait`, and then again and again.
    pub(super) fn check_after(wait: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(wait, |manager, ctx| {
            let Self {
                findings,
                core,
                metrics,
                log,
                ..
            } = manager;
            let took = findings.check(core, metrics, log);
            Self::check_after(PERIOD.max(took * REST), ctx);
        });
    }

    /// In development builds: requires after an event that every invariant holds.
    fn assert_invariants(&self) {
        if cfg!(debug_assertions)
            && self.core.row_count() <= ROWS_MAX_EACH_EVENT
            && let Some(violation) = violations(&self.core).next()
        {
            panic!("{violation}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use slog::{Drain, Never, OwnedKVList, Record, o};

    use super::*;
    use crate::query_server::status::DaemonStatus;
    use policy::pool::{
        ClientId, Event, Lane, LanguageId, Limits, PoolId, PoolSettings, RequestId, Target,
    };
    use policy::time::Timestamp;

    /// Collects the messages of records.
    #[derive(Clone, Default)]
    struct Messages(Arc<Mutex<Vec<String>>>);

    impl Drain for Messages {
        type Ok = ();
        type Err = Never;

        fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
            let text = record.msg().to_string();
            self.0.lock().expect("not poisoned").push(text);
            Ok(())
        }
    }

    fn counted(metrics: &Metrics, invariant: &str) -> Option<f64> {
        let name = "settee_invariant_violations_total";
        let snapshot = metrics.snapshot(&DaemonStatus::default());
        snapshot.number(name, &[invariant])
    }

    #[test]
    fn a_violation_is_counted_each_time_and_logged_once_for_each_kind() {
        let (metrics, messages) = (Metrics::new(), Messages::default());
        let log = Logger::root(messages.clone().fuse(), o!());
        let mut findings = Findings::default();
        for id in [
            Invariant::Pm1,
            Invariant::Pm1,
            Invariant::Pm5,
            Invariant::Pm1,
        ] {
            let detail = "pool 0: a test".to_owned();
            findings.note(&Violation { id, detail }, &metrics, &log);
        }
        assert_eq!(counted(&metrics, "PM-1"), Some(3.0));
        assert_eq!(counted(&metrics, "PM-5"), Some(1.0));
        assert_eq!(counted(&metrics, "PM-2"), Some(0.0));
        assert_eq!(messages.0.lock().expect("not poisoned").len(), 2);
    }

    #[test]
    fn consistent_tables_give_no_findings_and_too_large_ones_are_not_checked() {
        let (metrics, messages) = (Metrics::new(), Messages::default());
        let log = Logger::root(messages.clone().fuse(), o!());
        let mut findings = Findings::default();
        let mut core = Pools::default();
        let limits = Limits {
            hard_limit: 1,
            soft_limit: 1,
            affinity_wait: Duration::ZERO,
        };
        let pool = core.add_pool(PoolSettings::of_language(LanguageId(0), limits));
        assert_eq!(pool, PoolId(0));
        for number in 1..=ROWS_MAX as u64 {
            let event = Event::GetProc {
                request: RequestId(number),
                client: ClientId(number),
                target: Target::Pool(pool),
                lane: Lane::Interactive,
                affinity: None,
                deadline: Timestamp::ZERO + Duration::from_secs(5),
            };
            core.handle(event, Timestamp::ZERO, &mut Vec::new());
        }
        // All requests, and the opening for the first one.
        assert_eq!(core.row_count(), ROWS_MAX + 1);
        assert_eq!(findings.check(&core, &metrics, &log), Duration::ZERO);
        let client = ClientId(1);
        let conditions = Vec::new();
        let event = Event::ClientDown {
            client,
            normal: false,
            conditions,
        };
        core.handle(event, Timestamp::ZERO, &mut Vec::new());
        assert_eq!(core.row_count(), ROWS_MAX);
        assert!(findings.check(&core, &metrics, &log) > Duration::ZERO);
        assert!(messages.0.lock().expect("not poisoned").is_empty());
    }
}
