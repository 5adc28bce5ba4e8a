//! What the service is doing, as `/_status` shows it: one value for the command, HTTP and tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The state of all pools, and of the services in front of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// One entry for each pool.
    pub pools: Vec<PoolStatus>,
    /// One entry for each service (`[services.NAME]`) that lends from one of them.
    #[serde(default)]
    pub services: Vec<ServiceStatus>,
    /// Processes, those being opened included.
    pub proc_count: u32,
    /// Processes started before the last reload.
    pub stale_proc_count: u32,
}

/// The state of one service: a socket whose connections are each lent a process of a pool.
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
    /// Why it does not: `at_limit`, `throttled`, `no_pool`, `accept_failed`, `draining` or `stopping`.
    #[serde(default)]
    pub closed: Option<String>,
    /// For how long its pool starts no process, because a start failed; in milliseconds.
    #[serde(default)]
    pub throttled_ms: Option<u64>,
    /// How that start failed.
    #[serde(default)]
    pub failure: Option<String>,
    /// For how long processes are started with stress on, in milliseconds.
    #[serde(default)]
    pub stressed_ms: Option<u64>,
    /// Connections that are there.
    pub connections: u64,
    /// Connections that were ever accepted.
    pub accepted: u64,
    /// How often it stopped accepting at the limit.
    pub limit_reached: u64,
    /// The most processes that its pool may have now; `None` while there is no pool.
    #[serde(default)]
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
    /// What starts its processes.
    pub command: String,
    /// The hard limit in force.
    pub hard_limit: u32,
    /// The soft limit in force.
    pub soft_limit: u32,
    /// Processes that are lent, taught or reset.
    pub used: u32,
    /// Processes that are idle.
    pub free: u32,
    /// Idle processes that are tied to a database.
    pub free_tagged: u32,
    /// Processes that are being started.
    pub opening: u32,
    /// Processes that were told to stop and are not gone yet.
    pub stopping: u32,
    /// Requests that wait for a process.
    pub waiting: u32,
    /// How long the oldest of them has waited, in milliseconds.
    pub longest_wait_ms: u64,
    /// How it is being removed, if it is: `graceful` or `immediate`.
    #[serde(default)]
    pub removing: Option<String>,
    /// For how long no process is started, because a start failed; in milliseconds.
    #[serde(default)]
    pub throttled_ms: Option<u64>,
    /// How that start failed, while it is throttled.
    #[serde(default)]
    pub failure: Option<String>,
    /// For how long processes are started with stress on, in milliseconds.
    #[serde(default)]
    pub stressed_ms: Option<u64>,
    /// Every setting in force, by key, as a file has it; a pool without a group has no `group`.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// What happened in it since it was made.
    #[serde(default)]
    pub totals: Totals,
    /// What its query servers can do, by name; null where nobody knows, or has needed it yet.
    #[serde(default)]
    pub abilities: BTreeMap<String, Option<bool>>,
    /// The cell that its processes are put in; `None` for those inside the service.
    #[serde(default)]
    pub sandbox: Option<SandboxStatus>,
    /// The processes, oldest first.
    pub procs: Vec<ProcStatus>,
}

/// The cell of a pool's processes on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// `strict`, `standard` or `off`.
    pub mode: String,
    /// The layers that hold; none before they were tried.
    pub layers: Vec<String>,
    /// The layers that do not, and why.
    pub missing: BTreeMap<String, String>,
    /// Why the cell cannot be made at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcStatus {
    /// Its name, unique in the service: `POOL/NUMBER`.
    #[serde(default)]
    pub name: String,
    /// The operating system's number of it, `None` for one inside the service.
    pub os_pid: Option<u32>,
    /// `idle`, `assigned` or `teaching`.
    pub state: String,
    /// The database it is tied to.
    pub db: Option<String>,
    /// How many design documents it knows of that one.
    pub ddocs: usize,
    /// How many tenants have an isolate in it.
    pub isolates: u32,
    /// How often it was lent.
    pub uses: u64,
    /// How long it has existed, in milliseconds.
    pub age_ms: u64,
    /// How long it has been idle, in milliseconds; 0 when it is not.
    pub idle_ms: u64,
    /// Who holds it.
    #[serde(default)]
    pub holder: Option<Holder>,
    /// The memory that it took when it was last measured, in bytes; only in pools with a limit.
    #[serde(default)]
    pub memory: Option<u64>,
}

/// Processes with what they do now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcPage {
    /// How many there are; the rows are bounded.
    pub total_rows: usize,
    /// Those that work first, of these the ones that have done so longest.
    pub procs: Vec<ProcRow>,
}

/// What one process does now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcRow {
    /// Its name, unique in the service: `POOL/NUMBER`.
    pub name: String,
    /// The operating system's number of it, `None` for one inside the service or that is being started. That of a
    /// process in a cell may be its launcher's.
    pub os_pid: Option<u32>,
    /// The pool.
    pub pool: String,
    /// The pool's language.
    pub language: String,
    /// `running`: it runs a call, or answers a prompt; `teaching`: it learns a design document, is reset, or forgets;
    /// `lent`: its holder asks it nothing; `starting`; `ending`; `idle`.
    pub state: String,
    /// For how long, in milliseconds; of `running` and `lent` since it was lent.
    pub state_ms: u64,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// The name of the request that it runs.
    pub request_id: Option<String>,
    /// The database of the call that it runs, otherwise the one that it is tied to.
    pub db: Option<String>,
    /// The design document of the call, if it has one.
    pub ddoc: Option<String>,
    /// The function of the call: its path in the design document, or the name of the call.
    pub function: Option<String>,
    /// How often it was lent; `None` of one that ends.
    pub uses: Option<u64>,
    /// How long it has existed, in milliseconds; `None` of one that starts or ends.
    pub age_ms: Option<u64>,
    /// The time that it was on processors since it was started, in microseconds.
    pub cpu_us: Option<u64>,
    /// The resident memory of its process group, in bytes.
    pub memory: Option<u64>,
}

/// The result of an order to end a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KilledProc {
    /// What was done: `killed`; `told` to end, and killed later if it does not (`stop_grace`); `ending`, nothing, since it
    /// was told already.
    pub how: String,
    /// The process as it was before.
    pub proc: ProcRow,
}

/// Who holds a process, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// The number of the client, unique in the service.
    pub client: u64,
    /// The process at the other end of a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The user that process runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Who has logged in, or the name of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The address at the other end of TCP and HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

/// What happened in a pool since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Processes that were lent.
    pub taken: u64,
    /// Processes that were given back.
    pub returned: u64,
    /// Processes that were given back as broken.
    pub failed: u64,
    /// Processes whose clients crashed, or dropped them without returning them.
    #[serde(default)]
    pub lost: u64,
    /// Processes that were started.
    pub started: u64,
    /// Processes that forgot whom they served, instead of being replaced.
    #[serde(default)]
    pub forgot: u64,
    /// Isolates that were made for tenants; lent processes less these are those that were found.
    #[serde(default)]
    pub isolates_made: u64,
    /// Isolates that ended for others.
    #[serde(default)]
    pub isolates_evicted: u64,
    /// Idle processes that were stopped to make room for another database.
    #[serde(default)]
    pub replaced: u64,
    /// Processes that could not be started.
    pub start_failures: u64,
    /// Processes that ended by themselves.
    pub died: u64,
    /// Requests that got none in time.
    pub timed_out: u64,
    /// Requests that were refused because as many waited as may.
    pub busy: u64,
    /// Processes that were stopped for having served long enough, by cause.
    pub recycled: BTreeMap<String, u64>,
}
