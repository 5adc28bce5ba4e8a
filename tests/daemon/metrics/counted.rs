//! Each event moves exactly its own counters, in a pool with real and scripted children.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::metrics::number;
use crate::support::program::SETTEE;
use settee::languages::command::CommandLanguage;
use settee::messages::process::PromptError;
use settee::metrics::{Metrics, Snapshot, Value};
use settee::query_server::cell::Cell;
use settee::query_server::child::CommandSpec;
use settee_testkit::{
    FakeAnswer, FakeLanguage, FakeStart, Script, ScriptedChild, Step, TestClient, TestPool,
    eventually,
};

/// Returns every nonzero counter, and the count of every histogram that is not empty, by name and labels.
/// Gauges and times are left out: they are not exact.
fn counters(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for family in &snapshot.families {
        let name = family.definition.prometheus;
        if family.definition.unit() == "µs" {
            continue;
        }
        for sample in &family.samples {
            let count = match &sample.value {
                Value::Number(count) if family.definition.kind.prometheus() == "counter" => *count,
                Value::Times(times) => times.count(),
                _ => 0,
            };
            let name = name.trim_start_matches("couchdb_query_server_");
            let name = name
                .trim_start_matches("settee_")
                .trim_end_matches("_total");
            if count > 0 {
                let key = [name]
                    .into_iter()
                    .chain(sample.labels.iter().map(String::as_str));
                counters.insert(key.collect::<Vec<_>>().join(" "), count);
            }
        }
    }
    counters
}

/// Asserts that between two snapshots exactly the `expected` counters moved, by these amounts.
/// Byte counters are ignored: they have a test of their own.
#[track_caller]
fn assert_moved(what: &str, before: &Snapshot, after: &Snapshot, expected: &[(&str, u64)]) {
    let (before, after) = (counters(before), counters(after));
    let mut moved: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in &after {
        let by = count - before.get(name).unwrap_or(&0);
        if by > 0 && !name.contains("_bytes") {
            moved.insert(name, by);
        }
    }
    assert_eq!(moved, expected.iter().copied().collect(), "{what}");
}

fn couchjs() -> CommandLanguage {
    CommandLanguage::from_spec(CommandSpec {
        program: SETTEE.into(),
        arguments: vec!["couchjs".into()],
        environment: Vec::new(),
        cell: Cell::None,
    })
}

/// Counters that every answered prompt moves, besides the one of its class.
const ANSWERED: [(&str, u64); 2] = [("process_prompts", 1), ("prompt_seconds javascript", 1)];

const DDOC: &str = r#""language":"javascript","validate_doc_update":"function(doc) { if (!doc.ok) throw({forbidden: 'no'}); }","filters":{"f":"function(doc) { return true; }"},"shows":{"s":"function(doc) { return 'x'; }"},"lists":{"l":"function(head, req) { send('a'); while (getRow()) {} }"}"#;

