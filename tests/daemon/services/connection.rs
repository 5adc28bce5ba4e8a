//! One connection: what its client gets, and in what state its process is returned.

use tokio::io::AsyncWriteExt;

use crate::services::harness::Daemon;

const ONE: &str = "[query_servers]\npython = \"SCRIPTED\"\n\
                   [pools.py]\nlanguage = \"python\"\nmax = 1\n\
                   [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\n";

#[actix_rt::test]
async fn a_connection_talks_to_its_process_line_for_line() {
    let daemon = Daemon::start(ONE).await;
    let mut client = daemon.connect("py.sock").await;
    assert_eq!(client.ask("[\"reset\"]").await, "true");
    assert_eq!(client.ask("[\"any\", 1.0]").await, "[\"any\", 1.0]");
    // Log lines of the process are passed on.
    assert_eq!(client.ask("[\"log\",\"x\"]").await, "[\"log\",\"x\"]");
    assert_eq!(client.line().await, "true");
    // Pipelined, with the input closed right after the last line.
    let all = (0..100)
        .map(|n| format!("[{n},\"x\"]\n"))
        .collect::<String>();
    let stream = client.0.get_mut();
    stream.write_all(all.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    for n in 0..100 {
        assert_eq!(client.line().await, format!("[{n},\"x\"]"));
    }
    client.assert_closed().await;
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_returned_process_serves_the_next_connection() {
    let daemon = Daemon::start(ONE).await;
    let mut first = daemon.connect("py.sock").await;
    let pid = first.pid().await;
    drop(first);
    let mut second = daemon.connect("py.sock").await;
    assert_eq!(second.pid().await, pid);
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn a_process_that_was_taught_by_its_client_is_replaced() {
    let daemon = Daemon::start(ONE).await;
    let mut first = daemon.connect("py.sock").await;
    let pid = first.pid().await;
    let taught = "[\"ddoc\",\"new\",\"_design/a\",{\"_id\":\"_design/a\"}]";
    assert_eq!(first.ask(taught).await, "true");
    drop(first);
    let mut second = daemon.connect("py.sock").await;
    assert_ne!(second.pid().await, pid);
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn a_process_whose_client_disconnects_during_a_prompt_is_replaced() {
    let daemon = Daemon::start(ONE).await;
    let mut first = daemon.connect("py.sock").await;
    let pid = first.pid().await;
    first.send("[\"never\"]").await;
    drop(first);
    let mut second = daemon.connect("py.sock").await;
    assert_ne!(second.pid().await, pid);
    daemon.stop_after(second).await;
}

#[actix_rt::test]
async fn a_connection_whose_process_exits_gets_an_error_line_and_is_closed() {
    let daemon = Daemon::start(ONE).await;
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    client.send("[\"exit\",3]").await;
    let (name, reason) = client.error().await;
    assert_eq!(name, "os_process_error");
    assert!(
        reason.contains("exited with status 3") && reason.contains("last words"),
        "{reason}"
    );
    // Even without a prompt in progress.
    let mut client = daemon.connect("py.sock").await;
    let pid = client.pid().await;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let (name, reason) = client.error().await;
    assert_eq!(name, "os_process_error");
    assert!(reason.contains("was killed by SIGKILL"), "{reason}");
    // An answer from before the exit arrives first.
    let mut client = daemon.connect("py.sock").await;
    assert_eq!(client.ask("[\"answer_and_exit\",4]").await, "true");
    let (_, reason) = client.error().await;
    assert!(reason.contains("exited with status 4"), "{reason}");
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_protocol_error_is_reported_in_an_error_line_and_closes_the_connection() {
    let daemon = Daemon::start(ONE).await;
    let mut client = daemon.connect("py.sock").await;
    client.send("[\"raw\",\"no json\\n\"]").await;
    // The output of the process comes first, unchanged.
    assert_eq!(client.line().await, "no json");
    let (name, reason) = client.error().await;
    assert_eq!(name, "os_process_error");
    assert!(reason.contains("broke the protocol"), "{reason}");
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_prompt_that_times_out_is_reported_in_an_error_line() {
    let daemon = Daemon::start(&format!("{ONE}prompt_timeout = \"200ms\"\n")).await;
    let mut client = daemon.connect("py.sock").await;
    client.send("[\"never\"]").await;
    let (name, reason) = client.error().await;
    assert_eq!(name, "timeout");
    assert!(reason.contains("did not answer within 200 ms"), "{reason}");
    let label = ["service=\"py\"", "reason=\"timeout\""];
    assert_eq!(daemon.number("settee_service_ends_total", &label), 1);
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_client_that_holds_a_process_without_a_prompt_is_disconnected() {
    let daemon = Daemon::start(&format!("{ONE}client_timeout = \"100ms\"\n")).await;
    let mut client = daemon.connect("py.sock").await;
    let pid = client.pid().await;
    let (name, reason) = client.error().await;
    assert_eq!(name, "timeout");
    assert!(reason.contains("held a process for 0.1 s"), "{reason}");
    // The process is kept: it was not at fault.
    let mut client = daemon.connect("py.sock").await;
    assert_eq!(client.pid().await, pid);
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_line_that_is_too_long_is_refused_with_an_error_line() {
    let text = ONE.replace("[query_servers]", "line_max = 1024\n[query_servers]");
    let daemon = Daemon::start(&text).await;
    let mut client = daemon.connect("py.sock").await;
    client.send(&format!("[\"{}\"]", "x".repeat(2000))).await;
    let (name, _) = client.error().await;
    assert_eq!(name, "line_too_long");
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_service_on_tcp_needs_no_login() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let text = ONE.replace("unix:DIR/py.sock", "localhost:0");
    let daemon = Daemon::start(&text).await;
    let address = daemon.app.service("py").unwrap();
    let mut stream = BufReader::new(tokio::net::TcpStream::connect(&address).await.unwrap());
    stream.get_mut().write_all(b"[\"reset\"]\n").await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert_eq!(line, "true\n");
    drop(stream);
    daemon.stop().await;
}
