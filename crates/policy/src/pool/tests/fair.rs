//! In simulated time: databases share processes by time held, and interactive requests are served before bulk ones.
//!
//! SUMMARY   A closed loop: each client holds a process for a time, returns it, rests, and requests the next. Counts
//!           how often each database was served, how long it held processes, and the longest wait of each lane.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const POOL: PoolId = PoolId(0);
/// How long a prompt takes.
const PROMPT: Duration = Duration::from_millis(10);
/// The half-life of the time for which a database held processes.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// A client in a loop.
#[derive(Clone)]
struct Caller {
    db: String,
    lane: Lane,
    /// Whether it requests a design document of its database.
    tagged: bool,
    /// How long it holds a process.
    holds: Duration,
    /// How long it rests between a return and the next request.
    rest: Duration,
}

/// The measurements of a simulation.
#[derive(Default)]
struct Seen {
    served: BTreeMap<String, u64>,
    had: BTreeMap<String, Duration>,
    longest_wait: BTreeMap<Lane, Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Return(usize),
    Ask(usize),
}

/// Simulates the callers for this time.
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
                let lease = held.remove(&caller).expect("the caller holds a process");
                world.give_back(lease);
                agenda.insert((at + callers[caller].rest, Next::Ask(caller)));
            }
            Next::Ask(caller) => {
                let load = &callers[caller];
                let affinity = match load.tagged {
                    true => tagged(&load.db, "_design/1"),
                    false => plain(db(&load.db)),
                };
                let (target, patience) = (Target::Pool(POOL), Duration::from_secs(1000));
                let request = world.ask_in(load.lane, caller as u64, target, affinity, patience);
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

/// Completes every action immediately.
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
        let (caller, since) = waiting.remove(&request).expect("the request waited");
        let client = ClientId(caller as u64);
        let lease = Lease {
            client,
            proc,
            token,
        };
        held.insert(caller, lease);
        let Caller { db, holds, .. } = &callers[caller];
        agenda.insert((world.now + *holds, Next::Return(caller)));
        *seen.served.entry(db.clone()).or_default() += 1;
        *seen.had.entry(db.clone()).or_default() += *holds;
        waited(seen, callers[caller].lane, world.now.since(since));
    }
}

fn waited(seen: &mut Seen, lane: Lane, wait: Duration) {
    let longest = seen.longest_wait.entry(lane).or_default();
    *longest = wait.max(*longest);
}

/// Jain's index: 1 if all are served equally, 1/n if only one is served.
fn jain(served: &BTreeMap<String, u64>, databases: usize) -> f64 {
    let counts = served.values().map(|count| *count as f64);
    let sum: f64 = counts.clone().sum();
    let squares: f64 = counts.map(|count| count * count).sum();
    sum * sum / (databases as f64 * squares)
}

/// Twenty databases: the first has forty callers, the next four have ten each, the others one each.
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
        holds: PROMPT,
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
        "the throughput is the same"
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

/// Four databases with ten callers each and calls of different lengths.
fn long_and_short() -> Vec<Caller> {
    let lengths = [2, 10, 50, 250].map(Duration::from_millis);
    let callers = lengths.iter().flat_map(|holds| (0..10).map(|_| *holds));
    let callers = callers.map(|holds| Caller {
        db: format!("{holds:?}"),
        lane: Lane::Bulk,
        tagged: false,
        holds,
        rest: Duration::ZERO,
    });
    callers.collect()
}

/// How long each database held processes, in milliseconds.
fn had(seen: &Seen) -> BTreeMap<String, u64> {
    let had = seen.had.iter();
    had.map(|(db, had)| (db.clone(), had.as_millis() as u64))
        .collect()
}

#[test]
fn databases_hold_processes_for_the_same_time_however_long_each_call_takes() {
    let time = Duration::from_secs(60);
    for max in [1, 3] {
        for (reuse, can_forget, tagged) in [
            (Reuse::Any, false, false),
            (Reuse::Any, true, false),
            (Reuse::Any, true, true),
            (Reuse::Database, true, false),
            (Reuse::Database, false, false),
            (Reuse::Any, false, true),
        ] {
            let settings = PoolSettings {
                reuse,
                can_forget,
                ..fair(max, Fairness::PerDb)
            };
            let callers = long_and_short().into_iter();
            let callers: Vec<Caller> = callers.map(|one| Caller { tagged, ..one }).collect();
            let had = had(&simulate(settings, &callers, time));
            let fair = jain(&had, 4);
            println!("{reuse:?}, {can_forget}, {tagged}, {max}: {fair:.3} {had:?} ms");
            assert!(fair >= 0.95, "{fair}: {had:?}");
        }
    }
    let had = had(&simulate(fair(3, Fairness::Fifo), &long_and_short(), time));
    assert!(jain(&had, 4) < 0.5, "the load is uneven: {had:?}");
}

