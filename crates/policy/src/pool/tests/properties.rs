//! Random histories: the core against the naive model, event by event.
//!
//! SUMMARY   Clients ask, return, cancel and die; openers and helpers succeed and fail; limits
//!           change; processes die; time passes; and late, repeated and invented events come in
//!           between. After every event: the same actions as the model's, and every invariant. At
//!           the end: everybody was answered exactly once.
//!
//! # Replay
//! A failure prints its shortest history and adds a line with its seed to
//! `proptest-regressions/policy/pool/tests/properties.txt`. Every seed in that file runs before any
//! new history; commit the line with the correction. A whole run is repeated with
//! `PROPTEST_RNG_SEED=1 cargo test --lib pool::tests::properties` (any number), and a longer one is
//! made with `PROPTEST_CASES=20000`.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::model::Model;
use super::*;

/// One step of a history. Numbers select among what is there, whatever that is.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        client: u64,
        pool: u32,
        affinity: Option<Affinity>,
        patience_ms: u64,
    },
    Return {
        lease: usize,
        status: ReturnStatus,
        condition: Condition,
        /// Whether the right client returns it with the right token.
        rightful: bool,
    },
    Down {
        client: u64,
        condition: Option<Condition>,
    },
    EndOpening(usize, bool),
    EndHelp(usize, bool),
    EndStopping(usize),
    /// An event about any process that ever was.
    Stray(usize, u8),
    Advance(u64),
    AdvanceToDeadline,
    Reload,
    TerminateStale,
    Configure(u32, Limits),
    Shutdown,
}

/// Drawn as it is so that the seeds that are kept give the histories that they were kept for.
fn client_ends(n: usize) -> Step {
    Step::Down {
        client: n as u64 % 30,
        condition: None,
    }
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let wait = prop_oneof![Just(0), Just(3), Just(20)];
    (0..7_u32, 0..5_u32, wait).prop_map(|(hard_limit, soft_limit, wait_ms)| Limits {
        hard_limit,
        soft_limit,
        affinity_wait: Duration::from_millis(wait_ms),
    })
}

fn any_affinity() -> impl Strategy<Value = Option<Affinity>> {
    let db = prop_oneof![
        1 => Just(None),
        3 => Just(Some("a")),
        3 => Just(Some("b")),
        2 => Just(Some("c")),
    ];
    let ddoc = prop_oneof![Just("_design/1"), Just("_design/2")];
    let rev = prop_oneof![3 => Just("1-a"), 1 => Just("2-b")];
    let some = (db, ddoc, rev).prop_map(|(db, ddoc, rev)| affinity(db, ddoc, rev));
    prop_oneof![1 => Just(None), 4 => some]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        6 => Just(Condition::Clean),
        2 => Just(Condition::NeedsReset),
        1 => Just(Condition::Broken),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let pick = 0..1000_usize;
    let ask = (0..8_u64, 0..3_u32, any_affinity(), 0..60_u64);
    let status = prop_oneof![9 => Just(ReturnStatus::Ok), 1 => Just(ReturnStatus::Fail)];
    let give = (
        pick.clone(),
        status,
        any_condition(),
        prop::bool::weighted(0.9),
    );
    let end = (pick.clone(), prop::bool::weighted(0.85));
    let down = (0..8_u64, prop::option::of(any_condition()));
    prop_oneof![
        30 => ask.prop_map(|(client, pool, affinity, patience_ms)| Step::Ask {
            client, pool, affinity, patience_ms,
        }),
        2 => pick.clone().prop_map(client_ends),
        20 => give.prop_map(|(lease, status, condition, rightful)| Step::Return {
            lease, status, condition, rightful,
        }),
        2 => down.prop_map(|(client, condition)| Step::Down { client, condition }),
        16 => end.clone().prop_map(|(n, ok)| Step::EndOpening(n, ok)),
        16 => end.prop_map(|(n, ok)| Step::EndHelp(n, ok)),
        8 => pick.clone().prop_map(Step::EndStopping),
        5 => (pick, 0..6_u8).prop_map(|(n, kind)| Step::Stray(n, kind)),
        8 => (0..15_u64).prop_map(Step::Advance),
        3 => Just(Step::AdvanceToDeadline),
        1 => Just(Step::Reload),
        1 => Just(Step::TerminateStale),
        2 => (0..3_u32, any_limits()).prop_map(|(pool, limits)| Step::Configure(pool, limits)),
    ]
}

/// Clients of few databases that take and return, patiently, with hardly a mishap: what makes
/// queues long, processes tagged, and waiters overtake each other.
fn any_busy_step() -> impl Strategy<Value = Step> {
    let pick = 0..1000_usize;
    let ask = (0..30_u64, any_affinity(), 100..300_u64);
    prop_oneof![
        20 => ask.prop_map(|(client, affinity, patience_ms)| Step::Ask {
            client, pool: 0, affinity, patience_ms,
        }),
        1 => pick.clone().prop_map(client_ends),
        20 => pick.clone().prop_map(|lease| Step::Return {
            lease, status: ReturnStatus::Ok, condition: Condition::Clean, rightful: true,
        }),
        20 => pick.clone().prop_map(|n| Step::EndOpening(n, true)),
        20 => pick.clone().prop_map(|n| Step::EndHelp(n, true)),
        6 => pick.prop_map(Step::EndStopping),
        5 => (0..10_u64).prop_map(Step::Advance),
        2 => Just(Step::AdvanceToDeadline),
    ]
}

