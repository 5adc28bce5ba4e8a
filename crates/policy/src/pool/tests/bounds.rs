//! Bounds of tenants over all pools: which requests wait, are refused, or overtake others.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const POOLS: [Target; 4] = [
    Target::Pool(PoolId(0)),
    Target::Pool(PoolId(1)),
    Target::Group(GroupId(0)),
    Target::Any(LanguageId(0)),
];

fn rule(processes_max: u32, queue_max: u32) -> TenantRule {
    TenantRule {
        processes_max: Some(processes_max),
        queue_max: Some(queue_max),
        ..TenantRule::default()
    }
}

fn set<const N: usize>(rules: [(&str, TenantRule); N]) -> Event {
    let rules = rules.map(|(name, rule)| (name.to_owned(), rule));
    let rules = Box::new(TenantRules::new(rules));
    Event::SetTenants { rules }
}

/// A world with one pool of these settings, and these rules.
fn world<const N: usize>(settings: PoolSettings, rules: [(&str, TenantRule); N]) -> World {
    let mut world = World::named(settings);
    world.on(set(rules));
    world
}

fn ask(world: &mut World, client: u64, target: Target, name: &str) -> RequestId {
    let request = world.ask_for(client, target, plain(db(name)), PATIENCE);
    world.run();
    request
}

#[test]
fn twenty_requests_of_a_tenant_stay_within_its_bound_and_do_not_delay_other_tenants() {
    for fairness in [Fairness::Fifo, Fairness::PerDb] {
        let settings = PoolSettings {
            fairness,
            ..named(4)
        };
        let mut world = world(settings, [("*", rule(2, 0))]);
        let asked: Vec<(u64, RequestId)> = (0..20)
            .map(|n| (n, ask(&mut world, n, POOLS[0], "big")))
            .collect();
        assert_eq!(world.status().used, 2);
        for client in 100..200 {
            let request = ask(&mut world, client, POOLS[0], "small");
            let lease = world
                .lease(request, client)
                .expect("served without waiting");
            world.give_back(lease);
        }
        world.advance(Duration::from_secs(1));
        assert_eq!((world.status().used, world.status().waiting), (2, 18));
        assert_eq!(
            world.status().longest_wait,
            Duration::ZERO,
            "held-back waits do not count"
        );
        let held = world.pools.held_by(ClientId(0))[0];
        world.exit(held);
        world.run();
        assert!(
            world.lease(asked[2].1, 2).is_some(),
            "the tenant's oldest waiter is served"
        );
        let by = world.pools.held_back_by(&db("big"));
        assert_eq!(by, Some((TenantBound::ProcessesMax, None)));
        assert_eq!(world.pools.held_back_by(&db("small")), None);
    }
}

#[test]
fn a_request_above_queue_max_is_refused_at_once_and_another_tenants_is_not() {
    let mut world = world(named(1), [("acme-*", rule(0, 2))]);
    let lease = world.take(1, plain(db("acme-1")));
    let waits = [2, 3].map(|client| ask(&mut world, client, POOLS[0], "acme-1"));
    assert!(
        waits
            .iter()
            .all(|request| world.refusal(*request).is_none())
    );
    let request = ask(&mut world, 4, POOLS[0], "acme-1");
    assert_eq!(world.refusal(request), Some(Refusal::TenantBusy));
    for (client, name) in [(5, "acme-2"), (6, "other")] {
        let request = ask(&mut world, client, POOLS[0], name);
        assert_eq!(world.refusal(request), None, "{name}");
    }
    world.give_back(lease);
    let request = ask(&mut world, 7, POOLS[0], "acme-1");
    assert_eq!(world.refusal(request), None, "one waiter was served");
}

