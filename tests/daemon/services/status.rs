//! Services in the status message, the metrics and `settee status`, which all agree.

use policy::admission::FAILURES_MIN;
use settee::actors::proc_manager::GetStatus;
use settee::query_server::status::{DaemonStatus, ServiceStatus};
use settee_testkit::eventually;

use crate::services::harness::Daemon;
use crate::support::program::SETTEE;

const CONFIG: &str = "[query_servers]\npython = \"SCRIPTED\"\nbad = \"sh -c 'exit 7'\"\n\
                      [pools.py]\nlanguage = \"python\"\nmax = 2\n\
                      [pools.bad]\nlanguage = \"bad\"\n\
                      [services.bad]\nlisten = \"127.0.0.1:0\"\npool = \"bad\"\n\
                      throttle_delay = \"1h\"\n\
                      [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"PY\"\nstress = \"yes\"\n";

async fn status(daemon: &Daemon) -> DaemonStatus {
    let manager = daemon.app.manager.address();
    manager.send(GetStatus::default()).await.unwrap().status()
}

async fn service_status(daemon: &Daemon, name: &str) -> ServiceStatus {
    let doors = status(daemon).await.services.into_iter();
    let mut found = doors.filter(|door| door.name == name);
    found.next().unwrap_or_default()
}

/// Returns the output of `settee status`.
async fn printed(daemon: &Daemon, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(SETTEE);
    command.arg("status").args(arguments);
    command.arg("--socket").arg(daemon.app.socket());
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[actix_rt::test]
async fn status_shows_where_a_service_listens_or_why_it_does_not() {
    let daemon = Daemon::start(CONFIG).await;
    eventually("the service listens", async || {
        service_status(&daemon, "py").await.listening
    })
    .await;
    let listens = service_status(&daemon, "py").await;
    let expected = ServiceStatus {
        name: "py".into(),
        listen: format!("unix:{}", daemon.path("py.sock").display()),
        pool: "py".into(),
        local_only: true,
        listening: true,
        limit: Some(2),
        ..ServiceStatus::default()
    };
    assert_eq!(listens, expected);
    let mut first = daemon.connect("py.sock").await;
    first.pid().await;
    let mut second = daemon.connect("py.sock").await;
    second.pid().await;
    eventually("the service is at its limit", async || {
        service_status(&daemon, "py").await.closed.as_deref() == Some("at_limit")
    })
    .await;
    let full = service_status(&daemon, "py").await;
    assert!(!full.listening);
    assert_eq!(
        (full.connections, full.accepted, full.limit_reached),
        (2, 2, 1)
    );
    assert!(
        full.stressed_ms
            .is_some_and(|ms| ms > 900_000 && ms <= 1_000_000),
        "{full:?}"
    );
    // `settee status` reports the same.
    let text = printed(&daemon, &[]).await;
    let row = text
        .lines()
        .find(|line| line.starts_with("py ") && line.contains("unix:"));
    let row = row.unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains("at its limit, stress 16m"), "{row}");
    let read: DaemonStatus = serde_json::from_str(&printed(&daemon, &["--json"]).await).unwrap();
    assert_eq!(read.services.len(), 2);
    assert_eq!(read.services[1].closed, full.closed);
    drop(first);
    eventually("the service listens again", async || {
        service_status(&daemon, "py").await.listening
    })
    .await;
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn status_and_metrics_show_why_and_until_when_a_service_is_throttled() {
    let daemon = Daemon::start(CONFIG).await;
    eventually("the service listens", async || {
        service_status(&daemon, "bad").await.listening
    })
    .await;
    let listen = service_status(&daemon, "bad").await.listen;
    let mut clients = Vec::new();
    for _ in 0..FAILURES_MIN {
        clients.push(tokio::net::TcpStream::connect(&listen).await.unwrap());
    }
    eventually("the service is throttled", async || {
        service_status(&daemon, "bad").await.closed.as_deref() == Some("throttled")
    })
    .await;
    let closed = service_status(&daemon, "bad").await;
    assert!(
        closed.throttled_ms.is_some_and(|ms| ms > 3_500_000),
        "{closed:?}"
    );
    let failure = closed.failure.unwrap();
    assert!(failure.contains("exited with status 7"), "{failure}");
    let text = printed(&daemon, &[]).await;
    assert!(text.contains("closed, throttled 59m"), "{text}");
    let metrics =
        settee::metrics::prometheus_text(&daemon.app.metrics.snapshot(&status(&daemon).await));
    let series = "settee_service_throttled_seconds{service=\"bad\",pool=\"bad\"}";
    let line = metrics.lines().find(|line| line.starts_with(series));
    let value = line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0");
    assert!(value.parse::<f64>().unwrap() > 3_500.0, "{line:?}");
    assert!(
        metrics.contains("settee_service_limit{service=\"py\",pool=\"py\"} 2"),
        "{metrics}"
    );
    drop(clients);
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_removed_service_is_no_longer_shown() {
    let daemon = Daemon::start(CONFIG).await;
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    let without = CONFIG.split("[services.py]").next().unwrap();
    daemon.reload(without).await.unwrap();
    eventually("the service is gone", async || {
        let services = status(&daemon).await.services;
        services.iter().all(|door| door.name != "py")
    })
    .await;
    client.error().await;
    daemon.stop_after(client).await;
}
