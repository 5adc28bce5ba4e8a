//! Recycling: by uses, age and memory; culling; one reap batch at a time.
//!
//! SOURCE    pooler (max_age, cull_interval); couch_proc_manager 001 (the reap batch).

use super::*;

const POOL: PoolId = PoolId(0);
const SECOND: Duration = Duration::from_secs(1);

fn recycling(recycle: Recycle, max: u32) -> PoolSettings {
    PoolSettings {
        recycle,
        ..named(max)
    }
}

#[test]
fn process_is_recycled_on_return_after_max_uses() {
    let max_uses = Some(2);
    let recycle = Recycle {
        max_uses,
        ..Recycle::default()
    };
    let mut world = World::named(recycling(recycle, 2));
    let first = world.take(1, None);
    assert_eq!(world.give_back(first), []);
    let second = world.take(1, None);
    assert_eq!(second.proc, first.proc);
    let actions = world.give_back(second);
    assert_eq!(stopped(&actions), [(first.proc, StopReason::Uses)]);
    assert_eq!(world.totals().stopped(StopReason::Uses), 1);
}

#[test]
fn idle_process_is_recycled_at_max_age_and_a_lent_one_on_return() {
    let recycle = Recycle {
        max_age: Some(60 * SECOND),
        ..Recycle::default()
    };
    let settings = PoolSettings {
        init_size: 2,
        ..recycling(recycle, 5)
    };
    let mut world = World::named(settings);
    let held = world.take(1, None);
    let actions = world.advance(61 * SECOND);
    assert_eq!(stopped(&actions).len(), 1, "only the idle one");
    assert_eq!(stopped(&actions)[0].1, StopReason::Age);
    assert_eq!(opened(&actions).len(), 1, "replaced to keep init_size");
    assert!(world.pools.holds(held.client, held.proc, held.token));
    world.run();
    let actions = world.give_back(held);
    assert_eq!(stopped(&actions), [(held.proc, StopReason::Age)]);
}

#[test]
fn jitter_spreads_the_recycling_of_processes_opened_together() {
    let recycle = Recycle {
        max_age: Some(1000 * SECOND),
        jitter_percent: 50,
        ..Recycle::default()
    };
    let settings = PoolSettings {
        init_size: 40,
        ..recycling(recycle, 40)
    };
    let ends = |world: &mut World| {
        let mut at = Vec::new();
        while world
            .status()
            .procs
            .iter()
            .any(|proc| proc.proc.number <= 40)
        {
            let next = world
                .pools
                .next_deadline()
                .expect("one is yet to be recycled");
            world.now = next;
            let actions = world.on(Event::Tick);
            at.extend(
                stopped(&actions)
                    .iter()
                    .map(|_| next.since(Timestamp::ZERO)),
            );
            world.run();
        }
        at
    };
    let mut world = World::named(settings);
    let at = ends(&mut world);
    let born = SECOND;
    assert!(at[0] >= born + 500 * SECOND && at[39] <= born + 1000 * SECOND);
    let early = at.iter().filter(|at| **at < born + 750 * SECOND).count();
    assert!(
        (10..=30).contains(&early),
        "{early} of 40 in the first half"
    );
    assert_eq!(ends(&mut World::named(settings)), at, "deterministic");
}

#[test]
fn soft_memory_limit_waits_for_the_return_and_hard_limit_revokes() {
    let recycle = Recycle {
        memory_soft: Some(100),
        memory_hard: Some(200),
        ..Recycle::default()
    };
    let mut world = World::named(recycling(recycle, 4));
    let soft = world.take(1, None);
    let hard = world.take(2, None);
    let idle = world.take(3, None);
    world.give_back(idle);
    let memory = |proc, bytes| Event::Memory { proc, bytes };
    assert_eq!(world.on(memory(soft.proc, 150)), []);
    let actions = world.give_back(soft);
    assert_eq!(stopped(&actions), [(soft.proc, StopReason::Memory)]);
    let actions = world.on(memory(hard.proc, 200));
    let why = StopReason::MemoryHard;
    let Lease {
        client,
        proc,
        token,
    } = hard;
    let revoked = PoolAction::ProcRevoked {
        client,
        proc,
        token,
        why,
    };
    assert_eq!(actions, [revoked, PoolAction::Stop { proc, why }]);
    assert_eq!(world.give_back(hard), []);
    let actions = world.on(memory(idle.proc, 100));
    assert_eq!(stopped(&actions), [(idle.proc, StopReason::Memory)]);
}

