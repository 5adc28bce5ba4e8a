//! The state of the service as tables.

use serde_json::Value;

use super::table::{Cell, Layout, columns, count, duration, number, or_dash, state, text};
use crate::query_server::status::{
    DaemonStatus, Holder, PoolStatus, ProcStatus, SandboxStatus, ServiceStatus,
};

/// Maximum characters shown of a failed start's error.
const FAILURE_CHARS: usize = 120;

/// Other daemons' data that is this old, in seconds, shows that the database has not answered several times.
pub(super) const OLD_S: u64 = 10;

/// Returns the state as text: totals, pools, services and processes.
pub(super) fn table(status: &DaemonStatus, layout: Layout) -> String {
    let totals = format!(
        "{}, {} of them stale; {}\n",
        count(status.proc_count, "process"),
        status.stale_proc_count,
        count(status.pools.len(), "pool"),
    );
    let procs = status
        .pools
        .iter()
        .flat_map(|pool| pool.procs.iter().map(|proc| (pool.name.as_str(), proc)));
    let shown = [
        pools(&status.pools, layout),
        columns(status.services.iter().map(service_row), layout),
        processes(procs, layout),
    ]
    .into_iter()
    .filter(|table| !table.is_empty());
    totals + &shown.map(|table| format!("\n{table}")).collect::<String>()
}

/// Returns the daemons of a fleet as text, after an empty line; nothing without a fleet. `fleet` is the
/// answer of `/_fleet`.
pub(super) fn daemons(fleet: &Value, layout: Layout) -> String {
    let rows = fleet["daemons"].as_array().into_iter().flatten();
    let rows = rows.map(|daemon| {
        let word = |name: &str| daemon[name].as_str().unwrap_or_default().to_owned();
        let left = daemon["lease_left_s"].as_u64().unwrap_or(0);
        let doing = match (left, daemon["leaving"] == true) {
            (0, _) => "lease expired",
            (_, true) => "leaving",
            (_, false) => "alive",
        };
        let own = if daemon["self"] == true { "*" } else { "" };
        vec![
            text("DAEMON", word("address") + own),
            state("STATE", doing),
            number("LEASE", duration(left * 1000)),
            number("DOCUMENTS", or_dash(daemon["documents"].as_u64())),
            text("VERSION", word("version")).rank(1),
            text("EPOCH", word("epoch")).rank(2),
        ]
    });
    let table = columns(rows, layout);
    let age = fleet["age_s"].as_u64().filter(|age| *age >= OLD_S);
    match (table.is_empty(), age) {
        (true, _) => String::new(),
        (false, None) => format!("\n{table}"),
        (false, Some(age)) => {
            let age = duration(age * 1000);
            format!("\n{table}read {age} ago: the database does not answer\n")
        }
    }
}

/// Returns the pools as text, a line each below the titles.
pub(super) fn pools(pools: &[PoolStatus], layout: Layout) -> String {
    columns(pools.iter().map(pool_row), layout)
}

/// Returns processes of these pools as text, a line each below the titles; nothing without any.
pub(super) fn processes<'a>(
    procs: impl Iterator<Item = (&'a str, &'a ProcStatus)>,
    layout: Layout,
) -> String {
    columns(procs.map(|(pool, proc)| proc_row(pool, proc)), layout)
}

fn pool_row(pool: &PoolStatus) -> Vec<Cell> {
    // The abilities that its query servers are known to lack.
    let abilities = pool.abilities.iter();
    let lacks = abilities.filter(|(_, able)| **able == Some(false));
    let lacks = joined(lacks.map(|(name, _)| name.clone()), ",");
    vec![
        text("POOL", &pool.name).whole(),
        text("LANGUAGE", &pool.language).rank(3),
        text("GROUP", or_dash(pool.group.as_ref())).rank(5),
        number("HARD", pool.hard_limit).rank(1),
        number("SOFT", pool.soft_limit).rank(6),
        number("USED", pool.used),
        number("FREE", pool.free),
        number("OPENING", pool.opening).rank(7),
        number("STOPPING", pool.stopping).rank(7),
        number("WAITING", pool.waiting),
        number(
            "LONGEST",
            or_dash((pool.waiting > 0).then(|| duration(pool.longest_wait_ms))),
        )
        .rank(2),
        state("STATE", or_dash(joined(pool_states(pool), ", "))),
        text("LACKS", or_dash(lacks)).rank(8),
        text("CELL", or_dash(pool.sandbox.as_ref().map(cell))).rank(4),
        text("COMMAND", &pool.command).rank(9),
    ]
}

