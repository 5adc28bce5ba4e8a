//! A service that is killed, or stopped, and restarted at the same addresses, while clients keep calling.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Site, node, python};
use crate::support::daemon::{socket_of, wait_until};
use crate::support::program::exit_code;

/// Number of a call's attempts that fail before the service is back: about four seconds of a client's back-off.
const TRIES_WHILE_AWAY: usize = 8;

/// A client that requests each step of the test.
struct Orders {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Orders {
    fn of(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn wait_for(&mut self, order: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), order);
    }

    fn is_done(&mut self, order: &str) {
        let mut input = self.child.stdin.as_ref().unwrap();
        writeln!(input, "{order}").unwrap();
    }
}

/// Listens at an address of the stopped service, and closes the connections of `TRIES_WHILE_AWAY` attempts.
fn stay_away(socket: &Path, [tcp, http]: [SocketAddr; 2], way: usize) {
    let mut tries = 0;
    let mut count = |accepted: bool| {
        tries += usize::from(accepted);
        tries == TRIES_WHILE_AWAY
    };
    let what = "the client's retries";
    if way == 0 {
        // A killed service leaves its socket behind.
        drop(fs::remove_file(socket));
        let listener = UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        wait_until(what, || count(listener.accept().is_ok()));
    } else {
        let listener = TcpListener::bind([tcp, http][way - 1]).unwrap();
        listener.set_nonblocking(true).unwrap();
        wait_until(what, || count(listener.accept().is_ok()));
    }
}

fn assert_survives(client: fn() -> Command, program: &str) {
    for way in 0..3 {
        let site = Site::start();
        let mut command = client();
        command.arg(program).arg(&site.addresses()[way]);
        site.pass_addresses(&mut command);
        let mut orders = Orders::of(command);
        orders.wait_for("kill");
        let (tcp, http) = (site.tcp, site.http);
        let directory = site.service.kill_and_keep();
        orders.is_done("kill");
        orders.wait_for("start");
        stay_away(&socket_of(directory.path()), [tcp, http], way);
        let site = Site::start_in(directory, tcp, http);
        orders.is_done("start");
        assert_eq!(exit_code(&mut orders.child), Some(0), "way {way}");
        site.service.stop();
    }
}

/// Restarts the service cleanly while a client calls it at all addresses, and asserts that the client gets no error.
fn assert_sees_no_restart(mut client: Command) {
    let site = Site::start();
    site.pass_addresses(&mut client);
    let mut orders = Orders::of(client);
    orders.wait_for("restart");
    let (tcp, http) = (site.tcp, site.http);
    let directory = site.service.stop_and_keep();
    stay_away(&socket_of(directory.path()), [tcp, http], 0);
    let site = Site::start_in(directory, tcp, http);
    orders.is_done("restart");
    assert_eq!(exit_code(&mut orders.child), Some(0));
    site.service.stop();
}

#[test]
fn a_python_client_with_time_for_retries_does_not_notice_a_clean_restart() {
    let mut client = python();
    client.args(["-m", "tests.restart"]);
    assert_sees_no_restart(client);
}

#[test]
fn a_node_client_with_time_for_retries_does_not_notice_a_clean_restart() {
    let mut client = node();
    client.arg("tests/restart.js");
    assert_sees_no_restart(client);
}

#[test]
fn the_python_client_reconnects_after_the_service_was_killed() {
    let client = || {
        let mut command = python();
        command.arg("-m");
        command
    };
    assert_survives(client, "tests.loss");
}

#[test]
fn the_node_client_reconnects_after_the_service_was_killed() {
    assert_survives(node, "tests/loss.js");
}
