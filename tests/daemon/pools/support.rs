//! What the tests of pools share.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::daemon::{Client, Order, Service, wait_until};
use crate::support::program::SETTEE;

/// A process as the service lent it.
#[derive(Clone, Debug)]
pub struct Lent {
    pub proc: String,
    pub pool: String,
    pub os_pid: u64,
}

impl Lent {
    fn of(value: &Value) -> Self {
        Self {
            proc: value["proc"].as_str().unwrap().to_owned(),
            pool: value["pool"].as_str().unwrap().to_owned(),
            os_pid: value["os_pid"].as_u64().unwrap(),
        }
    }
}

/// Adds a pool of the scripted language and returns the changes.
pub fn add(client: &mut Client, name: &str, settings: &Value) -> Value {
    let mut all = json!({"language": "python"});
    for (key, value) in settings.as_object().unwrap() {
        all[key] = value.clone();
    }
    let path = format!("/_pools/{name}?mode=add");
    client.operator.ok(&Order::new("PUT", path, all))
}

/// Returns an order that changes settings of a pool, or adds it.
pub fn reconfigure(name: &str, settings: &Value) -> Order {
    Order::new("PUT", format!("/_pools/{name}"), settings.clone())
}

pub fn remove(name: &str, mode: &str) -> Order {
    Order::new("DELETE", format!("/_pools/{name}?mode={mode}"), Value::Null)
}

pub fn take_request(pool: &str) -> Value {
    json!({"id": "take", "call": "get_proc", "pool": pool})
}

pub fn take(client: &mut Client, pool: &str) -> Lent {
    Lent::of(&client.ok(&take_request(pool)))
}

pub fn take_group(client: &mut Client, group: &str) -> Lent {
    Lent::of(&client.ok(&json!({"id": "take", "call": "get_proc", "group": group})))
}

/// Reads the reply to an earlier request for a process.
pub fn taken(client: &mut Client) -> Lent {
    let reply = client.reply();
    Lent::of(reply.get("ok").unwrap_or_else(|| panic!("{reply}")))
}

pub fn give_back(client: &mut Client, lent: &Lent, status: &str) -> bool {
    let request = json!({"id": "ret", "call": "ret_proc", "proc": lent.proc, "status": status});
    client.ok(&request).as_bool().unwrap()
}

/// Waits until a pool is gone.
pub fn wait_until_gone(client: &mut Client, pool: &str) {
    wait_until(&format!("end of the pool {pool}"), || {
        client.operator.pool(pool).is_none()
    });
}

/// Waits until `count` requests are queued at a pool.
pub fn wait_until_waiting(client: &mut Client, pool: &str, count: u64) {
    client.wait_for_pool(pool, &[("waiting", count)]);
}

/// Runs `settee` against a service.
pub fn settee(service: &Service, arguments: &[&str]) -> Output {
    let mut command = Command::new(SETTEE);
    command.args(arguments);
    command.env("SETTEE__SERVER__SOCKET", service.socket());
    command.output().unwrap()
}

/// Runs `settee` with this input.
pub fn settee_reading(service: &Service, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(SETTEE);
    command.args(arguments);
    command.env("SETTEE__SERVER__SOCKET", service.socket());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // `settee` does not read its input if it refuses the command line.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Runs `settee`, which must succeed, and returns what it printed.
#[track_caller]
pub fn prints(service: &Service, arguments: &[&str]) -> String {
    let output = settee(service, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `settee`, which must fail with this code, and returns its complaint.
#[track_caller]
pub fn complains(service: &Service, code: i32, arguments: &[&str]) -> String {
    let output = settee(service, arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {output:?}"
    );
    String::from_utf8(output.stderr).unwrap()
}
