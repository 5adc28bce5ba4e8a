//! The ceiling over all pools: who gets a place when all are taken.

use std::collections::BTreeMap;

use super::*;
use test_support::TestRandom;

fn world_of(max: u32, settings: &[PoolSettings]) -> World {
    let mut world = World::empty();
    world.on(Event::SetCeiling { max: Some(max) });
    for settings in settings {
        world.add(*settings);
        world.run();
    }
    world
}

fn ask_pool(world: &mut World, client: u64, pool: u32) -> RequestId {
    world.ask_of(client, Target::Pool(PoolId(pool)))
}

fn take_of(world: &mut World, client: u64, pool: u32) -> Lease {
    let request = ask_pool(world, client, pool);
    world.run();
    world.lease(request, client).expect("there is a place")
}

#[test]
fn pool_with_a_waiter_and_no_process_gets_the_place_of_the_longest_idle_process() {
    let mut world = world_of(3, &[named(5), named(5), named(5)]);
    let leases = [
        take_of(&mut world, 1, 0),
        take_of(&mut world, 2, 0),
        take_of(&mut world, 3, 1),
    ];
    for lease in [leases[1], leases[2], leases[0]] {
        world.advance(Duration::from_secs(1));
        world.give_back(lease);
    }
    let request = ask_pool(&mut world, 4, 2);
    // The place is free only once the process has ended.
    assert_eq!(stopped(&world.last), [(leases[1].proc, StopReason::Reaped)]);
    assert_eq!(opened(&world.last), []);
    let actions = world.exit(leases[1].proc);
    assert_eq!(opened(&actions)[0].1, Some(request));
}

#[test]
fn process_in_use_is_never_stopped_and_makes_way_on_return() {
    let mut world = world_of(2, &[named(5), named(5)]);
    let leases = [1, 2].map(|client| take_of(&mut world, client, 0));
    let own = ask_pool(&mut world, 3, 0);
    let other = ask_pool(&mut world, 4, 1);
    assert_eq!(world.last, [], "both wait");
    world.give_back(leases[0]);
    assert_eq!(stopped(&world.last), [(leases[0].proc, StopReason::Reaped)]);
    let actions = world.exit(leases[0].proc);
    assert_eq!(opened(&actions)[0].1, Some(other), "it has none in use");
    world.give_back(leases[1]);
    assert!(world.lease(own, 3).is_some(), "each has one");
}

#[test]
fn returned_process_stays_with_its_pool_for_a_while_and_then_goes_to_the_waiter() {
    let mut world = world_of(1, &[named(5), named(5)]);
    let lease = take_of(&mut world, 1, 0);
    let other = ask_pool(&mut world, 2, 1);
    world.give_back(lease);
    assert_eq!(world.last, []);
    let until = world.now + EXCHANGE_AFTER;
    assert_eq!(world.pools.next_deadline(), Some(until));
    world.now = until;
    assert_eq!(
        stopped(&world.on(Event::Tick)),
        [(lease.proc, StopReason::Reaped)]
    );
    world.run();
    assert!(world.lease(other, 2).is_some());
}

#[test]
fn returned_process_goes_to_a_waiter_of_its_own_pool_that_has_waited_longer() {
    let mut world = world_of(1, &[named(5), named(5)]);
    let lease = take_of(&mut world, 1, 0);
    let own = ask_pool(&mut world, 2, 0);
    world.advance(Duration::from_millis(1));
    ask_pool(&mut world, 3, 1);
    ask_pool(&mut world, 4, 0);
    world.advance(EXCHANGE_AFTER);
    world.give_back(lease);
    let lease = world.lease(own, 2).expect("it has waited longer");
    world.give_back(lease);
    assert_eq!(stopped(&world.last), [(lease.proc, StopReason::Reaped)]);
}

#[test]
fn idle_process_that_the_waiters_of_its_own_pool_cannot_use_is_stopped_at_once() {
    let mut world = world_of(1, &[limits(5, 5).into()]);
    let lease = world.take(1, tagged("a", "_design/1"));
    world.give_back(lease);
    world.ask(2, tagged("b", "_design/1"));
    assert_eq!(stopped(&world.last), [(lease.proc, StopReason::Reaped)]);
}

#[test]
fn one_waiter_of_another_pool_stops_only_one_process() {
    let mut world = world_of(3, &[named(5), named(5)]);
    let leases = [1, 2, 3].map(|client| take_of(&mut world, client, 0));
    for (client, pool) in [(4, 1), (5, 0), (6, 0)] {
        ask_pool(&mut world, client, pool);
    }
    world.give_back(leases[0]);
    assert_eq!(stopped(&world.last), [(leases[0].proc, StopReason::Reaped)]);
    world.give_back(leases[1]);
    assert_eq!(
        stopped(&world.last),
        [],
        "the place of the first is on its way"
    );
}

