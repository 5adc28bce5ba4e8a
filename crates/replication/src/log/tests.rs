//! Checkpoint logs, in tables and against a server with scripted answers.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::*;
use crate::counters::Stats;
use crate::testing::{Answer, Received, Server, Then, endpoint, replication};

fn entry(text: &str) -> Value {
    match text.split_once('@') {
        Some((session, seq)) => {
            let seq: u64 = seq.parse().unwrap();
            json!({"session_id": session, "recorded_seq": seq, "missing_checked": seq})
        }
        None => json!({"session_id": text}),
    }
}

/// Makes a log with this session and sequence, and with this history, newest first.
fn log(last: &str, history: &[&str]) -> LogBody {
    let history: Vec<Value> = history.iter().map(|text| entry(text)).collect();
    let mut document = json!({"_id": "_local/x", "_rev": "0-1", "history": history});
    if let Some((session, seq)) = last.split_once('@') {
        document["session_id"] = session.into();
        document["source_last_seq"] = seq.parse::<u64>().unwrap().into();
    }
    LogBody::parse(document.to_string().as_bytes()).unwrap().1
}

#[track_caller]
fn check(source: &LogBody, target: &LogBody, start: &str, kept: &[&str]) {
    let common = compare(source, target);
    assert_eq!(common.start_seq.as_json(), start);
    let sessions = common
        .history
        .iter()
        .map(|entry| entry.session_id.as_deref().unwrap_or("-"));
    assert_eq!(sessions.collect::<Vec<_>>(), kept);
}

#[test]
fn a_replication_starts_at_0_if_neither_side_has_a_log() {
    check(&LogBody::default(), &LogBody::default(), "0", &[]);
}

#[test]
fn a_log_on_only_one_side_is_not_a_checkpoint() {
    check(
        &log("s2@20", &["s2@20", "s1@10"]),
        &LogBody::default(),
        "0",
        &[],
    );
    check(
        &LogBody::default(),
        &log("s2@20", &["s2@20", "s1@10"]),
        "0",
        &[],
    );
}

#[test]
fn logs_of_one_session_resume_at_the_sequence_of_the_older_one() {
    let source = log("s2@20", &["s2@20", "s1@10"]);
    check(&source, &source, "20", &["s2", "s1"]);
    let ahead = log("s2@40", &["s2@40", "s1@10"]);
    check(&ahead, &source, "20", &["s2", "s1"]);
    check(&source, &ahead, "20", &["s2", "s1"]);
    // Without counters, it is the target's.
    let (ahead, behind) = (log("s2@40", &["s2"]), log("s2@20", &["s2"]));
    check(&ahead, &behind, "20", &["s2"]);
}

#[test]
fn histories_resume_at_the_newest_common_session() {
    let short = log("s2@20", &["s2@20", "s1@10"]);
    let long = log("s3@30", &["s3@30", "s2@20", "s1@10"]);
    check(&long, &short, "20", &["s1"]);
    check(&short, &long, "20", &["s1"]);
    check(
        &log("a3@30", &["a3@30", "s1@10"]),
        &log("b3@30", &["b3@30", "s1@10"]),
        "10",
        &[],
    );
    let one = log("x3@30", &["x3@30", "x2@20", "s1@10"]);
    check(&one, &log("y2@20", &["y2@20", "s1@10"]), "10", &[]);
}

#[test]
fn histories_without_a_common_session_start_over() {
    let (one, other) = (
        log("a2@20", &["a2@20", "a1@10"]),
        log("b2@20", &["b2@20", "b1@10"]),
    );
    check(&one, &other, "0", &[]);
}

#[test]
fn only_the_newest_runs_of_a_long_history_are_compared() {
    let long = log("a@1", &["s"; HISTORY_MAX + 1]);
    assert_eq!(long.history.len(), HISTORY_MAX);
}

