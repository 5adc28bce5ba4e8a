//! Random histories of named pools: added, changed and removed while clients borrow, return and crash.
//!
//! SUMMARY   A manager that keeps its state in plain lists: pending openings, helpers and stopping processes, and the
//!           result of each request and lease. After every event, the invariants are checked, and each pool's status is
//!           compared with these lists.
//! PROMISES  At the end: every request was answered once, every removed pool is gone, and no process was lost or lent
//!           twice.
//! LIMITS    Named pools have no second implementation to compare with: the model covers languages' own pools, which
//!           use the same tables.
//!
//! # Replay
//! As for the histories of languages' own pools, see `properties.rs`; the seeds of failures are kept in
//! `proptest-regressions/pool/tests/histories.txt`.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::trial::{pick, take};
use super::*;

/// One step. Numbers select among existing items.
#[derive(Clone, Debug)]
enum Step {
    Add(Box<PoolSettings>),
    Remove(usize, RemoveMode),
    Reconfigure(usize, Box<PoolSettings>),
    Ask {
        client: u64,
        target: usize,
        affinity: Option<Affinity>,
        lane: Lane,
        patience_s: u64,
    },
    Return(usize, ReturnStatus, Condition),
    Down(u64, bool),
    Withdraw(usize),
    EndOpening(usize, bool),
    EndHelp(usize, bool),
    EndStopping(usize),
    Ceiling(u32),
    Die(usize),
    Memory(usize, u64),
    LongIdle(usize),
    Advance(u64),
    AdvanceToDeadline,
    Unthrottle(usize),
    Reload,
}

fn any_settings() -> impl Strategy<Value = PoolSettings> {
    let sizes = (0..7_u32, 0..4_u32, 0..4_u32, prop::option::of(0..4_u32));
    let groups = (prop::option::of(0..2_u32), 0..2_u32);
    let recycle = (
        prop::option::of(1..4_u64),
        prop::option::of(5..50_u64),
        0..=100_u8,
        prop::option::of(50..100_u64),
        prop::option::of(100..150_u64),
    );
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let cull = prop::option::of((1..20_u64, 1..10_u64));
    (sizes, groups, recycle, flags, cull, 0..3_u32).prop_map(
        |(sizes, groups, recycle, flags, cull, interactive_reserved)| {
            let (max, init_size, min_free, queue_max) = sizes;
            let (max_uses, max_age, jitter_percent, memory_soft, memory_hard) = recycle;
            let (replace, throttled, stress, per_db) = flags;
            let seconds = Duration::from_secs;
            let base = named(max);
            PoolSettings {
                language: LanguageId(groups.1),
                group: groups.0.map(GroupId),
                limits: Limits {
                    affinity_wait: seconds(u64::from(per_db)),
                    ..base.limits
                },
                init_size,
                min_free,
                queue_max,
                on_client_crash: match replace {
                    true => OnClientCrash::Replace,
                    false => OnClientCrash::Return,
                },
                recycle: Recycle {
                    max_uses,
                    max_age: max_age.map(seconds),
                    jitter_percent,
                    memory_soft,
                    memory_hard,
                },
                cull: cull.map(|(after, interval)| Cull {
                    after: seconds(after),
                    interval: seconds(interval),
                }),
                throttle: base.throttle.filter(|_| throttled),
                stress,
                // Derived from others, so that kept seeds give the same settings.
                can_forget: replace != per_db,
                fairness: match per_db {
                    true => Fairness::PerDb,
                    false => Fairness::Fifo,
                },
                interactive_reserved,
                ..base
            }
        },
    )
}

fn valid_settings() -> impl Strategy<Value = PoolSettings> {
    any_settings().prop_map(|mut settings| {
        let max = settings.limits.hard_limit;
        settings.init_size = settings.init_size.min(max);
        settings.min_free = settings.min_free.min(max);
        settings.interactive_reserved = settings.interactive_reserved.min(max.saturating_sub(1));
        settings
    })
}

fn any_affinity() -> impl Strategy<Value = Option<Affinity>> {
    let db = prop_oneof![Just(Some("a")), Just(Some("b")), Just(None)];
    let some = (db, prop_oneof![Just("_design/1"), Just("_design/2")])
        .prop_map(|(db, ddoc)| affinity(db, ddoc, "1-a"));
    prop_oneof![2 => Just(None), 3 => some]
}

