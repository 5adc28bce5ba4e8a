//! The problems of a daemon, worded for its operator.
//!
//! SUMMARY   [`Kind`] is the table of problems. [`of_status`] checks pools and services, [`of_jobs`] replications,
//!           [`of_store`] their store, [`of_growth`] its size, [`of_runs`] running jobs, [`of_daemons`] and
//!           [`of_differences`] the fleet, [`of_drain`] an operator's drain, [`of_files`] the configuration files,
//!           [`of_increases`] recent counts, [`of_losses`] losses.
//! PROMISES  Each problem has a remedy: a command, a key, or a page with more.

mod losses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use settee_client::{JobGroup, Problem};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::config::reload::{Change, Effect};
use crate::health::report::Report;
use crate::messages::config_listener::ReloadError;
use crate::messages::replication_scheduler::{RunTroubles, STALLED_AFTER, Stalled};
use crate::query_server::NATIVE;
use crate::query_server::status::{DaemonStatus, PoolStatus, ServiceStatus};
use policy::exchange::Exchanges;
use policy::growth::GROWN_WITHIN;
use policy::increases::{Increases, WITHIN};
use policy::time::Timestamp;
use replication::endpoint::SlowServer;

pub(crate) use losses::of_losses;

/// A call that waits this long is a problem, in milliseconds.
const LONG_WAIT_MS: u64 = 5_000;

/// A response of the store that takes this long is a problem.
const SLOW_ANSWER: Duration = Duration::from_secs(1);

/// This many processes of a pool that end by themselves within [`WITHIN`] are a problem.
const DEATHS_MAX: u64 = 5;

/// This many calls that get no process of a pool in time, within [`WITHIN`], are a problem, even if none waited for
/// [`LONG_WAIT_MS`].
const UNSERVED_MAX: u64 = 5;

/// This many restarts of an actor within [`WITHIN`] are a problem.
const RESTARTS_MAX: u64 = 3;

/// A reason is a critical problem if at least one replication in this many fails for it.
const CRITICAL_PART: u64 = 10;

/// Maximum daemons named in a problem.
const NAMES_MAX: usize = 5;

/// The states of jobs and documents that have failed.
const FAILED: [&str; 3] = ["crashing", "error", "failed"];

/// Severity of something that does not work.
pub(crate) const CRITICAL: &str = "critical";

/// Severity of something unusual, worth checking.
pub(crate) const WARNING: &str = "warning";

/// The kind of a problem.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    /// Processes of a pool cannot be started.
    PoolFailing,
    /// No pool has a process or can start one.
    NoPoolWorks,
    /// Processes of a pool keep ending by themselves.
    PoolDying,
    /// Calls have waited long for a process of a pool.
    PoolCrowded,
    /// Most calls of a pool replace a process of another database.
    PoolExchanging,
    /// The cell of a pool cannot be created.
    CellBroken,
    /// The cell of a pool lacks layers.
    CellIncomplete,
    /// A service accepts no connections.
    ServiceClosed,
    /// Replications fail for one reason.
    ReplicationsFailing,
    /// Running replications are stalled.
    ReplicationsStalled,
    /// A server of replications takes long to answer.
    ServerSlow,
    /// Targets refuse documents.
    DocumentsRefused,
    /// The store of replications cannot be used.
    StoreAway,
    /// The store of replications refuses writes.
    StoreRefusing,
    /// The store of replications takes long to answer.
    StoreSlow,
    /// The store of replications grows.
    StoreGrowing,
    /// Replications are still being loaded from the store.
    StillLoading,
    /// A daemon of the fleet is gone.
    DaemonGone,
    /// A part of the daemon fails repeatedly.
    ActorFailing,
    /// Log records are lost.
    RecordsDropped,
    /// The costs of databases cannot be saved.
    CostsUnsaved,
    /// The daemon is drained.
    Drained,
    /// The configuration files differ from the settings in force.
    SettingsDiffer,
    /// Daemons of a fleet differ in version, or in settings that should be the same.
    DaemonsDiffer,
}

