//! Replications after a crash of the scheduler itself.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use settee::Daemon;
use settee::app::replication::schedule_settings;
use settee::config::{Sources, load};
use settee::messages::replication_scheduler::Configure;
use settee_testkit::eventually;
use slog::{Drain, Logger, Never, OwnedKVList, Record, o};
use tokio::sync::Notify;

use crate::support::couch::Couch;
use crate::support::http_client::{Connection, Response};
use crate::support::http_server::{Answer, Piece};
use crate::support::program::SETTEE;

/// Collects log messages. When armed, it panics in the thread that logs `settings changed`.
#[derive(Clone, Default)]
struct Trap {
    armed: Arc<AtomicBool>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Drain for Trap {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let text = record.msg().to_string();
        let is_it = text == "settings changed" && self.armed.swap(false, Ordering::SeqCst);
        self.said.lock().unwrap().push(text);
        assert!(!is_it, "a scheduler that panics (meant to happen)");
        Ok(())
    }
}

impl Trap {
    fn has_logged(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said == text)
    }
}

async fn ask(
    address: SocketAddr,
    method: &'static str,
    path: &'static str,
    body: String,
) -> Response {
    let ask = move || {
        let headers = [("Content-Type", "application/json")];
        Connection::open(address).request(method, path, &headers, &body)
    };
    actix_rt::task::spawn_blocking(ask).await.unwrap()
}

#[actix_rt::test]
async fn a_restarted_scheduler_waits_for_the_runs_of_the_crashed_one() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("first", None, json!({}));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settee.toml");
    let text = format!(
        "[server]\nsocket = \"{}\"\nhttp = \"127.0.0.1:0\"\nopen = true\n[store]\npath = \"memory\"\n\
         [replicator]\nstartup_jitter = 0\n",
        directory.path().join("run/s.sock").display()
    );
    std::fs::write(&file, text).unwrap();
    let sources = Sources {
        files: vec![file],
        ..Sources::default()
    };
    let config = load(&sources).unwrap().config;
    let mut settings = schedule_settings(&config.replicator);
    let trap = Trap::default();
    let builder = Daemon::builder().program(SETTEE);
    let log = Logger::root(trap.clone(), o!());
    let app = builder.start(config, log).await.unwrap();
    let body = json!({"source": source.url(), "target": target.url(), "continuous": true,
        "checkpoint_interval": 3_600_000});
    let http = app.http().unwrap();
    let put = ask(http, "PUT", "/_replicator/doc", body.to_string()).await;
    assert_eq!(put.status, 201);
    eventually(
        "the document is replicated and a checkpoint is due",
        async || {
            let path = "/_scheduler/docs/_replicator/doc";
            let info = ask(http, "GET", path, String::new()).await.json()["info"].clone();
            info["docs_written"] == 1 && info["checkpointed_source_seq"] != info["through_seq"]
        },
    )
    .await;
    // The last checkpoint blocks until the bell rings.
    let (bell, ring) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (held, is_rung) = (Arc::clone(&bell), Arc::clone(&ring));
    source.fault(move |request| {
        let holds = request.kind() == "PUT _local" && !is_rung.load(Ordering::SeqCst);
        let pieces = || vec![Piece::Until(Arc::clone(&held)), Piece::Bytes("x".into())];
        holds.then(|| Answer::stream(500, "text/plain", pieces()))
    });
    let opened = source.server.count("GET _local");
    trap.armed.store(true, Ordering::SeqCst);
    settings.max_history += 1;
    let lost = app.scheduler.address().send(Configure(settings)).await;
    assert!(lost.is_err(), "the scheduler panicked");
    // On a loaded machine the old run may be killed, for not stopping in time, before the rest is observed.
    let is_killed =
        || trap.has_logged("replication did not stop in time and is ended without a checkpoint");
    eventually("the new scheduler has the document's job", async || {
        trap.has_logged("replication waits until its earlier run is gone") || is_killed()
    })
    .await;
    eventually("the old run is at its last checkpoint", async || {
        source.server.count("PUT _local") == 1 || is_killed()
    })
    .await;
    assert!(
        source.server.count("GET _local") == opened || is_killed(),
        "the new run has not begun"
    );
    ring.store(true, Ordering::SeqCst);
    bell.notify_one();
    eventually("the new run", async || {
        source.server.count("GET _local") > opened
    })
    .await;
    source.put("second", None, json!({}));
    eventually("the replication continues", async || {
        source.trees() == target.trees()
    })
    .await;
    app.stop(false).await;
}
