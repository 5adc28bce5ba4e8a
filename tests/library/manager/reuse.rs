//! Data that a query server keeps from one tenant never reaches another, unless processes are shared.
//!
//! SUMMARY   A query server taken over by a function: it ignores `reset` and answers its next borrower
//!           with what it was sent before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use policy::pool::Reuse;
use serde_json::json;
use settee::functions::QueryServers;
use settee::languages::command::CommandLanguage;
use settee::messages::function::{FunctionName, FunctionRequest};
use settee::messages::proc_manager::{TenantName, Want};
use settee::policy::pool::db_tag::DbTag;
use settee::query_server::cell::Cell;
use settee::query_server::child::CommandSpec;
use settee::query_server::known_ddocs::KnownDdocs;
use settee_testkit::{FakeAnswer, FakeLanguage, TestClient, TestPool};

/// Answers every document with what it was sent before, by any client.
const SPY: &str = r#"
heard=null
while read -r line; do
  case $line in
    '["map_doc"'*) echo "[[[$heard,null]]]"; heard=$line ;;
    '["ddoc","new"'*) heard=$line; echo true ;;
    *) echo true ;;
  esac
done
"#;

const HEAR: &str = r#"["map_doc",{"_id":"secret"}]"#;
const TELL: &str = r#"["map_doc",{"_id":"x"}]"#;

fn spy() -> CommandLanguage {
    CommandLanguage::from_spec(CommandSpec {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), SPY.into()],
        environment: Vec::new(),
        cell: Cell::None,
    })
}

/// Returns a pool of one process, so that the next borrower gets the same one if that is allowed.
fn pool(reuse: Option<Reuse>) -> TestPool {
    let builder = TestPool::builder().hard_limit(1).reuse(reuse);
    builder.language("spy", spy()).start()
}

fn database(name: &str) -> TenantName {
    TenantName::Database(name.into())
}