fn any_step() -> impl Strategy<Value = Step> {
    let pick = 0..1000_usize;
    let mode = prop_oneof![Just(RemoveMode::Graceful), Just(RemoveMode::Immediate)];
    let lane = prop_oneof![Just(Lane::Interactive), Just(Lane::Bulk)];
    let status = prop_oneof![8 => Just(ReturnStatus::Ok), 1 => Just(ReturnStatus::Fail)];
    let condition = prop_oneof![
        6 => Just(Condition::Clean),
        1 => Just(Condition::NeedsReset),
        1 => Just(Condition::NeedsForgetting),
        1 => Just(Condition::Broken),
    ];
    let ask = (0..8_u64, pick.clone(), any_affinity(), lane, 0..40_u64);
    let end = (pick.clone(), prop::bool::weighted(0.85));
    let seconds = prop_oneof![4 => 0..4_u64, 1 => 0..100_u64];
    prop_oneof![
        3 => valid_settings().prop_map(|settings| Step::Add(Box::new(settings))),
        2 => (pick.clone(), mode).prop_map(|(n, mode)| Step::Remove(n, mode)),
        3 => (pick.clone(), any_settings())
            .prop_map(|(n, settings)| Step::Reconfigure(n, Box::new(settings))),
        30 => ask.prop_map(|(client, target, affinity, lane, patience_s)| Step::Ask {
            client, target, affinity, lane, patience_s,
        }),
        1 => pick.clone().prop_map(Step::Withdraw),
        20 => (pick.clone(), status, condition)
            .prop_map(|(n, status, condition)| Step::Return(n, status, condition)),
        3 => (0..8_u64, any::<bool>()).prop_map(|(client, normal)| Step::Down(client, normal)),
        18 => end.clone().prop_map(|(n, ok)| Step::EndOpening(n, ok)),
        12 => end.prop_map(|(n, ok)| Step::EndHelp(n, ok)),
        10 => pick.clone().prop_map(Step::EndStopping),
        2 => pick.clone().prop_map(Step::Die),
        2 => (0..12_u32).prop_map(Step::Ceiling),
        3 => (pick.clone(), 0..160_u64).prop_map(|(n, bytes)| Step::Memory(n, bytes)),
        2 => pick.clone().prop_map(Step::LongIdle),
        5 => seconds.prop_map(Step::Advance),
        5 => Just(Step::AdvanceToDeadline),
        1 => pick.prop_map(Step::Unthrottle),
        1 => Just(Step::Reload),
    ]
}

/// The state that a manager derives from the actions.
#[derive(Default)]
struct Manager {
    pools: Pools,
    now: Timestamp,
    next_request: u64,
    /// Existing pools.
    live: Vec<PoolId>,
    opening: Vec<ProcId>,
    helping: Vec<ProcId>,
    stopping: Vec<ProcId>,
    /// Every process from its start until it is stopped or dies.
    procs: BTreeSet<ProcId>,
    leases: Vec<Lease>,
    unanswered: BTreeMap<RequestId, ClientId>,
}

