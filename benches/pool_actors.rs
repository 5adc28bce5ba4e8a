//! get + return through the actors, beside two calls of an actor that does nothing; through a named pool and a group,
//! beside the language's own pool; and the memory of a waiting client and of an idle pool.
//!
//! SUMMARY   Run with `cargo bench --bench pool_actors`. A word as argument (`cycles`, `named`, `waiting`, `idle`)
//!           runs only that part; a number (1, 10, 100 or 1000) limits `cycles` to that many clients.
//! PROMISES  Compared operations run in turn in the same thread; their figures are CPU time, of the best of many
//!           batches, so that other load on the machine hardly affects them.
//! LIMITS    The floor's messages are empty and its answers are a word, with no row, token, clock or metric: the
//!           content of the pool's messages is part of the measurement. Both actors answer at once and have mailboxes
//!           of the same size. Memory is the growth of the resident set; Linux only.

mod common;

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use actix_rt::task::JoinHandle;
use common::{Batch, Nothing, best_batches, no_log, report, settings};
use futures_util::future::{LocalBoxFuture, join_all};
use settee::actors::proc_manager::ProcManager;
use settee::actors::proc_manager::{GetStatus, ManagerSettings};
use settee::config::PoolConfig;
use settee::functions::caller::Caller;
use settee::messages::proc_manager::{TakeFrom, Want};
use settee::otp::registered_name::RegisteredName;
use settee::policy::pool::ReturnStatus;
use settee::query_server::child::Spawner;
use settee::query_server::language::LanguageName;

/// Cycles of a batch, shared among its clients.
const CYCLES: usize = 10_000;

/// Batches of each kind.
const ROUNDS: u32 = 40;

#[derive(Message)]
#[rtype(result = "u64")]
struct Get;

#[derive(Message)]
#[rtype(result = "bool")]
struct Ret;

/// The floor: answers every message at once with a constant.
struct Bare;

impl Actor for Bare {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1024);
    }
}

impl Handler<Get> for Bare {
    type Result = u64;

    fn handle(&mut self, _: Get, _: &mut Self::Context) -> u64 {
        1
    }
}

impl Handler<Ret> for Bare {
    type Result = bool;

    fn handle(&mut self, _: Ret, _: &mut Self::Context) -> bool {
        true
    }
}

async fn bare_cycles(bare: Addr<Bare>, cycles: usize) {
    for _ in 0..cycles {
        bare.send(Get).await.expect("the actor is alive");
        bare.send(Ret).await.expect("the actor is alive");
    }
}

async fn pool_cycles(caller: Rc<Caller>, want: Want, cycles: usize) {
    for _ in 0..cycles {
        let lease = caller
            .get_proc(want.clone(), None)
            .await
            .expect("there is a process");
        lease.ret_proc(ReturnStatus::Ok).await;
    }
}

/// A batch of calls of the floor by this many concurrent clients.
fn bare_batch<'a>(bare: &'a Addr<Bare>, clients: usize) -> Batch<'a> {
    let each = CYCLES / clients;
    Box::new(move || {
        let task = move |_| actix_rt::spawn(bare_cycles(bare.clone(), each));
        finish((0..clients).map(task), clients * each)
    })
}

/// A batch of takes and returns by these concurrent clients.
fn pool_batch<'a>(callers: &'a [Rc<Caller>], want: Want) -> Batch<'a> {
    let each = CYCLES / callers.len();
    Box::new(move || {
        let task = |caller: &Rc<Caller>| {
            actix_rt::spawn(pool_cycles(Rc::clone(caller), want.clone(), each))
        };
        finish(callers.iter().map(task), callers.len() * each)
    })
}

fn finish<'a>(
    tasks: impl Iterator<Item = JoinHandle<()>>,
    cycles: usize,
) -> LocalBoxFuture<'a, u64> {
    let all = join_all(tasks);
    Box::pin(async move {
        all.await
            .into_iter()
            .for_each(|task| task.expect("the client ends"));
        cycles as u64
    })
}

fn callers(manager: &RegisteredName<ProcManager>, clients: usize) -> Vec<Rc<Caller>> {
    (0..clients)
        .map(|_| Rc::new(Caller::new(manager.clone())))
        .collect()
}

fn manager(hard_limit: u32) -> RegisteredName<ProcManager> {
    let spawner = Spawner::start().expect("a thread can be started");
    let settings = settings("nothing", Nothing, hard_limit);
    RegisteredName::new(ProcManager::new(settings, spawner, &no_log()).start())
}