#[test]
fn process_skips_the_waiter_of_another_pool_once() {
    let mut world = world_of(1, &[named(5), named(5)]);
    let lease = take_of(&mut world, 1, 0);
    let other = ask_pool(&mut world, 2, 1);
    world.give_back(lease);
    world.advance(EXCHANGE_AFTER / 2);
    let lease = take_of(&mut world, 1, 0);
    let own = ask_pool(&mut world, 3, 0);
    world.advance(EXCHANGE_AFTER / 2);
    world.give_back(lease);
    assert_eq!(stopped(&world.last), [(lease.proc, StopReason::Reaped)]);
    world.run();
    let lease = world.lease(other, 2).expect("it has waited longer");
    world.advance(EXCHANGE_AFTER);
    world.give_back(lease);
    world.run();
    assert!(world.lease(own, 3).is_some());
}

#[test]
fn pools_that_all_want_more_get_equal_shares() {
    let mut world = world_of(6, &[named(9), named(9), named(9)]);
    let mut leases: Vec<Lease> = (1..=6)
        .map(|client| take_of(&mut world, client, 0))
        .collect();
    let mut clients: BTreeMap<RequestId, u64> = BTreeMap::new();
    let mut client = 10;
    for _ in 0..60 {
        for pool in 0..3 {
            let waiting = world.pools.status(PoolId(pool), world.now).waiting;
            for _ in waiting..3 {
                client += 1;
                clients.insert(ask_pool(&mut world, client, pool), client);
            }
        }
        let lease = leases.remove(0);
        world.give_back(lease);
        world.run();
        for (request, client) in &clients {
            leases.extend(world.lease(*request, *client));
        }
    }
    let used = [0, 1, 2].map(|pool| world.counts(PoolId(pool)).0);
    assert_eq!(used, [2, 2, 2]);
}

#[test]
fn process_kept_in_advance_makes_way_only_for_a_pool_with_none_in_use() {
    let reserve = PoolSettings {
        min_free: 1,
        ..named(5)
    };
    let mut world = world_of(2, &[reserve, named(5)]);
    assert_eq!(world.counts(PoolId(0)), (0, 1, 0));
    take_of(&mut world, 1, 1);
    ask_pool(&mut world, 2, 1);
    assert_eq!(stopped(&world.last), [], "one of its own may come back");
    let size = PoolSettings {
        init_size: 3,
        ..named(5)
    };
    let mut world = world_of(4, &[size, named(5)]);
    let leases = [1, 2, 3].map(|client| take_of(&mut world, client, 0));
    take_of(&mut world, 4, 1);
    ask_pool(&mut world, 5, 1);
    assert_eq!(world.give_back(leases[0]), [], "it has one in use");
    assert_eq!(world.advance(EXCHANGE_AFTER), []);
    let mut world = world_of(1, &[reserve, named(5)]);
    world.advance(EXCHANGE_AFTER);
    let request = ask_pool(&mut world, 1, 1);
    assert_eq!(stopped(&world.last).len(), 1);
    world.run();
    let lease = world.lease(request, 1).expect("it has none");
    // The process kept in advance is reopened as soon as there is a place.
    world.give_back_as(lease, ReturnStatus::Fail, Condition::Broken);
    let actions = world.exit(lease.proc);
    assert_eq!(opened(&actions).len(), 1);
}

#[test]
fn waiters_precede_processes_kept_in_advance() {
    let size = PoolSettings {
        init_size: 2,
        ..named(5)
    };
    let mut world = world_of(2, &[named(5)]);
    let leases = [1, 2].map(|client| take_of(&mut world, client, 0));
    world.add(size);
    assert_eq!(opened(&world.last), []);
    let waiter = ask_pool(&mut world, 3, 0);
    let actions = world.exit(leases[0].proc);
    assert_eq!(opened(&actions).len(), 1);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
    let actions = world.exit(leases[1].proc);
    let pools: Vec<PoolId> = opened(&actions).iter().map(|(proc, _)| proc.pool).collect();
    assert_eq!(pools, [PoolId(1)]);
}