#[test]
fn a_loan_counts_before_it_is_returned() {
    let mut world = World::named(fair(4, Fairness::PerDb));
    let leases = [(1, "big"), (2, "big"), (3, "big"), (4, "small")]
        .map(|(client, name)| world.take(client, plain(db(name))));
    let of_big = world.ask(5, plain(db("big")));
    let of_small = world.ask(6, plain(db("small")));
    world.advance(Duration::from_secs(1));
    world.give_back(leases[0]);
    let lease = world.lease(of_small, 6).expect("it holds fewer");
    world.give_back(lease);
    assert!(world.lease(of_big, 5).is_some(), "no other request waits");
}

#[test]
fn newcomer_is_next_and_gets_no_credit_for_the_time_before() {
    let mut world = World::named(fair(1, Fairness::PerDb));
    let mut lease = world.take(1, plain(db("old")));
    let asked: Vec<RequestId> = (2..5).map(|n| world.ask(n, plain(db("old")))).collect();
    world.advance(Duration::from_secs(4));
    world.give_back(lease);
    lease = world.lease(asked[0], 2).expect("no other tenant waits");
    let of_new = [10, 11].map(|client| world.ask(client, plain(db("new"))));
    world.advance(Duration::from_millis(10));
    world.give_back(lease);
    lease = world.lease(of_new[0], 10).expect("the newcomer is next");
    // The newcomer's account started at the old database's four seconds.
    world.advance(Duration::from_millis(100));
    world.give_back(lease);
    assert!(world.lease(asked[1], 3).is_some());
}

#[test]
fn database_that_held_every_process_is_served_again_after_a_half_life() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut world = World::named(fair(4, Fairness::PerDb));
    let big: Vec<Lease> = (0..4).map(|n| world.take(n, plain(db("big")))).collect();
    let of_big = world.ask_within(50, plain(db("big")), 2 * HOUR);
    let of_small = [51, 52, 53, 54, 55];
    let of_small = of_small.map(|client| {
        (
            client,
            world.ask_within(client, plain(db("small")), 2 * HOUR),
        )
    });
    world.advance(HOUR);
    let small = big
        .into_iter()
        .zip(of_small)
        .map(|(lease, (client, request))| {
            world.give_back(lease);
            world.lease(request, client).expect("it held no process")
        });
    let small: Vec<Lease> = small.collect();
    world.advance(HALF_LIFE);
    world.give_back(small[0]);
    assert!(world.lease(of_big, 50).is_some());
}

/// The databases' accounts, computed step by step.
#[derive(Default)]
struct Ledgers {
    now: Timestamp,
    accounts: BTreeMap<String, f64>,
    held: BTreeMap<String, u32>,
    /// The account of the tenant served last, at that time.
    floor: f64,
}

impl Ledgers {
    fn pass(&mut self, now: Timestamp) {
        let half_lives = now.since(self.now).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let left = (-half_lives).exp2();
        let full = HALF_LIFE.as_secs_f64() / std::f64::consts::LN_2;
        for (db, account) in &mut self.accounts {
            let held = self.held.get(db).copied().unwrap_or(0);
            *account = *account * left + f64::from(held) * full * (1.0 - left);
        }
        self.floor *= left;
        self.now = now;
    }

    fn join(&mut self, db: &str) {
        let account = self.accounts.entry(db.to_owned()).or_default();
        *account = account.max(self.floor);
    }

    fn begin(&mut self, db: &str) {
        let account = self.accounts.get_mut(db).expect("it has joined");
        self.floor = *account;
        *account += 0.001;
        *self.held.entry(db.to_owned()).or_default() += 1;
    }