impl Kind {
    /// Returns the default severity of this kind, and how many seconds the condition must last before it is a
    /// problem.
    const fn row(self) -> (&'static str, u64) {
        match self {
            Self::NoPoolWorks | Self::CellBroken | Self::StoreAway | Self::StoreRefusing => {
                (CRITICAL, 0)
            }
            Self::ServiceClosed | Self::PoolCrowded => (WARNING, 5),
            // A single late answer is not a problem.
            Self::StoreSlow => (WARNING, 10),
            // Slow answers may be due to a burst of work.
            Self::ServerSlow => (WARNING, 30),
            // New databases start processes for a while, and a restarted daemon is back within this time.
            Self::PoolExchanging | Self::DaemonGone | Self::StillLoading => (WARNING, 60),
            // Files may be in the middle of an edit, or the fleet in a rolling upgrade.
            Self::SettingsDiffer | Self::DaemonsDiffer => (WARNING, 10 * 60),
            _ => (WARNING, 0),
        }
    }

    /// Returns whether this kind is a loss, which remains a problem until it is acknowledged.
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::DocumentsRefused | Self::RecordsDropped)
    }

    /// Returns how long a condition of this kind must last before it is a problem.
    pub const fn delay(self) -> Duration {
        Duration::from_secs(self.row().1)
    }

    /// Returns a problem of this kind that concerns `count` objects.
    pub fn found(
        self,
        subject: &str,
        count: u64,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        Problem {
            kind: <&str>::from(self).to_owned(),
            severity: self.row().0.to_owned(),
            subject: subject.to_owned(),
            count,
            cause: cause.into(),
            remedy: remedy.into(),
            ..Problem::default()
        }
    }
}

/// Makes a problem critical on a condition.
fn critical_if(is_critical: bool, mut problem: Problem) -> Problem {
    if is_critical {
        CRITICAL.clone_into(&mut problem.severity);
    }
    problem
}

/// Checks pools and services.
pub(crate) fn of_status(status: &DaemonStatus) -> Vec<Problem> {
    let pools = status.pools.iter().flat_map(of_pool);
    let services = status.services.iter().filter_map(of_service);
    of_all_pools(&status.pools)
        .into_iter()
        .chain(pools)
        .chain(services)
        .collect()
}

/// Reports that no pool works. Ignores pools of native languages, which start no process.
fn of_all_pools(pools: &[PoolStatus]) -> Option<Problem> {
    let pools: Vec<&PoolStatus> = pools.iter().filter(|pool| pool.command != NATIVE).collect();
    let is_dead = |pool: &&PoolStatus| {
        let cell = pool.sandbox.as_ref();
        let cannot_start = pool.failure.is_some() || cell.is_some_and(|cell| cell.error.is_some());
        cannot_start && pool.used + pool.free == 0
    };
    let cause = "no pool has a process or can start one";
    let remedy = "fix each pool as its own problem says; GET /_up answers 503 until one works";
    (!pools.is_empty() && pools.iter().all(is_dead))
        .then(|| Kind::NoPoolWorks.found("pools", pools.len() as u64, cause, remedy))
}

fn of_pool(pool: &PoolStatus) -> Vec<Problem> {
    let name = &pool.name;
    let mut found = Vec::new();
    if let Some(failure) = &pool.failure {
        let cause = format!("its processes cannot be started: {failure}");
        let remedy = format!("fix its command, then: `settee pool unthrottle {name}`");
        found.push(critical_if(
            pool.used + pool.free == 0,
            Kind::PoolFailing.found(name, pool.waiting.into(), cause, remedy),
        ));
    } else if pool.waiting > 0 && pool.longest_wait_ms >= LONG_WAIT_MS {
        let cause = format!(
            "{} waiting for its {} processes (longest {} s)",
            pool.waiting,
            pool.hard_limit,
            pool.longest_wait_ms / 1000
        );
        found.push(Kind::PoolCrowded.found(
            name,
            pool.waiting.into(),
            cause,
            crowded(name, pool.hard_limit),
        ));
    }
    let Some(sandbox) = &pool.sandbox else {
        return found;
    };
    let remedy = "`settee check-config --sandbox` says why; see docs/cells.md";
    if let Some(error) = &sandbox.error {
        let cause = format!("the cell of its processes cannot be created: {error}");
        found.push(Kind::CellBroken.found(name, 1, cause, remedy));
    } else if !sandbox.missing.is_empty() {
        let layers: Vec<&str> = sandbox.missing.keys().map(String::as_str).collect();
        let cause = format!("the cell of its processes lacks {}", layers.join(", "));
        found.push(Kind::CellIncomplete.found(name, layers.len() as u64, cause, remedy));
    }
    found
}

