//! The state of the service as tables for people.

use std::fmt::Write;

use crate::query_server::status::{DaemonStatus, Holder, PoolStatus, ProcStatus, ServiceStatus};

/// Returns the state as text: totals, pools, services, processes.
pub(super) fn table(status: &DaemonStatus) -> String {
    let mut text = format!(
        "{}, {} of them stale; {}\n",
        count(status.proc_count as usize, "process", "processes"),
        status.stale_proc_count,
        count(status.pools.len(), "pool", "pools"),
    );
    text.push('\n');
    text.push_str(&pools(&status.pools));
    if !status.services.is_empty() {
        text.push('\n');
        let rows: Vec<_> = status.services.iter().map(service_row).collect();
        columns(&mut text, &SERVICE_COLUMNS, &rows);
    }
    let procs = processes(&status.pools);
    if !procs.is_empty() {
        text.push('\n');
        text.push_str(&procs);
    }
    text
}

/// Returns the pools as text, a line each below the titles.
pub(super) fn pools(pools: &[PoolStatus]) -> String {
    let mut text = String::new();
    let rows: Vec<_> = pools.iter().map(pool_row).collect();
    columns(&mut text, &POOL_COLUMNS, &rows);
    text
}

/// Returns the processes of pools as text, a line each below the titles; nothing without any.
pub(super) fn processes(pools: &[PoolStatus]) -> String {
    let mut text = String::new();
    let rows = |pool: &PoolStatus| {
        pool.procs
            .iter()
            .map(|proc| proc_row(&pool.name, proc))
            .collect::<Vec<_>>()
    };
    let procs: Vec<_> = pools.iter().flat_map(rows).collect();
    if !procs.is_empty() {
        columns(&mut text, &PROC_COLUMNS, &procs);
    }
    text
}

pub(super) fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// A column's title, and whether it is a number, which stands to the right.
pub(super) type Column = (&'static str, bool);

const POOL_COLUMNS: [Column; 14] = [
    ("POOL", false),
    ("LANGUAGE", false),
    ("GROUP", false),
    ("HARD", true),
    ("SOFT", true),
    ("USED", true),
    ("FREE", true),
    ("OPENING", true),
    ("STOPPING", true),
    ("WAITING", true),
    ("LONGEST", true),
    ("STATE", false),
    ("LACKS", false),
    ("COMMAND", false),
];

fn pool_row(pool: &PoolStatus) -> [String; 14] {
    let longest = if pool.waiting == 0 {
        "-".to_owned()
    } else {
        duration(pool.longest_wait_ms)
    };
    [
        pool.name.clone(),
        pool.language.clone(),
        pool.group.clone().unwrap_or_else(|| "-".to_owned()),
        pool.hard_limit.to_string(),
        pool.soft_limit.to_string(),
        pool.used.to_string(),
        pool.free.to_string(),
        pool.opening.to_string(),
        pool.stopping.to_string(),
        pool.waiting.to_string(),
        longest,
        state(pool),
        lacks(pool),
        pool.command.clone(),
    ]
}

/// What is out of the ordinary about a pool, and for how long.
fn state(pool: &PoolStatus) -> String {
    let removing = pool
        .removing
        .as_ref()
        .map(|mode| format!("removing ({mode})"));
    let trouble = trouble(pool.throttled_ms, pool.stressed_ms);
    let states: Vec<String> = removing.into_iter().chain(trouble).collect();
    match states.is_empty() {
        true => "-".to_owned(),
        false => states.join(", "),
    }
}

/// For how long nothing is started, and for how long processes are started with stress on.
fn trouble(throttled_ms: Option<u64>, stressed_ms: Option<u64>) -> impl Iterator<Item = String> {
    let throttled = throttled_ms.map(|ms| format!("throttled {}", duration(ms)));
    let stressed = stressed_ms.map(|ms| format!("stress {}", duration(ms)));
    throttled.into_iter().chain(stressed)
}

const SERVICE_COLUMNS: [Column; 9] = [
    ("SERVICE", false),
    ("LISTEN", false),
    ("POOL", false),
    ("CONNECTED", true),
    ("LIMIT", true),
    ("ACCEPTED", true),
    ("FULL", true),
    ("STATE", false),
    ("FAILURE", false),
];

/// How much of how a start failed is shown, in characters.
const FAILURE_CHARS: usize = 120;

fn service_row(service: &ServiceStatus) -> [String; 9] {
    let state = match service.closed.as_deref() {
        None => "listening",
        Some("at_limit") => "at its limit",
        Some("throttled") => "closed",
        Some("no_pool") => "no such pool",
        Some("accept_failed") => "cannot accept",
        Some(other) => other,
    };
    let trouble = trouble(service.throttled_ms, service.stressed_ms);
    let states: Vec<String> = std::iter::once(state.to_owned()).chain(trouble).collect();
    let failure = service.failure.as_deref().unwrap_or("-");
    [
        service.name.clone(),
        service.listen.clone(),
        service.pool.clone(),
        service.connections.to_string(),
        service
            .limit
            .map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
        service.accepted.to_string(),
        service.limit_reached.to_string(),
        states.join(", "),
        failure.chars().take(FAILURE_CHARS).collect(),
    ]
}

/// What the query servers of a pool are known not to be able to do.
fn lacks(pool: &PoolStatus) -> String {
    let absent = pool
        .abilities
        .iter()
        .filter(|(_, able)| **able == Some(false));
    let names: Vec<&str> = absent.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return "-".to_owned();
    }
    names.join(",")
}

