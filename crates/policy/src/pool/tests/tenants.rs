//! Unshared processes: each serves one tenant, from its first loan to its end.

use proptest::prelude::*;

use super::properties::{any_busy_step, any_limits, any_step};
use super::trial::{Step, Trial};
use super::*;

/// One language pool with this limit and unshared processes.
fn apart(hard: u32) -> World {
    World::with(apart_settings(hard))
}

fn apart_settings(hard: u32) -> PoolSettings {
    PoolSettings {
        reuse: Reuse::Database,
        ..PoolSettings::from(limits(hard, hard))
    }
}

#[test]
fn plain_work_of_a_database_gets_a_process_of_that_database_only() {
    let mut world = apart(4);
    let first = world.take(1, plain(db("a")));
    world.give_back(first);
    world.run();
    let other = world.take(2, plain(db("b")));
    assert_ne!(other.proc, first.proc);
    let same = world.take(3, plain(db("a")));
    assert_eq!(same.proc, first.proc);
    let ddoc = world.take(4, tagged("b", "_design/1"));
    assert_ne!(ddoc.proc, other.proc, "it is in use");
    world.give_back(other);
    let ddoc = world.take(5, tagged("b", "_design/1"));
    assert_eq!(
        ddoc.proc, other.proc,
        "plain work and documents of one database share"
    );
}

#[test]
fn untagged_client_gets_no_process_of_a_database() {
    let mut world = apart(1);
    let lease = world.take(1, tagged("a", "_design/1"));
    world.give_back(lease);
    let plain = world.take(2, None);
    assert_ne!(plain.proc, lease.proc);
    assert_eq!(stopped(&world.last)[0], (lease.proc, StopReason::Reaped));
}

#[test]
fn untagged_clients_do_not_share_processes() {
    let mut world = apart(3);
    let first = world.take(1, None);
    world.give_back(first);
    let again = world.take(1, None);
    assert_eq!(again.proc, first.proc);
    world.give_back(again);
    let other = world.take(2, None);
    assert_ne!(other.proc, first.proc);
}

/// Borrows and returns the pool's only process. Returns whether it was reset for this client.
fn reset_for(world: &mut World, client: u64, affinity: Option<Affinity>) -> bool {
    let request = world.ask(client, affinity);
    world.run();
    let reset = world.last.iter().find_map(|action| match *action {
        PoolAction::Assign { reset, .. } => Some(reset),
        _ => None,
    });
    let lease = world.lease(request, client).expect("served");
    world.give_back(lease);
    reset.expect("it was lent")
}

#[test]
fn a_process_is_reset_whenever_its_holder_or_its_tenant_changes() {
    let (a, b) = (|| plain(db("a")), || plain(db("b")));
    for settings in [PoolSettings::from(limits(1, 1)), apart_settings(1)] {
        let mut world = World::with(settings);
        assert!(!reset_for(&mut world, 1, a()), "no client has held it");
        assert!(!reset_for(&mut world, 1, a()));
        assert!(reset_for(&mut world, 2, a()));
        assert!(reset_for(&mut world, 1, tagged("a", "_design/1")));
    }
    let mut world = World::new(1, 1);
    reset_for(&mut world, 1, a());
    assert!(reset_for(&mut world, 1, b()), "for another tenant");
    assert!(reset_for(&mut world, 1, None));
    assert!(reset_for(&mut world, 2, None));
    assert!(!reset_for(&mut world, 2, None));
    // A process that the service has reset, or that forgot, needs no further reset.
    let lease = world.take(2, None);
    world.give_back_as(lease, ReturnStatus::Ok, Condition::NeedsReset);
    world.run();
    assert!(!reset_for(&mut world, 3, None));
    let mut world = World::with(PoolSettings {
        can_forget: true,
        ..PoolSettings::from(limits(1, 1))
    });
    assert!(!reset_for(&mut world, 1, a()));
    assert!(!reset_for(&mut world, 2, b()), "it forgot");
    assert!(reset_for(&mut world, 1, b()), "same tenant, another holder");
}

