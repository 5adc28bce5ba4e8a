//! The fifteen cases of couch_proc_manager's own tests, on real actors and real children: the
//! built-in JavaScript query server.
//!
//! SOURCE    couchdb_os_proc_pool.erl: hard limit 3, soft limit 2, a fresh manager for each case.

use std::time::Duration;

use settee::languages::command::CommandLanguage;
use settee::messages::proc_manager::GetProcError;
use settee::messages::process::PromptError;
use settee::policy::pool::db_tag::DbTag;
use settee::query_server::cell::Cell;
use settee::query_server::child::CommandSpec;
use settee_testkit::{TestPool, TestPoolBuilder, eventually};

use crate::support::program::SETTEE;

fn builder() -> TestPoolBuilder {
    let couchjs = CommandSpec {
        program: SETTEE.into(),
        arguments: vec!["couchjs".into()],
        environment: Vec::new(),
        cell: Cell::None,
    };
    TestPool::builder()
        .hard_limit(3)
        .soft_limit(2)
        .language("javascript", CommandLanguage::from_spec(couchjs))
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[actix_rt::test]
async fn should_block_new_proc_on_full_pool() {
    let pool = builder().start();
    let [mut first, mut second, mut third] = pool.clients(["1", "2", "3"]).await;
    assert_ne!(first.proc(), second.proc());
    assert_ne!(second.proc(), third.proc());
    assert_ne!(first.proc(), third.proc());

    let mut fourth = pool.client("4");
    assert!(!fourth.asks(pool.any()).ping().await);

    let token = first.lease().token;
    assert!(first.returns().await);
    assert!(fourth.ping().await);
    assert_eq!(fourth.proc(), first.last_proc());
    assert_ne!(fourth.lease().token, token);

    for client in [&mut second, &mut third, &mut fourth] {
        assert!(client.returns().await);
    }
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn should_free_slot_on_proc_unexpected_exit() {
    let pool = builder().start();
    let [first, mut second, mut third] = pool.clients(["1", "2", "3"]).await;
    let lost = (first.proc(), first.os_pid());
    let source = r#"["add_fun","function(doc) {}"]"#;
    assert_eq!(first.prompts(source).await.as_deref(), Ok("true"));
    // CouchDB lends the process to the next client unchanged; here the same process is reset first.
    let mut fourth = pool.client("4");
    fourth.asks(pool.any());
    assert!(fourth.is_waiting().await);
    first.dies();
    assert!(fourth.ping().await);
    assert_eq!((fourth.proc(), fourth.os_pid()), lost);
    for client in [&mut second, &mut third, &mut fourth] {
        assert!(client.returns().await);
    }
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn should_reuse_known_proc() {
    let pool = builder().start();
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.takes(pool.ddoc("db", "_design/1")).await;
    second.takes(pool.ddoc("db", "_design/2")).await;
    assert_ne!(first.proc(), second.proc());
    first.returns().await;
    second.returns().await;
    assert!(pool.started().iter().all(|process| process.pid.is_alive()));

    let mut again = pool.client("1again");
    again.takes(pool.ddoc("db", "_design/1")).await;
    assert_eq!(again.proc(), first.last_proc());
    again.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn should_process_waiting_queue_as_fifo() {
    let pool = builder().start();
    let mut clients: Vec<_> = (1..=5).map(|n| pool.client(&n.to_string())).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.asks(pool.ddoc("db", &format!("_design/{n}")));
    }
    for client in &mut clients[..3] {
        assert!(client.ping().await);
    }
    assert!(clients[3].is_waiting().await);
    assert!(clients[4].is_waiting().await);

    clients[0].returns().await;
    assert!(clients[3].ping().await);
    assert_eq!(clients[3].proc(), clients[0].last_proc());
    assert!(clients[4].is_waiting().await);
    assert_eq!(pool.status().await.waiting, 1);

    for n in [1, 4, 2, 3] {
        assert!(clients[n].ping().await);
        clients[n].returns().await;
    }
    pool.assert_quiet().await;
}

async fn shrinks_to(left: u32, tagged: bool) {
    let pool = builder()
        .settings(|settings| settings.idle_limit = Duration::from_millis(500))
        .start();
    let mut clients: Vec<_> = (1..=3).map(|n| pool.client(&n.to_string())).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let want = match tagged {
            true => pool.ddoc("db", &format!("_design/{n}")),
            false => pool.any(),
        };
        client.takes(want).await;
    }
    for client in &mut clients {
        client.returns().await;
    }
    assert_eq!(pool.proc_count().await, 3);
    pool.becomes("the pool shrinks", |pool| {
        pool.free == left && pool.stopping == 0
    })
    .await;
    // It stays that small: the timers of the remaining processes fire again.
    let started = pool.started();
    let alive = || started.iter().filter(|process| process.pid.is_alive());
    pool.becomes("the remaining processes stay idle", |pool| {
        pool.procs.iter().all(|process| process.idle_ms > 800)
    })
    .await;
    assert_eq!(pool.proc_count().await, left);
    assert_eq!(alive().count(), left as usize);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn should_reduce_pool_on_idle_os_procs() {
    shrinks_to(1, false).await;
}

#[actix_rt::test]
async fn should_reduce_pool_of_tagged_processes_on_idle() {
    shrinks_to(0, true).await;
}

#[actix_rt::test]
async fn should_not_return_broken_process_to_the_pool() {
    let pool = builder().hard_limit(1).soft_limit(1).start();
    let mut client = pool.client("1");
    let shows = r#""shows": {"s": "function(doc) { if (doc.bad) throw 'oops'; return 'ok'; }"}"#;
    let show = |id, doc| format!(r#"["ddoc","{id}",["shows","s"],[{doc},{{}}]]"#);
    client
        .takes(pool.ddoc_with("db", "_design/bad", shows))
        .await;
    assert_eq!(pool.proc_count().await, 1);
    let broken = (client.proc(), client.os_pid());
    let error = client
        .prompts(&show("_design/bad", r#"{"bad":true}"#))
        .await;
    let error = error.unwrap_err();
    assert!(matches!(error, PromptError::Function { ref name, .. } if name == "render_error"));
    assert!(client.returns_broken().await);
    assert_eq!(pool.proc_count().await, 0);

    client
        .takes(pool.ddoc_with("db", "_design/good", shows))
        .await;
    assert_ne!(client.proc(), broken.0);
    let answer = client.prompts(&show("_design/good", "{}")).await;
    assert_eq!(answer.as_deref(), Ok(r#"["resp",{"body":"ok"}]"#));
    client.returns().await;
    eventually("the broken process is gone", async || !is_alive(broken.1)).await;
    assert_eq!(pool.started().len(), 2);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn oldest_tagged_process_is_reaped() {
    let pool = builder().start();
    let mut clients: Vec<_> = (1..=3).map(|n| pool.client(&n.to_string())).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client
            .takes(pool.ddoc(&format!("db{n}"), "_design/x"))
            .await;
    }
    let pids: Vec<u32> = clients.iter().map(|client| client.os_pid()).collect();
    for client in &mut clients {
        client.returns().await;
    }
    assert_eq!(pool.status().await.free_tagged, 3);

    let mut fourth = pool.client("4");
    fourth.takes(pool.ddoc("db4", "_design/x")).await;
    assert!(!pids.contains(&fourth.os_pid()));
    eventually("the process of the first database ends", async || {
        !is_alive(pids[0])
    })
    .await;
    assert!(is_alive(pids[1]) && is_alive(pids[2]));
    fourth.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn untagged_process_is_replenished() {
    let pool = builder().start();
    let [mut first, mut second] = pool.clients(["1", "2"]).await;
    first.returns().await;
    second.returns().await;
    assert_eq!(pool.status().await.free, 2);

    let mut third = pool.client("3");
    third.takes(pool.ddoc("db", "_design/x")).await;
    assert!([first.last_proc(), second.last_proc()].contains(&third.proc()));
    pool.becomes("two are idle again", |pool| pool.free == 2)
        .await;
    assert_eq!(pool.status().await.free_tagged, 0);
    third.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn exact_ddoc_is_first_choice() {
    let pool = builder().start();
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.takes(pool.ddoc("db", "_design/1")).await;
    second.takes(pool.ddoc("db", "_design/2")).await;
    first.returns().await;
    second.returns().await;
    assert_eq!(pool.status().await.free_tagged, 2);

    let mut third = pool.client("3");
    third.takes(pool.ddoc("db", "_design/1")).await;
    assert_eq!(third.proc(), first.last_proc());
    third.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn db_tagged_process_is_second_choice() {
    let pool = builder().start();
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.takes(pool.ddoc("db1", "_design/1")).await;
    second.takes(pool.ddoc("db2", "_design/2")).await;
    first.returns().await;
    second.returns().await;

    let mut third = pool.client("3");
    third.takes(pool.ddoc("db1", "_design/3")).await;
    assert_eq!(third.proc(), first.last_proc());
    third.returns().await;
    assert_eq!(pool.proc_count().await, 2);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn if_no_tagged_process_found_new_must_be_spawned() {
    let pool = builder().start();
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.takes(pool.ddoc("db1", "_design/1")).await;
    second.takes(pool.ddoc("db2", "_design/2")).await;
    first.returns().await;
    second.returns().await;

    let mut third = pool.client("3");
    third.takes(pool.ddoc("db3", "_design/3")).await;
    assert!(![first.last_proc(), second.last_proc()].contains(&third.proc()));
    assert_eq!(pool.status().await.free_tagged, 2);
    third.returns().await;
    assert_eq!(pool.status().await.free_tagged, 3);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn db_tag_none_works() {
    let pool = builder()
        .settings(|settings| settings.db_tag = DbTag::None)
        .start();
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.takes(pool.ddoc("db1", "_design/1")).await;
    second.takes(pool.ddoc("db2", "_design/2")).await;
    first.returns().await;
    second.returns().await;
    let idle = pool.status().await;
    assert_eq!((idle.free, idle.free_tagged), (2, 0));

    let mut third = pool.client("3");
    third.takes(pool.ddoc("db3", "_design/1")).await;
    assert_eq!(third.proc(), first.last_proc());
    third.returns().await;
    let idle = pool.status().await;
    assert_eq!((idle.free, idle.free_tagged), (2, 0));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn stale_procs_are_cleaned() {
    let pool = builder().start();
    let [mut first, mut second] = pool.clients(["1", "2"]).await;
    assert_eq!(pool.stale_proc_count().await, 0);
    pool.reload().await;
    assert_eq!(pool.stale_proc_count().await, 2);
    assert!(first.returns().await);
    assert!(second.returns().await);
    pool.terminate_stale_procs().await;
    assert_eq!(pool.stale_proc_count().await, 0);
    assert_eq!(pool.status().await.free, 0);
    assert_eq!(pool.proc_count().await, 0);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn bad_query_language() {
    let pool = builder().start();
    let error = pool.client("1").is_refused(pool.any_of("bad")).await;
    assert_eq!(error, GetProcError::UnknownQueryLanguage("bad".into()));
    assert_eq!(error.class().name, "unknown_query_language");
    assert_eq!(pool.proc_count().await, 0);
    pool.assert_quiet().await;
}