/// Takes a process, resets it as every client does, and returns its answer to a document.
async fn answer(client: &mut TestClient, want: Want, document: &str) -> String {
    client.takes(want).await;
    assert_eq!(client.prompts(r#"["reset",{}]"#).await.unwrap(), "true");
    let answer = client.prompts(document).await.unwrap();
    client.returns().await;
    answer
}

/// Returns whether a second client gets what the first one sent.
async fn leaks(pool: TestPool, first: Want, second: Want) -> bool {
    let [mut one, mut two] = ["one", "two"].map(|name| pool.client(name));
    answer(&mut one, first, HEAR).await;
    let heard = answer(&mut two, second, TELL).await;
    drop((one, two));
    pool.assert_quiet().await;
    heard.contains("secret")
}

#[actix_rt::test]
async fn data_kept_in_a_process_reaches_other_databases_only_where_processes_are_shared() {
    for (reuse, leak) in [(Reuse::Any, true), (Reuse::Database, false)] {
        let pool = pool(Some(reuse));
        let first = pool.any().of(database("a"));
        let second = pool.any().of(database("b"));
        assert_eq!(leaks(pool, first, second).await, leak, "{reuse:?}");
    }
}

#[actix_rt::test]
async fn data_kept_in_a_process_reaches_other_clients_only_where_processes_are_shared() {
    for (reuse, leak) in [(Reuse::Any, true), (Reuse::Database, false)] {
        let pool = pool(Some(reuse));
        let (first, second) = (pool.any(), pool.any());
        assert_eq!(leaks(pool, first, second).await, leak, "{reuse:?}");
    }
}

#[actix_rt::test]
async fn data_of_a_design_document_reaches_other_databases_only_where_processes_are_shared() {
    for (reuse, leak) in [(Reuse::Any, true), (Reuse::Database, false)] {
        let pool = pool(Some(reuse));
        let first = pool.ddoc("a", "_design/secret");
        let second = pool.any().of(database("b"));
        assert_eq!(leaks(pool, first, second).await, leak, "{reuse:?}");
    }
}

#[actix_rt::test]
async fn clients_of_one_database_or_of_one_user_share_a_process() {
    for tenant in [database("a"), TenantName::User("uid 1000".into())] {
        let pool = pool(Some(Reuse::Database));
        let want = pool.any().of(tenant);
        assert!(leaks(pool, want.clone(), want).await);
    }
}

#[actix_rt::test]
async fn processes_of_a_command_are_not_shared_unless_configured() {
    let apart = pool(None);
    let (first, second) = (apart.any(), apart.any());
    assert!(!leaks(apart, first, second).await);

    let isolating = TestPool::builder().hard_limit(1).reuse(None);
    let pool = isolating.language("fake", FakeLanguage::new()).start();
    let [mut one, mut two] = ["one", "two"].map(|name| pool.client(name));
    one.takes(pool.any().of(database("a"))).await;
    one.returns().await;
    two.takes(pool.any().of(database("b"))).await;
    assert_eq!(two.proc(), one.last_proc());
    drop((one, two));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_is_not_reused_after_db_tag_changes() {
    let builder = TestPool::builder()
        .hard_limit(1)
        .reuse(Some(Reuse::Database));
    let builder = builder.settings(|settings| settings.db_tag = DbTag::Prefix);
    let mut pool = builder.language("spy", spy()).start();
    let [mut one, mut two] = ["one", "two"].map(|name| pool.client(name));
    answer(&mut one, pool.any().of(database("shop/a")), HEAR).await;
    let heard = answer(&mut two, pool.any().of(database("shop/b")), HEAR).await;
    assert!(
        heard.contains("secret"),
        "one prefix is one tenant: {heard}"
    );
    pool.reconfigure(|settings| settings.db_tag = DbTag::Name)
        .await;
    let heard = answer(&mut two, pool.any().of(database("shop")), TELL).await;
    assert!(!heard.contains("secret"), "{heard}");
    drop((one, two));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_processes_of_a_client_without_a_tenant_end_with_it() {
    let pool = pool(Some(Reuse::Database));
    let mut client = pool.client("one");
    answer(&mut client, pool.any(), HEAR).await;
    pool.becomes("its process is free", |pool| pool.free == 1)
        .await;
    drop(client);
    pool.becomes("its process has ended", |pool| {
        pool.free + pool.stopping == 0
    })
    .await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn functions_of_one_database_share_a_process_and_those_without_a_database_do_not() {
    let pool = pool(Some(Reuse::Database));
    for (db, started) in [("a", 1), ("a", 1), ("b", 2), ("b", 2), ("", 3), ("", 4)] {
        let servers = QueryServers::new(pool.caller());
        let mut call = json!({"lang": "spy", "funs": ["f"], "docs": [{"_id": "x"}]});
        if !db.is_empty() {
            call["db"] = json!(db);
        }
        let ddocs = KnownDdocs::default();
        let request = FunctionRequest::parse(FunctionName::MapDocs, &call.to_string(), &ddocs);
        servers.perform(request.unwrap().call).await.unwrap();
        assert_eq!(pool.started().len(), started, "{db}");
    }
    pool.assert_quiet().await;
}

/// One client leaves state in a process, another prompts it without a `reset`; in between, the process answers
/// `reset` with `answer`. Returns the second client's answer, and whether the process was replaced.
async fn prompt_after_reset(answer: &'static str) -> (Result<String, String>, bool) {
    let left = Arc::new(AtomicBool::new(false));
    let fake = FakeLanguage::new().answers({
        let left = Arc::clone(&left);
        move |prompt| {
            let resets = prompt.starts_with("[\"reset\"") && left.load(Ordering::Relaxed);
            left.fetch_or(prompt.contains("leave"), Ordering::Relaxed);
            FakeAnswer::Now(if resets { answer } else { "true" }.into())
        }
    });
    let pool = TestPool::builder().hard_limit(1);
    let pool = pool.language("x", fake.clone()).start();
    let [mut one, mut two] = ["one", "two"].map(|name| pool.client(name));
    one.takes(pool.any()).await;
    one.prompts(r#"["add_fun","leave"]"#).await.unwrap();
    one.returns().await;
    two.takes(pool.any()).await;
    let told = two.prompts(TELL).await;
    let told = told.map_err(|error| error.to_string());
    two.returns().await;
    two.takes(pool.any()).await;
    let is_replaced = fake.start_count() > 1;
    drop((one, two));
    pool.assert_quiet().await;
    (told, is_replaced)
}

#[actix_rt::test]
async fn a_process_that_fails_to_reset_is_replaced_and_its_next_holder_gets_an_error() {
    assert_eq!(prompt_after_reset("true").await, (Ok("true".into()), false));
    for answer in ["false", r#"["error","no","no"]"#, r#"["fatal","no","no"]"#] {
        let (told, is_replaced) = prompt_after_reset(answer).await;
        let error = told.unwrap_err();
        assert!(error.contains("reset"), "{answer}: {error}");
        assert!(is_replaced, "{answer}");
    }
}
