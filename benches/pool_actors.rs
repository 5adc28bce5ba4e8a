//! get + return through the actors, beside the bare cycle of an actor that answers later; through a
//! named pool and a group, beside the language's own pool; and what a waiting client and an idle pool
//! cost in memory. A number as argument measures that many clients only.

mod common;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use common::{Nothing, nanoseconds_each, no_log, report, settings};
use futures_util::future::join_all;
use settee::actors::caller::Caller;
use settee::actors::deferred::{Deferred, deferred};
use settee::actors::proc_manager::ProcManager;
use settee::actors::supervisor::Named;
use settee::config::PoolConfig;
use settee::messages::proc_manager::{GetStatus, ManagerSettings, TakeFrom, Want};
use settee::policy::pool::ReturnStatus;
use settee::query_server::child::Spawner;
use settee::query_server::language::LanguageName;

const CYCLES: u64 = 200;
const TIME: Duration = Duration::from_millis(700);

#[derive(Message)]
#[rtype(result = "u64")]
struct Get;

#[derive(Message)]
#[rtype(result = "bool")]
struct Ret;

/// The floor: keeps the reply sender of every call and answers with nothing worth mentioning.
struct Bare;

impl Actor for Bare {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1024);
    }
}

impl Handler<Get> for Bare {
    type Result = Deferred<u64>;

    fn handle(&mut self, _: Get, _: &mut Self::Context) -> Self::Result {
        let (answer, replier) = deferred();
        let _ = replier.send(1);
        answer
    }
}

impl Handler<Ret> for Bare {
    type Result = bool;

    fn handle(&mut self, _: Ret, _: &mut Self::Context) -> bool {
        true
    }
}

async fn bare_cycles(bare: Addr<Bare>) -> u64 {
    for _ in 0..CYCLES {
        bare.send(Get).await.expect("it lives");
        bare.send(Ret).await.expect("it lives");
    }
    CYCLES
}

async fn pool_cycles(caller: Rc<Caller>, want: Want) -> u64 {
    for _ in 0..CYCLES {
        let lease = caller
            .get_proc(want.clone(), None)
            .await
            .expect("there is a process");
        lease.ret_proc(ReturnStatus::Ok).await;
    }
    CYCLES
}

fn manager(hard_limit: u32) -> Named<ProcManager> {
    let spawner = Spawner::start().expect("a thread can be started");
    let settings = settings("nothing", Nothing, hard_limit);
    Named::new(ProcManager::new(settings, spawner, &no_log()).start())
}

async fn cycles() {
    let want = Want::language(LanguageName::new("nothing"));
    let only: Option<usize> = std::env::args().find_map(|word| word.parse().ok());
    for clients in [1_usize, 10, 100, 1000] {
        if only.is_some_and(|only| only != clients) {
            continue;
        }
        let bare = Bare.start();
        let floor = nanoseconds_each(TIME, || {
            let all = join_all((0..clients).map(|_| actix_rt::spawn(bare_cycles(bare.clone()))));
            async { all.await.into_iter().map(|r| r.expect("it ends")).sum() }
        })
        .await;
        let manager = manager(clients as u32);
        let callers: Vec<_> = (0..clients)
            .map(|_| Rc::new(Caller::new(manager.clone())))
            .collect();
        let pool = nanoseconds_each(TIME, || {
            let all = join_all(
                callers
                    .iter()
                    .map(|caller| actix_rt::spawn(pool_cycles(Rc::clone(caller), want.clone()))),
            );
            async { all.await.into_iter().map(|r| r.expect("it ends")).sum() }
        })
        .await;
        report(
            &format!("get + return, {clients} clients"),
            pool,
            floor,
            "ns",
            2.5,
        );
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
        .expect("it lives")
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

/// How many pools stand in for each other.
const GROUP: usize = 8;

/// A manager with named pools in one group beside the language's own pool.
fn manager_of_pools(pools: usize, hard_limit: u32) -> Named<ProcManager> {
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
            .insert(format!("pool-{number}"), section.clone());
    }
    Named::new(ProcManager::new(Arc::new(settings), spawner, &no_log()).start())
}

/// Take and return through a named pool, and through a group, beside the language's own pool.
async fn named_pools() {
    const CLIENTS: usize = 10;
    let manager = manager_of_pools(GROUP, CLIENTS as u32);
    let callers: Vec<_> = (0..CLIENTS)
        .map(|_| Rc::new(Caller::new(manager.clone())))
        .collect();
    let measure = async |want: Want| {
        nanoseconds_each(TIME, || {
            let cycles = callers
                .iter()
                .map(|caller| actix_rt::spawn(pool_cycles(Rc::clone(caller), want.clone())));
            let all = join_all(cycles);
            async { all.await.into_iter().map(|r| r.expect("it ends")).sum() }
        })
        .await
    };
    let own = measure(Want::language(LanguageName::new("nothing"))).await;
    let pool = Want::any_from(TakeFrom::Pool("pool-0".into()));
    let pool = measure(pool).await;
    report("take + return, a named pool", pool, own, "ns", 1.2);
    let group = Want::any_from(TakeFrom::Group("group".into()));
    let group = measure(group).await;
    report("take + return, a group of 8", group, own, "ns", 1.2);
}

/// What a pool costs that nobody uses.
async fn idle_pools() {
    const POOLS: usize = 1000;
    let before = resident_bytes();
    let manager = manager_of_pools(POOLS, 1);
    let status = manager.address().send(GetStatus {
        pool: Some("pool-0".to_owned()),
    });
    assert_eq!(status.await.expect("it lives").pools.len(), 1);
    let each = (resident_bytes() - before) / POOLS as f64;
    report("memory of an idle pool", each, 2048.0, "B ", 1.0);
}

#[actix_rt::main]
async fn main() {
    // First: what is freed later would be used again.
    idle_pools().await;
    cycles().await;
    waiting_clients().await;
    named_pools().await;
}