#[test]
fn bound_applies_over_all_pools_and_the_oldest_request_of_all_pools_is_served_first() {
    let mut world = World::named(named(4));
    let other = world.add(named(4));
    world.run();
    world.on(set([("*", rule(1, 0))]));
    let lease = world.take(1, plain(db("a")));
    let in_other = ask(&mut world, 2, Target::Pool(other), "a");
    let in_first = ask(&mut world, 3, POOLS[0], "a");
    assert_eq!(world.counts(other).0, 0, "the request waits");
    world.give_back(lease);
    world.run();
    let lease = world
        .lease(in_other, 2)
        .expect("the oldest request is served");
    world.give_back(lease);
    world.run();
    assert!(world.lease(in_first, 3).is_some());
}

#[test]
fn a_held_back_request_does_not_count_toward_the_pools_queue_max() {
    let settings = PoolSettings {
        queue_max: Some(1),
        ..named(2)
    };
    let mut world = world(settings, [("big", rule(1, 0))]);
    world.take(1, plain(db("big")));
    let held_back: Vec<RequestId> = (2..9)
        .map(|client| ask(&mut world, client, POOLS[0], "big"))
        .collect();
    assert!(held_back.iter().all(|id| world.refusal(*id).is_none()));
    world.take(20, plain(db("small")));
    let waits = ask(&mut world, 21, POOLS[0], "small");
    assert_eq!(world.refusal(waits), None);
    let refused = ask(&mut world, 22, POOLS[0], "small");
    assert_eq!(world.refusal(refused), Some(Refusal::PoolBusy));
}

/// Adds a CPU share of half a core.
fn half_a_core(rule: TenantRule) -> TenantRule {
    TenantRule {
        cpu_share: Some(500),
        ..rule
    }
}

#[test]
fn a_request_above_the_tenants_queue_max_is_refused_at_once_by_every_pool() {
    let busy = Some(Refusal::TenantBusy);
    let mut world = World::named(named(1));
    let other = Target::Pool(world.add(named(1)));
    world.run();
    world.on(set([("big", rule(0, 2))]));
    let lease = world.take(1, plain(db("big")));
    ask(&mut world, 2, other, "big");
    assert_eq!(world.status().used, 1);
    let waits = [(3, POOLS[0]), (4, other)];
    let waits = waits.map(|(client, pool)| ask(&mut world, client, pool, "big"));
    assert!(waits.iter().all(|id| world.refusal(*id).is_none()));
    for pool in [POOLS[0], other] {
        let request = ask(&mut world, 5, pool, "big");
        assert_eq!(world.refusal(request), busy);
        let request = ask(&mut world, 6, pool, "other");
        assert_eq!(
            world.refusal(request),
            None,
            "another tenant is not refused"
        );
    }
    world.give_back(lease);
    let waits = ask(&mut world, 7, POOLS[0], "big");
    assert_eq!(world.refusal(waits), None, "one waiter was served");
    let request = ask(&mut world, 8, other, "big");
    assert_eq!(world.refusal(request), busy);
}

#[test]
fn a_request_that_can_be_served_at_once_is_not_refused_because_of_a_full_tenant_queue() {
    let mut world = World::named(named(1));
    let other = Target::Pool(world.add(named(1)));
    world.run();
    world.on(set([("big", rule(0, 1))]));
    world.take(1, plain(db("big")));
    ask(&mut world, 2, POOLS[0], "big");
    let served = ask(&mut world, 3, other, "big");
    assert!(world.lease(served, 3).is_some());
}

#[test]
fn waiters_of_a_tenant_with_its_own_queue_max_do_not_count_toward_the_pools() {
    let settings = PoolSettings {
        queue_max: Some(1),
        ..named(1)
    };
    let mut world = world(settings, [("big", rule(0, 5))]);
    world.take(1, plain(db("big")));
    let waits: Vec<RequestId> = (2..7)
        .map(|client| ask(&mut world, client, POOLS[0], "big"))
        .collect();
    assert!(waits.iter().all(|id| world.refusal(*id).is_none()));
    let waits = ask(&mut world, 20, POOLS[0], "small");
    assert_eq!(world.refusal(waits), None);
    let refused = ask(&mut world, 21, POOLS[0], "small");
    assert_eq!(world.refusal(refused), Some(Refusal::PoolBusy));
    let refused = ask(&mut world, 22, POOLS[0], "big");
    let why = Refusal::TenantBusy;
    assert_eq!(world.refusal(refused), Some(why));
}

