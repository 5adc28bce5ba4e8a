//! Services added, changed and removed while the program runs; and invalid configurations.

use serde_json::Value;
use settee::messages::config_listener::CompareFiles;
use settee_testkit::eventually;
use tokio::net::UnixStream;

use crate::services::harness::{Daemon, waiting_to_be_accepted};

const POOL: &str = "[query_servers]\npython = \"SCRIPTED\"\n\
                    [pools.py]\nlanguage = \"python\"\nmax = 2\n";

fn service(name: &str, socket: &str) -> String {
    format!("[services.{name}]\nlisten = \"unix:DIR/{socket}\"\npool = \"py\"\n")
}

#[actix_rt::test]
async fn comparing_files_reports_changes_without_applying_them() {
    let daemon = Daemon::start(POOL).await;
    let listener = daemon.app.config_listener.address();
    let compare = async || listener.send(CompareFiles).await.unwrap();
    assert!(compare().await.unwrap().is_empty());
    daemon.write_config(&format!("{POOL}{}", service("a", "a.sock")));
    let changes = compare().await.unwrap();
    assert!(changes.iter().any(|change| change.section == "services.a"));
    assert!(!daemon.path("a.sock").exists());
    daemon.write_config("[pools.py]\nmax = \"many\"\n");
    let error = compare().await.unwrap_err().to_string();
    assert!(error.contains("[pools.py]"), "{error}");
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_reload_adds_and_removes_services() {
    let daemon = Daemon::start(POOL).await;
    assert!(!daemon.path("a.sock").exists());
    let one = format!("{POOL}{}", service("a", "a.sock"));
    let changes = daemon.reload(&one).await.unwrap();
    assert!(
        changes
            .iter()
            .any(|c| c.section == "services.a" && c.key == "listen")
    );
    let mut client = daemon.connect("a.sock").await;
    client.pid().await;
    drop(client);
    daemon.reload(POOL).await.unwrap();
    eventually("the socket is gone", async || {
        !daemon.path("a.sock").exists()
    })
    .await;
    daemon
        .wait_for_pool("py", "nothing is lent", |pool| pool.used == 0)
        .await;
    // Added again, right after the removal.
    daemon.reload(&one).await.unwrap();
    daemon.reload(POOL).await.unwrap();
    daemon.reload(&one).await.unwrap();
    daemon.connect("a.sock").await.pid().await;
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_service_removed_under_load_closes_its_connections_and_lends_no_more() {
    let both = format!("{POOL}{}{}", service("a", "a.sock"), service("b", "b.sock"));
    let daemon = Daemon::start(&both.replace("max = 2", "max = 3")).await;
    let mut idle = daemon.connect("a.sock").await;
    let pid = idle.pid().await;
    let mut busy = daemon.connect("a.sock").await;
    busy.pid().await;
    let mut other = daemon.connect("b.sock").await;
    other.pid().await;
    let mut waiting = daemon.connect("a.sock").await;
    waiting.send("[\"hello\"]").await;
    let label = ["service=\"a\""];
    let received = || daemon.number("settee_service_received_bytes_total", &label);
    let before = received();
    busy.send("[\"half done\"]").await;
    eventually("the line is received", async || received() > before).await;
    let rest = format!("{POOL}{}", service("b", "b.sock")).replace("max = 2", "max = 3");
    daemon.reload(&rest).await.unwrap();
    // A prompt in progress is answered.
    assert_eq!(busy.line().await, "[\"half done\"]");
    for client in [&mut idle, &mut busy] {
        let (name, _) = client.error().await;
        assert_eq!(name, "shutting_down");
    }
    // A client that was not accepted gets the error too.
    let (name, reason) = waiting.error().await;
    assert_eq!(name, "shutting_down");
    assert!(reason.contains("'a' was removed"), "{reason}");
    eventually("the socket is gone", async || {
        !daemon.path("a.sock").exists()
    })
    .await;
    assert!(UnixStream::connect(daemon.path("a.sock")).await.is_err());
    // The other service keeps its connection, and the pool its processes.
    assert_eq!(other.ask("[\"x\"]").await, "[\"x\"]");
    daemon
        .wait_for_pool("py", "the others are returned", |pool| {
            pool.used == 1 && pool.free == 2
        })
        .await;
    let procs = daemon.pool("py").await.procs;
    assert!(procs.iter().any(|proc| proc.os_pid == Some(pid)));
    assert!(daemon.log.with("none is started").is_empty());
    daemon.stop_after((idle, busy, other, waiting)).await;
}

#[actix_rt::test]
async fn a_busy_connection_of_a_removed_service_is_cut_after_the_grace() {
    let grace = "shutdown_grace = 0\n";
    let text = format!("{grace}{POOL}{}", service("a", "a.sock"));
    let daemon = Daemon::start(&text).await;
    let mut busy = daemon.connect("a.sock").await;
    busy.send("[\"never\"]").await;
    let label = ["service=\"a\""];
    let received = || daemon.number("settee_service_received_bytes_total", &label) > 0;
    eventually("the line is received", async || received()).await;
    daemon.reload(&format!("{grace}{POOL}")).await.unwrap();
    busy.assert_closed().await;
    eventually("the socket is gone", async || {
        !daemon.path("a.sock").exists()
    })
    .await;
    daemon
        .wait_for_pool("py", "the process is returned or gone", |pool| {
            pool.used == 0
        })
        .await;
    daemon.stop_after(busy).await;
}

#[actix_rt::test]
async fn settings_change_without_losing_a_connection_or_a_waiter() {
    let text = format!("{POOL}{}", service("a", "a.sock")).replace("max = 2", "max = 1");
    let daemon = Daemon::start(&text).await;
    let mut first = daemon.connect("a.sock").await;
    let pid = first.pid().await;
    let mut waiting = daemon.connect("a.sock").await;
    waiting.send("[\"pid\"]").await;
    daemon
        .reload(&format!("{text}backlog = 7\nclient_timeout = 0\n"))
        .await
        .unwrap();
    assert_eq!(first.pid().await, pid);
    assert_eq!(waiting_to_be_accepted(&daemon.path("a.sock")), 1);
    drop(first);
    assert_eq!(waiting.line().await.parse::<u32>().unwrap(), pid);
    daemon.stop_after(waiting).await;
}

#[actix_rt::test]
async fn a_service_moves_to_another_pool() {
    let pools = format!("{POOL}[pools.two]\nlanguage = \"python\"\nmax = 1\n");
    let text = format!("{pools}{}", service("a", "a.sock"));
    let daemon = Daemon::start(&text).await;
    daemon.connect("a.sock").await.pid().await;
    daemon
        .reload(&text.replace("pool = \"py\"", "pool = \"two\""))
        .await
        .unwrap();
    let mut client = daemon.connect("a.sock").await;
    client.pid().await;
    assert_eq!(daemon.pool("two").await.used, 1);
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_socket_that_cannot_be_opened_refuses_the_whole_reload() {
    let daemon = Daemon::start(POOL).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!("{POOL}[services.a]\nlisten = \"{address}\"\npool = \"py\"\n");
    let text = text.replace("max = 2", "max = 9") + &service("b", "b.sock");
    let error = daemon.reload(&text).await.unwrap_err().to_string();
    for word in ["[services.a] listen", "nothing was changed", "another port"] {
        assert!(error.contains(word), "{word} in {error}");
    }
    assert_eq!(daemon.pool("py").await.hard_limit, 2);
    assert!(!daemon.path("b.sock").exists());
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_service_whose_pool_is_removed_serves_again_once_the_pool_is_added() {
    let daemon = Daemon::start(&format!("{POOL}{}", service("a", "a.sock"))).await;
    let mut first = daemon.connect("a.sock").await;
    first.pid().await;
    let operator = daemon.operator();
    let done: Value = operator.delete("/_pools/py?mode=immediate").await.unwrap();
    assert_eq!(done["ok"], true, "{done}");
    let (name, _) = first.error().await;
    assert_eq!(name, "pool_removed");
    let gone = "the pool of a service does not exist";
    eventually("the missing pool is logged", async || {
        !daemon.log.with(gone).is_empty()
    })
    .await;
    let mut waiting = daemon.connect("a.sock").await;
    waiting.send("[\"hello\"]").await;
    let add = serde_json::json!({"language": "python"});
    let done: Value = operator.put("/_pools/py", &add).await.unwrap();
    assert_eq!(done["ok"], true, "{done}");
    assert_eq!(waiting.line().await, "[\"hello\"]");
    daemon.stop_after((first, waiting)).await;
}

#[actix_rt::test]
async fn a_unix_socket_is_private_to_its_user_unless_local_only_is_false() {
    use std::os::unix::fs::PermissionsExt;
    let text = format!("{POOL}{}{}", service("a", "a.sock"), service("b", "b.sock"));
    let daemon = Daemon::start(&format!("{text}local_only = false\n")).await;
    let mode = |name: &str| {
        let found = std::fs::metadata(daemon.path(name)).unwrap();
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode("a.sock"), mode("b.sock")), (0o600, 0o666));
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_client_at_a_former_address_gets_an_error_with_the_new_address() {
    let old = format!("{POOL}{}", service("a", "old.sock"));
    let daemon = Daemon::start(&old).await;
    let mut busy = daemon.connect("old.sock").await;
    busy.send("[\"never\"]").await;
    let received = || daemon.number("settee_service_received_bytes_total", &["service=\"a\""]) > 0;
    eventually("the line is received", async || received()).await;
    daemon
        .reload(&old.replace("old.sock", "new.sock"))
        .await
        .unwrap();
    let records = daemon.log.with("a service leaves its address");
    let [line] = &records[..] else {
        panic!("{records:?}");
    };
    for word in ["old.sock", "new.sock", "service=a"] {
        assert!(line.contains(word), "{word} in {line}");
    }
    // The connection that is still open keeps the old socket open.
    let mut late = daemon.connect("old.sock").await;
    late.send("[\"hello\"]").await;
    let (name, reason) = late.error().await;
    assert_eq!(name, "shutting_down");
    assert!(reason.contains("new.sock"), "{reason}");
    daemon.connect("new.sock").await.pid().await;
    drop(busy);
    eventually("the socket is gone", async || {
        !daemon.path("old.sock").exists()
    })
    .await;
    daemon.stop_after(late).await;
}

#[actix_rt::test]
async fn a_client_waiting_to_be_accepted_gets_an_error_at_shutdown() {
    let text = format!("{POOL}{}", service("a", "a.sock")).replace("max = 2", "max = 1");
    let daemon = Daemon::start(&text).await;
    let mut first = daemon.connect("a.sock").await;
    first.pid().await;
    let mut waiting = daemon.connect("a.sock").await;
    waiting.send("[\"hello\"]").await;
    daemon.app.begin_stop(false);
    for client in [&mut first, &mut waiting] {
        assert_eq!(client.error().await.0, "shutting_down");
    }
    daemon.stop_after((first, waiting)).await;
}

#[actix_rt::test]
async fn a_service_that_takes_over_an_address_refuses_no_client() {
    let old = format!("{POOL}{}", service("a", "a.sock"));
    let daemon = Daemon::start(&old).await;
    let mut busy = daemon.connect("a.sock").await;
    busy.send("[\"never\"]").await;
    let received = || daemon.number("settee_service_received_bytes_total", &["service=\"a\""]) > 0;
    eventually("the line is received", async || received()).await;
    let renamed = old.replace("services.a", "services.b");
    daemon.reload(&renamed).await.unwrap();
    daemon.connect("a.sock").await.pid().await;
    // The service is removed, so that clients are refused, and added again.
    daemon.reload(POOL).await.unwrap();
    let (name, _) = daemon.connect("a.sock").await.error().await;
    assert_eq!(name, "shutting_down");
    daemon.reload(&old).await.unwrap();
    daemon.connect("a.sock").await.pid().await;
    drop(busy);
    daemon
        .wait_for_pool("py", "nothing is lent", |pool| pool.used == 0)
        .await;
    daemon.connect("a.sock").await.pid().await;
    daemon.stop().await;
}
