//! Limits that follow the machine, with real processes and files of the test's own as its gauges.

use std::fs;

use serde_json::json;
use settee_testkit::eventually;

use crate::services::harness::{Daemon, SocketClient};

const CONFIG: &str = "[query_server_config]\nos_process_limit = 6\nos_process_soft_limit = 2\n\
                      limit_follows_pressure = true\npressure_interval = \"100ms\"\n\
                      [query_servers]\npython = \"SCRIPTED\"\n";

/// Has the machine say for which share of the time somebody waits for a processor.
fn press(daemon: &Daemon, percent: f64) {
    fs::create_dir_all(daemon.path("pressure")).unwrap();
    let text = format!("some avg10={percent:.2} avg60=0.00 avg300=0.00 total=0\n");
    // Whole or not at all.
    fs::write(daemon.path("pressure/new"), text).unwrap();
    fs::rename(daemon.path("pressure/new"), daemon.path("pressure/cpu")).unwrap();
}

#[actix_rt::test]
async fn the_limit_in_force_follows_the_machine_and_each_move_is_explained() {
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
        .wait_for_pool("python", "the limit goes down", |pool| pool.hard_limit == 2)
        .await;
    let moves = daemon.log.with("process limit moved");
    let first = moves
        .iter()
        .find(|line| line.contains("pool=python"))
        .unwrap();
    for word in ["from=6", "to=5", "cpu pressure is 80.0 %"] {
        assert!(first.contains(word), "{word} in {first}");
    }
    // Nobody lost a process.
    for lent in &held {
        let prompt = json!({"call": "prompt", "proc": lent["proc"], "data": ["pid"]});
        assert_eq!(client.call(prompt).await["ok"], lent["os_pid"]);
    }
    for lent in &held {
        client.ret_proc(lent["proc"].as_str().unwrap()).await;
    }
    daemon
        .wait_for_pool("python", "what is too much went", |pool| {
            (pool.used, pool.free, pool.stopping) == (0, 2, 0)
        })
        .await;
    press(&daemon, 0.0);
    daemon
        .wait_for_pool("python", "the limit is back", |pool| pool.hard_limit == 6)
        .await;
    let calm = || daemon.log.with("pressure was below");
    eventually("the way back is told", async || !calm().is_empty()).await;
    daemon.stop_after(client).await;
}