impl Manager {
    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn step(&mut self, step: Step) {
        let event = match step {
            Step::Add(settings) => {
                if self.live.len() == 6 {
                    return;
                }
                let pool = self.pools.add_pool(*settings);
                assert!(!self.live.contains(&pool), "another pool has this id");
                self.live.push(pool);
                Some(Event::StartPool { pool })
            }
            Step::Remove(n, mode) => {
                pick(&self.live, n).map(|pool| Event::RemovePool { pool, mode })
            }
            Step::Reconfigure(n, settings) => {
                pick(&self.live, n).map(|pool| Event::Reconfigure { pool, settings })
            }
            Step::Ask {
                client,
                target,
                affinity,
                lane,
                patience_s,
            } => Some(self.ask(client, target, affinity, lane, patience_s)),
            Step::Return(n, status, condition) => {
                pick(&self.leases, n).map(|lease| Event::RetProc {
                    client: lease.client,
                    proc: lease.proc,
                    token: lease.token,
                    status,
                    condition,
                })
            }
            Step::Down(client, normal) => {
                let client = ClientId(client);
                self.unanswered.retain(|_, other| *other != client);
                Some(Event::ClientDown {
                    client,
                    normal,
                    conditions: Vec::new(),
                })
            }
            Step::Withdraw(n) => {
                let open: Vec<RequestId> = self.unanswered.keys().copied().collect();
                pick(&open, n).map(|request| {
                    self.unanswered.remove(&request);
                    Event::Withdraw { request }
                })
            }
            Step::EndOpening(n, ok) => take(&mut self.opening, n).map(|proc| match ok {
                true => {
                    assert!(self.procs.insert(proc), "{proc} is opened twice");
                    Event::SpawnOk { proc }
                }
                false if n % 2 == 0 => Event::SpawnKilled { proc },
                false => Event::SpawnError { proc },
            }),
            Step::EndHelp(n, ok) => {
                take(&mut self.helping, n).map(|proc| Event::TeachOrResetDone { proc, ok })
            }
            Step::EndStopping(n) => {
                take(&mut self.stopping, n).map(|proc| Event::ProcExit { proc })
            }
            Step::Die(n) => {
                // What is due happens first, and may stop this process.
                self.on(Event::Tick);
                self.any_proc(n).map(|proc| {
                    self.procs.remove(&proc);
                    self.helping.retain(|other| *other != proc);
                    match n % 2 {
                        0 => Event::ProcExit { proc },
                        _ => Event::ProcFailed {
                            proc,
                            age: Duration::from_secs(n as u64 % 7),
                        },
                    }
                })
            }
            Step::Memory(n, bytes) => self.any_proc(n).map(|proc| Event::Memory { proc, bytes }),
            Step::LongIdle(n) => self.any_proc(n).map(|proc| Event::OsProcIdle { proc }),
            Step::Advance(seconds) => {
                self.now = self.now + Duration::from_secs(seconds);
                Some(Event::Tick)
            }
            Step::AdvanceToDeadline => {
                self.now = self.now.max(self.pools.next_deadline().unwrap_or(self.now));
                Some(Event::Tick)
            }
            Step::Unthrottle(n) => pick(&self.live, n).map(|pool| Event::Unthrottle { pool }),
            Step::Reload => Some(Event::SetThresholdTs),
            Step::Ceiling(max) => Some(Event::SetCeiling {
                max: Some(max).filter(|max| *max > 0),
            }),
        };
        if let Some(event) = event {
            self.on(event);
        }
    }

    fn ask(
        &mut self,
        client: u64,
        target: usize,
        affinity: Option<Affinity>,
        lane: Lane,
        patience_s: u64,
    ) -> Event {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let client = ClientId(client);
        let number = target as u32 % 2;
        let target = match (target % 3, pick(&self.live, target / 3)) {
            (0, Some(pool)) => Target::Pool(pool),
            (1, _) => Target::Group(GroupId(number)),
            _ => Target::Any(LanguageId(number)),
        };
        self.unanswered.insert(request, client);
        Event::GetProc {
            request,
            client,
            target,
            lane,
            affinity,
            deadline: self.now + Duration::from_secs(patience_s),
        }
    }

    fn any_proc(&self, n: usize) -> Option<ProcId> {
        let procs: Vec<ProcId> = self.procs.iter().copied().collect();
        pick(&procs, n)
    }

    fn on(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.pools.handle(event.clone(), self.now, &mut actions);
        for action in actions {
            self.note(action);
        }
        let pools = &self.pools;
        self.leases
            .retain(|lease| pools.holds(lease.client, lease.proc, lease.token));
        if let Some(violation) = violations(pools).next() {
            panic!("after {event:?}: {violation}");
        }
        self.check(&event);
    }

    fn note(&mut self, action: PoolAction) {
        match action {
            PoolAction::Open { proc, .. } => self.opening.push(proc),
            PoolAction::Teach { proc, .. }
            | PoolAction::Reset { proc }
            | PoolAction::Forget { proc } => {
                self.helping.push(proc);
            }
            PoolAction::Stop { proc, .. } => {
                assert!(self.procs.remove(&proc), "{proc} is stopped twice");
                self.helping.retain(|other| *other != proc);
                self.stopping.push(proc);
            }
            PoolAction::Refuse { request, .. } => self.answered(request),
            PoolAction::Assign {
                request,
                proc,
                token,
                ..
            } => {
                let client = self.unanswered[&request];
                self.answered(request);
                let held = self.leases.iter().any(|lease| lease.proc == proc);
                let lent = held && self.pools.holds(client, proc, token);
                let stale = |lease: &&Lease| lease.proc == proc && lease.token != token;
                let before = self.leases.iter().find(stale);
                let twice = before
                    .is_some_and(|lease| self.pools.holds(lease.client, lease.proc, lease.token));
                assert!(!twice, "{proc} is lent twice ({lent})");
                self.leases.push(Lease {
                    client,
                    proc,
                    token,
                });
            }
            PoolAction::ProcRevoked {
                client,
                proc,
                token,
                ..
            } => {
                let is_it = |lease: &Lease| {
                    (lease.client, lease.proc, lease.token) == (client, proc, token)
                };
                assert!(self.leases.iter().any(is_it), "an unknown lease is revoked");
            }
            PoolAction::PoolGone { pool } => {
                let left = self.procs.iter().chain(&self.opening).chain(&self.stopping);
                assert!(
                    left.clone().all(|proc| proc.pool != pool),
                    "{:?}",
                    left.collect::<Vec<_>>()
                );
                self.live.retain(|other| *other != pool);
            }
            PoolAction::Warn(_, Warning::SpawnRefused(why)) => panic!("{why}"),
            PoolAction::Warn(..) => {}
        }
    }

