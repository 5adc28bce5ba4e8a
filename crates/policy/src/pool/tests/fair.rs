//! Databases in turn, and the interactive lane before the bulk lane: in simulated time.
//!
//! SUMMARY   A closed loop: every client holds a process for a time, gives it back, and asks again at
//!           once. Counted is how often each database was served, and how long whom waited.

use std::collections::BTreeMap;

use super::*;

const POOL: PoolId = PoolId(0);
/// How long a prompt takes.
const PROMPT: Duration = Duration::from_millis(10);

/// One who asks again and again.
#[derive(Clone)]
struct Caller {
    db: String,
    lane: Lane,
    /// Whether it wants a design document of its database, or any process.
    tagged: bool,
    /// How long it rests between a return and the next request.
    rest: Duration,
}

/// What a simulation saw.
#[derive(Default)]
struct Seen {
    served: BTreeMap<String, u64>,
    longest_wait: BTreeMap<Lane, Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Return(usize),
    Ask(usize),
}

/// Runs the callers for so long.
fn simulate(settings: PoolSettings, callers: &[Caller], time: Duration) -> Seen {
    let mut world = World::named(settings);
    world.check_every = 997;
    let end = world.now + time;
    let mut seen = Seen::default();
    let mut agenda: std::collections::BTreeSet<(Timestamp, Next)> = (0..callers.len())
        .map(|at| (world.now, Next::Ask(at)))
        .collect();
    let mut waiting: BTreeMap<RequestId, (usize, Timestamp)> = BTreeMap::new();
    let mut held: BTreeMap<usize, Lease> = BTreeMap::new();
    while let Some((at, next)) = agenda.pop_first() {
        if at > end {
            break;
        }
        while let Some(due) = world.pools.next_deadline().filter(|due| *due < at) {
            world.now = due;
            world.on(Event::Tick);
            let actions = settle(&mut world);
            note(
                &world,
                &actions,
                callers,
                &mut waiting,
                &mut held,
                &mut agenda,
                &mut seen,
            );
        }
        world.now = at;
        match next {
            Next::Return(caller) => {
                let lease = held.remove(&caller).expect("it was lent");
                world.give_back(lease);
                agenda.insert((at + callers[caller].rest, Next::Ask(caller)));
            }
            Next::Ask(caller) => {
                let who = &callers[caller];
                let deadline = at + Duration::from_secs(1000);
                let request = world.ask_at(Event::GetProc {
                    request: RequestId(0),
                    client: ClientId(caller as u64),
                    target: Target::Pool(POOL),
                    lane: who.lane,
                    affinity: who.tagged.then(|| tagged(&who.db, "_design/1")).flatten(),
                    deadline,
                });
                waiting.insert(request, (caller, at));
            }
        }
        let actions = settle(&mut world);
        note(
            &world,
            &actions,
            callers,
            &mut waiting,
            &mut held,
            &mut agenda,
            &mut seen,
        );
    }
    for (caller, since) in waiting.into_values() {
        waited(&mut seen, callers[caller].lane, end.since(since));
    }
    seen
}

/// Lets everything that was begun succeed at once.
fn settle(world: &mut World) -> Vec<PoolAction> {
    world.run();
    std::mem::take(&mut world.last)
}

#[allow(clippy::too_many_arguments)]
fn note(
    world: &World,
    actions: &[PoolAction],
    callers: &[Caller],
    waiting: &mut BTreeMap<RequestId, (usize, Timestamp)>,
    held: &mut BTreeMap<usize, Lease>,
    agenda: &mut std::collections::BTreeSet<(Timestamp, Next)>,
    seen: &mut Seen,
) {
    for action in actions {
        let PoolAction::Assign {
            request,
            proc,
            token,
            ..
        } = *action
        else {
            continue;
        };
        let (caller, since) = waiting.remove(&request).expect("it waited");
        let client = ClientId(caller as u64);
        let lease = Lease {
            client,
            proc,
            token,
        };
        held.insert(caller, lease);
        agenda.insert((world.now + PROMPT, Next::Return(caller)));
        *seen.served.entry(callers[caller].db.clone()).or_default() += 1;
        waited(seen, callers[caller].lane, world.now.since(since));
    }
}

fn waited(seen: &mut Seen, lane: Lane, wait: Duration) {
    let longest = seen.longest_wait.entry(lane).or_default();
    *longest = wait.max(*longest);
}

/// Jain's index: 1 when all got the same, 1/n when one got everything.
fn jain(served: &BTreeMap<String, u64>, databases: usize) -> f64 {
    let counts = served.values().map(|count| *count as f64);
    let sum: f64 = counts.clone().sum();
    let squares: f64 = counts.map(|count| count * count).sum();
    sum * sum / (databases as f64 * squares)
}