#[test]
fn user_keeps_its_process_across_connections() {
    let mut world = apart(2);
    let ann = || plain(Tenant::User("ann".into()));
    let first = world.take(1, ann());
    world.give_back(first);
    world.down(1, true);
    assert_eq!(world.take(2, ann()).proc, first.proc);
    let bob = plain(Tenant::User("bob".into()));
    assert_ne!(world.take(3, bob).proc, first.proc);
}

#[test]
fn without_a_tag_all_databases_are_one_tenant_and_clients_are_not() {
    let mut world = apart(2);
    let first = world.take(1, affinity(None, "_design/1", "1-a"));
    world.give_back(first);
    assert_eq!(world.take(2, plain(Tenant::Databases)).proc, first.proc);
    assert_ne!(world.take(3, None).proc, first.proc);
}

#[test]
fn processes_of_a_client_are_stopped_when_it_disconnects() {
    let mut world = apart(2);
    let held = world.take(1, None);
    let idle = world.take(1, None);
    world.give_back(idle);
    let actions = world.down(1, true);
    let why = StopReason::TenantGone;
    assert_eq!(stopped(&actions), [(held.proc, why), (idle.proc, why)]);
}

#[test]
fn process_of_a_crashed_client_is_stopped_without_a_reset() {
    let mut world = apart(2);
    let lease = world.take(1, None);
    let actions = world.down(1, false);
    let stop = (lease.proc, StopReason::TenantGone);
    assert_eq!(stopped(&actions), [stop]);
    assert_eq!(actions.len(), 1);
}

#[test]
fn process_being_reset_for_a_client_is_stopped_when_it_disconnects() {
    let mut world = apart(2);
    let lease = world.take(1, None);
    world.give_back_as(lease, ReturnStatus::Ok, Condition::NeedsReset);
    let actions = world.down(1, true);
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::TenantGone)]);
}

#[test]
fn process_of_a_database_outlives_its_client() {
    let mut world = apart(2);
    let lease = world.take(1, plain(db("a")));
    world.down(1, false);
    assert_eq!(world.last, [PoolAction::Reset { proc: lease.proc }]);
    world.run();
    assert_eq!(world.take(2, plain(db("a"))).proc, lease.proc);
}

#[test]
fn process_opened_for_a_gone_client_serves_any_tenant() {
    let mut world = apart(2);
    world.ask(1, None);
    let (proc, _) = opened(&world.last)[0];
    world.down(1, true);
    world.on(Event::SpawnOk { proc });
    assert_eq!(world.take(2, plain(db("a"))).proc, proc);
}

#[test]
fn returned_process_is_reaped_for_a_waiter_of_another_tenant() {
    let mut world = apart(1);
    let lease = world.take(1, plain(db("a")));
    let waiter = world.ask(2, plain(db("b")));
    let actions = world.give_back(lease);
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Reaped)]);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
}

#[test]
fn plain_work_waits_for_a_process_of_its_own_database_before_others_are_reaped() {
    let mut world = World::with(PoolSettings {
        limits: Limits {
            affinity_wait: Duration::from_millis(20),
            ..limits(2, 2)
        },
        ..apart_settings(2)
    });
    let own = world.take(1, plain(db("a")));
    let other = world.take(2, plain(db("b")));
    world.give_back(other);
    let waiter = world.ask(3, plain(db("a")));
    assert_eq!(world.last, []);
    world.give_back(own);
    assert_eq!(
        world.lease(waiter, 3).map(|lease| lease.proc),
        Some(own.proc)
    );
}

#[test]
fn lending_an_unassigned_process_opens_another_to_keep_init_size() {
    let mut world = World::named(PoolSettings {
        init_size: 1,
        reuse: Reuse::Database,
        ..named(3)
    });
    world.take(1, plain(db("a")));
    assert_eq!(opened(&world.last).len(), 1);
    assert_eq!(opened(&world.last)[0].1, None);
    let status = world.status();
    assert_eq!((status.free, status.free_tagged), (1, 0));
}