/// Both implementations, and what a manager would remember of their actions.
struct Trial {
    pools: Pools,
    model: Model,
    now: Timestamp,
    next_request: u64,
    opening: Vec<ProcId>,
    helping: Vec<ProcId>,
    stopping: Vec<ProcId>,
    leases: Vec<Lease>,
    procs: Vec<ProcId>,
    asked: BTreeMap<RequestId, (ClientId, Option<Affinity>)>,
    unanswered: BTreeSet<RequestId>,
    tokens: BTreeSet<Token>,
    /// The database whose design documents a process has served.
    served: BTreeMap<ProcId, DbKey>,
}

impl Trial {
    fn new(limits: &[Limits]) -> Self {
        let mut pools = Pools::new();
        for (index, limits) in limits.iter().enumerate() {
            assert_eq!(pools.add_pool(*limits), PoolId(index as u32));
        }
        Self {
            pools,
            model: Model::new(limits),
            now: Timestamp::ZERO,
            next_request: 1,
            opening: Vec::new(),
            helping: Vec::new(),
            stopping: Vec::new(),
            leases: Vec::new(),
            procs: Vec::new(),
            asked: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            tokens: BTreeSet::new(),
            served: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let event = match step {
            Step::Ask {
                client,
                pool,
                affinity,
                patience_ms,
            } => return self.ask(client, pool, affinity, patience_ms),
            Step::Return {
                lease,
                status,
                condition,
                rightful,
            } => match pick(&self.leases, lease) {
                Some(lease) => lease.returned(status, condition, rightful),
                None => return,
            },
            Step::Down { client, condition } => return self.down(ClientId(client), condition),
            Step::EndOpening(n, ok) => match take(&mut self.opening, n) {
                Some(proc) if ok => Event::SpawnOk { proc },
                Some(proc) => Event::SpawnError { proc },
                None => return,
            },
            Step::EndHelp(n, ok) => match take(&mut self.helping, n) {
                Some(proc) => Event::TeachOrResetDone { proc, ok },
                None => return,
            },
            Step::EndStopping(n) => match take(&mut self.stopping, n) {
                Some(proc) => Event::ProcExit { proc },
                None => return,
            },
            Step::Stray(n, kind) => match self.stray(n, kind) {
                Some(event) => event,
                None => return,
            },
            Step::Advance(ms) => {
                self.now = self.now + Duration::from_millis(ms);
                Event::Tick
            }
            Step::AdvanceToDeadline => {
                self.now = self.now.max(self.pools.next_deadline().unwrap_or(self.now));
                Event::Tick
            }
            Step::Reload => Event::SetThresholdTs,
            Step::TerminateStale => Event::TerminateStaleProcs,
            Step::Configure(pool, limits) => Event::Reconfigure {
                pool: PoolId(pool),
                settings: Box::new(limits.into()),
            },
            Step::Shutdown => Event::Shutdown,
        };
        self.on(event);
    }

    fn ask(&mut self, client: u64, pool: u32, affinity: Option<Affinity>, patience_ms: u64) {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let client = ClientId(client);
        // One pool number too many: the request of a pool that does not exist is ignored.
        if (pool as usize) < 2 {
            self.asked.insert(request, (client, affinity.clone()));
            self.unanswered.insert(request);
        }
        self.on(Event::GetProc {
            request,
            client,
            target: Target::Pool(PoolId(pool)),
            lane: Lane::default(),
            affinity,
            deadline: self.now + Duration::from_millis(patience_ms),
        });
    }

    fn down(&mut self, client: ClientId, condition: Option<Condition>) {
        let asked = &self.asked;
        self.unanswered.retain(|request| asked[request].0 != client);
        let held = self.pools.held_by(client).into_iter();
        let conditions = held.filter_map(|proc| Some((proc, condition?))).collect();
        self.on(Event::ClientDown {
            client,
            normal: false,
            conditions,
        });
    }

    fn stray(&self, n: usize, kind: u8) -> Option<Event> {
        let proc = pick(&self.procs, n)?;
        Some(match kind {
            0 | 1 => Event::OsProcIdle { proc },
            2 if !self.opening.contains(&proc) => Event::ProcExit { proc },
            3 if !self.opening.contains(&proc) => Event::SpawnOk { proc },
            4 if !self.opening.contains(&proc) => Event::SpawnError { proc },
            5 if !self.helping.contains(&proc) => Event::TeachOrResetDone { proc, ok: false },
            _ => Event::OsProcIdle {
                proc: ProcId {
                    pool: PoolId(9),
                    number: proc.number,
                },
            },
        })
    }

    /// Tells both, compares what they say, and judges every invariant.
    fn on(&mut self, event: Event) {
        if let Event::ProcExit { proc, .. } = event {
            self.helping.retain(|other| *other != proc);
            self.stopping.retain(|other| *other != proc);
        }
        let mut actions = Vec::new();
        self.pools.handle(event.clone(), self.now, &mut actions);
        let expected = self.model.handle(event.clone(), self.now);
        assert_eq!(actions, expected, "core and model differ about {event:?}");
        if let Some(violation) = violations(&self.pools).next() {
            panic!("after {event:?}: {violation}");
        }
        assert_eq!(self.pools.proc_count() as usize, self.model.count());
        for action in actions {
            self.note(action);
        }
        let pools = &self.pools;
        self.leases
            .retain(|lease| pools.holds(lease.client, lease.proc, lease.token));
    }

    fn note(&mut self, action: Action) {
        match action {
            Action::Open { proc, .. } => {
                self.opening.push(proc);
                self.procs.push(proc);
            }
            Action::Teach { proc, .. } | Action::Reset { proc } => self.helping.push(proc),
            Action::Stop { proc, .. } => {
                self.helping.retain(|other| *other != proc);
                self.stopping.push(proc);
            }
            Action::Refuse { request, .. } => self.answered(request),
            Action::Assign {
                request,
                proc,
                token,
            } => {
                self.answered(request);
                assert!(self.tokens.insert(token), "PM-3: {token:?} was used before");
                let (client, affinity) = self.asked[&request].clone();
                if let Some(db) = affinity.and_then(|affinity| affinity.db) {
                    let before = self.served.entry(proc).or_insert_with(|| db.clone());
                    assert_eq!(*before, db, "PM-8: {proc} serves two databases");
                }
                self.leases.push(Lease {
                    client,
                    proc,
                    token,
                });
            }
            Action::ProcRevoked { .. } | Action::PoolGone { .. } | Action::Warn(_) => {
                panic!("{action:?} of a language's own pool")
            }
        }
    }

    fn answered(&mut self, request: RequestId) {
        assert!(self.unanswered.remove(&request), "PM-4: {request:?} again");
    }

    /// Lets everything end well until nothing is left to happen.
    fn wind_up(&mut self) {
        loop {
            if let Some(proc) = self.opening.pop() {
                self.on(Event::SpawnOk { proc });
            } else if let Some(proc) = self.helping.pop() {
                self.on(Event::TeachOrResetDone { proc, ok: true });
            } else if let Some(proc) = self.stopping.pop() {
                self.on(Event::ProcExit { proc });
            } else if let Some(lease) = self.leases.first().copied() {
                self.on(lease.returned(ReturnStatus::Ok, Condition::Clean, true));
            } else if let Some(at) = self.pools.next_deadline() {
                self.now = at;
                self.on(Event::Tick);
                assert_ne!(self.pools.next_deadline(), Some(at), "a tick is of use");
            } else {
                break;
            }
        }
        assert_eq!(
            self.unanswered,
            BTreeSet::new(),
            "PM-4: left without answer"
        );
        assert_eq!(self.model.open_requests(), 0);
    }
}

impl Lease {
    fn returned(self, status: ReturnStatus, condition: Condition, rightful: bool) -> Event {
        let spoilt = u64::from(!rightful);
        Event::RetProc {
            client: ClientId(self.client.0 + spoilt * (self.token.0 % 2)),
            proc: self.proc,
            token: Token(self.token.0 + spoilt * (1 - self.token.0 % 2)),
            status,
            condition,
        }
    }
}

fn pick<T: Copy>(from: &[T], n: usize) -> Option<T> {
    from.get(n.checked_rem(from.len())?).copied()
}

fn take<T>(from: &mut Vec<T>, n: usize) -> Option<T> {
    let at = n.checked_rem(from.len())?;
    Some(from.remove(at))
}

proptest! {
    #[test]
    fn core_and_model_agree_and_everybody_is_answered_once(
        limits in prop::collection::vec(any_limits(), 2),
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let mut trial = Trial::new(&limits);
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn core_and_model_agree_when_waiters_may_overtake(
        hard_limit in 1..6_u32,
        wait_ms in prop_oneof![Just(0), 20..80_u64],
        steps in prop::collection::vec(any_busy_step(), 50..200),
    ) {
        let affinity_wait = Duration::from_millis(wait_ms);
        let limits = Limits { hard_limit, soft_limit: 2, affinity_wait };
        let mut trial = Trial::new(&[limits]);
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn after_a_shutdown_everybody_is_answered_and_nothing_is_left(
        limits in prop::collection::vec(any_limits(), 2),
        before in prop::collection::vec(any_step(), 1..80),
        after in prop::collection::vec(any_step(), 0..20),
    ) {
        let mut trial = Trial::new(&limits);
        for step in before {
            trial.step(step);
        }
        trial.step(Step::Shutdown);
        prop_assert!(trial.unanswered.is_empty());
        for step in after {
            trial.step(step);
        }
        trial.wind_up();
        prop_assert_eq!(trial.pools.proc_count(), 0);
    }
}