async fn cycles() {
    let want = Want::language(LanguageName::new("nothing"));
    let only: Option<usize> = std::env::args().find_map(|word| word.parse().ok());
    for clients in [1_usize, 10, 100, 1000] {
        if only.is_some_and(|only| only != clients) {
            continue;
        }
        let bare = Bare.start();
        let manager = manager(clients as u32);
        let callers = callers(&manager, clients);
        let batches = [
            bare_batch(&bare, clients),
            pool_batch(&callers, want.clone()),
        ];
        let [floor, pool] = best_batches(ROUNDS, batches).await;
        let what = format!("get + return, {clients} clients");
        report(&what, pool, floor, "ns", 2.5);
    }
}

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("there is a /proc");
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    pages * 4096.0
}

async fn waiting_clients() {
    const CLIENTS: usize = 10_000;
    let manager = manager(1);
    let want = Want::language(LanguageName::new("nothing"));
    let holder = Caller::new(manager.clone());
    let lease = holder
        .get_proc(want.clone(), None)
        .await
        .expect("there is a process");
    let before = resident_bytes();
    let waiting: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let caller = Caller::new(manager.clone());
            let want = want.clone();
            actix_rt::spawn(async move {
                let lease = caller.get_proc(want, None).await.expect("its turn comes");
                lease.ret_proc(ReturnStatus::Ok).await;
            })
        })
        .collect();
    while manager
        .address()
        .send(GetStatus::default())
        .await
        .expect("the actor is alive")
        .summary()
        .pools[0]
        .waiting
        < CLIENTS as u32
    {
        actix_rt::task::yield_now().await;
    }
    let each = (resident_bytes() - before) / CLIENTS as f64;
    report("memory of a waiting client", each, 4096.0, "B ", 1.0);
    let start = std::time::Instant::now();
    lease.ret_proc(ReturnStatus::Ok).await;
    join_all(waiting).await;
    println!(
        "{:<44} {:>10.2} us",
        "serving each of them",
        start.elapsed().as_micros() as f64 / CLIENTS as f64
    );
}

/// Pools in a group.
const GROUP: usize = 8;

/// A manager with named pools in one group beside the language's own pool.
fn manager_of_pools(pools: usize, hard_limit: u32) -> RegisteredName<ProcManager> {
    let spawner = Spawner::start().expect("a thread can be started");
    let mut settings = ManagerSettings::clone(&settings("nothing", Nothing, hard_limit));
    let section = PoolConfig {
        language: Some("nothing".to_owned()),
        group: Some("group".to_owned()),
        ..PoolConfig::default()
    };
    for number in 0..pools {
        settings
            .pools
            .insert(format!("pool-{number}"), Arc::new(section.clone()));
    }
    RegisteredName::new(ProcManager::new(Arc::new(settings), spawner, &no_log()).start())
}

/// Take and return through a named pool, and through a group, beside the language's own pool.
async fn named_pools() {
    const CLIENTS: usize = 10;
    let manager = manager_of_pools(GROUP, CLIENTS as u32);
    let callers = callers(&manager, CLIENTS);
    let wants = [
        Want::language(LanguageName::new("nothing")),
        Want::any_from(TakeFrom::Pool("pool-0".into())),
        Want::any_from(TakeFrom::Group("group".into())),
    ];
    let batches = wants.map(|want| pool_batch(&callers, want));
    let [own, pool, group] = best_batches(ROUNDS, batches).await;
    report("take + return, a named pool", pool, own, "ns", 1.2);
    report("take + return, a group of 8", group, own, "ns", 1.2);
}

/// The memory of an unused pool: its share of the growth when a second manager with many is started.
async fn idle_pools() {
    const POOLS: usize = 1000;
    // Pays the fixed costs of a manager, its thread and its code, before the measurement.
    let _few = started_manager(GROUP).await;
    let before = resident_bytes();
    let _many = started_manager(POOLS).await;
    let each = (resident_bytes() - before) / POOLS as f64;
    report("memory of an idle pool", each, 2048.0, "B ", 1.0);
}

/// Starts a manager with this many pools, and waits until it answers.
async fn started_manager(pools: usize) -> RegisteredName<ProcManager> {
    let manager = manager_of_pools(pools, 1);
    let status = manager.address().send(GetStatus {
        pool: Some("pool-0".to_owned()),
    });
    assert_eq!(
        status
            .await
            .expect("the actor is alive")
            .summary()
            .pools
            .len(),
        1
    );
    manager
}

#[actix_rt::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let names = ["idle", "cycles", "waiting", "named"];
    let is_name = |word: &String| names.contains(&word.as_str());
    let runs = |name: &str| !words.iter().any(is_name) || words.iter().any(|word| word == name);
    // First: other parts leave freed memory, which would be reused here.
    if runs("idle") {
        idle_pools().await;
    }
    if runs("cycles") {
        cycles().await;
    }
    if runs("waiting") {
        waiting_clients().await;
    }
    if runs("named") {
        named_pools().await;
    }
}
