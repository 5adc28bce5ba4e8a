//! What one decision costs: taking and returning, teaching, and long queues.
//!
//! SUMMARY   Run with `cargo bench --bench pool_core`. Each figure is one take and its return, or
//!           one whole queue, on a pool that holds the given number of idle processes. A named pool
//!           and a group of eight are compared with a language's own pool (`untagged`). The cost of idle
//!           pools is printed first: bytes per pool, and the time until their next timer.
//! LIMITS    Only the core: no actor, no message, no process. The bytes are the growth of resident
//!           memory, which only Linux reports.

use std::time::Duration;

use divan::{Bencher, black_box};
use settee::policy::pool::{
    Affinity, ClientId, Condition, Cull, DdocKey, Event, GroupId, Lane, LanguageId, Limits,
    PoolAction, PoolId, PoolSettings, Pools, ProcId, Recycle, RequestId, ReturnStatus, Reuse,
    Target, Tenant, Token,
};
use settee::policy::time::Timestamp;

const CLIENT: ClientId = ClientId(1);
const DATABASES: usize = 1_000;
const IDLE: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];

fn main() {
    idle_pools();
    divan::main();
}

/// Prints the cost of idle pools: the time until the next timer, with every kind of timer set, and bytes per pool.
fn idle_pools() {
    const TIMED: usize = 1_000;
    const WEIGHED: usize = 20_000;
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let settings = PoolSettings {
        init_size: 1,
        min_free: 1,
        recycle: Recycle {
            max_age: Some(minutes(60)),
            jitter_percent: 20,
            ..Recycle::default()
        },
        cull: Some(Cull {
            after: minutes(5),
            interval: minutes(1),
        }),
        ..named(8)
    };
    let mut pools = Pools::default();
    let now = Timestamp::from_nanoseconds(1);
    for _ in 0..TIMED {
        start(&mut pools, settings, now);
    }
    let due = pools.next_deadline().map(|at| at.since(now));
    assert!(due.is_none_or(|due| due > Duration::from_secs(1)));
    println!("{TIMED} idle pools: the next timer is due after {due:?}");
    let before = resident_bytes();
    let mut pools = Pools::default();
    for _ in 0..WEIGHED {
        let pool = pools.add_pool(named(8));
        pools.handle(Event::StartPool { pool }, now, &mut Vec::new());
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{WEIGHED} empty pools: {} bytes a pool", grown / WEIGHED);
    black_box(pools);
}

/// Adds a pool and lets everything that it opens succeed.
fn start(pools: &mut Pools, settings: PoolSettings, now: Timestamp) {
    let pool = pools.add_pool(settings);
    let mut out = Vec::new();
    pools.handle(Event::StartPool { pool }, now, &mut out);
    while let Some(action) = out.pop() {
        if let PoolAction::Open { proc, .. } = action {
            pools.handle(Event::SpawnOk { proc }, now, &mut out);
        }
    }
}

/// The resident memory of this program; 0 where the system does not report it.
fn resident_bytes() -> usize {
    const PAGE: usize = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * PAGE
}

fn of_language(max: u32) -> PoolSettings {
    PoolSettings::of_language(LanguageId(0), limits(max))
}

fn named(max: u32) -> PoolSettings {
    PoolSettings::named(LanguageId(0), limits(max))
}

fn limits(hard_limit: u32) -> Limits {
    Limits {
        hard_limit,
        soft_limit: 0,
        affinity_wait: Duration::ZERO,
    }
}

/// A pool full of idle processes, and a client that takes and returns them.
struct Bench {
    pools: Pools,
    target: Target,
    now: u64,
    request: u64,
    out: Vec<PoolAction>,
}

/// The affinities of requests, made before the measurement.
struct Wishes {
    databases: Vec<Affinity>,
    next: usize,
}

impl Wishes {
    /// One design document in each of the databases that `idle` processes are spread over.
    fn new(idle: usize) -> Self {
        let wish = |db| Affinity {
            tenant: Tenant::Database(format!("accounts/customer-{db:05}").into()),
            ddoc: Some(DdocKey {
                id: "_design/reports".into(),
                text: "3-a81f6c0d5e".into(),
            }),
        };
        Self {
            databases: (0..idle.min(DATABASES)).map(wish).collect(),
            next: 0,
        }
    }

    /// A known document of the next database, in a non-alphabetical order.
    fn known(&mut self) -> Affinity {
        self.next += 389;
        self.databases[self.next % self.databases.len()].clone()
    }

    /// The next database, without a document.
    fn plain(&mut self) -> Affinity {
        Affinity {
            ddoc: None,
            ..self.known()
        }
    }

    /// A document of the next database with a text that no process knows.
    fn unknown(&mut self) -> Affinity {
        let mut wish = self.known();
        let ddoc = wish.ddoc.as_mut().expect("every wish has one");
        ddoc.text = format!("{}-c0ffee", self.next).as_str().into();
        wish
    }
}

impl Bench {
    /// `idle` processes: untagged, or spread over the databases and knowing one document each.
    fn new(idle: usize, tagged: bool) -> Self {
        let mut pools = Pools::default();
        let pool = pools.add_pool(of_language(idle as u32));
        let mut bench = Self::on_pools(pools, Target::Pool(pool));
        bench.fill(idle, tagged);
        bench
    }

    /// `idle` processes that each serve one database, without a design document.
    fn of_tenants(idle: usize) -> Self {
        let mut pools = Pools::default();
        let pool = pools.add_pool(PoolSettings {
            reuse: Reuse::Database,
            ..of_language(idle as u32)
        });
        let mut bench = Self::on_pools(pools, Target::Pool(pool));
        let mut wishes = Wishes::new(idle);
        let leases: Vec<_> = (0..idle)
            .map(|_| bench.take(Some(wishes.plain())))
            .collect();
        for (proc, token) in leases {
            bench.give_back(proc, token);
        }
        bench
    }

    /// A named pool of `idle` untagged processes.
    fn named(idle: usize) -> Self {
        let mut pools = Pools::default();
        let pool = pools.add_pool(named(idle as u32));
        let mut bench = Self::on_pools(pools, Target::Pool(pool));
        bench.fill(idle, false);
        bench
    }

    /// A group of eight pools of `idle` untagged processes each.
    fn group_of_8(idle: usize) -> Self {
        const POOLS: u32 = 8;
        let mut pools = Pools::default();
        for _ in 0..POOLS {
            pools.add_pool(PoolSettings {
                group: Some(GroupId(0)),
                ..named(idle as u32)
            });
        }
        let mut bench = Self::on_pools(pools, Target::Pool(PoolId(0)));
        for pool in 0..POOLS {
            bench.target = Target::Pool(PoolId(pool));
            bench.fill(idle, false);
        }
        bench.target = Target::Group(GroupId(0));
        bench
    }

    fn on_pools(pools: Pools, target: Target) -> Self {
        Self {
            pools,
            target,
            now: 1,
            request: 0,
            out: Vec::with_capacity(64),
        }
    }

    fn fill(&mut self, idle: usize, tagged: bool) {
        let wishes = Wishes::new(idle).databases;
        let wish = |n: usize| tagged.then(|| wishes[n % wishes.len()].clone());
        let leases: Vec<_> = (0..idle).map(|n| self.take(wish(n))).collect();
        for (proc, token) in leases {
            self.give_back(proc, token);
        }
    }

    fn on(&mut self, event: Event) {
        self.now += 1;
        let now = Timestamp::from_nanoseconds(self.now);
        self.out.clear();
        self.pools.handle(event, now, &mut self.out);
    }

    /// Takes a process, and opens or teaches it if need be.
    fn take(&mut self, affinity: Option<Affinity>) -> (ProcId, Token) {
        self.request += 1;
        self.on(Event::GetProc {
            request: RequestId(self.request),
            client: CLIENT,
            target: self.target,
            lane: Lane::Interactive,
            affinity,
            deadline: Timestamp::from_nanoseconds(self.now + 5_000_000_000),
        });
        loop {
            match *self.out.last().expect("there is always an action") {
                PoolAction::Assign { proc, token, .. } => return (proc, token),
                PoolAction::Open { proc, .. } => self.on(Event::SpawnOk { proc }),
                PoolAction::Teach { proc, .. } => {
                    self.on(Event::TeachOrResetDone { proc, ok: true })
                }
                ref other => panic!("{other:?} in a benchmark without failures"),
            }
        }
    }

    fn give_back(&mut self, proc: ProcId, token: Token) {
        self.on(Event::RetProc {
            client: CLIENT,
            proc,
            token,
            status: ReturnStatus::Ok,
            condition: Condition::Clean,
        });
    }

    fn take_and_return(&mut self, affinity: Option<Affinity>) {
        let (proc, token) = self.take(affinity);
        self.give_back(black_box(proc), token);
    }
}

#[divan::bench(args = IDLE)]
fn untagged(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::new(idle, false);
    bencher.bench_local(|| bench.take_and_return(None));
}

/// Compare with [`untagged`]: the goal is at most 1.2 times its time.
#[divan::bench(args = IDLE)]
fn untagged_named_pool(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::named(idle);
    bencher.bench_local(|| bench.take_and_return(None));
}

/// Compare with [`untagged`]: the goal is at most 1.2 times its time. Each pool holds an eighth of the processes.
#[divan::bench(args = IDLE)]
fn untagged_group_of_8(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::group_of_8(idle.div_ceil(8));
    bencher.bench_local(|| bench.take_and_return(None));
}

#[divan::bench(args = IDLE)]
fn tagged_exact_hit(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::new(idle, true);
    let mut wishes = Wishes::new(idle);
    bencher
        .with_inputs(|| wishes.known())
        .bench_local_values(|wish| bench.take_and_return(Some(wish)));
}

/// Compare with [`tagged_exact_hit`]: work without a design document, where processes are not shared.
#[divan::bench(args = IDLE)]
fn plain_of_a_tenant(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::of_tenants(idle);
    let mut wishes = Wishes::new(idle);
    bencher
        .with_inputs(|| wishes.plain())
        .bench_local_values(|wish| bench.take_and_return(Some(wish)));
}

#[divan::bench(args = IDLE)]
fn same_database_teach(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::new(idle, true);
    let mut wishes = Wishes::new(idle);
    bencher
        .with_inputs(|| wishes.unknown())
        .bench_local_values(|wish| bench.take_and_return(Some(wish)));
}

#[divan::bench(args = IDLE)]
fn untagged_last_resort(bencher: Bencher<'_, '_>, idle: usize) {
    let mut bench = Bench::new(idle, true);
    bencher.bench_local(|| bench.take_and_return(None));
}

/// 10,000 requests of 1,000 databases join the queue of a full pool.
#[divan::bench(sample_count = 20)]
fn queue_10_000_waiters(bencher: Bencher<'_, '_>) {
    bencher
        .with_inputs(full_pool)
        .bench_local_refs(|(bench, wishes)| queue_up(bench, wishes));
}

/// All waiters reach their deadline at once.
#[divan::bench(sample_count = 20)]
fn time_out_10_000_waiters(bencher: Bencher<'_, '_>) {
    let queued = || {
        let (mut bench, wishes) = full_pool();
        queue_up(&mut bench, &wishes);
        bench.out.reserve(WAITERS);
        bench
    };
    bencher.with_inputs(queued).bench_local_refs(|bench| {
        bench.now += 10_000_000_000;
        bench.on(Event::Tick);
        assert_eq!(bench.out.len(), WAITERS);
    });
}

const WAITERS: usize = 10_000;

/// A pool whose only process is held, and the affinities of 10,000 requests.
fn full_pool() -> (Bench, Vec<Affinity>) {
    let mut bench = Bench::new(1, false);
    bench.take(None);
    let mut wishes = Wishes::new(DATABASES);
    let wishes = (0..WAITERS).map(|_| wishes.known()).collect();
    (bench, wishes)
}

fn queue_up(bench: &mut Bench, wishes: &[Affinity]) {
    for wish in wishes {
        bench.request += 1;
        bench.on(Event::GetProc {
            request: RequestId(bench.request),
            client: ClientId(bench.request),
            target: Target::Pool(PoolId(0)),
            lane: Lane::Interactive,
            affinity: Some(wish.clone()),
            deadline: Timestamp::from_nanoseconds(5_000_000_000),
        });
        assert!(bench.out.is_empty());
    }
}