/// Twenty databases: the first has forty callers, the next four have ten, the others have one each.
fn uneven() -> Vec<Caller> {
    let callers = |db: usize| match db {
        0 => 40,
        1..=4 => 10,
        _ => 1,
    };
    let all = (0..20).flat_map(|db| (0..callers(db)).map(move |_| db));
    all.map(|db| Caller {
        db: format!("db{db:02}"),
        lane: Lane::Interactive,
        tagged: true,
        rest: Duration::ZERO,
    })
    .collect()
}

fn fair(max: u32, fairness: Fairness) -> PoolSettings {
    PoolSettings {
        fairness,
        ..named(max)
    }
}

#[test]
fn twenty_databases_are_served_evenly_however_many_callers_each_has() {
    let time = Duration::from_secs(20);
    let in_turn = simulate(fair(4, Fairness::PerDb), &uneven(), time);
    let by_arrival = simulate(fair(4, Fairness::Fifo), &uneven(), time);
    let (fair, unfair) = (jain(&in_turn.served, 20), jain(&by_arrival.served, 20));
    println!("Jain's index: {fair:.4} in turn, {unfair:.4} by arrival");
    assert!(fair >= 0.95, "{fair}: {:?}", in_turn.served);
    assert!(unfair < 0.5, "the load is uneven: {unfair}");
    let sum = |seen: &Seen| seen.served.values().sum::<u64>();
    assert_eq!(
        sum(&in_turn),
        sum(&by_arrival),
        "and it costs no throughput"
    );
}

#[test]
fn databases_with_design_documents_are_served_evenly_too() {
    let limits = Limits {
        affinity_wait: Duration::from_millis(50),
        ..limits(20, 20)
    };
    let settings = PoolSettings {
        limits,
        ..fair(20, Fairness::PerDb)
    };
    let seen = simulate(settings, &uneven(), Duration::from_secs(10));
    let fair = jain(&seen.served, 20);
    println!("Jain's index with design documents: {fair:.4}");
    assert!(fair >= 0.95, "{fair}: {:?}", seen.served);
}

/// Asks for one process in this order, and requires that the requests are served in that one.
fn served_in_turn(settings: PoolSettings, asks: &[Option<Affinity>], turns: &[usize]) {
    let mut world = World::named(settings);
    let mut lease = world.take(99, None);
    let asked: Vec<RequestId> = (0..)
        .zip(asks)
        .map(|(client, affinity)| world.ask(client, affinity.clone()))
        .collect();
    for &next in turns {
        world.give_back(lease);
        world.run();
        let served = world.lease(asked[next], next as u64);
        lease = served.unwrap_or_else(|| panic!("{next} is next"));
    }
}

#[test]
fn databases_are_served_in_turn_and_each_in_order_of_arrival() {
    let asks = ["a", "a", "a", "b", "b", "c"].map(|db| tagged(db, "_design/1"));
    served_in_turn(fair(1, Fairness::PerDb), &asks, &[0, 3, 5, 1, 4, 2]);
}

/// A pool of one process which serves everybody, and so is tagged for nobody.
#[test]
fn databases_are_served_in_turn_also_where_any_process_serves_them() {
    let dbs = ["big", "big", "big", "big", "s1", "s2", "s3"];
    let asks = dbs.map(|name| plain(db(name)));
    let turns = [0, 4, 5, 6, 1, 2, 3];
    for can_forget in [false, true] {
        for reuse in [Reuse::Any, Reuse::Database] {
            let settings = PoolSettings {
                reuse,
                can_forget,
                ..fair(1, Fairness::PerDb)
            };
            served_in_turn(settings, &asks, &turns);
        }
    }
    // Design documents of all databases together are one tenant's; clients that name none are their own.
    let all = || affinity(None, "_design/1", "1-a");
    let asks = [all(), all(), None, None];
    served_in_turn(fair(1, Fairness::PerDb), &asks, &[0, 2, 3, 1]);
}

/// One process of the database `a`, which forgets for one of two waiters of `b`; one of `c` comes later.
/// Returns the world, the process and the three requests.
fn forgetting_for_the_first_of_b() -> (World, ProcId, [RequestId; 3]) {
    let mut world = World::named(PoolSettings {
        reuse: Reuse::Database,
        can_forget: true,
        ..fair(1, Fairness::PerDb)
    });
    let lease = world.take(1, plain(db("a")));
    let asked = [(2, "b"), (3, "b"), (4, "c")];
    let asked = asked.map(|(client, name)| world.ask(client, plain(db(name))));
    world.give_back(lease);
    assert_eq!(world.last, [PoolAction::Forget { proc: lease.proc }]);
    (world, lease.proc, asked)
}