#[test]
fn lowered_ceiling_stops_idle_processes_at_once_and_lent_ones_on_return() {
    let mut world = world_of(4, &[named(5), named(5)]);
    let held = take_of(&mut world, 1, 0);
    let other = take_of(&mut world, 2, 1);
    let idle = [take_of(&mut world, 3, 0), take_of(&mut world, 4, 1)];
    for lease in idle {
        world.give_back(lease);
    }
    let actions = world.on(Event::SetCeiling { max: Some(1) });
    assert_eq!(stopped(&actions).len(), 2);
    for lease in idle {
        world.exit(lease.proc);
    }
    world.give_back(held);
    assert_eq!(stopped(&world.last), [(held.proc, StopReason::OverLimit)]);
    world.exit(held.proc);
    world.give_back(other);
    assert_eq!(stopped(&world.last), []);
    let request = ask_pool(&mut world, 5, 0);
    world.on(Event::SetCeiling { max: None });
    world.run();
    assert!(world.lease(request, 5).is_some() || world.pools.is_full());
    assert!(!world.pools.is_full());
}

#[test]
fn lowered_ceiling_stops_processes_that_pools_keep_in_advance_last() {
    let size = PoolSettings {
        init_size: 1,
        ..named(5)
    };
    let mut world = world_of(2, &[size, named(5)]);
    world.advance(EXCHANGE_AFTER);
    let lease = take_of(&mut world, 1, 1);
    world.give_back(lease);
    world.on(Event::SetCeiling { max: Some(1) });
    assert_eq!(stopped(&world.last), [(lease.proc, StopReason::OverLimit)]);
}

#[test]
fn plan_of_an_added_pool_respects_the_ceiling() {
    let world = world_of(3, &[named(5)]);
    let settings = PoolSettings {
        init_size: 5,
        ..named(5)
    };
    assert_eq!(world.pools.plan_add(&settings), 3);
}

/// Random clients of several pools under a moving ceiling.
///
/// PROMISES  No opening exceeds the ceiling, no held process is stopped, and each waiter is eventually served while
///           others continue.
struct Crowd {
    world: World,
    random: TestRandom,
    max: u32,
    waiting: BTreeMap<RequestId, u64>,
    leases: Vec<Lease>,
    opening: Vec<ProcId>,
    helping: Vec<ProcId>,
    stopping: Vec<ProcId>,
    next_client: u64,
}

const POOLS: usize = 4;

impl Crowd {
    fn new(mut random: TestRandom) -> Self {
        let mut world = World::empty();
        let max = 1 + random.below(6) as u32;
        world.on(Event::SetCeiling { max: Some(max) });
        let mut crowd = Self {
            world,
            random,
            max,
            waiting: BTreeMap::new(),
            leases: Vec::new(),
            opening: Vec::new(),
            helping: Vec::new(),
            stopping: Vec::new(),
            next_client: 1,
        };
        for _ in 0..POOLS {
            let settings = crowd.settings();
            crowd.world.add(settings);
            crowd.take_note();
        }
        crowd
    }

    fn settings(&mut self) -> PoolSettings {
        let random = &mut self.random;
        let hard = 1 + random.below(5) as u32;
        let limits = Limits {
            affinity_wait: Duration::from_secs(random.below(3) as u64),
            ..limits(hard, hard)
        };
        let kind = *random.one_of(&[PoolKind::Language, PoolKind::Named]);
        PoolSettings {
            kind,
            group: Some(GroupId(random.below(2) as u32)),
            limits,
            init_size: random.below(2) as u32,
            min_free: random.below(2) as u32,
            can_forget: random.below(2) == 0,
            throttle: None,
            ..named(hard)
        }
    }

    fn on(&mut self, event: Event) {
        self.world.on(event);
        self.take_note();
    }

    /// Records what the latest actions began.
    fn take_note(&mut self) {
        for action in std::mem::take(&mut self.world.last) {
            match action {
                PoolAction::Open { proc, .. } => {
                    self.opening.push(proc);
                    let ceiling = &self.world.pools.ledger.ceiling;
                    let there = ceiling.live + ceiling.ending;
                    assert!(there <= self.max, "{there} of {}", self.max);
                }
                PoolAction::Teach { proc, .. }
                | PoolAction::Reset { proc }
                | PoolAction::Forget { proc } => {
                    self.helping.push(proc);
                }
                PoolAction::Assign {
                    request,
                    proc,
                    token,
                    ..
                } => {
                    let client = ClientId(self.waiting.remove(&request).expect("it waits"));
                    self.leases.push(Lease {
                        client,
                        proc,
                        token,
                    });
                }
                PoolAction::Stop { proc, .. } => {
                    let held = self.leases.iter().any(|lease| lease.proc == proc);
                    assert!(!held, "{proc} is in use");
                    self.stopping.push(proc);
                }
                PoolAction::Refuse { request, why } => panic!("{request:?}: {why:?}"),
                PoolAction::ProcRevoked { .. }
                | PoolAction::PoolGone { .. }
                | PoolAction::Warn(..) => {}
            }
        }
    }