    fn answered(&mut self, request: RequestId) {
        let was_open = self.unanswered.remove(&request).is_some();
        assert!(was_open, "PM-4: {request:?} is answered twice");
    }

    /// Compares the status of every pool with the manager's lists.
    fn check(&self, event: &Event) {
        for &pool in &self.live {
            let status = self.pools.status(pool, self.now);
            let of = |procs: &[ProcId]| procs.iter().filter(|proc| proc.pool == pool).count();
            let procs = self.procs.iter().filter(|proc| proc.pool == pool).count();
            let leases = self.leases.iter().filter(|lease| lease.proc.pool == pool);
            assert_eq!((status.used + status.free) as usize, procs, "{event:?}");
            assert_eq!(status.opening as usize, of(&self.opening), "{event:?}");
            assert_eq!(status.stopping as usize, of(&self.stopping), "{event:?}");
            assert!(leases.count() + of(&self.helping) <= status.used as usize);
        }
    }

    /// Removes every pool, completes all work, and asserts that nothing is left.
    fn wind_up(&mut self) {
        let mode = RemoveMode::Graceful;
        for pool in self.live.clone() {
            self.on(Event::RemovePool { pool, mode });
        }
        let mut steps = 0;
        while !self.live.is_empty() || !self.unanswered.is_empty() {
            steps += 1;
            assert!(steps < 10_000, "removal does not end: {:?}", self.live);
            if !self.opening.is_empty() {
                self.step(Step::EndOpening(steps, true));
            } else if !self.helping.is_empty() {
                self.step(Step::EndHelp(0, true));
            } else if !self.stopping.is_empty() {
                self.step(Step::EndStopping(0));
            } else if !self.leases.is_empty() {
                self.step(Step::Return(0, ReturnStatus::Ok, Condition::Clean));
            } else {
                self.step(Step::AdvanceToDeadline);
            }
        }
        assert_eq!(self.pools.proc_count(), 0);
        assert_eq!(self.procs, BTreeSet::new());
        assert_eq!(self.pools.next_deadline(), None);
    }
}

/// Changes a step: most pools do not share their processes, and clients without a design document may name a
/// database.
fn apart(step: Step) -> Step {
    let apart = |mut settings: Box<PoolSettings>| {
        if settings.recycle.jitter_percent > 20 {
            settings.reuse = Reuse::Database;
        }
        settings
    };
    match step {
        Step::Add(settings) => Step::Add(apart(settings)),
        Step::Reconfigure(n, settings) => Step::Reconfigure(n, apart(settings)),
        Step::Ask {
            client,
            target,
            affinity: None,
            lane,
            patience_s,
        } if client % 2 == 0 => Step::Ask {
            client,
            target,
            affinity: plain(db("a")),
            lane,
            patience_s,
        },
        other => other,
    }
}

proptest! {
    #[test]
    fn every_request_is_answered_once_and_removal_ends(
        first in valid_settings(),
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        let mut manager = Manager::default();
        manager.step(Step::Add(Box::new(first)));
        for step in steps {
            manager.step(step);
        }
        manager.wind_up();
    }

    #[test]
    fn every_request_is_answered_once_and_removal_ends_where_processes_are_not_shared(
        first in valid_settings(),
        steps in prop::collection::vec(any_step().prop_map(apart), 1..120),
    ) {
        let mut manager = Manager::default();
        manager.step(apart(Step::Add(Box::new(first))));
        for step in steps {
            manager.step(step);
        }
        manager.wind_up();
    }
}
