//! Processes that support `forget` serve one database after another without a restart.

use std::sync::{Arc, Mutex};

use policy::pool::Reuse;
use settee::messages::proc_manager::TenantName;
use settee_testkit::{FakeAnswer, FakeLanguage, TestPool};

use crate::support::metrics::number;

/// The prompts sent to all processes.
type Sent = Arc<Mutex<Vec<String>>>;

/// Returns a language whose processes record their prompts and answer `forget` with `to_forget`.
fn fake(sent: &Sent, to_forget: &'static str) -> FakeLanguage {
    let sent = Arc::clone(sent);
    let fake = FakeLanguage::new().forgetting();
    fake.answers(move |prompt| {
        sent.lock().unwrap().push(prompt.to_owned());
        let forgets = prompt.starts_with("[\"forget\"");
        FakeAnswer::Now(if forgets { to_forget } else { "true" }.into())
    })
}

fn pool(fake: &FakeLanguage) -> TestPool {
    let builder = TestPool::builder().hard_limit(1);
    builder.language("x", fake.clone()).start()
}

#[actix_rt::test]
async fn a_process_forgets_a_database_before_it_is_taught_the_document_of_another() {
    let sent = Sent::default();
    let fake = fake(&sent, "true");
    let pool = pool(&fake);
    let [mut one, mut two] = ["one", "two"].map(|name| pool.client(name));
    one.takes(pool.ddoc("a", "_design/a")).await;
    one.returns().await;
    two.takes(pool.ddoc("b", "_design/b")).await;
    assert_eq!(two.proc(), one.last_proc());
    assert_eq!(fake.start_count(), 1);
    let config = &pool.settings().reset_config;
    let told = sent.lock().unwrap().clone();
    let (forget, teach) = (&told[told.len() - 2], &told[told.len() - 1]);
    assert_eq!(*forget, format!("[\"forget\",{config}]"));
    assert!(teach.starts_with(r#"["ddoc","new","_design/b""#), "{teach}");
    let status = pool.status().await;
    assert_eq!((status.totals.started, status.totals.forgot), (1, 1));
    let metrics = pool.metrics().await;
    let count = number(&metrics, "settee_pool_forgets_total", &["x"]);
    assert_eq!(count, Some(1.0));
    drop((one, two));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_that_does_not_confirm_a_forget_is_replaced() {
    for answer in [
        "false",
        r#"["error","not_forgotten","no"]"#,
        r#"["error","unknown_command","no"]"#,
    ] {
        let fake = fake(&Sent::default(), answer);
        let pool = pool(&fake);
        let [mut one, mut two] = ["one", "two"].map(|name| pool.client(name));
        one.takes(pool.ddoc("a", "_design/a")).await;
        one.returns().await;
        two.takes(pool.ddoc("b", "_design/b")).await;
        assert_ne!(two.proc(), one.last_proc());
        assert_eq!(fake.start_count(), 2);
        drop((one, two));
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn with_reuse_per_database_even_processes_that_forget_are_not_shared() {
    let fake = fake(&Sent::default(), "true");
    let builder = TestPool::builder()
        .hard_limit(1)
        .reuse(Some(Reuse::Database));
    let pool = builder.language("x", fake.clone()).start();
    for name in ["one", "two", "three"] {
        let mut client = pool.client(name);
        client.takes(pool.any()).await;
        client.returns().await;
        drop(client);
    }
    let mut last = pool.client("last");
    last.takes(pool.any().of(TenantName::Database("a".into())))
        .await;
    assert_eq!(fake.start_count(), 4);
    drop(last);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn after_a_client_sends_forget_a_process_is_taught_again_or_replaced() {
    for (to_forget, starts) in [("true", 1), ("false", 2)] {
        client_sends_forget(to_forget, starts).await;
    }
}

async fn client_sends_forget(to_forget: &'static str, starts: u32) {
    let sent = Sent::default();
    let fake = fake(&sent, to_forget);
    let pool = pool(&fake);
    let mut client = pool.client("one");
    client.takes(pool.ddoc("a", "_design/a")).await;
    assert_eq!(client.prompts(r#"["forget"]"#).await.unwrap(), to_forget);
    client.returns().await;
    client.takes(pool.ddoc("a", "_design/a")).await;
    assert_eq!(fake.start_count(), starts);
    let sent = sent.lock().unwrap().clone();
    let is = |line: &&String, command: &str| line.starts_with(&format!("[\"{command}\""));
    let count = |command| sent.iter().filter(|line| is(line, command)).count();
    assert_eq!((count("forget"), count("ddoc")), (2, 2), "{sent:?}");
    drop(client);
    pool.assert_quiet().await;
}