const PROC_COLUMNS: [Column; 10] = [
    ("POOL", false),
    ("PID", true),
    ("STATE", false),
    ("DDOCS", true),
    ("USES", true),
    ("AGE", true),
    ("IDLE", true),
    ("MEMORY", true),
    ("HOLDER", false),
    ("DATABASE", false),
];

fn proc_row(pool: &str, proc: &ProcStatus) -> [String; 10] {
    let idle = if proc.state == "idle" {
        duration(proc.idle_ms)
    } else {
        "-".to_owned()
    };
    [
        pool.to_owned(),
        proc.os_pid
            .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        proc.state.clone(),
        proc.ddocs.to_string(),
        proc.uses.to_string(),
        duration(proc.age_ms),
        idle,
        proc.memory
            .map_or_else(|| "-".to_owned(), |bytes| format!("{}MiB", bytes >> 20)),
        proc.holder.as_ref().map_or_else(|| "-".to_owned(), holder),
        proc.db.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

/// Who holds a process: the user and the process or the address, as far as they are known.
fn holder(holder: &Holder) -> String {
    let uid = holder.uid.map(|uid| format!("uid {uid}"));
    let from = holder.pid.map(|pid| format!("pid {pid}"));
    let from = from.or_else(|| holder.peer.clone());
    let parts = [holder.user.clone().or(uid), from];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => format!("client {}", holder.client),
        false => parts.join(", "),
    }
}

/// Writes rows below their titles, each column as wide as its widest cell.
pub(super) fn columns<const N: usize>(
    text: &mut String,
    titles: &[Column; N],
    rows: &[[String; N]],
) {
    let width = |index: usize| {
        let cells = rows
            .iter()
            .map(|row| printable(&row[index]).chars().count());
        cells.max().unwrap_or(0).max(titles[index].0.len())
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let head: [String; N] = std::array::from_fn(|index| titles[index].0.to_owned());
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for ((cell, (_, number)), width) in row.iter().zip(titles).zip(widths) {
            let cell = printable(cell);
            let written = if *number {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
            written.expect("a String takes any text");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Names come from outside: they must not move the cursor.
fn printable(cell: &str) -> String {
    cell.chars()
        .map(|character| {
            if character.is_control() {
                '?'
            } else {
                character
            }
        })
        .collect()
}

/// Returns a time in the two largest units that say something.
fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match (milliseconds, seconds) {
        (0..1000, _) => format!("{milliseconds}ms"),
        (_, 0..60) => format!("{seconds}.{}s", milliseconds % 1000 / 100),
        (_, 60..3600) => format!("{}m{:02}s", seconds / 60, seconds % 60),
        (_, 3600..86_400) => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_and_processes_stand_in_columns() {
        let proc = ProcStatus {
            os_pid: Some(4711),
            state: "idle".into(),
            db: Some("orders\x1b[2J".into()),
            ddocs: 2,
            uses: 30,
            age_ms: 61_000,
            idle_ms: 1500,
            holder: Some(Holder {
                client: 17,
                pid: Some(4712),
                uid: Some(1000),
                user: Some("ann".into()),
                peer: None,
            }),
            memory: Some(70 << 20),
        };
        let pool = PoolStatus {
            name: "javascript".into(),
            language: "javascript".into(),
            command: "settee couchjs".into(),
            hard_limit: 100,
            soft_limit: 50,
            free: 1,
            waiting: 3,
            longest_wait_ms: 250,
            group: Some("js".into()),
            throttled_ms: Some(42_000),
            abilities: [
                ("add_lib", Some(false)),
                ("ddoc", Some(true)),
                ("reduce", None),
            ]
            .map(|(name, able)| (name.to_owned(), able))
            .into(),
            procs: vec![proc],
            ..PoolStatus::default()
        };
        let service = ServiceStatus {
            name: "views".into(),
            listen: "unix:/run/views.sock".into(),
            pool: "javascript".into(),
            closed: Some("throttled".into()),
            throttled_ms: Some(42_000),
            failure: Some("x y\nexited with status 1".into()),
            stressed_ms: Some(61_000),
            connections: 2,
            accepted: 30,
            limit_reached: 1,
            limit: Some(100),
            ..ServiceStatus::default()
        };
        let status = DaemonStatus {
            pools: vec![pool],
            services: vec![service],
            proc_count: 1,
            stale_proc_count: 0,
        };
        assert_eq!(
            table(&status),
            "1 process, 0 of them stale; 1 pool\n\
             \n\
             POOL        LANGUAGE    GROUP  HARD  SOFT  USED  FREE  OPENING  STOPPING  WAITING  LONGEST  STATE            LACKS    COMMAND\n\
             javascript  javascript  js      100    50     0     1        0         0        3    250ms  throttled 42.0s  add_lib  settee couchjs\n\
             \n\
             SERVICE  LISTEN                POOL        CONNECTED  LIMIT  ACCEPTED  FULL  STATE                                  FAILURE\n\
             views    unix:/run/views.sock  javascript          2    100        30     1  closed, throttled 42.0s, stress 1m01s  x y?exited with status 1\n\
             \n\
             POOL         PID  STATE  DDOCS  USES    AGE  IDLE  MEMORY  HOLDER         DATABASE\n\
             javascript  4711  idle       2    30  1m01s  1.5s   70MiB  ann, pid 4712  orders?[2J\n"
        );
    }

    #[test]
    fn times_are_told_in_their_largest_units() {
        let told = [
            0, 999, 1000, 59_999, 60_000, 3_599_999, 7_260_000, 90_000_000,
        ]
        .map(duration);
        assert_eq!(
            told,
            [
                "0ms", "999ms", "1.0s", "59.9s", "1m00s", "59m59s", "2h01m", "1d01h"
            ]
        );
    }
}
