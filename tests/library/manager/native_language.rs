//! Native languages: the example works, and a native server that hangs, panics or answers
//! malformed lines loses its own process and nothing else.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use settee::actors::native_process::NativeServer;
use settee::languages::native::NativeLanguage;
use settee::messages::process::PromptError;
use settee_testkit::{TestPool, TestPoolBuilder};

#[path = "../../../examples/new_language.rs"]
#[allow(dead_code, reason = "the example's `main` is not called")]
mod new_language;

#[actix_rt::test]
async fn the_example_language_emits_a_field_only_where_it_is_present() {
    let pool = TestPool::builder()
        .language("field", new_language::field())
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    for (prompt, answer) in [
        (r#"["reset",{}]"#, "true"),
        (r#"["map_doc",{"a":1}]"#, "[]"),
        (r#"["add_fun","a"]"#, "true"),
        (r#"["add_fun","b"]"#, "true"),
        (r#"["map_doc",{"a":1}]"#, "[[[1,null]],[]]"),
        (r#"["map_doc",{"b":null}]"#, "[[],[[null,null]]]"),
        (r#"["reset"]"#, "true"),
        (r#"["map_doc",{"a":1}]"#, "[]"),
    ] {
        assert_eq!(
            client.prompts(prompt).await.as_deref(),
            Ok(answer),
            "{prompt}"
        );
    }
    let error = client.prompts("[\"add_fun\",7]").await.unwrap_err();
    assert_eq!(error.to_string(), "unknown_command: [\"add_fun\",7]");
    client.returns().await;
    pool.assert_quiet().await;
}

/// A server that does what a prompt's first word says.
struct Rogue {
    go: Arc<Mutex<Receiver<()>>>,
}

impl NativeServer for Rogue {
    fn prompt(&mut self, command: &str) -> String {
        let words: Vec<serde_json::Value> = serde_json::from_str(command).unwrap_or_default();
        match words.first().and_then(|word| word.as_str()) {
            Some("panic") => panic!("a native server that panics (meant to happen)"),
            Some("hang") => {
                let go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
                // Returns once the sender is dropped; nothing is ever sent.
                let _ = go.recv();
                "true".into()
            }
            Some("print") => words[1].as_str().unwrap_or_default().into(),
            Some("ddoc") if words[2][0] == "lists" => "[\"start\",[],{}]".into(),
            _ => "true".into(),
        }
    }
}

/// A pool of one native process. Dropping the sender releases every hanging server.
fn rogue_pool() -> (TestPoolBuilder, Sender<()>) {
    let (release, go) = channel();
    let go = Arc::new(Mutex::new(go));
    let builder = TestPool::builder().hard_limit(1).language(
        "rogue",
        NativeLanguage::new(move |_| Rogue {
            go: Arc::clone(&go),
        }),
    );
    (builder, release)
}

#[actix_rt::test]
async fn a_native_server_may_log_before_its_answer_but_not_instead_of_it() {
    let (pool, _go) = rogue_pool();
    let pool = pool.start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let logs = r#"["print","[\"log\",\"one\"]\n[\"log\",\"two\"]\n[7]"]"#;
    assert_eq!(client.prompts(logs).await.as_deref(), Ok("[7]"));
    let no_answer = r#"["print","[\"log\",\"one\"]"]"#;
    let error = client.prompts(no_answer).await.unwrap_err().to_string();
    assert!(error.contains("a log line instead of an answer"), "{error}");
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_native_server_that_panics_is_replaced() {
    let (pool, _go) = rogue_pool();
    let pool = pool.start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let error = client.prompts("[\"panic\"]").await.unwrap_err();
    assert_eq!(error.to_string(), "the query server panicked");
    client.lets_go();
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[1]").await.as_deref(), Ok("true"));
    assert_eq!(pool.started().len(), 2);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_native_server_that_hangs_is_abandoned_at_the_deadline() {
    let (pool, go) = rogue_pool();
    let pool = pool.start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let timeout = Duration::from_millis(100);
    let first = client.sends_within("[\"hang\"]", Some(timeout));
    let second = client.sends("[2]");
    let command = settee::query_server::prompt::Command::Other;
    assert_eq!(
        first.answer().await,
        Err(PromptError::Timeout {
            timeout,
            command,
            held_back: false,
            tenant_key: None,
        })
    );
    assert!(matches!(
        second.answer().await,
        Err(PromptError::NotRun { .. })
    ));
    client.lets_go();
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[1]").await.as_deref(), Ok("true"));
    client.returns().await;
    drop(go);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_native_server_with_a_malformed_answer_is_replaced() {
    for nonsense in [
        "",
        "junk",
        "1 2",
        "[\\\"log\\\",\\\"x\\\"]",
        "[\\\"error\\\"]",
    ] {
        let (pool, _go) = rogue_pool();
        let pool = pool.start();
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        let error = client.prompts(&format!("[\"print\",\"{nonsense}\"]")).await;
        assert!(
            matches!(error, Err(PromptError::Protocol { .. })),
            "{error:?}"
        );
        client.lets_go();
        client.takes(pool.any()).await;
        assert_eq!(client.prompts("[1]").await.as_deref(), Ok("true"));
        client.returns().await;
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_native_server_that_a_client_taught_or_left_mid_list_is_replaced() {
    for prompt in [
        "[\"ddoc\",\"new\",\"_design/mine\",{}]",
        "[\"ddoc\",\"_design/mine\",[\"lists\",\"l\"],[{},{}]]",
    ] {
        let (pool, _go) = rogue_pool();
        let pool = pool.start();
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        client.prompts(prompt).await.unwrap();
        let lost = client.proc();
        client.returns().await;
        client.takes(pool.any()).await;
        assert_ne!(client.proc(), lost, "{prompt}");
        client.returns().await;
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_verbatim_prompt_returns_a_native_servers_error_line_unparsed() {
    let (pool, _go) = rogue_pool();
    let pool = pool.start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let line = Bytes::from_static(br#"["print","[\"error\",\"a\",\"b\"]"]"#);
    let lease = client.lease();
    let answer = lease.process.prompt_verbatim(lease.token, line, None).await;
    assert_eq!(answer.as_deref(), Ok(&b"[\"error\",\"a\",\"b\"]\n"[..]));
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_idle_native_process_is_closed() {
    let (pool, _go) = rogue_pool();
    let pool = pool
        .soft_limit(1)
        .settings(|settings| settings.idle_limit = Duration::from_millis(50))
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    client.returns().await;
    pool.becomes("the idle process is closed", |pool| pool.procs.is_empty())
        .await;
    pool.assert_quiet().await;
}