    fn ask(&mut self) -> RequestId {
        let target = match self.random.below(3) {
            0 => Target::Group(GroupId(self.random.below(2) as u32)),
            _ => Target::Pool(PoolId(self.random.below(POOLS) as u32)),
        };
        // A group may be without pools.
        let target = match target {
            Target::Group(_) if self.world.pools.members.of(target).is_empty() => {
                Target::Pool(PoolId(0))
            }
            target => target,
        };
        let affinity = match self.random.below(3) {
            0 => tagged(["a", "b"][self.random.below(2)], "_design/x"),
            _ => None,
        };
        self.next_client += 1;
        let request = RequestId(self.world.next_request);
        self.world.next_request += 1;
        self.waiting.insert(request, self.next_client);
        self.on(Event::GetProc {
            request,
            client: ClientId(self.next_client),
            target,
            lane: Lane::default(),
            affinity,
            deadline: self.world.now + Duration::from_secs(1_000_000),
        });
        request
    }

    fn pick(random: &mut TestRandom, list: &mut Vec<ProcId>) -> Option<ProcId> {
        (!list.is_empty()).then(|| list.swap_remove(random.below(list.len())))
    }

    fn give_back(&mut self, at: usize) {
        let lease = self.leases.swap_remove(at);
        let condition = *self.random.one_of(&[
            Condition::Clean,
            Condition::Clean,
            Condition::NeedsReset,
            Condition::Broken,
        ]);
        self.on(Event::RetProc {
            client: lease.client,
            proc: lease.proc,
            token: lease.token,
            status: ReturnStatus::Ok,
            condition,
        });
    }

    fn step(&mut self, may_ask: bool) {
        match self.random.below(12) {
            0..=3 if may_ask => {
                self.ask();
            }
            4..=6 if !self.leases.is_empty() => {
                let at = self.random.below(self.leases.len());
                self.give_back(at);
            }
            7 | 8 => {
                if let Some(proc) = Self::pick(&mut self.random, &mut self.opening) {
                    self.on(Event::SpawnOk { proc });
                }
            }
            9 => {
                if let Some(proc) = Self::pick(&mut self.random, &mut self.helping) {
                    self.on(Event::TeachOrResetDone { proc, ok: true });
                }
            }
            10 => {
                if let Some(proc) = Self::pick(&mut self.random, &mut self.stopping) {
                    self.on(Event::ProcExit { proc });
                }
            }
            _ => {
                let steps = [
                    Duration::from_millis(10),
                    EXCHANGE_AFTER,
                    Duration::from_secs(1),
                ];
                self.world.now = self.world.now + *self.random.one_of(&steps);
                self.on(Event::Tick);
            }
        }
    }
}

#[test]
fn every_waiter_is_served_and_the_ceiling_is_kept() {
    let seeds = TestRandom::for_test("every_waiter_is_served_and_the_ceiling_is_kept");
    serve_crowds(seeds, 60);
}

/// With this seed pool A takes over the only waiter of pool B, whose idle process then suits a waiter of pool C.
#[test]
fn a_pool_that_lost_its_oldest_waiter_serves_another_one_of_its_group() {
    serve_crowds(TestRandom::with_seed(1_962_522_288), 8);
}

fn serve_crowds(mut seeds: TestRandom, crowds: usize) {
    for _ in 0..crowds {
        let mut crowd = Crowd::new(seeds.fork());
        for _ in 0..300 {
            crowd.step(true);
            if crowd.random.below(50) == 0 {
                let max = 1 + crowd.random.below(6) as u32;
                // Existing processes may exceed it until returned; nothing is opened meanwhile.
                crowd.max = max;
                crowd.on(Event::SetCeiling { max: Some(max) });
            }
        }
        // One more request, while the others keep asking.
        let last = crowd.ask();
        let mut steps = 0;
        while crowd.waiting.contains_key(&last) {
            let goes_on = crowd.waiting.len() < 30;
            crowd.step(goes_on);
            steps += 1;
            assert!(steps < 20_000, "{last:?} is skipped");
        }
        // All waiters are served once there are no new requests.
        let mut steps = 0;
        while !crowd.waiting.is_empty() {
            crowd.step(false);
            steps += 1;
            assert!(steps < 20_000, "{:?} wait for ever", crowd.waiting);
        }
    }
}
