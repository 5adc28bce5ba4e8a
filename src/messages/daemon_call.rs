//! The client socket's calls about the daemon: its pools, their processes, its configuration.

use crate::auth::rights::Right;
use crate::config::keys::CALLERS;
use crate::messages::arguments::{Arguments, Parsed, wrong};
use crate::messages::client_error::ErrorReply;
use crate::messages::function_costs::CostsQuery;
use crate::messages::pools::{AddPool, PoolOrder, ReconfigurePool, RemovePool, UnthrottlePool};
use crate::messages::tenant_costs::TenantCostsQuery;
use policy::pool::RemoveMode;

const REMOVE_MODES: [(&str, RemoveMode); 2] = [
    ("graceful", RemoveMode::Graceful),
    ("immediate", RemoveMode::Immediate),
];

/// A call about the daemon.
#[derive(Debug)]
pub enum DaemonCall {
    /// Count processes.
    GetProcCount,
    /// Count processes from before the last reload.
    GetStaleProcCount,
    /// Replace all processes.
    Reload,
    /// Read the configuration again.
    ReloadConfig,
    /// Tell what reading the configuration again would change.
    PlanConfig,
    /// Stop idle processes from before the last reload.
    TerminateStaleProcs,
    /// Tell what is wrong, here or at all daemons of the fleet.
    Health {
        /// Whether it is asked of all.
        fleet: bool,
    },
    /// Tell whether it is drained.
    DrainState,
    /// Drain it, or have it take work again.
    Drain(bool),
    /// Tell so many of the latest orders and changes.
    Audit(usize),
    /// Tell what the service is doing.
    Status(Option<String>),
    /// Tell which functions cost most lately.
    Functions(CostsQuery),
    /// Tell what databases have cost.
    Tenants(TenantCostsQuery),
    /// Tell what functions of a database log.
    TenantLog {
        /// The database.
        db: String,
        /// The number of the last line that is known.
        since: u64,
    },
    /// Tell what processes do now.
    Procs(Option<String>),
    /// End a process: its name, and whether to kill it at once.
    KillProc {
        /// `POOL/NUMBER`.
        name: String,
        /// Whether it is killed at once.
        now: bool,
    },
    /// Add a pool.
    AddPool(AddPool),
    /// Remove a pool.
    RemovePool(RemovePool),
    /// Change settings of a pool.
    ReconfigurePool(ReconfigurePool),
    /// Start processes of a pool again, before the time of its throttle is up.
    UnthrottlePool(UnthrottlePool),
    /// Make a URL that lets a browser in.
    Dashboard,
}

impl DaemonCall {
    /// Returns the right that its arguments take, if it is another than the operation's.
    pub(super) fn takes(&self) -> Option<Right> {
        match self {
            Self::AddPool(AddPool(order)) | Self::ReconfigurePool(ReconfigurePool(order)) => {
                right_to_set(order.settings.keys())
            }
            Self::GetProcCount
            | Self::GetStaleProcCount
            | Self::Reload
            | Self::ReloadConfig
            | Self::PlanConfig
            | Self::TerminateStaleProcs
            | Self::Health { .. }
            | Self::DrainState
            | Self::Drain(_)
            | Self::Audit(_)
            | Self::Status(_)
            | Self::Functions(_)
            | Self::Tenants(_)
            | Self::TenantLog { .. }
            | Self::Procs(_)
            | Self::KillProc { .. }
            | Self::RemovePool(_)
            | Self::UnthrottlePool(_)
            | Self::Dashboard => None,
        }
    }

    /// Returns what it is for if it changes something: a pool, a process, or the whole service.
    pub(super) fn changes(&self) -> Option<&str> {
        match self {
            Self::AddPool(AddPool(order)) | Self::ReconfigurePool(ReconfigurePool(order)) => {
                (!order.dry_run).then_some(&order.name)
            }
            Self::RemovePool(order) => (!order.dry_run).then_some(&order.name),
            Self::UnthrottlePool(order) => Some(&order.name),
            Self::KillProc { name, .. } => Some(name),
            _ => Some(""),
        }
    }