#[test]
fn changed_rules_apply_at_once_and_revoke_nothing() {
    let mut world = world(named(4), [("*", rule(1, 0))]);
    world.take(1, plain(db("a")));
    let waits = [2, 3, 4].map(|client| (client, ask(&mut world, client, POOLS[0], "a")));
    world.on(set([("*", rule(3, 0))]));
    world.run();
    let leases = waits.map(|(client, request)| world.lease(request, client));
    assert_eq!(leases.map(|lease| lease.is_some()), [true, true, false]);
    world.on(set([("a", rule(1, 0))]));
    assert_eq!((world.status().used, world.status().waiting), (3, 1));
    let lease = leases[0].expect("the first waiter was served");
    world.give_back(lease);
    assert_eq!((world.status().used, world.status().waiting), (2, 1));
    world.on(set([]));
    world.run();
    assert_eq!((world.status().used, world.status().waiting), (3, 0));
}

#[test]
fn clients_without_a_database_have_no_bounds() {
    let mut world = world(named(3), [("*", rule(1, 1))]);
    for client in [1, 1, 1] {
        world.take(client, None);
    }
    assert_eq!(world.status().used, 3);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, u8, bool),
    Return(usize, bool),
    Do(usize, bool),
    Die(usize),
    Down(u64),
    Advance(u64),
    Set(u32, u32),
    /// A loan has cost this database this many milliseconds of CPU time.
    Charge(u8, u64),
    ToDeadline,
}

fn any_step() -> impl Strategy<Value = Step> {
    let pick = || 0..1000_usize;
    let ok = || prop::bool::weighted(0.8);
    prop_oneof![
        10 => (0..4_usize, 0..4_u8, any::<bool>()).prop_map(|(to, db, ddoc)| Step::Ask(to, db, ddoc)),
        8 => (pick(), ok()).prop_map(|(n, ok)| Step::Return(n, ok)),
        16 => (pick(), ok()).prop_map(|(n, ok)| Step::Do(n, ok)),
        1 => pick().prop_map(Step::Die),
        1 => (0..6_u64).prop_map(Step::Down),
        2 => (0..3000_u64).prop_map(Step::Advance),
        1 => (0..4_u32, 0..4_u32).prop_map(|(processes, queue)| Step::Set(processes, queue)),
        4 => (0..4_u8, prop_oneof![0..3000_u64, Just(30_000), Just(90_000)])
            .prop_map(|(db, cost)| Step::Charge(db, cost)),
        3 => Just(Step::ToDeadline),
    ]
}

/// The event that ends an action requested by the pools.
fn end_of(action: &PoolAction, ok: bool) -> Option<Event> {
    Some(match *action {
        PoolAction::Open { proc, .. } if ok => Event::SpawnOk { proc },
        PoolAction::Open { proc, .. } => Event::SpawnError { proc },
        PoolAction::Teach { proc, .. }
        | PoolAction::Reset { proc }
        | PoolAction::Forget { proc } => Event::TeachOrResetDone { proc, ok },
        PoolAction::Stop { proc, .. } => Event::ProcExit { proc },
        _ => return None,
    })
}

/// The request that an action begins to serve.
fn begins(action: &PoolAction) -> Option<RequestId> {
    match *action {
        PoolAction::Open { request, .. } => request,
        PoolAction::Teach { request, .. } | PoolAction::Assign { request, .. } => Some(request),
        _ => None,
    }
}