#[test]
fn hard_memory_limit_while_learning_refuses_the_request() {
    let recycle = Recycle {
        memory_hard: Some(200),
        ..Recycle::default()
    };
    let mut world = World::named(recycling(recycle, 1));
    let request = world.ask(1, tagged("db", "_design/1"));
    let (proc, _) = opened(&world.last)[0];
    world.on(Event::SpawnOk { proc });
    world.on(Event::Memory { proc, bytes: 201 });
    assert_eq!(world.refusal(request), Some(Refusal::TeachFailed));
    assert_eq!(stopped(&world.last), [(proc, StopReason::MemoryHard)]);
}

/// A pool with `init_size` 4 and 20 idle processes after a burst.
fn after_a_burst() -> World {
    let mut world = World::named(PoolSettings {
        init_size: 4,
        cull: Some(Cull {
            after: 30 * SECOND,
            interval: 10 * SECOND,
        }),
        ..named(20)
    });
    let leases: Vec<Lease> = (1..=20).map(|client| world.take(client, None)).collect();
    for lease in leases {
        world.give_back(lease);
    }
    world
}

#[test]
fn pool_shrinks_back_to_init_size_after_a_burst_one_reap_batch_at_a_time() {
    let mut world = after_a_burst();
    let batch = world.status().settings.limits.reap_batch();
    assert_eq!(batch, 3);
    assert_eq!(world.advance(29 * SECOND), [], "not before cull_after");
    let mut rounds = Vec::new();
    while let Some(at) = world.pools.next_deadline() {
        world.now = at;
        let actions = world.on(Event::Tick);
        assert!(world.status().stopping <= batch);
        if !stopped(&actions).is_empty() {
            assert!(
                stopped(&actions)
                    .iter()
                    .all(|(_, why)| *why == StopReason::Culled)
            );
            rounds.push((at, stopped(&actions).len()));
        }
        world.run();
    }
    assert_eq!(world.counts(POOL), (0, 4, 0));
    let sizes: Vec<usize> = rounds.iter().map(|(_, size)| *size).collect();
    assert_eq!(sizes, [3, 3, 3, 3, 3, 1]);
    for pair in rounds.windows(2) {
        assert_eq!(pair[1].0.since(pair[0].0), 10 * SECOND, "cull_interval");
    }
}

#[test]
fn processes_in_use_are_not_culled() {
    let mut world = after_a_burst();
    let held: Vec<Lease> = (1..=18).map(|client| world.take(client, None)).collect();
    let actions = world.advance(60 * SECOND);
    assert_eq!(stopped(&actions).len(), 2);
    assert_eq!(held.len(), 18);
}

#[test]
fn pool_with_culling_ignores_os_process_idle_limit() {
    let mut world = after_a_burst();
    for status in world.status().procs {
        assert_eq!(world.on(Event::OsProcIdle { proc: status.proc }), []);
    }
}

#[test]
fn recycling_by_age_waits_while_a_whole_batch_is_stopping() {
    let recycle = Recycle {
        max_age: Some(60 * SECOND),
        ..Recycle::default()
    };
    let mut world = World::named(PoolSettings {
        init_size: 10,
        ..recycling(recycle, 10)
    });
    let first = world.advance(60 * SECOND);
    assert_eq!(stopped(&first).len(), 2);
    assert!(
        world.pools.next_deadline().is_none_or(|at| at > world.now),
        "the timer does not spin"
    );
    let next = world.exit(stopped(&first)[0].0);
    assert_eq!(stopped(&next).len(), 1);
    assert!(world.status().stopping <= 2);
}

/// With `max_uses` of 1 every return stops a process: without a bound, children would accumulate.
#[test]
fn stopping_processes_beyond_a_batch_keep_their_slots() {
    let recycle = Recycle {
        max_uses: Some(1),
        ..Recycle::default()
    };
    let mut world = World::named(recycling(recycle, 10));
    let batch = world.status().settings.limits.reap_batch();
    let mut stopping = Vec::new();
    let mut waiting = None;
    for client in 1..=100 {
        let request = world.ask(client, None);
        let [(proc, _)] = opened(&world.last)[..] else {
            waiting = Some(request);
            break;
        };
        world.on(Event::SpawnOk { proc });
        let lease = world.lease(request, client).expect("opened for it");
        stopping.push(proc);
        world.give_back(lease);
        let status = world.status();
        assert!(status.stopping + status.used + status.opening <= 10 + batch);
    }
    assert_eq!(stopping.len() as u32, 10 + batch);
    let actions = world.exit(stopping[0]);
    assert_eq!(opened(&actions)[0].1, waiting);
}
