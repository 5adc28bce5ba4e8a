//! The service's state, as in `/_status`: one type for the command, HTTP and tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The state of all pools, and of the services in front of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// One entry for each pool.
    pub pools: Vec<PoolStatus>,
    /// One entry for each service (`[services.NAME]`) that lends from one of the pools.
    #[serde(default)]
    pub services: Vec<ServiceStatus>,
    /// Processes, including those being opened.
    pub proc_count: u32,
    /// Processes started before the last reload.
    pub stale_proc_count: u32,
}

/// The state of one service: a socket that lends a process to each of its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Where it listens: `unix:PATH`, or an address with its port.
    pub listen: String,
    /// The pool that it lends from.
    pub pool: String,
    /// Whether only this user, or this machine, can reach it.
    pub local_only: bool,
    /// Whether it accepts connections; otherwise they wait in the system's queue.
    pub listening: bool,
    /// Why it does not accept: `at_limit`, `throttled`, `no_pool`, `accept_failed`, `draining` or `stopping`.
    pub closed: Option<String>,
    /// Time until its pool starts processes again after a failed start, in milliseconds.
    pub throttled_ms: Option<u64>,
    /// How that start failed.
    pub failure: Option<String>,
    /// How long processes will be started with stress on, in milliseconds.
    pub stressed_ms: Option<u64>,
    /// Open connections.
    pub connections: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Number of times that it stopped accepting at the limit.
    pub limit_reached: u64,
    /// The current maximum of processes of its pool; `None` if there is no pool.
    pub limit: Option<u32>,
}

/// The state of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name; a language's own pool has the language's name.
    pub name: String,
    /// Its language.
    pub language: String,
    /// Its group of interchangeable pools, if it belongs to one.
    pub group: Option<String>,
    /// The command of its processes.
    pub command: String,
    /// The hard limit in force.
    pub hard_limit: u32,
    /// The soft limit in force.
    pub soft_limit: u32,
    /// Processes that are lent, being taught or being reset.
    pub used: u32,
    /// Idle processes.
    pub free: u32,
    /// Idle processes bound to a database.
    pub free_tagged: u32,
    /// Processes being started.
    pub opening: u32,
    /// Processes that were stopped but have not ended yet.
    pub stopping: u32,
    /// Requests waiting for a process.
    pub waiting: u32,
    /// How long the oldest of them has waited, in milliseconds.
    pub longest_wait_ms: u64,
    /// The mode of its removal, if it is being removed: `graceful` or `immediate`.
    pub removing: Option<String>,
    /// Time until processes are started again after a failed start, in milliseconds.
    pub throttled_ms: Option<u64>,
    /// How that start failed, while it is throttled.
    pub failure: Option<String>,
    /// How long processes will be started with stress on, in milliseconds.
    pub stressed_ms: Option<u64>,
    /// All settings in force, by key, in the form of a file; a pool without a group has no `group`.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// Counts since it was made.
    #[serde(default)]
    pub totals: Totals,
    /// The abilities of its query servers, by name; null if unknown, or not needed yet.
    #[serde(default)]
    pub abilities: BTreeMap<String, Option<bool>>,
    /// The cell of its processes; `None` for those inside the service.
    pub sandbox: Option<SandboxStatus>,
    /// The processes, oldest first.
    pub procs: Vec<ProcStatus>,
}

/// The cell of a pool's processes on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// `strict`, `standard` or `off`.
    pub mode: String,
    /// The effective layers; none before the cell was tested.
    pub layers: Vec<String>,
    /// The missing layers, with the reasons.
    pub missing: BTreeMap<String, String>,
    /// Why the cell cannot be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcStatus {
    /// Its name, unique in the service: `POOL/NUMBER`.
    #[serde(default)]
    pub name: String,
    /// Its PID; `None` for one inside the service.
    pub os_pid: Option<u32>,
    /// `idle`, `assigned` or `teaching`.
    pub state: String,
    /// The database that it is bound to.
    pub db: Option<String>,
    /// Number of design documents of that database that it knows.
    pub ddocs: usize,
    /// Number of tenants with an isolate in it.
    pub isolates: u32,
    /// How often it was lent.
    pub uses: u64,
    /// How long it has existed, in milliseconds.
    pub age_ms: u64,
    /// How long it has been idle, in milliseconds; 0 if it is not.
    pub idle_ms: u64,
    /// Its holder.
    pub holder: Option<Holder>,
    /// Its memory when last measured, in bytes; only in pools with a limit.
    pub memory: Option<u64>,
}

/// Processes and their activity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcPage {
    /// The number of processes; the rows are bounded.
    pub total_rows: usize,
    /// Working processes first, the longest working at the top.
    pub procs: Vec<ProcRow>,
}

/// One process and its activity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcRow {
    /// Its name, unique in the service: `POOL/NUMBER`.
    pub name: String,
    /// Its PID; `None` for one inside the service or being started. For a process in a cell it may be the launcher's.
    pub os_pid: Option<u32>,
    /// The pool.
    pub pool: String,
    /// The pool's language.
    pub language: String,
    /// `running`: it runs a call, or answers a prompt; `teaching`: it is learning a design document, being reset, or
    /// forgetting; `lent`: it waits for its holder; `starting`; `ending`; `idle`.
    pub state: String,
    /// Time in that state, in milliseconds; for `running` and `lent`, since it was lent.
    pub state_ms: u64,
    /// Its holder.
    pub holder: Option<Holder>,
    /// The id of the current request.
    pub request_id: Option<String>,
    /// The database of the current call, otherwise the one that it is bound to.
    pub db: Option<String>,
    /// The design document of the call, if it has one.
    pub ddoc: Option<String>,
    /// The function of the call: its path in the design document, or the name of the call.
    pub function: Option<String>,
    /// How often it was lent; `None` if it is ending.
    pub uses: Option<u64>,
    /// How long it has existed, in milliseconds; `None` if it is starting or ending.
    pub age_ms: Option<u64>,
    /// Its processor time since its start, in microseconds.
    pub cpu_us: Option<u64>,
    /// The resident memory of its process group, in bytes.
    pub memory: Option<u64>,
}

/// The result of an order to end a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KilledProc {
    /// The effect: `killed`; `told` to end, and killed if it still runs after `stop_grace`; `ending` if it was already
    /// ending, which the order does not change.
    pub how: String,
    /// The process before the order.
    pub proc: ProcRow,
}

/// The holder of a process, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// The number of the client, unique in the service.
    pub client: u64,
    /// The process at the other end of a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The user of that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The logged-in user, or the name of that system user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The address at the other end of TCP and HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

/// Counts of a pool since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Processes lent.
    pub taken: u64,
    /// Processes returned.
    pub returned: u64,
    /// Processes returned as broken.
    pub failed: u64,
    /// Processes whose clients crashed, or dropped them without returning them.
    pub lost: u64,
    /// Processes started.
    pub started: u64,
    /// Processes that forgot their tenant and so were not replaced.
    pub forgot: u64,
    /// Isolates made for tenants; none is made if the lent process has the tenant's already.
    pub isolates_made: u64,
    /// Isolates evicted for others.
    pub isolates_evicted: u64,
    /// Idle processes stopped to make room for another database.
    pub replaced: u64,
    /// Processes that could not be started.
    pub start_failures: u64,
    /// Processes that ended unexpectedly.
    pub died: u64,
    /// Requests that timed out.
    pub timed_out: u64,
    /// Requests refused because the queue was full.
    pub busy: u64,
    /// Processes stopped (recycled) for their uses, age, memory or idle time, or under stress, by cause.
    pub recycled: BTreeMap<String, u64>,
}
