//! How pools below a common ceiling affect each other, in simulated time.
//!
//! SUMMARY   A closed loop: every caller holds a process for a call, returns it, rests, and requests the next. Starting
//!           and ending a process takes time, too. Counts calls and starts, and records the longest wait.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const CALL: Duration = Duration::from_millis(20);
const START: Duration = Duration::from_millis(40);
const END: Duration = Duration::from_millis(2);
/// Maximum processes.
const CEILING: u32 = 8;
/// Duration of a simulation.
const TIME: Duration = Duration::from_secs(10);

/// The callers of one pool.
#[derive(Clone, Copy)]
struct Load {
    callers: usize,
    /// How long each caller rests between a return and its next request; doubled every second time.
    rest: Duration,
}

/// The measurements of a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    calls: u64,
    starts: u64,
    longest_wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Ends(ProcId),
    Starts(ProcId),
    Returns(usize),
    Asks(usize),
    Tick,
}

/// A simulation of callers of several pools below a ceiling.
struct Traffic {
    world: World,
    /// Each caller's pool and rest.
    callers: Vec<(usize, Duration)>,
    agenda: BTreeSet<(Timestamp, Next)>,
    waiting: BTreeMap<RequestId, (usize, Timestamp)>,
    held: BTreeMap<usize, Lease>,
    seen: Vec<Seen>,
}

impl Traffic {
    fn new(loads: &[Load]) -> Self {
        let mut world = World::empty();
        world.check_every = 7;
        world.on(Event::SetCeiling { max: Some(CEILING) });
        let mut callers = Vec::new();
        for (pool, load) in loads.iter().enumerate() {
            world.add(named(CEILING));
            callers.extend((0..load.callers).map(|_| (pool, load.rest)));
        }
        let asks = (0..callers.len()).map(|caller| (world.now, Next::Asks(caller)));
        Self {
            agenda: asks.collect(),
            world,
            callers,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            seen: vec![Seen::default(); loads.len()],
        }
    }

    /// Runs for this time, and returns each pool's measurements.
    fn run(mut self, time: Duration) -> Vec<Seen> {
        let end = self.world.now + time;
        loop {
            let tick = self.world.pools.next_deadline().map(|at| (at, Next::Tick));
            let next = self.agenda.first().copied().into_iter().chain(tick).min();
            let (at, next) = next.expect("a caller requests again");
            if at > end {
                break;
            }
            self.agenda.remove(&(at, next));
            self.world.now = at;
            self.execute(next);
            let due = self.world.pools.next_deadline();
            assert!(due.is_none_or(|due| due > at), "a tick makes progress");
        }
        for (caller, since) in std::mem::take(&mut self.waiting).into_values() {
            self.waited(caller, since);
        }
        self.seen
    }

    fn execute(&mut self, next: Next) {
        let now = self.world.now;
        match next {
            Next::Ends(proc) => drop(self.world.exit(proc)),
            Next::Starts(proc) => drop(self.world.on(Event::SpawnOk { proc })),
            Next::Tick => drop(self.world.on(Event::Tick)),
            Next::Returns(caller) => {
                let (pool, rest) = self.callers[caller];
                self.seen[pool].calls += 1;
                let rest = rest * (1 + (self.seen[pool].calls % 2) as u32);
                self.agenda.insert((now + rest, Next::Asks(caller)));
                let lease = self
                    .held
                    .remove(&caller)
                    .expect("the caller holds a process");
                self.world.give_back(lease);
            }
            Next::Asks(caller) => {
                let (pool, _) = self.callers[caller];
                let target = Target::Pool(PoolId(pool as u32));
                let patience = Duration::from_secs(1_000);
                let request = self.world.ask_for(caller as u64, target, None, patience);
                self.waiting.insert(request, (caller, now));
            }
        }
        for action in std::mem::take(&mut self.world.last) {
            self.begin(action);
        }
    }