proptest! {
    /// In any history no tenant is lent more than its maximum, every invariant holds after every event (no servable
    /// request waits, for example) and, if processes cannot forget, no work begins for a tenant in CPU debt.
    #[test]
    fn no_tenant_is_lent_more_than_its_bound(
        per_db in any::<bool>(),
        can_forget in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let settings = PoolSettings {
            fairness: if per_db { Fairness::PerDb } else { Fairness::Fifo },
            can_forget,
            group: Some(GroupId(0)),
            throttle: None,
            ..named(3)
        };
        let mut world = World::empty();
        world.add(settings);
        world.add(PoolSettings { reuse: Reuse::Database, interactive_reserved: 1, ..settings });
        // Loans made under an earlier bound may outlast it.
        let mut bound_max = 2;
        world.on(set([("db*", half_a_core(rule(2, 5))), ("db3", rule(0, 0))]));
        let mut begun = BTreeSet::new();
        let mut todo: Vec<PoolAction> = Vec::new();
        let mut asked: BTreeMap<RequestId, (u64, String)> = BTreeMap::new();
        let mut leases: Vec<(Lease, String)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let client = number as u64 % 6;
            let pick = |n: usize, of: usize| (of > 0).then(|| n % of);
            let event = match step {
                Step::Ask(to, name, with_ddoc) => {
                    let name = format!("db{name}");
                    let affinity = match with_ddoc {
                        true => tagged(&name, "_design/1"),
                        false => plain(db(&name)),
                    };
                    let lane = if with_ddoc { Lane::Interactive } else { Lane::Bulk };
                    asked.insert(RequestId(world.next_request), (client, name));
                    world.ask_in(lane, client, POOLS[to], affinity, PATIENCE);
                    None
                }
                Step::Return(n, ok) => pick(n, leases.len()).map(|n| {
                    let (lease, _) = leases.swap_remove(n);
                    Event::RetProc {
                        client: lease.client,
                        proc: lease.proc,
                        token: lease.token,
                        status: if ok { ReturnStatus::Ok } else { ReturnStatus::Fail },
                        condition: Condition::Clean,
                    }
                }),
                Step::Do(n, ok) => pick(n, todo.len()).and_then(|n| {
                    let action = todo.swap_remove(n);
                    end_of(&action, ok)
                }),
                Step::Die(n) => pick(n, leases.len()).map(|n| {
                    let (lease, _) = leases.swap_remove(n);
                    Event::ProcExit { proc: lease.proc }
                }),
                Step::Down(client) => {
                    let client = ClientId(client);
                    leases.retain(|(lease, _)| lease.client != client);
                    Some(Event::ClientDown { client, normal: true, conditions: Vec::new() })
                }
                Step::Advance(milliseconds) => {
                    world.now = world.now + Duration::from_millis(milliseconds);
                    Some(Event::Tick)
                }
                Step::Set(processes, queue) => {
                    bound_max = if processes == 0 { usize::MAX } else { bound_max.max(processes as usize) };
                    let all = half_a_core(rule(processes, queue));
                    Some(set([("db*", all), ("db3", rule(0, 0))]))
                }
                Step::Charge(name, milliseconds) => Some(Event::Charge {
                    db: format!("db{name}").into(),
                    cost: Duration::from_millis(milliseconds),
                }),
                Step::ToDeadline => {
                    world.now = world.pools.next_deadline().unwrap_or(world.now);
                    Some(Event::Tick)
                }
            };
            if let Some(event) = event {
                world.on(event);
            } else if !matches!(step, Step::Ask(..)) {
                continue;
            }
            for action in world.last.clone() {
                // A Forget action does not name its request.
                if let Some(request) = begins(&action)
                    && begun.insert(request)
                    && !can_forget
                {
                    let by = world.pools.held_back_by(&db(&asked[&request].1));
                    let owes = by.is_some_and(|(bound, _)| bound == TenantBound::CpuShare);
                    prop_assert!(!owes, "{action:?}");
                }
                if let PoolAction::Assign { request, .. } = action {
                    let (client, name) = asked[&request].clone();
                    let lease = world.lease(request, client).expect("the process was assigned");
                    leases.push((lease, name.clone()));
                    let has = leases.iter().filter(|(_, other)| *other == name).count();
                    prop_assert!(name == "db3" || has <= bound_max, "{name} has {has} of {bound_max}");
                } else {
                    todo.push(action);
                }
            }
        }
    }
}