#[test]
fn a_request_that_loses_its_process_is_the_next_one_again() {
    let (mut world, proc, [first, _, of_c]) = forgetting_for_the_first_of_b();
    world.on(Event::TeachOrResetDone { proc, ok: false });
    world.run();
    let lease = world.lease(first, 2).expect("it stood before the others");
    world.give_back(lease);
    world.run();
    assert!(world.lease(of_c, 4).is_some(), "it is the turn of c");
}

#[test]
fn a_request_that_loses_its_process_is_the_next_one_also_after_waiters_were_ranked_anew() {
    let (mut world, proc, [first, ..]) = forgetting_for_the_first_of_b();
    let old = *world.pools.settings(POOL).expect("the pool");
    for fairness in [Fairness::Fifo, Fairness::PerDb] {
        let settings = Box::new(PoolSettings { fairness, ..old });
        world.on(Event::Reconfigure {
            pool: POOL,
            settings,
        });
    }
    world.on(Event::TeachOrResetDone { proc, ok: false });
    world.run();
    assert!(world.lease(first, 2).is_some());
}

/// Ten who build indexes without a pause, and one who validates a document now and then.
fn bulk_and_interactive() -> Vec<Caller> {
    let bulk = (0..10).map(|n| Caller {
        db: format!("bulk{n}"),
        lane: Lane::Bulk,
        tagged: false,
        rest: Duration::ZERO,
    });
    let interactive = Caller {
        db: "shop".to_owned(),
        lane: Lane::Interactive,
        tagged: false,
        rest: Duration::from_millis(37),
    };
    bulk.chain([interactive]).collect()
}

#[test]
fn bulk_user_delays_an_interactive_one_by_no_more_than_one_prompt() {
    let time = Duration::from_secs(20);
    for max in [2, 3, 5] {
        let lanes = PoolSettings {
            interactive_reserved: 1,
            ..named(max)
        };
        let with = simulate(lanes, &bulk_and_interactive(), time);
        let without = simulate(named(max), &bulk_and_interactive(), time);
        let longest = |seen: &Seen| seen.longest_wait[&Lane::Interactive];
        println!(
            "longest wait: {:?}, {:?} without lanes",
            longest(&with),
            longest(&without)
        );
        assert!(longest(&with) <= PROMPT, "{:?}", longest(&with));
        assert!(longest(&without) > PROMPT, "the load is heavy");
        let bulk: u64 = with
            .served
            .iter()
            .filter(|(db, _)| *db != "shop")
            .map(|(_, n)| n)
            .sum();
        let most = time.as_millis() / PROMPT.as_millis() * u128::from(max - 1);
        assert!(
            u128::from(bulk) >= most * 99 / 100,
            "bulk work uses all the rest: {bulk}"
        );
    }
}

#[test]
fn interactive_waiters_go_before_bulk_waiters() {
    let mut world = World::named(PoolSettings {
        interactive_reserved: 1,
        ..named(2)
    });
    let ask = |world: &mut World, client: u64, lane| {
        let deadline = world.now + PATIENCE;
        let request = world.ask_at(Event::GetProc {
            request: RequestId(0),
            client: ClientId(client),
            target: Target::Pool(POOL),
            lane,
            affinity: None,
            deadline,
        });
        world.run();
        request
    };
    let bulk = ask(&mut world, 1, Lane::Bulk);
    let bulk = world.lease(bulk, 1).expect("one of two");
    let waits = ask(&mut world, 2, Lane::Bulk);
    assert_eq!(world.lease(waits, 2), None, "the second one is reserved");
    assert_eq!(world.pools.pools[0].bulk, 1);
    let first = ask(&mut world, 3, Lane::Interactive);
    assert!(world.lease(first, 3).is_some());
    let second = ask(&mut world, 4, Lane::Interactive);
    world.give_back(bulk);
    assert!(
        world.lease(second, 4).is_some(),
        "it came after the bulk one"
    );
    assert_eq!(world.pools.pools[0].bulk, 0);
}

#[test]
fn lanes_make_no_difference_without_reserved_capacity() {
    let mut world = World::named(named(1));
    let lease = world.take(1, None);
    let asks = [Lane::Bulk, Lane::Interactive].map(|lane| {
        let deadline = world.now + PATIENCE;
        world.ask_at(Event::GetProc {
            request: RequestId(0),
            client: ClientId(2),
            target: Target::Pool(POOL),
            lane,
            affinity: None,
            deadline,
        })
    });
    world.give_back(lease);
    assert!(world.lease(asks[0], 2).is_some(), "in order of arrival");
}