/// The remedy for a pool with too few processes.
fn crowded(pool: &str, max: u32) -> String {
    format!(
        "find slow functions with `settee top`, holders with `settee ps`; or add processes: {}",
        more(pool, max)
    )
}

/// The command that doubles a pool's processes.
fn more(pool: &str, max: u32) -> String {
    format!(
        "`settee pool set {pool} max={}` until a restart, max of [pools.{pool}] permanently",
        max.saturating_mul(2)
    )
}

/// Quotes a name for a shell.
fn quoted(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:@+,".contains(char);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

fn of_service(service: &ServiceStatus) -> Option<Problem> {
    let ServiceStatus { name, pool, .. } = service;
    let closed = service.closed.as_deref()?;
    let (cause, remedy) = match closed {
        "at_limit" => (
            format!("all processes of its pool {pool} are lent"),
            format!(
                "shorten session_timeout of [services.{name}], or add processes: {}",
                more(pool, service.limit.unwrap_or(1))
            ),
        ),
        "throttled" => (
            format!("processes of its pool {pool} cannot be started"),
            format!("fix the command of the pool, then: `settee pool unthrottle {pool}`"),
        ),
        "no_pool" => (
            format!("there is no pool named '{pool}'"),
            format!(
                "add the pool: `settee pool add {pool} --language LANGUAGE` until a restart, [pools.{pool}] permanently; or name another one in [services.{name}]"
            ),
        ),
        "accept_failed" => (
            "the system has no descriptor or memory for another connection".to_owned(),
            "raise LimitNOFILE= of the unit, or find what holds them".to_owned(),
        ),
        _ => return None,
    };
    Some(critical_if(
        closed != "at_limit",
        Kind::ServiceClosed.found(name, service.connections, cause, remedy),
    ))
}

/// Checks replications by the reasons why they do not run; `total` is their number.
pub(crate) fn of_jobs(total: u64, groups: &[JobGroup]) -> Vec<Problem> {
    let failing = |group: &JobGroup| -> u64 {
        group
            .states
            .iter()
            .filter(|(state, _)| FAILED.contains(&state.as_str()))
            .map(|(_, count)| *count as u64)
            .sum()
    };
    groups
        .iter()
        .map(|group| (group, failing(group)))
        .filter(|(_, count)| *count > 0)
        .map(|(group, count)| {
            let reason = group.reason.as_deref().unwrap_or("no reason is known");
            let example = &group.example;
            let cause = format!("{count} of {total} replications fail with '{reason}'; example: {example}");
            let (one, all) = (quoted(example), quoted(reason));
            let remedy = format!(
                "`settee jobs show {one}` shows details; fix the cause, then: `settee jobs restart --reason {all}`"
            );
            critical_if(count.saturating_mul(CRITICAL_PART) >= total, Kind::ReplicationsFailing.found(reason, count, cause, remedy))
        })
        .collect()
}

/// Checks the store: whether it fails, its response time, and whether replications are still being loaded.
pub(crate) fn of_store(error: Option<&str>, took: Duration, is_loading: bool) -> Vec<Problem> {
    let of = |kind: Kind, cause: String, remedy: &str| kind.found("store", 1, cause, remedy);
    let away = error.map(|error| {
        let cause = format!("replications cannot be read from the store: {error}");
        of(
            Kind::StoreAway,
            cause,
            "check [store] path or url; see docs/operations.md",
        )
    });
    let is_slow = error.is_none() && took >= SLOW_ANSWER;
    let slow = is_slow.then(|| {
        of(
            Kind::StoreSlow,
            format!("it took {:.1} s to answer", took.as_secs_f64()),
            SLOW_STORE,
        )
    });
    let loading = is_loading.then(|| {
        let cause = "replications are still being loaded from the store".to_owned();
        let remedy = "wait; if it takes minutes, check the store's disk or database";
        of(Kind::StillLoading, cause, remedy)
    });
    away.into_iter().chain(slow).chain(loading).collect()
}

/// Reports that the documents in the store grew to `bytes` bytes, from `smallest`, the recent minimum.
pub(crate) fn of_growth(bytes: u64, smallest: u64) -> Problem {
    let cause = format!(
        "its documents grew from {} to {} MiB within the last {} minutes",
        smallest >> 20,
        bytes >> 20,
        GROWN_WITHIN.as_secs() / 60
    );
    let remedy = "GET /_replicator counts them, deleted ones too: find their writer in the audit; deleted ones are kept for [store] deleted_kept_for";
    Kind::StoreGrowing.found("store", 1, cause, remedy)
}

/// Checks the daemons of a fleet, as listed by `/_fleet`.
pub(crate) fn of_daemons(fleet: &Value) -> Vec<Problem> {
    let rows: Vec<&Value> = fleet["daemons"].as_array().into_iter().flatten().collect();
    let address = |row: &Value| row["address"].as_str().unwrap_or_default().to_owned();
    let lives = |row: &Value| row["lease_left_s"].as_u64().unwrap_or(0) > 0;
    // A restarted daemon has another row.
    let is_back = |row: &Value| {
        rows.iter()
            .any(|other| address(other) == address(row) && lives(other))
    };
    let gone = rows
        .iter()
        .filter(|row| !lives(row) && row["leaving"] != true && !is_back(row))
        .map(|row| {
            let count = row["documents"].as_u64().unwrap_or(0);
            let cause = "its lease expired: it is dead, hangs, or cannot reach the database";
            let remedy = "check its machine; others take over (docs/fleet.md)";
            Kind::DaemonGone.found(&address(row), count, cause, remedy)
        });
    let living: Vec<_> = rows.iter().filter(|row| lives(row)).collect();
    let nobody = !living.is_empty() && living.iter().all(|row| row["leaving"] == true);
    let nobody = nobody.then(|| {
        let cause = "every daemon of the fleet is drained or stopping, so no replication runs";
        let remedy = "`settee drain --off` at one of them, or start another";
        critical_if(
            true,
            Kind::Drained.found("fleet", living.len() as u64, cause, remedy),
        )
    });
    gone.chain(nobody).collect()
}

/// Compares this daemon of a fleet with the others. Settings are compared only with daemons of the same version:
/// another version may have other keys.
pub(crate) fn of_differences(own: &Report, others: &[Report]) -> Vec<Problem> {
    let version = &own.health.version;
    let of_version = |report: &&Report| report.health.version == *version;
    let other: Vec<&Report> = others.iter().filter(|one| !of_version(one)).collect();
    let of = |subject: &str, differing: &[&Report], cause: String, remedy: &str| {
        let count = differing.len() as u64;
        (count > 0).then(|| Kind::DaemonsDiffer.found(subject, count, cause, remedy))
    };
    let named = |report: &Report| format!("{} has {}", report.health.daemon, report.health.version);
    let cause = format!(
        "this daemon has version {version}, {}",
        names(&other, named)
    );
    let remedy = "finish the upgrade, or go back: docs/operations.md, Upgrade";
    let mut found: Vec<Problem> = of("versions", &other, cause, remedy).into_iter().collect();
    let told: Vec<&Report> = others
        .iter()
        .filter(of_version)
        .filter(|report| !report.settings.is_empty())
        .collect();
    let sections: BTreeSet<&String> = told
        .iter()
        .flat_map(|report| report.settings.keys())
        .chain(own.settings.keys())
        .collect();
    for section in sections {
        let differs = |report: &&&Report| report.settings.get(section) != own.settings.get(section);
        let differing: Vec<&Report> = told.iter().filter(differs).copied().collect();
        let whose = names(&differing, |report| report.health.daemon.clone());
        let cause =
            format!("the settings of [{section}] at {whose} differ from those of this daemon");
        let remedy =
            "GET /_node/_local/_config of each shows them; then correct the files and reload";
        found.extend(of(&format!("[{section}]"), &differing, cause, remedy));
    }
    found
}

/// Returns a phrase about each of the first daemons, and the number of others.
fn names(reports: &[&Report], said: impl Fn(&Report) -> String) -> String {
    let shown: Vec<String> = reports
        .iter()
        .take(NAMES_MAX)
        .map(|one| said(one))
        .collect();
    match reports.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Reports that the costs of databases could not be saved.
pub(crate) fn of_costs(error: &str) -> Problem {
    let cause = format!("the costs of databases are not saved, and a restart loses them: {error}");
    let remedy = "make room for [log] costs, or check its permissions; Settee retries every minute";
    Kind::CostsUnsaved.found("costs", 1, cause, remedy)
}

/// Reports that the daemon is drained, as a reminder.
pub(crate) fn of_drain() -> Problem {
    let cause = "an operator has drained it: it takes no calls and runs no replications";
    Kind::Drained.found("daemon", 1, cause, "`settee drain --off` resumes it")
}

/// Checks running replications: stalled ones, and servers that delay them.
pub(crate) fn of_runs(troubles: &RunTroubles) -> Vec<Problem> {
    let slow = troubles
        .slow
        .iter()
        .map(|(SlowServer { server, average }, jobs)| {
            let seconds = average.as_secs_f64();
            let cause = format!(
                "its answers took {seconds:.1} s on average lately; {jobs} replications use it"
            );
            let remedy = "check the load of that server, and the network";
            Kind::ServerSlow.found(server, *jobs, cause, remedy)
        });
    of_stalled(&troubles.stalled)
        .into_iter()
        .chain(slow)
        .collect()
}

fn of_stalled(stalled: &Stalled) -> Option<Problem> {
    let Stalled { count, example } = stalled;
    let minutes = STALLED_AFTER.as_secs() / 60;
    let cause = format!(
        "{count} running ones have more to replicate and have made no progress for {minutes} minutes; example: {example}"
    );
    let job = quoted(example);
    let remedy = format!(
        "`settee jobs show {job}` shows its progress; `settee jobs restart {job}` starts a new run"
    );
    (*count > 0).then(|| Kind::ReplicationsStalled.found("replications", *count, cause, remedy))
}

/// Checks what a reload would change, or why it would fail. Run-time settings are supposed to differ. A mistake in
/// the files is not quoted, since some users who see problems may not read the files.
pub(crate) fn of_files(planned: &Result<Vec<Change>, ReloadError>) -> Option<Problem> {
    let of = |count, cause: String, remedy: &str| {
        Kind::SettingsDiffer.found("configuration", count, cause, remedy)
    };
    let Ok(changes) = planned else {
        let cause = "its files have mistakes: neither a reload nor a restart can use them";
        return Some(of(
            1,
            cause.to_owned(),
            "`settee check-config` says what and where",
        ));
    };
    let differ = |change: &&Change| change.effect != Effect::Overridden;
    let differing: Vec<&Change> = changes.iter().filter(differ).collect();
    let first = differing.first()?;
    let cause = format!(
        "its files differ from the settings in force: [{}] {} and {} more",
        first.section,
        first.key,
        differing.len() - 1
    );
    let remedy =
        "`settee check-config --against-running` shows all; then reload or restart the service";
    Some(of(differing.len() as u64, cause, remedy))
}

/// Counts of the whole daemon since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Writes refused by the store.
    pub unwritten: u64,
    /// Cause and remedy of the last refusal; `None` once the store accepted a write.
    pub unwritten_last: Option<(String, &'static str)>,
    /// Restarts of each actor.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Requests of each kind to the store's database, including failed ones, and their total time in milliseconds.
    pub requests: BTreeMap<&'static str, (u64, u64)>,
}

/// The remedy for a slow store.
const SLOW_STORE: &str = "check the store's disk or database, and the load of this machine";

/// Checks recent increases, of each pool and of the daemon.
pub(crate) fn of_increases(
    increases: &mut Increases,
    now: Timestamp,
    status: &DaemonStatus,
    counted: Counted,
) -> Vec<Problem> {
    let mut found = Vec::new();
    // The successor of a pool being removed may have its name.
    let staying = status.pools.iter().filter(|pool| pool.removing.is_none());
    for pool in staying {
        found.extend(of_pool_lately(pool, |counter, count| {
            increases.note(now, counter, &pool.name, count)
        }));
    }
    let seconds = WITHIN.as_secs();
    for (actor, count) in &counted.restarts {
        let restarts = increases.note(now, "restarts", actor, *count);
        if restarts >= RESTARTS_MAX {
            let cause = format!("it failed and was restarted {restarts} times within {seconds} s");
            let remedy =
                "the log says why at 'child ended'; report it, unless the machine lacks a resource";
            found.push(Kind::ActorFailing.found(actor, restarts, cause, remedy));
        }
    }
    for (kind, (count, milliseconds)) in &counted.requests {
        let count = increases.note(now, "requests", kind, *count);
        let average = increases
            .note(now, "milliseconds", kind, *milliseconds)
            .checked_div(count)
            .map(Duration::from_millis);
        if let Some(average) = average.filter(|average| *average >= SLOW_ANSWER) {
            let average = average.as_secs_f64();
            let cause =
                format!("its {kind} requests took {average:.1} s on average within {seconds} s");
            found.push(Kind::StoreSlow.found("store", 1, cause, SLOW_STORE));
        }
    }
    let unwritten = increases.note(now, "unwritten", "", counted.unwritten);
    if let Some((why, remedy)) = counted.unwritten_last.filter(|_| unwritten > 0) {
        let cause = format!("{unwritten} writes were refused within {seconds} s: {why}");
        found.push(Kind::StoreRefusing.found("store", unwritten, cause, remedy));
    }
    increases.forget(now);
    found
}

/// Checks a pool's recent increases. `note` records a counter and returns its recent increase.
fn of_pool_lately(
    pool: &PoolStatus,
    mut note: impl FnMut(&'static str, u64) -> u64,
) -> Vec<Problem> {
    let seconds = WITHIN.as_secs();
    let PoolStatus { name, totals, .. } = pool;
    let died = note("died", totals.died);
    let exchanges = Exchanges {
        requests: note("taken", totals.taken),
        starts: note("started", totals.started),
        replaced: note("replaced", totals.replaced),
    };
    let unserved = note("timed_out", totals.timed_out);
    let mut found = Vec::new();
    if unserved >= UNSERVED_MAX && pool.failure.is_none() {
        let limit = pool.hard_limit;
        let cause = format!(
            "{unserved} calls within {seconds} s got none of its {limit} processes in time"
        );
        found.push(Kind::PoolCrowded.found(name, unserved, cause, crowded(name, limit)));
    }
    if died >= DEATHS_MAX {
        let cause = format!("{died} of its processes ended by themselves within {seconds} s");
        let remedy = format!(
            "the log says how each ended; `settee conform -- {}` tries the command",
            pool.command
        );
        found.push(Kind::PoolDying.found(name, died, cause, remedy));
    }
    if exchanges.are_too_many() {
        let Exchanges {
            requests, replaced, ..
        } = exchanges;
        let cause = format!(
            "{replaced} of {requests} loans within {seconds} s replaced a process of another database"
        );
        let more = more(name, pool.hard_limit);
        let remedy = format!("add processes: {more}; or see docs/tuning.md, Databases and reuse");
        found.push(Kind::PoolExchanging.found(name, replaced, cause, remedy));
    }
    found
}

#[cfg(test)]
mod tests;