    fn end(&mut self, db: &str) {
        *self.held.get_mut(db).expect("it holds one") -= 1;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8),
    Return(usize),
    Leave(usize),
    Advance(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let milliseconds = prop_oneof![6 => 0..400_u64, 1 => 0..30_000_u64, 1 => 0..20_000_000_u64];
    prop_oneof![
        5 => (0..6_u8).prop_map(Step::Ask),
        4 => (0..1000_usize).prop_map(Step::Return),
        1 => (0..1000_usize).prop_map(Step::Leave),
        3 => milliseconds.prop_map(Step::Advance),
    ]
}

proptest! {
    /// In any history, the account of the tenant served is the smallest of those waiting.
    #[test]
    fn the_waiter_with_the_smallest_account_is_served_next(
        max in 1..5_u32,
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        let mut world = World::named(PoolSettings { init_size: max, ..fair(max, Fairness::PerDb) });
        let mut ledgers = Ledgers { now: world.now, ..Ledgers::default() };
        let mut leases: Vec<(String, Lease)> = Vec::new();
        let mut waiting: BTreeMap<RequestId, (u64, String)> = BTreeMap::new();
        for (client, step) in (1..).zip(steps) {
            match step {
                Step::Ask(number) => {
                    let name = format!("db{number}");
                    if waiting.values().all(|(_, other)| *other != name) {
                        ledgers.join(&name);
                    }
                    let patience = Duration::from_secs(1 << 30);
                    let request = world.ask_within(client, plain(db(&name)), patience);
                    waiting.insert(request, (client, name));
                }
                Step::Return(n) if !leases.is_empty() => {
                    let (name, lease) = leases.remove(n % leases.len());
                    ledgers.end(&name);
                    world.give_back(lease);
                }
                Step::Leave(n) if !waiting.is_empty() => {
                    let request = *waiting.keys().nth(n % waiting.len()).expect("a waiter");
                    let (client, _) = waiting.remove(&request).expect("it waits");
                    world.down(client, true);
                }
                Step::Advance(milliseconds) => {
                    world.advance(Duration::from_millis(milliseconds));
                    ledgers.pass(world.now);
                }
                Step::Return(_) | Step::Leave(_) => continue,
            }
            let assigned = world.last.iter().filter_map(|action| match action {
                PoolAction::Assign { request, .. } => Some(*request),
                _ => None,
            });
            for request in assigned.collect::<Vec<_>>() {
                let (client, name) = waiting[&request].clone();
                let least = waiting.values().map(|(_, other)| ledgers.accounts[other]);
                let least = least.fold(f64::INFINITY, f64::min);
                prop_assert!(ledgers.accounts[&name] <= least + 1e-6, "{:?}", ledgers.accounts);
                let mut own = waiting.iter().filter(|(_, (_, other))| *other == name);
                prop_assert_eq!(own.next().map(|(id, _)| *id), Some(request), "in order of arrival");
                waiting.remove(&request);
                ledgers.begin(&name);
                leases.push((name, world.lease(request, client).expect("it was assigned")));
            }
            prop_assert!(waiting.is_empty() || leases.len() == max as usize);
        }
    }
}

/// Requests a process for each of these, and asserts the order of service.
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

/// With a pool of one process.
#[test]
fn databases_are_served_in_turn_even_if_one_process_serves_them_all() {
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
    // Without `db_tag` the design documents of all databases share a tenant; a client without a database is its own.
    let all = || affinity(None, "_design/1", "1-a");
    let asks = [all(), all(), None, None];
    served_in_turn(fair(1, Fairness::PerDb), &asks, &[0, 2, 3, 1]);
}

/// `big` holds the process of one pool of a group; the requests wait in the other pool. Returns their order of service
/// as `big` and then each later holder returns the process.
fn taken_over(settings: PoolSettings, asks: &[(&str, Lane)]) -> Vec<usize> {
    const GROUP: Target = Target::Group(GroupId(1));
    let in_group = |queue_max| PoolSettings {
        group: Some(GroupId(1)),
        queue_max,
        ..settings
    };
    let mut world = World::empty();
    let [queue, taker] = [None, Some(0)].map(|queue_max| world.add(in_group(queue_max)));
    let ask = |world: &mut World, client, target, (name, lane): (&str, Lane)| {
        let patience = Duration::from_secs(1000);
        let request = world.ask_in(lane, client, target, plain(db(name)), patience);
        world.run();
        request
    };
    let one = ("other", Lane::Interactive);
    ask(&mut world, 100, Target::Pool(queue), one);
    let big = ("big", Lane::Interactive);
    let held = ask(&mut world, 101, Target::Pool(taker), big);
    let mut held = world.lease(held, 101).expect("the process is free");
    let requests: Vec<RequestId> = (0..)
        .zip(asks)
        .map(|(client, asks)| ask(&mut world, client, GROUP, *asks))
        .collect();
    let mut served = Vec::new();
    for _ in asks {
        world.advance(Duration::from_millis(100));
        world.give_back(held);
        world.run();
        let leases = requests.iter().enumerate();
        let mut leases = leases.filter_map(|(at, id)| Some((at, world.lease(*id, at as u64)?)));
        let (at, lease) = leases.next().expect("the pool takes over a waiter");
        assert_eq!((lease.proc.pool, leases.next()), (taker, None));
        served.push(at);
        held = lease;
    }
    served
}

#[test]
fn a_pool_takes_over_the_waiters_of_its_group_in_the_order_of_its_own_queue() {
    let asks = ["big", "big", "a", "a", "b"].map(|name| (name, Lane::Interactive));
    let per_db = fair(1, Fairness::PerDb);
    assert_eq!(taken_over(per_db, &asks), [2, 4, 0, 3, 1]);
    let fifo = fair(1, Fairness::Fifo);
    assert_eq!(taken_over(fifo, &asks), [0, 1, 2, 3, 4]);
    // Without reserved processes lanes make no difference.
    let asks = [("a", Lane::Bulk), ("b", Lane::Interactive)];
    for settings in [per_db, fifo] {
        assert_eq!(taken_over(settings, &asks), [0, 1]);
    }
}

/// The only process forgets database `a` for the first of two waiters of `b`; one of `c` waits behind them. Returns
/// the world, the process and the three requests.
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
fn a_request_that_loses_its_process_is_next_again() {
    let (mut world, proc, [first, _, of_c]) = forgetting_for_the_first_of_b();
    world.on(Event::TeachOrResetDone { proc, ok: false });
    world.run();
    let lease = world.lease(first, 2).expect("it was first before");
    world.give_back(lease);
    world.run();
    assert!(world.lease(of_c, 4).is_some(), "c is next");
}

#[test]
fn a_request_that_loses_its_process_is_next_even_after_waiters_were_reordered() {
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

/// Ten callers that build indexes continuously, and one that sometimes validates a document.
fn bulk_and_interactive() -> Vec<Caller> {
    let bulk = (0..10).map(|n| Caller {
        db: format!("bulk{n}"),
        lane: Lane::Bulk,
        tagged: false,
        holds: PROMPT,
        rest: Duration::ZERO,
    });
    let interactive = Caller {
        db: "shop".to_owned(),
        lane: Lane::Interactive,
        tagged: false,
        holds: PROMPT,
        rest: Duration::from_millis(37),
    };
    bulk.chain([interactive]).collect()
}

#[test]
fn bulk_work_delays_an_interactive_request_by_at_most_one_prompt() {
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
        let maximum = time.as_millis() / PROMPT.as_millis() * u128::from(max - 1);
        assert!(
            u128::from(bulk) >= maximum * 99 / 100,
            "bulk work uses all other processes: {bulk}"
        );
    }
}

#[test]
fn interactive_waiters_are_served_before_bulk_waiters() {
    let mut world = World::named(PoolSettings {
        interactive_reserved: 1,
        ..named(2)
    });
    let ask = |world: &mut World, client: u64, lane| {
        let request = world.ask_in(lane, client, Target::Pool(POOL), None, PATIENCE);
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
        "it overtakes the bulk request"
    );
    assert_eq!(world.pools.pools[0].bulk, 0);
}

#[test]
fn lanes_make_no_difference_without_reserved_capacity() {
    let mut world = World::named(named(1));
    let lease = world.take(1, None);
    let asks = [Lane::Bulk, Lane::Interactive]
        .map(|lane| world.ask_in(lane, 2, Target::Pool(POOL), None, PATIENCE));
    world.give_back(lease);
    assert!(world.lease(asks[0], 2).is_some(), "in order of arrival");
}