#[actix_rt::test]
async fn each_prompt_moves_only_the_call_counter_of_its_kind() {
    let pool = TestPool::builder()
        .language("javascript", couchjs())
        .start();
    let mut client = pool.client("1");
    let before = pool.metrics().await;
    client.takes(pool.ddoc_with("db", "_design/d", DDOC)).await;
    let taken = pool.metrics().await;
    assert_moved(
        "a process is started, taught and lent",
        &before,
        &taken,
        &[
            &ANSWERED[..],
            &[
                ("process_starts", 1),
                ("calls_spawn_proc", 1),
                ("pool_open_seconds javascript", 1),
                ("calls_ddoc_new", 1),
                ("acquired_processes", 1),
                ("pool_wait_seconds javascript", 1),
            ],
        ]
        .concat(),
    );
    let mut before = taken;
    for (class, prompt, answer) in [
        ("reset", r#"["reset",{}]"#, "true"),
        ("other", r#"["add_lib",{}]"#, "true"),
        (
            "add_fun",
            r#"["add_fun","function(doc) { emit(1, 2); }"]"#,
            "true",
        ),
        ("map", r#"["map_doc",{"_id":"a"}]"#, "[[[1,2]]]"),
        (
            "reduce",
            r#"["reduce",["function(k, v) { return sum(v); }"],[[[1,"a"],5]]]"#,
            "[true,[5]]",
        ),
        (
            "reduce",
            r#"["rereduce",["function(k, v) { return sum(v); }"],[5,6]]"#,
            "[true,[11]]",
        ),
        (
            "ddoc_new",
            r#"["ddoc","new","_design/e",{"shows":{}}]"#,
            "true",
        ),
        (
            "ddoc_vdu",
            r#"["ddoc","_design/d",["validate_doc_update"],[{"ok":1},null,{},{}]]"#,
            "1",
        ),
        (
            "ddoc_filter",
            r#"["ddoc","_design/d",["filters","f"],[[{}],{}]]"#,
            "[true,[true]]",
        ),
        (
            "ddoc_other",
            r#"["ddoc","_design/d",["shows","s"],[null,{}]]"#,
            r#"["resp",{"body":"x"}]"#,
        ),
    ] {
        assert_eq!(
            client.prompts(prompt).await.as_deref(),
            Ok(answer),
            "{prompt}"
        );
        let after = pool.metrics().await;
        let call = format!("calls_{class}");
        let mut expected = [&ANSWERED[..], &[(&call, 1)]].concat();
        if class == "ddoc_vdu" {
            expected.push(("vdu_process_time_seconds", 1));
        }
        // The time moves with the count.
        let time = format!("couchdb_query_server_time_{class}_total");
        let moved = number(&after, &time, &[]) > number(&before, &time, &[]);
        assert!(moved, "{prompt} took no time");
        assert_moved(prompt, &before, &after, &expected);
        before = after;
    }
    client.returns().await;
    pool.becomes("gone", |pool| pool.stopping == 0).await;
    let after = pool.metrics().await;
    // The client taught the process functions, so it is not lent again.
    let returned = [
        ("pool_returns javascript ok", 1),
        ("pool_stops javascript broken", 1),
        ("kills javascript stopped", 1),
    ];
    assert_moved("a return", &before, &after, &returned);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_refused_document_counts_as_a_reject_and_a_failed_validation_does_not() {
    let pool = TestPool::builder()
        .language("javascript", couchjs())
        .start();
    let mut client = pool.client("1");
    client.takes(pool.ddoc_with("db", "_design/d", DDOC)).await;
    let before = pool.metrics().await;
    let forbidden = r#"["ddoc","_design/d",["validate_doc_update"],[{},null,{},{}]]"#;
    let answer = client.prompts(forbidden).await;
    assert_eq!(answer.as_deref(), Ok(r#"{"forbidden":"no"}"#));
    let after = pool.metrics().await;
    let answered = [
        &ANSWERED[..],
        &[("calls_ddoc_vdu", 1), ("vdu_process_time_seconds", 1)],
    ]
    .concat();
    let rejected = [&answered[..], &[("vdu_rejects", 1)]].concat();
    assert_moved("a rejected document", &before, &after, &rejected);

    client.lets_go();
    pool.assert_quiet().await;

    let says_no = Script::echo().on_text("validate_doc_update", [Step::error("a", "b")]);
    let (pool, client, _child) = scripted(says_no).await;
    let before = pool.metrics().await;
    let answer = client.prompts(forbidden).await;
    assert!(
        matches!(answer, Err(PromptError::Function { .. })),
        "{answer:?}"
    );
    let failed = [
        ("process_prompts", 1),
        ("process_errors", 1),
        ("prompt_errors s function", 1),
    ];
    assert_moved("an error", &before, &pool.metrics().await, &failed);
    drop(client);
    pool.assert_quiet().await;
}

/// A pool with one scripted language, and a client that holds its only process.
async fn scripted(script: Script) -> (TestPool, TestClient, ScriptedChild) {
    // Long enough that no child that obeys is overdue, even under load.
    scripted_within(Duration::from_secs(60), script).await
}

/// As `scripted`, with a child killed if it outlives the order to stop by `grace`.
async fn scripted_within(grace: Duration, script: Script) -> (TestPool, TestClient, ScriptedChild) {
    let child = ScriptedChild::new(script);
    let pool = TestPool::builder()
        .hard_limit(1)
        .settings(|settings| settings.stop_grace = grace)
        .script("s", &child)
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    (pool, client, child)
}

/// Asserts that the end of a process during a prompt moves `ends`, and counts as a prompt error with this `reason`.
async fn assert_counts_of_end(
    steps: &[Step],
    reason: &str,
    ends: &[(&str, u64)],
    timeout: Option<Duration>,
) {
    let (pool, client, _child) = scripted(Script::echo().on("end", steps)).await;
    let before = pool.metrics().await;
    let answer = client.sends_within("[\"end\"]", timeout).answer().await;
    assert!(answer.is_err(), "{answer:?}");
    pool.becomes("without a process", |pool| pool.used == 0)
        .await;
    let after = pool.metrics().await;
    let error = format!("prompt_errors s {reason}");
    let common = [("process_prompts", 1), ("process_errors", 1), (&error, 1)];
    assert_moved(reason, &before, &after, &[&common[..], ends].concat());
    drop(client);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn each_way_a_process_ends_during_a_prompt_has_its_own_counter() {
    assert_counts_of_end(&[Step::Exit(0)], "exit", &[("process_exits", 1)], None).await;
    assert_counts_of_end(
        &[Step::Exit(3)],
        "exit",
        &[("process_error_exits", 1)],
        None,
    )
    .await;
    assert_counts_of_end(
        &[Step::Signal("KILL")],
        "exit",
        &[("process_error_exits", 1)],
        None,
    )
    .await;
    let garbage = [Step::Print("garbage".into())];
    assert_counts_of_end(&garbage, "protocol", &[("kills s protocol", 1)], None).await;
    let fatal = [Step::fatal("a", "b")];
    assert_counts_of_end(&fatal, "function", &[("kills s fatal", 1)], None).await;
    let late = [("kills s timeout", 1), ("pool_timeouts s prompt", 1)];
    let soon = Some(Duration::from_millis(50));
    assert_counts_of_end(&[Step::Hang], "timeout", &late, soon).await;
}

#[actix_rt::test]
async fn prompts_queued_behind_one_that_ends_the_process_count_as_failed() {
    let (pool, client, _child) = scripted(Script::echo().on("end", [Step::Exit(1)])).await;
    let before = pool.metrics().await;
    let sent: Vec<_> = (0..3).map(|_| client.sends("[\"end\"]")).collect();
    for sent in sent {
        assert!(sent.answer().await.is_err());
    }
    pool.becomes("without a process", |pool| pool.used == 0)
        .await;
    let expected = [
        ("process_prompts", 3),
        ("process_errors", 3),
        ("prompt_errors s exit", 3),
        ("process_error_exits", 1),
    ];
    assert_moved("three prompts", &before, &pool.metrics().await, &expected);
    drop(client);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_times_of_pipelined_prompts_do_not_overlap() {
    let (pool, client, _child) = scripted(Script::echo()).await;
    let start = std::time::Instant::now();
    let sent: Vec<_> = (0..200).map(|_| client.sends("[\"a\"]")).collect();
    for sent in sent {
        sent.answer().await.unwrap();
    }
    let all = start.elapsed();
    let metrics = pool.metrics().await;
    let calls = number(&metrics, "couchdb_query_server_calls_other_total", &[]);
    assert_eq!(calls, Some(200.0));
    let time = number(&metrics, "couchdb_query_server_time_other_total", &[]);
    let time = Duration::from_micros(time.unwrap() as u64);
    assert!(Duration::ZERO < time && time <= all, "{time:?} of {all:?}");
    drop(client);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn prompt_and_answer_bytes_exclude_line_ends() {
    let (pool, client, _child) = scripted(Script::echo()).await;
    client.prompts("[\"abc\"]").await.unwrap();
    client.prompts("[\"defgh\"]").await.unwrap();
    let metrics = pool.metrics().await;
    for name in ["settee_prompt_bytes_total", "settee_answer_bytes_total"] {
        assert_eq!(number(&metrics, name, &["s"]), Some(16.0), "{name}");
    }
    drop(client);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_that_ignores_sigterm_counts_as_an_overdue_kill() {
    let script = Script::echo()
        .at_start([Step::IgnoreTerm])
        .at_end_of_input([Step::Hang]);
    let grace = Duration::from_millis(50);
    let (pool, mut client, _child) = scripted_within(grace, script).await;
    // The answer shows that the child has begun to ignore TERM.
    client.prompts("[\"a\"]").await.unwrap();
    client.returns().await;
    let before = pool.metrics().await;
    pool.reload().await;
    pool.becomes("without a process", |pool| pool.stopping + pool.free == 0)
        .await;
    let expected = [("pool_stops s stale", 1), ("kills s overdue", 1)];
    assert_moved("a reload", &before, &pool.metrics().await, &expected);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn returns_are_counted_by_their_outcome() {
    let (pool, mut client, _child) = scripted(Script::echo()).await;
    let lend = [("acquired_processes", 1), ("pool_wait_seconds s", 1)];
    let mut before = pool.metrics().await;
    client.returns().await;
    let after = pool.metrics().await;
    assert_moved("ok", &before, &after, &[("pool_returns s ok", 1)]);

    (before, _) = (after, client.takes(pool.any()).await);
    client.lets_go();
    pool.becomes("free", |pool| pool.free == 1).await;
    let after = pool.metrics().await;
    let lost = [&lend[..], &[("pool_returns s lost", 1)]].concat();
    assert_moved("let go", &before, &after, &lost);

    (before, _) = (after, client.takes(pool.any()).await);
    client.dies();
    pool.becomes("free", |pool| pool.free == 1).await;
    let after = pool.metrics().await;
    assert_moved("dead", &before, &after, &lost);

    let mut client = pool.client("2");
    (before, _) = (after, client.takes(pool.any()).await);
    client.returns_broken().await;
    pool.becomes("gone", |pool| pool.free + pool.stopping == 0)
        .await;
    let failed = [
        &lend[..],
        &[
            ("pool_returns s fail", 1),
            ("pool_stops s failed", 1),
            ("kills s stopped", 1),
        ],
    ]
    .concat();
    assert_moved("broken", &before, &pool.metrics().await, &failed);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_request_that_times_out_is_counted_by_its_phase() {
    let soon = Some(Duration::from_millis(500));
    let (pool, client, _child) = scripted(Script::echo()).await;
    let before = pool.metrics().await;
    let mut waiter = pool.client("2");
    let refused = waiter.asks_within(pool.any(), soon).answer().await;
    assert!(refused.is_err());
    let expected = [("pool_timeouts s queue", 1)];
    assert_moved("queue", &before, &pool.metrics().await, &expected);
    drop(client);
    pool.assert_quiet().await;

    let hangs = FakeLanguage::new().starts(|_| FakeStart::Hangs);
    let pool = TestPool::builder()
        .timeout(Duration::from_secs(3))
        .language("fake", hangs)
        .start();
    let before = pool.metrics().await;
    let refused = pool
        .client("1")
        .asks_within(pool.any(), soon)
        .answer()
        .await;
    assert!(refused.is_err());
    eventually("the opening is given up", async || {
        pool.proc_count().await == 0
    })
    .await;
    let expected = [
        ("pool_timeouts fake open", 1),
        ("pool_open_failures fake timeout", 1),
    ];
    assert_moved("open", &before, &pool.metrics().await, &expected);
    pool.assert_quiet().await;

    let mute = FakeLanguage::new().answers(|_| FakeAnswer::Never);
    let pool = TestPool::builder().language("fake", mute).start();
    let before = pool.metrics().await;
    let mut client = pool.client("1");
    let wanted = pool.ddoc("db", "_design/d");
    assert!(client.asks_within(wanted, soon).answer().await.is_err());
    let expected = [
        ("pool_timeouts fake teach", 1),
        ("process_prompts", 1),
        ("process_starts", 1),
        ("calls_spawn_proc", 1),
        ("pool_open_seconds fake", 1),
    ];
    assert_moved("teach", &before, &pool.metrics().await, &expected);
    pool.stop_at_once().await;
}

#[actix_rt::test]
async fn a_failed_opening_is_counted_by_fault() {
    let pool = TestPool::builder()
        .command("missing", "/no/such/query-server")
        .start();
    let before = pool.metrics().await;
    let mut client = pool.client("1");
    client.is_refused(pool.any()).await;
    let expected = [("pool_open_failures missing query_server", 1)];
    assert_moved(
        "a missing command",
        &before,
        &pool.metrics().await,
        &expected,
    );
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn gauges_show_the_current_state() {
    let (pool, client, _child) = scripted(Script::echo()).await;
    let mut waiter = pool.client("2");
    assert!(waiter.asks(pool.any()).is_waiting().await);
    let metrics = pool.metrics().await;
    for (name, labels, expected) in [
        ("couchdb_query_server_process_count", &[][..], 1.0),
        ("settee_pool_processes", &["s", "used"], 1.0),
        ("settee_pool_processes", &["s", "idle"], 0.0),
        ("settee_pool_process_limit", &["s"], 1.0),
        ("settee_pool_waiters", &["s"], 1.0),
        ("settee_stale_processes", &[], 0.0),
    ] {
        assert_eq!(
            number(&metrics, name, labels),
            Some(expected),
            "{name} {labels:?}"
        );
    }
    drop((client, waiter));
    pool.assert_quiet().await;
}

#[test]
fn two_services_in_one_program_count_separately() {
    let (one, two) = (Metrics::new(), Metrics::new());
    one.pool("p").count().wait.observe(Duration::ZERO);
    let wait = "settee_pool_wait_seconds";
    let status = settee::query_server::status::DaemonStatus::default();
    let count = |metrics: &Metrics| number(&metrics.snapshot(&status), wait, &["p"]);
    assert_eq!(count(&one.clone()), Some(1.0));
    assert_eq!(count(&two), None);
}