/// Returns a pool's unusual states; the temporary ones with the time until they end.
fn pool_states(pool: &PoolStatus) -> impl Iterator<Item = String> {
    let removing = pool.removing.as_ref();
    let removing = removing.map(|mode| format!("removing ({mode})"));
    let is_failing = pool.failure.is_some() && pool.throttled_ms.is_none();
    removing
        .into_iter()
        .chain(is_failing.then(|| "failing".to_owned()))
        .chain(trouble(pool.throttled_ms, pool.stressed_ms))
}

/// Returns how long nothing will be started, and how long processes will be started with stress on.
fn trouble(throttled_ms: Option<u64>, stressed_ms: Option<u64>) -> impl Iterator<Item = String> {
    let throttled = throttled_ms.map(|ms| format!("throttled {}", duration(ms)));
    throttled
        .into_iter()
        .chain(stressed_ms.map(|ms| format!("stress {}", duration(ms))))
}

/// The mode of a pool's cells, whether they cannot be made, and the missing layers.
fn cell(sandbox: &SandboxStatus) -> String {
    let broken = sandbox.error.as_ref().map(|_| "cannot be made".to_owned());
    let missing = sandbox.missing.keys();
    let missing = joined(missing.cloned(), ",").map(|layers| format!("without {layers}"));
    let parts = [Some(sandbox.mode.clone()), broken, missing];
    joined(parts.into_iter().flatten(), ", ").unwrap_or_default()
}

pub(super) fn joined(texts: impl Iterator<Item = String>, separator: &str) -> Option<String> {
    let joined = texts.collect::<Vec<_>>().join(separator);
    Some(joined).filter(|joined| !joined.is_empty())
}

fn service_row(service: &ServiceStatus) -> Vec<Cell> {
    let doing = match service.closed.as_deref() {
        None => "listening",
        Some("at_limit") => "at its limit",
        Some("throttled") => "closed",
        Some("no_pool") => "no such pool",
        Some("accept_failed") => "cannot accept",
        Some(other) => other,
    };
    let states =
        std::iter::once(doing.to_owned()).chain(trouble(service.throttled_ms, service.stressed_ms));
    let failure = service.failure.as_deref();
    let failure = failure.map(|failure| failure.chars().take(FAILURE_CHARS).collect::<String>());
    vec![
        text("SERVICE", &service.name).whole(),
        text("LISTEN", &service.listen),
        text("POOL", &service.pool).rank(2),
        number("CONNECTED", service.connections),
        number("LIMIT", or_dash(service.limit)).rank(3),
        number("ACCEPTED", service.accepted).rank(4),
        number("FULL", service.limit_reached).rank(5),
        state("STATE", or_dash(joined(states, ", "))),
        text("FAILURE", or_dash(failure)).rank(1),
    ]
}

fn proc_row(pool: &str, proc: &ProcStatus) -> Vec<Cell> {
    vec![
        text("POOL", pool).whole(),
        number("PID", or_dash(proc.os_pid)),
        state("STATE", &proc.state),
        number("DDOCS", proc.ddocs).rank(3),
        number("ISOLATES", proc.isolates).rank(4),
        number("USES", proc.uses).rank(2),
        number("AGE", duration(proc.age_ms)).rank(1),
        number(
            "IDLE",
            or_dash((proc.state == "idle").then(|| duration(proc.idle_ms))),
        ),
        text("HOLDER", or_dash(proc.holder.as_ref().map(holder))),
        text("DATABASE", or_dash(proc.db.as_ref())),
    ]
}

