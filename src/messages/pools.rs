//! Messages about named pools: adding, removing, changing them while the service runs.
//!
//! SUMMARY   What an operator says of a pool, whichever way it comes in, and the changes that are
//!           the answer.
//! PROMISES  None of them carries a command: a pool names a language, whose command stands in the
//!           configuration.
//! SOURCE    pidq: add_pool/1, remove_pool/2; pooler: pool_reconfigure/2.
//! LIMITS    What is added or changed so lives until the service is restarted.

use std::fmt;

use actix::{Message, Recipient};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::otp::pid::Pid;
use policy::pool::{ProcId, RemoveMode, Token};
use policy::pressure::Level;

/// Adds a pool.
#[derive(Clone, Debug)]
pub struct AddPool {
    /// Its name.
    pub name: String,
    /// Its settings: keys of a section `[pools.NAME]`.
    pub settings: Map<String, Value>,
    /// Whether only to tell what would change.
    pub dry_run: bool,
}

impl Message for AddPool {
    type Result = Result<Vec<PoolChange>, PoolError>;
}

/// Changes settings of a pool; those that are not named stay.
#[derive(Clone, Debug)]
pub(crate) struct ReconfigurePool {
    /// Its name.
    pub name: String,
    /// The settings that change; `null` takes one back to its default.
    pub settings: Map<String, Value>,
    /// Whether only to tell what would change.
    pub dry_run: bool,
}

impl Message for ReconfigurePool {
    type Result = Result<Vec<PoolChange>, PoolError>;
}

/// Removes a pool.
#[derive(Clone, Debug)]
pub struct RemovePool {
    /// Its name.
    pub name: String,
    /// How.
    pub mode: RemoveMode,
    /// Whether only to tell what would change.
    pub dry_run: bool,
}

impl Message for RemovePool {
    type Result = Result<Vec<PoolChange>, PoolError>;
}

/// Starts processes of a pool again, before the time of its throttle is up. Returns whether it was
/// throttled.
#[derive(Clone, Debug)]
pub(crate) struct UnthrottlePool {
    /// Its name.
    pub name: String,
}

impl Message for UnthrottlePool {
    type Result = Result<bool, PoolError>;
}

/// Starts processes of all pools again: the configuration was read again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnthrottleAll;

impl Message for UnthrottleAll {
    type Result = ();
}

/// Stops the idle processes of one pool that were started before the last reload.
#[derive(Clone, Debug)]
pub(crate) struct TerminateStaleOf {
    /// The pool's name.
    pub name: String,
}

impl Message for TerminateStaleOf {
    type Result = Result<(), PoolError>;
}

/// Says where a client is told that a process which it holds is taken from it. Holds until it ends.
#[derive(Clone, Debug)]
pub(crate) struct SubscribeRevocation {
    /// The client.
    pub client: Pid,
    /// Where.
    pub down: Recipient<ProcRevoked>,
}

impl Message for SubscribeRevocation {
    type Result = ();
}

/// A process that a client holds is taken from it.
#[derive(Clone, Debug)]
pub struct ProcRevoked {
    /// The process.
    pub proc: ProcId,
    /// The assignment, which is over.
    pub token: Token,
    /// Why, for programs: `pool_removed`, `memory_exceeded`.
    pub name: &'static str,
    /// Why, for people.
    pub reason: String,
}

impl Message for ProcRevoked {
    type Result = ();
}

/// One thing that changed about a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub enum PoolChange {
    /// It is there now.
    Add(String),
    /// It goes.
    Remove {
        /// Its name.
        name: String,
        /// How: `graceful`, `immediate`.
        mode: String,
    },
    /// A setting has another value.
    Set {
        /// The key.
        name: String,
        /// Its value as a file has it, in the unit of the key; `null` is that it is not set.
        value: Value,
    },
    /// So many processes are opened.
    Start(u32),
    /// So many idle processes are stopped.
    StopIdle(u32),
    /// So many processes in use are stopped when they come back.
    StopReturned(u32),
    /// So many processes are stopped while they are in use; who holds them is told.
    StopUsed(u32),
    /// So many waiters are refused.
    ShrinkQueue(u32),
}

/// Makes a change of how many processes or waiters it is about.
type Counted = fn(u32) -> PoolChange;

