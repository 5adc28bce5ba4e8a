//! A service that cannot start another thread.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::support::daemon::{configure, directory};
use crate::support::http_client::{Response, Web, command};

/// Bob's password is `password`.
const ADMINS: &str = "[admins]\n\
    bob = \"-pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096\"\n";

/// The memory left to a service: less than the stack of a thread, and enough for requests.
const ROOM_BYTES: u64 = 1 << 20;

fn log_in(web: &Web) -> Response {
    let body = json!({"name": "bob", "password": "password"}).to_string();
    web.send("POST", "/_session", &body)
}

fn limit_memory(web: &Web, limit: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(web.service.pid()).unwrap());
    let limit = Rlimit {
        current: limit,
        maximum: None,
    };
    prlimit(pid, Resource::As, limit).unwrap();
}

/// Returns the address space of the service, in bytes.
fn address_space(web: &Web) -> u64 {
    let path = format!("/proc/{}/status", web.service.pid());
    let text = std::fs::read_to_string(path).unwrap();
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes = kilobytes.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() * 1024
}

#[test]
fn a_thread_that_cannot_be_started_is_an_error_of_the_request_that_needs_it() {
    let directory = directory();
    let mut command = command(&configure(directory.path(), ADMINS));
    // The trial of a cell leaves the stack of its thread, which another thread would reuse.
    command.env("SETTEE__POOLS__JAVASCRIPT__SANDBOX", "off");
    let web = Web::start_command(directory, command);
    // Both workers have answered.
    for _ in 0..4 {
        web.get("/_up").ok();
    }
    limit_memory(&web, Some(address_space(&web) + ROOM_BYTES));
    let reason = log_in(&web).reason(503, "no_thread");
    assert!(reason.contains("try again"), "{reason}");
    web.service.signal("HUP");
    web.service.wait_for_log("configuration was not reloaded");
    web.get("/_up").ok();
    limit_memory(&web, None);
    log_in(&web).ok();
    web.service.stop();
}
