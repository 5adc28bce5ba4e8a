//! How connections of a service end when the program is told to stop.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::{fs, io};

use serde_json::{Value, json};

use crate::support::daemon::{Client, Service, directory, in_time, signal, wait_until};

/// A program with a service that lends scripted query servers.
struct Lending {
    service: Service,
}

impl Lending {
    fn start() -> Self {
        let directory = directory();
        let extra = format!(
            "[server]\nshutdown_grace = \"1h\"\n[pools.p]\nlanguage = \"python\"\n\
             [services.s]\npool = \"p\"\nlisten = \"unix:{}\"\n",
            directory.path().join("own.sock").display()
        );
        let service = Service::start_in(directory, &extra);
        Self { service }
    }

    fn connect(&self) -> Client {
        Client::connect(&self.service.path("own.sock"))
    }

    /// Returns a member of the service's status; `None` once the service has ended.
    fn status(&self, member: &str) -> Option<Value> {
        let socket = self.service.socket().with_extension("http.sock");
        let mut stream = UnixStream::connect(socket).ok()?;
        let request = b"GET /_status HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).ok()?;
        let answer = io::read_to_string(stream).ok()?;
        let (_, status) = answer.split_once("\r\n\r\n")?;
        let status: Value = serde_json::from_str(status).ok()?;
        Some(status["services"][0][member].clone())
    }

    /// Tells the program to stop, and waits until the service is stopping.
    fn begin_stop(&self) {
        self.service.signal("TERM");
        // The HTTP socket stops at the same time, and then returns no status.
        let is_stop = |closed: Value| closed == "stopping";
        wait_until("a stop", || self.status("closed").is_none_or(is_stop));
    }

    fn exits_cleanly(self) {
        self.service.exits_cleanly();
    }
}

/// Returns the name of the error in a last line.
fn error_name(line: &str) -> String {
    let line: [String; 3] = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    assert_eq!(line[0], "error");
    line[1].clone()
}

#[test]
fn an_accepted_idle_client_still_gets_its_first_answer() {
    in_time("command", |_| {
        let lending = Lending::start();
        let mut quiet = lending.connect();
        wait_until("the connection is accepted", || {
            lending.status("connections") == Some(json!(1))
        });
        lending.begin_stop();
        quiet.stream.write_all(b"[\"hello\"]\n").ok()?;
        let answer = quiet.line()?;
        if answer.contains("shutting_down") {
            return None;
        }
        assert_eq!(answer, "[\"hello\"]\n");
        assert_eq!(error_name(&quiet.line()?), "shutting_down");
        quiet.assert_closed();
        drop(quiet);
        lending.exits_cleanly();
        Some(())
    });
}

#[test]
fn commands_sent_after_shutdown_began_reach_no_process() {
    let lending = Lending::start();
    let (gate, other) = (lending.service.path("gate"), lending.service.path("other"));
    let mut client = lending.connect();
    client.send(&json!(["wait", gate]));
    wait_until("a command in progress", || {
        lending.service.path("gate.here").exists()
    });
    lending.begin_stop();
    client.send(&json!(["wait", other]));
    fs::write(gate, "").unwrap();
    assert_eq!(client.line().unwrap(), "\"waited\"\n");
    assert_eq!(error_name(&client.line().unwrap()), "shutting_down");
    // By then its process has been returned.
    client.assert_closed();
    assert!(!lending.service.path("other.here").exists());
    drop(client);
    lending.exits_cleanly();
}

#[test]
fn a_client_whose_process_dies_during_shutdown_gets_an_error() {
    let lending = Lending::start();
    let mut client = lending.connect();
    client.send(&json!(["pid"]));
    let pid = client.line().unwrap().trim_end().parse().unwrap();
    let gate = lending.service.path("gate");
    client.send(&json!(["wait", gate]));
    wait_until("a command in progress", || {
        lending.service.path("gate.here").exists()
    });
    lending.begin_stop();
    signal(pid, "KILL");
    assert_eq!(error_name(&client.line().unwrap()), "os_process_error");
    client.assert_closed();
    drop(client);
    lending.exits_cleanly();
}