/// One member that says what, and one more where there is more to say.
impl Serialize for PoolChange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match self {
            Self::Add(name) => map.serialize_entry("add", name)?,
            Self::Remove { name, mode } => {
                map.serialize_entry("remove", name)?;
                map.serialize_entry("mode", mode)?;
            }
            Self::Set { name, value } => {
                map.serialize_entry("set", name)?;
                map.serialize_entry("value", value)?;
            }
            Self::Start(count) => map.serialize_entry("start", count)?,
            Self::StopIdle(count) => map.serialize_entry("stop_idle", count)?,
            Self::StopReturned(count) => map.serialize_entry("stop_returned", count)?,
            Self::StopUsed(count) => map.serialize_entry("stop_used", count)?,
            Self::ShrinkQueue(count) => map.serialize_entry("shrink_queue", count)?,
        }
        map.end()
    }
}

impl TryFrom<Map<String, Value>> for PoolChange {
    type Error = String;

    fn try_from(map: Map<String, Value>) -> Result<Self, String> {
        let text = |name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
        let count = |name: &str| {
            let number = map.get(name).and_then(Value::as_u64)?;
            u32::try_from(number).ok()
        };
        if let Some(name) = text("add") {
            return Ok(Self::Add(name));
        }
        if let Some((name, mode)) = text("remove").zip(text("mode")) {
            return Ok(Self::Remove { name, mode });
        }
        if let Some(name) = text("set") {
            let value = map.get("value").cloned().unwrap_or_default();
            return Ok(Self::Set { name, value });
        }
        let counted: [(&str, Counted); 5] = [
            ("start", Self::Start),
            ("stop_idle", Self::StopIdle),
            ("stop_returned", Self::StopReturned),
            ("stop_used", Self::StopUsed),
            ("shrink_queue", Self::ShrinkQueue),
        ];
        let found = counted
            .into_iter()
            .find_map(|(name, make)| count(name).map(make));
        found.ok_or_else(|| format!("an unknown change of a pool: {}", Value::Object(map)))
    }
}

impl fmt::Display for PoolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(name) => write!(f, "add {name}"),
            Self::Remove { name, mode } => write!(f, "remove {name} ({mode})"),
            Self::Set { name, value } => match value {
                Value::Null => write!(f, "unset {name}"),
                Value::String(text) => write!(f, "set {name} {text}"),
                value => write!(f, "set {name} {value}"),
            },
            Self::Start(count) => write!(f, "start {count}"),
            Self::StopIdle(count) => write!(f, "stop_idle {count}"),
            Self::StopReturned(count) => write!(f, "stop_returned {count}"),
            Self::StopUsed(count) => write!(f, "stop_used {count}"),
            Self::ShrinkQueue(count) => write!(f, "shrink_queue {count}"),
        }
    }
}

/// Why nothing changed. The fault of whoever asked; not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is no pool of this name.
    #[error("there is no pool named '{0}'")]
    NotFound(String),
    /// There is one already.
    #[error("there is a pool named '{0}' already: change that one, or take another name")]
    Exists(String),
    /// A setting is wrong, or cannot change.
    #[error("{0}")]
    BadSettings(String),
    /// The service is shutting down, or its manager is being restarted.
    #[error("the service is shutting down")]
    ShuttingDown,
}

impl PoolError {
    /// Returns the name on the wire, CouchDB's where CouchDB has one.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Exists(_) => "file_exists",
            Self::BadSettings(_) => "bad_request",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// How much of what lies between soft and hard limits may be used from now on.
#[derive(Clone, Debug)]
pub struct SetLevel {
    /// How much.
    pub level: Level,
    /// Why, for the log.
    pub because: String,
}

impl Message for SetLevel {
    type Result = ();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_read_as_it_is_written() {
        let changes = [
            (PoolChange::Add("py".into()), json!({"add": "py"})),
            (
                PoolChange::Remove {
                    name: "py".into(),
                    mode: "immediate".into(),
                },
                json!({"remove": "py", "mode": "immediate"}),
            ),
            (
                PoolChange::Set {
                    name: "max".into(),
                    value: json!(3),
                },
                json!({"set": "max", "value": 3}),
            ),
            (PoolChange::Start(2), json!({"start": 2})),
            (PoolChange::StopIdle(1), json!({"stop_idle": 1})),
            (PoolChange::StopReturned(1), json!({"stop_returned": 1})),
            (PoolChange::StopUsed(1), json!({"stop_used": 1})),
            (PoolChange::ShrinkQueue(5), json!({"shrink_queue": 5})),
        ];
        for (change, wire) in changes {
            assert_eq!(serde_json::to_value(&change).unwrap(), wire);
            let read: PoolChange = serde_json::from_value(wire).unwrap();
            assert_eq!(read, change);
        }
        assert!(serde_json::from_value::<PoolChange>(json!({"x": 1})).is_err());
    }
}