    pub(super) fn audit(arguments: &Arguments<'_>) -> Parsed<Self> {
        let limit = arguments.read("limit", "a number that is not negative")?;
        Ok(Self::Audit(limit.unwrap_or(usize::MAX)))
    }

    pub(super) fn health(arguments: &Arguments<'_>) -> Parsed<Self> {
        let fleet = arguments.flag("fleet")?;
        Ok(Self::Health { fleet })
    }

    pub(super) fn functions(arguments: &Arguments<'_>) -> Parsed<Self> {
        let (period, sort) = (arguments.text("period")?, arguments.text("sort")?);
        let limit = arguments.read("limit", "a number that is not negative")?;
        let query = CostsQuery::of(period.as_deref(), sort.as_deref(), limit);
        query.map(Self::Functions).map_err(ErrorReply::bad_request)
    }

    pub(super) fn tenants(arguments: &Arguments<'_>) -> Parsed<Self> {
        let (sort, db) = (arguments.text("sort")?, arguments.text("db")?);
        let limit = arguments.read("limit", "a number that is not negative")?;
        let query = TenantCostsQuery::of(sort.as_deref(), limit, db);
        query.map(Self::Tenants).map_err(ErrorReply::bad_request)
    }

    pub(super) fn tenant_log(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self::TenantLog {
            db: arguments.string("db")?,
            since: arguments
                .read("since", "a number that is not negative")?
                .unwrap_or(0),
        })
    }

    pub(super) fn kill_proc(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self::KillProc {
            name: arguments.string("name")?,
            now: arguments.flag("now")?,
        })
    }

    pub(super) fn remove_pool(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self::RemovePool(RemovePool {
            name: pool_name(arguments)?,
            mode: arguments
                .either("mode", REMOVE_MODES)?
                .unwrap_or(RemoveMode::Graceful),
            dry_run: arguments.flag("dry_run")?,
        }))
    }

    pub(super) fn unthrottle_pool(arguments: &Arguments<'_>) -> Parsed<Self> {
        let name = pool_name(arguments)?;
        Ok(Self::UnthrottlePool(UnthrottlePool { name }))
    }
}

/// Returns the right that settings of a pool take, if it is another than the operation's: an operator may not say who
/// runs commands.
pub(crate) fn right_to_set<'a>(mut keys: impl Iterator<Item = &'a String>) -> Option<Right> {
    keys.any(|key| key == CALLERS).then_some(Right::Administer)
}

/// A pool and settings of it: the members that are not the call's own are keys of a section `[pools.NAME]`.
pub(super) fn pool_order(arguments: &Arguments<'_>) -> Parsed<PoolOrder> {
    let own = |name: &str| ["id", "call", "name", "pool", "dry_run"].contains(&name);
    let settings = arguments.iter().filter(|(name, _)| !own(name));
    let settings = settings.map(|(name, value)| match serde_json::from_str(value.get()) {
        Ok(value) => Ok((name.to_owned(), value)),
        Err(error) => Err(ErrorReply::bad_request(format!("'{name}': {error}"))),
    });
    let settings = settings.collect::<Parsed<_>>()?;
    if arguments.get("name").is_some() && arguments.get("pool").is_some() {
        return Err(wrong("pool", "left out when there is a 'name'"));
    }
    Ok(PoolOrder {
        name: pool_name(arguments)?,
        settings,
        dry_run: arguments.flag("dry_run")?,
    })
}

/// The pool that a call is about, which may also be named by `pool`.
fn pool_name(arguments: &Arguments<'_>) -> Parsed<String> {
    let pool = arguments
        .get("pool")
        .filter(|_| arguments.get("name").is_none());
    arguments.string(if pool.is_some() { "pool" } else { "name" })
}
