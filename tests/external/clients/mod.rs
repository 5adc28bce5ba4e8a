//! The clients for Python and Node, built and installed, against a running service. Single calls are
//! tested by the clients' own tests (`clients/*/tests`), which run from here.

mod customers;
mod encrypted;
mod examples;
mod loss;
mod packages;
pub mod site;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::support::daemon::{Service, configure, directory, serve_command};
use crate::support::program::project;
use tempfile::TempDir;

/// Time limit of a program that a test runs.
const SECONDS_MAX: &str = "300";

/// A service that listens on all three kinds of addresses.
struct Site {
    service: Service,
    tcp: SocketAddr,
    http: SocketAddr,
}

impl Site {
    fn start() -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        Self::start_in(directory(), any, any)
    }

    fn start_in(directory: TempDir, tcp: SocketAddr, http: SocketAddr) -> Self {
        let extra = format!(
            "[server]\ntcp = \"{tcp}\"\nline_max = \"4MiB\"\nbody_max = \"4MiB\"\n[admins]\nroot = \"secret\"\n\
             [users.ann]\npassword = \"secret\"\nroles = \"caller\"\n"
        );
        let config = configure(directory.path(), &extra);
        let mut command = serve_command(&config);
        command.env("SETTEE__SERVER__HTTP", http.to_string());
        let mut service = Service::start_command(directory, command);
        let tcp = service.next_address("tcp:");
        let http = service.next_address("http://");
        Self { service, tcp, http }
    }

    /// Returns the addresses in the form that clients accept, with a user where one is needed.
    fn addresses(&self) -> [String; 3] {
        [
            format!("unix:{}", self.service.socket().display()),
            format!("tcp://ann:secret@{}", self.tcp),
            format!("http://ann:secret@{}", self.http),
        ]
    }

    /// Passes the addresses of the service to a client's program.
    fn pass_addresses(&self, command: &mut Command) {
        let [unix, tcp, http] = self.addresses();
        command.env("SETTEE_UNIX", unix);
        command.env("SETTEE_TCP", tcp);
        command.env("SETTEE_HTTP", http);
        command.env("SETTEE_CALLS", project().join("clients/calls.json"));
    }
}

/// Returns a command for the Python of the virtual environment.
fn python() -> Command {
    let folder = &site::python().folder;
    let mut command = within_deadline(folder, &folder.join("bin/python"));
    // Warnings are errors: a coroutine that is never awaited, a socket that is never closed.
    command.args(["-W", "error"]);
    command
}

fn node() -> Command {
    within_deadline(&site::node().folder, Path::new("node"))
}

/// Returns a command for a program that is stopped at the time limit.
fn within_deadline(folder: &Path, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg(SECONDS_MAX).arg(program).current_dir(folder);
    command
}

/// Runs the tests of a client, and asserts that they leave no process lent.
fn assert_passes(mut tests: Command) {
    let site = Site::start();
    site.pass_addresses(&mut tests);
    site::run(&mut tests);
    site.service
        .wait_for_first_pool("free processes", |pool| pool["used"] == 0);
    site.service.stop();
}

#[test]
fn the_tests_of_the_python_client_pass() {
    let mut tests = python();
    tests.args(["-m", "unittest"]);
    assert_passes(tests);
}

#[test]
fn the_tests_of_the_node_client_pass() {
    let mut tests = node();
    tests.args(["--test", "tests/calls.test.js", "tests/leases.test.js"]);
    assert_passes(tests);
}
