//! A service that is killed and started again at the same addresses, under clients that go on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Site, node, python};
use crate::support::program::exit_code;

/// A client that says what is to happen next.
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

fn assert_survives(client: fn() -> Command, program: &str) {
    for way in 0..3 {
        let site = Site::start();
        let mut command = client();
        command.arg(program).arg(&site.addresses()[way]);
        site.tell(&mut command);
        let mut orders = Orders::of(command);
        orders.wait_for("kill");
        let (tcp, http) = (site.tcp, site.http);
        let directory = site.service.kill_and_keep();
        orders.is_done("kill");
        orders.wait_for("start");
        let site = Site::start_in(directory, tcp, http);
        orders.is_done("start");
        assert_eq!(exit_code(&mut orders.child), Some(0), "way {way}");
        site.service.stop();
    }
}

#[test]
fn the_python_client_connects_again_after_the_service_was_killed() {
    let client = || {
        let mut command = python();
        command.arg("-m");
        command
    };
    assert_survives(client, "tests.loss");
}

#[test]
fn the_node_client_connects_again_after_the_service_was_killed() {
    assert_survives(node, "tests/loss.js");
}