    fn begin(&mut self, action: PoolAction) {
        let now = self.world.now;
        match action {
            PoolAction::Open { proc, .. } => {
                self.seen[proc.pool.0 as usize].starts += 1;
                self.agenda.insert((now + START, Next::Starts(proc)));
            }
            PoolAction::Stop { proc, .. } => {
                self.agenda.insert((now + END, Next::Ends(proc)));
            }
            PoolAction::Assign {
                request,
                proc,
                token,
                ..
            } => {
                let (caller, since) = self.waiting.remove(&request).expect("the request waits");
                self.waited(caller, since);
                let client = ClientId(caller as u64);
                let lease = Lease {
                    client,
                    proc,
                    token,
                };
                self.held.insert(caller, lease);
                self.agenda.insert((now + CALL, Next::Returns(caller)));
            }
            other => panic!("{other:?}"),
        }
    }

    fn waited(&mut self, caller: usize, since: Timestamp) {
        let (pool, _) = self.callers[caller];
        let longest = &mut self.seen[pool].longest_wait;
        *longest = self.world.now.since(since).max(*longest);
    }
}

/// Returns the measurements of all pools together, and of each.
fn simulate(loads: &[Load]) -> (Seen, Vec<Seen>) {
    let each = Traffic::new(loads).run(TIME);
    let all = each.iter().fold(Seen::default(), |all, seen| Seen {
        calls: all.calls + seen.calls,
        starts: all.starts + seen.starts,
        longest_wait: all.longest_wait.max(seen.longest_wait),
    });
    println!("{} pools, all: {all:?}, first: {:?}", each.len(), each[0]);
    (all, each)
}

/// Callers that request again after one or two milliseconds.
fn eager(callers: usize) -> Load {
    let rest = Duration::from_millis(1);
    Load { callers, rest }
}

#[test]
fn pools_with_few_callers_at_the_ceiling_need_no_start_for_each_call() {
    let (alone, _) = simulate(&[eager(100)]);
    for few in [[1, 1], [1, 5], [3, 3]] {
        let (all, each) = simulate(&[eager(100), eager(few[0]), eager(few[1])]);
        assert!(all.calls * 10 > alone.calls * 9, "{all:?}");
        assert!(all.starts * 100 < all.calls, "{all:?}");
        for (seen, callers) in each[1..].iter().zip(few) {
            // One place for each caller, up to an even share.
            let places = callers.min(CEILING as usize / 3) as u128;
            let at_best = places * TIME.as_millis() / CALL.as_millis();
            assert!(u128::from(seen.calls) * 10 > at_best * 7, "{seen:?}");
            assert!(seen.longest_wait < Duration::from_millis(200), "{seen:?}");
        }
    }
}

#[test]
fn pools_with_rare_requests_leave_the_others_half_of_the_throughput() {
    let (alone, _) = simulate(&[eager(100)]);
    let rest = Duration::from_millis(70);
    let rare = Load { callers: 1, rest };
    let (all, each) = simulate(&[eager(100), rare, rare]);
    assert!(all.calls * 2 > alone.calls, "{all:?}");
    for seen in &each[1..] {
        assert!(seen.longest_wait < Duration::from_millis(200), "{seen:?}");
    }
}

#[test]
fn more_pools_than_places_take_turns_that_are_worth_their_starts() {
    let (alone, _) = simulate(&[eager(100)]);
    let one_large = [vec![eager(100)], vec![eager(1); 10]].concat();
    for loads in [
        vec![eager(1); 9],
        vec![eager(1); 20],
        vec![eager(5); 20],
        one_large,
    ] {
        let (all, each) = simulate(&loads);
        assert!(all.calls * 2 > alone.calls, "{all:?}");
        let even = all.calls / loads.len() as u64;
        for (seen, load) in each.iter().zip(&loads) {
            assert!(seen.calls * 2 > even, "{seen:?} of {even}");
            let bound = Duration::from_millis(300) * load.callers as u32;
            assert!(seen.longest_wait < bound, "{seen:?}");
        }
    }
}