#[test]
fn sessions_without_an_id_never_match_and_missing_sequences_are_0() {
    let nameless = |session: &str| {
        let document = json!({"session_id": session, "history": [{"recorded_seq": 5}, 1, "x"]});
        LogBody::parse(document.to_string().as_bytes()).unwrap().1
    };
    check(&nameless("a"), &nameless("b"), "0", &[]);
    check(&log("a@1", &["s"]), &log("b@1", &["s"]), "0", &[]);
    let odd = LogBody::parse(br#"{"session_id":1,"history":{}}"#)
        .unwrap()
        .1;
    check(&odd, &odd, "0", &[]);
}

const STATS: Stats = Stats {
    missing_checked: 6,
    missing_found: 5,
    docs_read: 4,
    docs_written: 3,
    doc_write_failures: 1,
    bulk_get_docs: 2,
    bulk_get_attempts: 7,
};

fn body_at(seq: &str, history: &[HistoryEntry], by_doc_ids: bool) -> LogBody {
    Checkpoint {
        run: &CheckpointRun {
            session_id: "d5a34cbbdafa70e0db5cb57d02a6b955".into(),
            start_seq: Seq::zero(),
            start_time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_383_817_303),
            history: history.to_vec(),
            by_doc_ids,
            owner_epoch: None,
        },
        seq: &serde_json::from_str::<Seq>(seq).unwrap(),
        end_time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_383_817_337),
        stats: &STATS,
    }
    .body()
}

#[test]
fn a_log_has_its_members_in_couchdbs_order_and_sequences_unchanged() {
    let expected = concat!(
        r#"{"_id":"x","session_id":"d5a34cbbdafa70e0db5cb57d02a6b955","source_last_seq":[26, "g1"],"#,
        r#""replication_id_version":4,"history":[{"session_id":"d5a34cbbdafa70e0db5cb57d02a6b955","#,
        r#""start_time":"Thu, 07 Nov 2013 09:41:43 GMT","end_time":"Thu, 07 Nov 2013 09:42:17 GMT","#,
        r#""start_last_seq":0,"end_last_seq":[26, "g1"],"recorded_seq":[26, "g1"],"#,
        r#""missing_checked":6,"missing_found":5,"docs_read":4,"docs_written":3,"#,
        r#""doc_write_failures":1,"bulk_get_docs":2,"bulk_get_attempts":7},{"old" :1}]}"#,
    );
    let old = LogBody::parse(br#"{"history":[{"old" :1}]}"#)
        .unwrap()
        .1
        .history;
    let body = body_at(r#"[26, "g1"]"#, &old, false);
    assert_eq!(
        body.with_front(&[("_id", "x".into())]).to_string(),
        expected
    );
}

#[test]
fn counters_are_at_the_top_level_too_if_the_replication_has_doc_ids() {
    let body = body_at("5", &[], true);
    let names: Vec<&str> = body.members.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "session_id",
            "source_last_seq",
            "replication_id_version",
            "start_time",
            "end_time",
            "docs_read",
            "docs_written",
            "doc_write_failures",
            "history"
        ]
    );
}

#[test]
fn a_history_keeps_fifty_sessions_and_one_per_run() {
    let mut history = Vec::new();
    for _ in 0..60 {
        let first = body_at("1", &history, false);
        let second = body_at("2", &history, false);
        assert_eq!(first.history.len(), second.history.len());
        history = second.history;
    }
    assert_eq!(history.len(), HISTORY_MAX);
    let third = body_at("3", &history, false).members.to_string();
    let (_, again) = LogBody::parse(third.as_bytes()).unwrap();
    assert_eq!(again.history.len(), HISTORY_MAX);
    assert_eq!(
        again.history[0].recorded_seq,
        serde_json::from_str::<Seq>("3").ok()
    );
    assert_eq!(again.history[0].stats, STATS);
    assert_eq!(compare(&again, &again).history[0].stats, STATS);
}

/// A database of local documents that counts revisions like CouchDB.
#[derive(Default)]
struct Locals(Mutex<HashMap<String, (u32, Value)>>);