/// A process's holder: the user, and the client process or address, as far as known.
pub(super) fn holder(holder: &Holder) -> String {
    let uid = holder.uid.map(|uid| format!("uid {uid}"));
    let from = holder.pid.map(|pid| format!("pid {pid}"));
    let parts = [holder.user.clone().or(uid), from.or(holder.peer.clone())];
    joined(parts.into_iter().flatten(), ", ").unwrap_or_else(|| format!("client {}", holder.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_of_a_fleet_are_in_columns_with_the_age_of_their_data() {
        let row = |address: &str, left: u64, own: bool| {
            serde_json::json!({"address": address, "version": "1.2.3", "epoch": "00000000000000ff",
                "lease_left_s": left, "documents": 7, "leaving": false, "self": own})
        };
        let rows = [row("one:5995", 21, true), row("two:5995", 0, false)];
        let expected = "
DAEMON     STATE          LEASE  DOCUMENTS  VERSION  EPOCH
one:5995*  alive          21.0s          7  1.2.3    00000000000000ff
two:5995   lease expired    0ms          7  1.2.3    00000000000000ff
";
        let of = |age: u64| {
            daemons(
                &serde_json::json!({"daemons": rows, "age_s": age}),
                Layout::default(),
            )
        };
        assert_eq!(of(1), expected);
        assert_eq!(
            of(61),
            format!("{expected}read 1m01s ago: the database does not answer\n")
        );
        assert_eq!(
            daemons(
                &serde_json::json!({"daemons": [], "age_s": null}),
                Layout::default()
            ),
            ""
        );
        assert_eq!(daemons(&Value::Null, Layout::default()), "");
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table of cases")]
    fn pools_and_processes_are_in_columns() {
        let proc = ProcStatus {
            name: "javascript/7".into(),
            os_pid: Some(4711),
            state: "idle".into(),
            db: Some("orders\x1b[2J".into()),
            ddocs: 2,
            isolates: 3,
            uses: 30,
            age_ms: 61_000,
            idle_ms: 1500,
            memory: None,
            holder: Some(Holder {
                client: 17,
                pid: Some(4712),
                uid: Some(1000),
                user: Some("ann".into()),
                peer: None,
            }),
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
            sandbox: Some(SandboxStatus {
                mode: "standard".into(),
                missing: [("cpu".to_owned(), "no cgroup".to_owned())].into(),
                ..SandboxStatus::default()
            }),
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
            table(&status, Layout::default()),
            "1 process, 0 of them stale; 1 pool\n\
             \n\
             POOL        LANGUAGE    GROUP  HARD  SOFT  USED  FREE  OPENING  STOPPING  WAITING  LONGEST  STATE            LACKS    CELL                   COMMAND\n\
             javascript  javascript  js      100    50     0     1        0         0        3    250ms  throttled 42.0s  add_lib  standard, without cpu  settee couchjs\n\
             \n\
             SERVICE  LISTEN                POOL        CONNECTED  LIMIT  ACCEPTED  FULL  STATE                                  FAILURE\n\
             views    unix:/run/views.sock  javascript          2    100        30     1  closed, throttled 42.0s, stress 1m01s  x y?exited with status 1\n\
             \n\
             POOL         PID  STATE  DDOCS  ISOLATES  USES    AGE  IDLE  HOLDER         DATABASE\n\
             javascript  4711  idle       2         3    30  1m01s  1.5s  ann, pid 4712  orders?[2J\n"
        );
    }

    #[test]
    fn every_state_listed_on_the_page_on_operations_is_shown() {
        let closed = [
            "at_limit",
            "throttled",
            "no_pool",
            "accept_failed",
            "draining",
        ];
        let services = closed.map(|why| ServiceStatus {
            closed: Some(why.into()),
            ..ServiceStatus::default()
        });
        let sandbox = SandboxStatus {
            error: Some("no namespaces".into()),
            missing: [("cpu".to_owned(), "no cgroup".to_owned())].into(),
            ..SandboxStatus::default()
        };
        let failing = PoolStatus {
            failure: Some("exited with status 1".into()),
            removing: Some("graceful".into()),
            sandbox: Some(sandbox),
            ..PoolStatus::default()
        };
        let throttled = PoolStatus {
            throttled_ms: Some(1000),
            stressed_ms: Some(1000),
            ..PoolStatus::default()
        };
        let status = DaemonStatus {
            pools: vec![failing, throttled],
            services: services.into(),
            ..DaemonStatus::default()
        };
        let fleet = serde_json::json!({"age_s": OLD_S, "daemons": [
            {"address": "one", "lease_left_s": 9, "leaving": true}, {"address": "two", "lease_left_s": 0}]});
        let shown = table(&status, Layout::default()) + &daemons(&fleet, Layout::default());
        let page = include_str!("../../docs/operations.md");
        let (_, table) = page.split_once("| shown |").expect("the table");
        let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
        let named: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        assert_eq!(named.len(), 14);
        for state in named {
            assert!(shown.contains(state), "{state}: {shown}");
        }
    }
}
