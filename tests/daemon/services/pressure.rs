//! Limits that follow the machine's pressure, with real processes and the test's own files as gauges.

use std::fs;

use serde_json::json;
use settee_testkit::eventually;

use crate::services::harness::{Daemon, SocketClient};

const CONFIG: &str = "[query_server_config]\nos_process_limit = 6\nos_process_soft_limit = 2\n\
                      limit_follows_pressure = true\npressure_interval = \"100ms\"\n\
                      [query_servers]\npython = \"SCRIPTED\"\n";

/// Sets the machine's CPU pressure: the share of time in which some task waits for a processor.
fn press(daemon: &Daemon, percent: f64) {
    fs::create_dir_all(daemon.path("pressure")).unwrap();
    let text = format!("some avg10={percent:.2} avg60=0.00 avg300=0.00 total=0\n");
    // The file is renamed, so that it is never read half written.
    fs::write(daemon.path("pressure/new"), text).unwrap();
    fs::rename(daemon.path("pressure/new"), daemon.path("pressure/cpu")).unwrap();
}

#[actix_rt::test]
async fn the_effective_limit_follows_pressure_and_each_change_is_explained() {
    let daemon = Daemon::start(CONFIG).await;
    press(&daemon, 0.0);
    let mut client = SocketClient::connect(&daemon).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let got = client
            .call(json!({"call": "get_proc", "lang": "python"}))
            .await;
        held.push(got["ok"].clone());
    }
    assert_eq!(daemon.pool("python").await.hard_limit, 6);
    press(&daemon, 80.0);
    daemon
        .wait_for_pool("python", "the limit falls", |pool| pool.hard_limit == 2)
        .await;
    let moves = daemon.log.with("process limit moved");
    let first = moves
        .iter()
        .find(|line| line.contains("pool=python"))
        .unwrap();
    for word in ["from=6", "to=5", "cpu pressure is 80.0 %"] {
        assert!(first.contains(word), "{word} in {first}");
    }
    // No lent process was revoked.
    for lent in &held {
        let prompt = json!({"call": "prompt", "proc": lent["proc"], "data": ["pid"]});
        assert_eq!(client.call(prompt).await["ok"], lent["os_pid"]);
    }
    for lent in &held {
        client.ret_proc(lent["proc"].as_str().unwrap()).await;
    }
    daemon
        .wait_for_pool("python", "the surplus is stopped", |pool| {
            (pool.used, pool.free, pool.stopping) == (0, 2, 0)
        })
        .await;
    press(&daemon, 0.0);
    daemon
        .wait_for_pool("python", "the limit is back", |pool| pool.hard_limit == 6)
        .await;
    let calm = || daemon.log.with("pressure was below");
    eventually("the rise is logged", async || !calm().is_empty()).await;
    daemon.stop_after(client).await;
}