impl Locals {
    fn answer(&self, request: &Received) -> Answer {
        let (method, path) = request.line.split_once(' ').unwrap();
        let mut documents = self.0.lock().unwrap();
        let known = documents.get(path).cloned();
        if method == "GET" {
            return match known {
                Some((rev, mut body)) => {
                    body["_rev"] = format!("0-{rev}").into();
                    Answer::new(200, &body.to_string())
                }
                None => Answer::new(404, r#"{"error":"not_found","reason":"missing"}"#),
            };
        }
        let mut body: Value = serde_json::from_str(&request.body).unwrap();
        let sent = body.as_object_mut().unwrap().shift_remove("_rev");
        let expected = known
            .as_ref()
            .map(|(rev, _)| Value::from(format!("0-{rev}")));
        if sent != expected {
            return Answer::new(
                409,
                r#"{"error":"conflict","reason":"Document update conflict."}"#,
            );
        }
        let rev = known.map_or(0, |(rev, _)| rev) + 1;
        documents.insert(path.to_owned(), (rev, body));
        Answer::new(
            201,
            &json!({"ok": true, "id": "x", "rev": format!("0-{rev}")}).to_string(),
        )
    }
}

fn identity() -> Identity {
    Identity {
        uuid: "0123456789abcdef0123456789abcdef".into(),
        host: "h".into(),
        port: 5984,
    }
}

const TARGET: &str = "http://tgthost.local/tgt";

fn plain() -> Replication {
    replication(&json!({"source": "http://srchost.local/src", "target": TARGET}))
}

#[tokio::test]
async fn a_log_is_looked_up_under_the_ids_of_all_versions() {
    let server = Server::start(|_| Answer::new(404, r#"{"error":"not_found"}"#)).await;
    let (replication, identity, endpoint) = (plain(), identity(), server.endpoint());
    let newest = "4ef747bd8669718dd8ec7c7dc2184c6f";
    let ids = LogIds::new(newest, &replication, &identity, &endpoint);
    let log = find(&endpoint, &ids).await.unwrap();
    assert_eq!((log.id, log.rev), (format!("_local/{newest}"), None));
    assert_eq!(
        server.lines(),
        [
            "GET /db/_local/4ef747bd8669718dd8ec7c7dc2184c6f",
            "GET /db/_local/8214b49fcd808377b33fa4f1d4eeb77d",
            "GET /db/_local/b4763dd4f5a459a429253ace81d630b2",
            "GET /db/_local/d6489eb0a76bc191344af2041b5c9298",
        ]
    );
}

#[tokio::test]
async fn a_log_of_an_older_version_is_rewritten_under_the_newest_id_by_renew() {
    let old = "b4763dd4f5a459a429253ace81d630b2";
    let locals = Locals::default();
    let body = json!({"_id": format!("_local/{old}"), "session_id": "s", "source_last_seq": 7});
    locals
        .0
        .lock()
        .unwrap()
        .insert(format!("/db/_local/{old}"), (3, body));
    let server = Server::start(move |request| locals.answer(request)).await;
    let (replication, identity, endpoint) = (plain(), identity(), server.endpoint());
    let newest = "4ef747bd8669718dd8ec7c7dc2184c6f";
    let ids = LogIds::new(newest, &replication, &identity, &endpoint);
    let mut log = find(&endpoint, &ids).await.unwrap();
    assert_eq!(log.id, format!("_local/{newest}"));
    assert_eq!(
        log.body.source_last_seq,
        serde_json::from_str::<Seq>("7").ok()
    );
    assert_eq!((log.rev.as_deref(), log.is_older), (None, true));
    assert_eq!(server.lines().len(), 3, "nothing was written");
    renew(&endpoint, &mut log).await.unwrap();
    assert_eq!((log.rev.as_deref(), log.is_older), (Some("0-1"), false));
    assert_eq!(server.lines()[3..], [format!("PUT /db/_local/{newest}")]);
    let again = find(&endpoint, &ids).await.unwrap();
    assert_eq!(again.body.session_id.as_deref(), Some("s"));
    assert_eq!((server.lines().len(), again.is_older), (5, false));
}

#[tokio::test]
async fn the_filters_code_is_fetched_only_if_older_ids_are_needed() {
    let server = Server::start(|request| match &*request.line {
        "GET /db/" => Answer::new(200, r#"{"update_seq":1,"instance_start_time":"0"}"#),
        "GET /db/_design/d" => Answer::new(200, r#"{"filters":{"f":"function() {}"}}"#),
        "GET /db/_local/found" => Answer::new(200, r#"{"_rev":"0-1","session_id":"s"}"#),
        _ => Answer::new(404, r#"{"error":"not_found"}"#),
    });
    let server = server.await;
    let body = json!({"source": server.url(""), "target": TARGET, "filter": "d/f"});
    let (replication, identity, endpoint) = (replication(&body), identity(), server.endpoint());
    let ids = LogIds::new("found", &replication, &identity, &endpoint);
    assert!(find(&endpoint, &ids).await.unwrap().rev.is_some());
    assert_eq!(server.lines().len(), 1);
    let ids = LogIds::new("missing", &replication, &identity, &endpoint);
    for _ in 0..2 {
        assert!(find(&endpoint, &ids).await.unwrap().rev.is_none());
    }
    let fetched = server
        .lines()
        .iter()
        .filter(|line| *line == "GET /db/_design/d")
        .count();
    assert_eq!(fetched, 1);
}

#[tokio::test]
async fn any_answer_except_a_log_or_404_is_an_error() {
    let (replication, identity) = (plain(), identity());
    for (status, body) in [
        (401, "{}"),
        (403, "{}"),
        (500, ""),
        (200, "[]"),
        (200, "<html>"),
    ] {
        let server = Server::start(move |_| Answer::new(status, body)).await;
        let endpoint = server.endpoint();
        let ids = LogIds::new("x", &replication, &identity, &endpoint);
        find(&endpoint, &ids).await.unwrap_err();
        assert_eq!(server.lines().len(), 1);
    }
}

fn empty_log() -> CheckpointLog {
    CheckpointLog {
        id: "_local/x".into(),
        rev: None,
        is_older: false,
        body: LogBody::default(),
    }
}

#[tokio::test]
async fn each_write_of_a_log_names_its_latest_revision() {
    let locals = Locals::default();
    let server = Server::start(move |request| locals.answer(request)).await;
    let (endpoint, mut log) = (server.endpoint(), empty_log());
    for nth in 1..4 {
        let body = body_at(&nth.to_string(), &[], false);
        write(&endpoint, &mut log, &body).await.unwrap();
        assert_eq!(log.rev, Some(format!("0-{nth}")));
        assert_eq!(log.body.source_last_seq, body.source_last_seq);
    }
    let first = &server.received()[0];
    assert!(
        first
            .body
            .starts_with(r#"{"_id":"_local/x","session_id":"d5"#),
        "{}",
        first.body
    );
    assert_eq!(first.header("x-couch-full-commit"), Some("false"));
    let second = &server.received()[1].body;
    assert!(
        second.starts_with(r#"{"_id":"_local/x","_rev":"0-1","session_id""#),
        "{second}"
    );
}

#[tokio::test]
async fn a_log_whose_answer_was_lost_counts_as_written() {
    let locals = Locals::default();
    let server = Server::start(move |request| {
        let mut answer = locals.answer(request);
        if request.nth == 0 {
            answer.bytes.clear();
            answer.then = Then::Close;
        }
        answer
    });
    let server = server.await;
    let endpoint = endpoint(&server.url(""), |_, settings| settings.retries = 1);
    let mut log = empty_log();
    write(&endpoint, &mut log, &body_at("1", &[], false))
        .await
        .unwrap();
    assert_eq!(log.rev.as_deref(), Some("0-1"));
    assert_eq!(server.lines().len(), 3, "the second try is a conflict");
}

#[tokio::test]
async fn a_log_written_by_another_replicator_is_a_conflict() {
    let locals = Locals::default();
    let server = Server::start(move |request| locals.answer(request)).await;
    let (endpoint, mut log, mut late) = (server.endpoint(), empty_log(), empty_log());
    write(&endpoint, &mut log, &body_at("1", &[], false))
        .await
        .unwrap();
    let conflict = write(&endpoint, &mut late, &body_at("2", &[], false)).await;
    assert_eq!(conflict, Err(LogError::Conflict));
    assert_eq!(late.rev, None);
}

#[tokio::test]
async fn any_answer_to_a_log_write_except_success_is_an_error() {
    for status in [
        200, 201, 202, 204, 400, 401, 403, 404, 405, 412, 413, 415, 417,
    ] {
        let said = r#"{"ok":true,"rev":"0-7","error":"e","reason":"r"}"#;
        let body = if status == 204 { "" } else { said };
        let server = Server::start(move |_| Answer::new(status, body)).await;
        let mut log = empty_log();
        let result = write(&server.endpoint(), &mut log, &body_at("1", &[], false)).await;
        if let 200..=202 = status {
            assert_eq!((result, log.rev.as_deref()), (Ok(()), Some("0-7")));
            continue;
        }
        let LogError::Refused {
            status: code,
            error,
            ..
        } = result.unwrap_err()
        else {
            panic!("expected a refusal");
        };
        assert_eq!(
            (code, &*error),
            (status, if status == 204 { "204" } else { "e" })
        );
        assert_eq!((log.rev, server.lines().len()), (None, 1));
    }
    for status in [408, 500, 503] {
        let server = Server::start(move |_| Answer::new(status, "{}")).await;
        let body = body_at("1", &[], false);
        let result = write(&server.endpoint(), &mut empty_log(), &body).await;
        assert!(matches!(result, Err(LogError::Request(_))), "{result:?}");
        let result = ensure_full_commit(&server.endpoint()).await;
        assert!(matches!(result, Err(LogError::Request(_))), "{result:?}");
    }
    for body in ["", "{}", "[]", r#"{"rev":1}"#] {
        let server = Server::start(move |_| Answer::new(201, body)).await;
        let log = body_at("1", &[], false);
        let result = write(&server.endpoint(), &mut empty_log(), &log).await;
        assert!(matches!(result, Err(LogError::Nonsense(_))), "{result:?}");
    }
}

#[tokio::test]
async fn a_commit_is_requested_with_an_empty_json_body() {
    let server = Server::start(|_| Answer::new(201, r#"{"instance_start_time":17}"#)).await;
    assert_eq!(ensure_full_commit(&server.endpoint()).await.unwrap(), "17");
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /db/_ensure_full_commit");
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(
        (received.header("content-length"), &*received.body),
        (Some("0"), "")
    );
}

#[tokio::test]
async fn a_check_finds_a_database_that_was_deleted_recreated_or_restored() {
    const INFO: &str = r#"{"update_seq":9,"instance_start_time":"1"}"#;
    let look = async |source: (u16, &'static str), target: (u16, &'static str)| {
        let [source, target] = [source, target].map(|(status, body)| async move {
            let server = Server::start(move |_| Answer::new(status, body)).await;
            let info = serde_json::from_str(INFO).unwrap();
            let (endpoint, log) = (server.endpoint(), empty_log());
            (
                Side {
                    endpoint,
                    info,
                    log,
                },
                server,
            )
        });
        let ((source, _one), (target, _two)) = (source.await, target.await);
        let read = serde_json::from_str::<Seq>("9").unwrap();
        let looked = check_databases(&source, &target, &read).await;
        looked.err().map(|crash| crash.short())
    };
    let same = (200, INFO);
    assert_eq!(look(same, same).await, None);
    let grown = (200, r#"{"update_seq":12,"instance_start_time":"0"}"#);
    assert_eq!(look(grown, grown).await, None);
    let gone = (404, r#"{"error":"not_found","reason":"no_db_file"}"#);
    for sides in [(gone, same), (same, gone)] {
        let found = look(sides.0, sides.1).await;
        assert_eq!(found.as_deref(), Some("database missing"));
    }
    let younger = (200, r#"{"update_seq":9,"instance_start_time":"2"}"#);
    let found = look(younger, same).await;
    assert_eq!(found.as_deref(), Some("database restarted: source"));
    let found = look(same, younger).await;
    assert_eq!(found.as_deref(), Some("database restarted: target"));
    let shorter = (200, r#"{"update_seq":8,"instance_start_time":"0"}"#);
    let found = look(shorter, same).await;
    assert_eq!(found.as_deref(), Some("database restarted: source"));
    assert_eq!(look(same, shorter).await, None);
}

/// Makes a checkpoint between two servers with these answers to commits. Returns the result, and the requests
/// to each.
async fn checkpointed(
    source: (&'static str, Answer),
    target: (&'static str, Answer),
    log_status: [u16; 2],
) -> (Result<LogBody, CheckpointError>, [Vec<String>; 2]) {
    let start = |commit: Answer, status: u16| {
        Server::start(
            move |request| match request.line.contains("_ensure_full_commit") {
                true => commit.clone(),
                false => Answer::new(
                    status,
                    r#"{"ok":true,"rev":"0-1","error":"e","reason":"r"}"#,
                ),
            },
        )
    };
    let servers = [
        start(source.1, log_status[0]).await,
        start(target.1, log_status[1]).await,
    ];
    let side = |server: &Server, known: &str| Side {
        endpoint: server.endpoint(),
        info: DbInfo {
            update_seq: Seq::zero(),
            instance_start_time: known.into(),
        },
        log: empty_log(),
    };
    let (mut source, mut target) = (side(&servers[0], source.0), side(&servers[1], target.0));
    let run = CheckpointRun {
        session_id: "s".into(),
        start_seq: Seq::zero(),
        start_time: SystemTime::UNIX_EPOCH,
        history: Vec::new(),
        by_doc_ids: false,
        owner_epoch: None,
    };
    let record = Checkpoint {
        run: &run,
        seq: &serde_json::from_str::<Seq>("9").unwrap(),
        end_time: SystemTime::UNIX_EPOCH,
        stats: &STATS,
    };
    let result = checkpoint(&mut source, &mut target, &record).await;
    (result, servers.map(|server| server.lines()))
}

fn committed(instance_start_time: &str) -> Answer {
    Answer::new(
        201,
        &json!({"ok": true, "instance_start_time": instance_start_time}).to_string(),
    )
}

#[tokio::test]
async fn a_checkpoint_is_written_to_both_sides_after_both_have_committed() {
    let (result, lines) =
        checkpointed(("1", committed("1")), ("2", committed("2")), [201, 202]).await;
    assert_eq!(
        result.unwrap().source_last_seq,
        serde_json::from_str::<Seq>("9").ok()
    );
    for lines in lines {
        assert_eq!(lines, ["POST /db/_ensure_full_commit", "PUT /db/_local/x"]);
    }
}

#[tokio::test]
async fn a_start_time_of_0_means_unknown() {
    for (source, target) in [("0", "0"), ("1", "0")] {
        let sides = ((source, committed("0")), (target, committed("2")));
        checkpointed(sides.0, sides.1, [201, 201]).await.0.unwrap();
    }
}

#[tokio::test]
async fn no_checkpoint_is_written_if_a_side_was_restarted_or_does_not_commit() {
    let refused = || Answer::new(404, r#"{"error":"not_found","reason":"gone"}"#);
    for (source, target, text) in [
        (
            committed("5"),
            committed("2"),
            "instance_start_time on source database has changed since last checkpoint.",
        ),
        (
            committed("1"),
            committed("5"),
            "instance_start_time on target database has changed since last checkpoint.",
        ),
        (
            committed("5"),
            committed("5"),
            "instance_start_time on source and target database has changed since last checkpoint.",
        ),
        (
            refused(),
            committed("2"),
            "Failure on source commit: not_found: gone (status 404)",
        ),
        (
            refused(),
            refused(),
            "Failure on target commit: not_found: gone (status 404)",
        ),
        (
            committed("1"),
            Answer::new(201, "{}"),
            "Failure on target commit: an answer that cannot be understood: ",
        ),
    ] {
        let (result, lines) = checkpointed(("1", source), ("2", target), [201, 201]).await;
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
        assert_eq!(lines.map(|lines| lines.len()), [1, 1], "nothing is written");
    }
}

#[tokio::test]
async fn a_failed_log_write_names_its_side() {
    let (result, lines) =
        checkpointed(("1", committed("1")), ("2", committed("2")), [403, 201]).await;
    let text = result.unwrap_err().to_string();
    let words =
        "Error updating the source checkpoint document: e: r (status 403), the answer to PUT ";
    assert!(text.starts_with(words), "{text}");
    assert_eq!(lines[1].len(), 1, "the target's log is not written");
    let (result, _) = checkpointed(("1", committed("1")), ("2", committed("2")), [201, 403]).await;
    let text = result.unwrap_err().to_string();
    let words =
        "Error updating the target checkpoint document: e: r (status 403), the answer to PUT ";
    assert!(text.starts_with(words), "{text}");
}