#[test]
fn free_processes_of_tenants_do_not_count_toward_min_free() {
    let mut world = World::named(PoolSettings {
        min_free: 1,
        reuse: Reuse::Database,
        limits: limits(3, 1),
        ..named(3)
    });
    let lease = world.take(1, plain(db("a")));
    world.give_back(lease);
    let status = world.status();
    assert_eq!((status.free, status.free_tagged), (2, 1));
    let fresh = status.procs.iter().find(|proc| proc.db.is_none());
    let fresh = fresh.expect("one has no tenant").proc;
    assert_eq!(world.on(Event::OsProcIdle { proc: fresh }), []);
    world.exit(fresh);
    let actions = world.advance(Duration::from_secs(1));
    assert_eq!(opened(&actions).len(), 1);
    let actions = world.on(Event::OsProcIdle { proc: lease.proc });
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Idle)]);
}

#[test]
fn culling_keeps_min_free_processes_without_a_tenant() {
    let mut world = World::named(PoolSettings {
        min_free: 1,
        reuse: Reuse::Database,
        cull: Some(Cull {
            after: Duration::from_secs(1),
            interval: Duration::from_secs(1),
        }),
        ..named(3)
    });
    let lease = world.take(1, plain(db("a")));
    world.advance(Duration::from_secs(5));
    world.give_back(lease);
    let actions = world.advance(Duration::from_secs(5));
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Culled)]);
    assert_eq!(world.status().free, 1);
}

#[test]
fn changing_reuse_replaces_all_processes() {
    for reuse in [Reuse::Database, Reuse::Any] {
        let before = match reuse {
            Reuse::Database => Reuse::Any,
            Reuse::Any | Reuse::Isolates => Reuse::Database,
        };
        let mut world = World::with(PoolSettings {
            reuse: before,
            ..apart_settings(3)
        });
        let held = world.take(1, None);
        let idle = world.take(1, None);
        world.give_back(idle);
        let settings = PoolSettings {
            reuse,
            ..apart_settings(3)
        };
        let plan = world.pools.plan(PoolId(0), &settings);
        assert_eq!(plan, [Change::StopIdle(1), Change::StopReturned(1)]);
        let actions = world.on(Event::Reconfigure {
            pool: PoolId(0),
            settings: Box::new(settings),
        });
        assert_eq!(stopped(&actions), [(idle.proc, StopReason::Stale)]);
        let actions = world.give_back(held);
        assert_eq!(stopped(&actions), [(held.proc, StopReason::Stale)]);
    }
}

/// Changes some requests to another tenant or none, mostly without a design document, and some steps to a change of
/// `reuse`.
pub(super) fn apart_step(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Step> {
    let tenant = prop_oneof![
        2 => Just(None),
        1 => Just(Some(db("a"))),
        1 => Just(Some(db("b"))),
        1 => Just(Some(Tenant::Databases)),
        1 => Just(Some(Tenant::User("a".into()))),
    ];
    (step, tenant, 0..60_u32).prop_map(|(step, tenant, luck)| match step {
        _ if luck == 0 => Step::Reuse(0, Reuse::Any),
        _ if luck == 1 => Step::Reuse(0, Reuse::Database),
        Step::Ask {
            client,
            pool,
            affinity: Some(affinity),
            patience_ms,
        } if luck % 2 == 0 => Step::Ask {
            client,
            pool,
            affinity: match tenant {
                None => None,
                Some(tenant) => Some(Affinity {
                    ddoc: affinity.ddoc.filter(|_| luck % 3 == 0),
                    tenant,
                }),
            },
            patience_ms,
        },
        other => other,
    })
}

proptest! {
    #[test]
    fn core_and_model_agree_when_processes_are_not_shared(
        limits in prop::collection::vec(any_limits(), 2),
        steps in prop::collection::vec(apart_step(any_step()), 1..150),
    ) {
        let mut trial = Trial::new(&limits);
        for pool in 0..2 {
            trial.step(Step::Reuse(pool, Reuse::Database));
        }
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn core_and_model_agree_when_processes_are_not_shared_and_waiters_overtake(
        hard_limit in 1..6_u32,
        wait_ms in prop_oneof![Just(0), 20..80_u64],
        steps in prop::collection::vec(apart_step(any_busy_step()), 50..200),
    ) {
        let affinity_wait = Duration::from_millis(wait_ms);
        let limits = Limits { hard_limit, soft_limit: 2, affinity_wait };
        let mut trial = Trial::new(&[limits]);
        trial.step(Step::Reuse(0, Reuse::Database));
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }
}
