//! The service inside a program: started, supervised and stopped without a process of its own.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use settee::Daemon;
use settee::config::Config;
use settee::messages::proc_manager::GetProcCount;
use settee::messages::replication_scheduler::{Counts, GetCounts};
use settee::otp::pid::ExitReason;
use settee::otp::supervisor::Stop;
use slog::{Discard, Logger, o};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::support::program::SETTEE;

/// Deadline of each wait.
const DEADLINE: Duration = Duration::from_secs(60);

async fn start(directory: &Path) -> Daemon {
    let mut config = Config::default();
    config.server.socket = directory.join("run/s.sock");
    config.server.http = None;
    config.native_languages.insert("echo".into(), true);
    let builder = Daemon::builder().program(SETTEE);
    let log = Logger::root(Discard, o!());
    builder.start(config, log).await.unwrap()
}

struct Client(BufReader<UnixStream>);

impl Client {
    async fn connect(app: &Daemon) -> Self {
        Self(BufReader::new(
            UnixStream::connect(app.socket()).await.unwrap(),
        ))
    }

    /// Returns the reply, `null` at the end of the connection.
    async fn call(&mut self, request: Value) -> Value {
        let line = format!("{request}\n");
        self.0.get_mut().write_all(line.as_bytes()).await.unwrap();
        let mut reply = String::new();
        let read = self.0.read_line(&mut reply);
        actix_rt::time::timeout(DEADLINE, read)
            .await
            .unwrap()
            .unwrap();
        serde_json::from_str(&reply).unwrap_or(Value::Null)
    }

    async fn use_language(&mut self, lang: &str, data: Value) -> Value {
        let got = self
            .call(json!({"id": 1, "call": "get_proc", "lang": lang}))
            .await;
        if got.get("error").is_some() {
            return got;
        }
        let proc = &got["ok"]["proc"];
        let prompt = json!({"id": 2, "call": "prompt", "proc": proc, "data": data});
        let answer = self.call(prompt).await;
        self.call(json!({"id": 3, "call": "ret_proc", "proc": proc}))
            .await;
        answer
    }
}

#[actix_rt::test]
async fn native_and_built_in_languages_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let app = start(directory.path()).await;
    let mut client = Client::connect(&app).await;
    let answer = client.use_language("echo", json!(["hello", 1])).await;
    assert_eq!(answer, json!({"id": 2, "ok": ["hello", 1]}));
    let source = "function(doc) { emit(doc._id, doc.n * 2); }";
    let added = client
        .use_language("javascript", json!(["add_fun", source]))
        .await;
    assert_eq!(added["ok"], true);
    // The same process, which has not been reset.
    let doc = json!(["map_doc", {"_id": "a", "n": 21}]);
    let rows = client.use_language("javascript", doc).await;
    assert_eq!(rows["ok"], json!([[["a", 42]]]));
    let ddoc = json!({"_id": "_design/d", "_rev": "1-x",
                      "shows": {"hi": "function(doc, req) { return 'hi ' + doc.n; }"}});
    let call = json!({"id": 4, "call": "ddoc_prompt", "db": "db", "ddoc": ddoc,
                      "path": ["shows", "hi"], "args": [{"n": 7}, {}]});
    assert_eq!(client.call(call).await["ok"][1]["body"], "hi 7");
    assert_eq!(app.stop(false).await, ExitReason::Shutdown);
    assert!(!directory.path().join("run/s.sock").exists());
}

#[actix_rt::test]
async fn a_manager_that_ended_is_restarted_and_clients_keep_being_served() {
    let directory = tempfile::tempdir().unwrap();
    let app = start(directory.path()).await;
    let mut client = Client::connect(&app).await;
    let got = client
        .call(json!({"id": 1, "call": "get_proc", "lang": "echo"}))
        .await;
    let first = app.manager.address();
    first.send(Stop { now: true }).await.unwrap();
    let started = async {
        while app.manager.address() == first {
            actix_rt::task::yield_now().await;
        }
    };
    actix_rt::time::timeout(DEADLINE, started).await.unwrap();
    // The process ended with its manager.
    let prompt = json!({"id": 2, "call": "prompt", "proc": got["ok"]["proc"], "data": ["x"]});
    let answer = client.call(prompt).await;
    assert_eq!(answer["error"]["retry"], true, "{answer}");
    let ret = json!({"id": 3, "call": "ret_proc", "proc": got["ok"]["proc"]});
    assert_eq!(client.call(ret).await["ok"], true);
    let mut answer = client.use_language("echo", json!(["again"])).await;
    if answer["error"]["name"] == "shutting_down" {
        assert_eq!(answer["error"]["retry"], true);
        answer = client.use_language("echo", json!(["again"])).await;
    }
    assert_eq!(answer["ok"], json!(["again"]));
    assert_eq!(app.stop(false).await, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn a_manager_that_keeps_ending_ends_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let mut app = start(directory.path()).await;
    let mut client = Client::connect(&app).await;
    let failing = async {
        loop {
            let manager = app.manager.address();
            // Fails if the manager has already ended, which is intended.
            let _ = manager.send(Stop { now: true }).await;
            actix_rt::task::yield_now().await;
        }
    };
    let given_up = tokio::select! {
        () = failing => None,
        line = actix_rt::time::timeout(DEADLINE, client.0.fill_buf()) => Some(line.unwrap()),
    };
    assert_eq!(given_up.unwrap().unwrap(), b"", "the connection ends");
    let reason = actix_rt::time::timeout(DEADLINE, app.ended())
        .await
        .unwrap();
    assert!(
        matches!(&reason, ExitReason::Failed(why) if why.contains("proc_manager")),
        "{reason:?}"
    );
    assert!(!app.socket().exists());
}

#[actix_rt::test]
async fn a_service_can_be_started_again_where_one_has_stopped() {
    let directory = tempfile::tempdir().unwrap();
    for now in [true, false, true] {
        let app = start(directory.path()).await;
        let count = app.manager.address().send(GetProcCount).await.unwrap();
        assert_eq!(count, 0);
        assert_eq!(app.stop(now).await, ExitReason::Shutdown);
    }
}

#[actix_rt::test]
async fn the_replication_scheduler_starts_and_ends_with_the_service_and_is_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let app = start(directory.path()).await;
    let scheduler = app.scheduler.clone();
    let counts = scheduler.address().send(GetCounts).await.unwrap();
    assert_eq!(counts, Counts::default());
    let first = scheduler.address();
    first.do_send(Stop { now: true });
    let back = async {
        while scheduler.address() == first || scheduler.address().send(GetCounts).await.is_err() {
            actix_rt::task::yield_now().await;
        }
    };
    actix_rt::time::timeout(DEADLINE, back).await.unwrap();
    assert_eq!(app.stop(false).await, ExitReason::Shutdown);
    assert!(scheduler.address().send(GetCounts).await.is_err());
}
