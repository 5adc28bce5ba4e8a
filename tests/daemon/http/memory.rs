//! How much of the memory of requests the service retains.

use std::fs::read_to_string;

use serde_json::json;

use crate::support::daemon::{configure, directory, wait_until};
use crate::support::http_client::{Web, command};

/// The systemd unit, which tunes the C library's allocator.
const UNIT: &str = include_str!("../../../packaging/systemd/settee.service");

/// Maximum growth of the resident memory, in KiB: far less than [`VALUES`] values take if each is allocated separately.
const KEPT_MAX: u64 = 32 << 10;

/// How many values a call has.
const VALUES: usize = 1_000_000;

/// Returns the resident memory of the service, in KiB.
fn resident(web: &Web) -> u64 {
    let status = read_to_string(format!("/proc/{}/status", web.service.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse().unwrap()
}

#[test]
fn the_memory_of_calls_with_very_many_small_values_is_returned_to_the_system() {
    let tunables = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("Environment=GLIBC_TUNABLES="));
    let directory = directory();
    let mut command = command(&configure(directory.path(), ""));
    command.env("GLIBC_TUNABLES", tunables.unwrap());
    let web = Web::start_command(directory, command);
    web.get("/_up").ok();
    let before = resident(&web);
    let values = vec!["1"; VALUES].join(",");
    let body = format!(r#"{{"lang":"javascript","funs":["_count"],"values":[{values}]}}"#);
    for _ in 0..3 {
        let counted = web.send("POST", "/_query/rereduce", &body).ok();
        assert_eq!(counted["ok"], json!([VALUES]));
    }
    wait_until("memory returned", || resident(&web) < before + KEPT_MAX);
    web.service.stop();
}
