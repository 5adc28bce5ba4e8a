//! Changes of a pool by an order, as reported by the service.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::IntoStaticStr;

/// One change of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, IntoStaticStr, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PoolChange {
    /// The pool is added.
    Add(String),
    /// This many processes are started.
    Start(u32),
    /// This many idle processes are stopped.
    StopIdle(u32),
    /// This many processes in use are stopped on return.
    StopReturned(u32),
    /// This many processes in use are stopped at once; their holders are notified.
    StopUsed(u32),
    /// This many waiters are refused.
    ShrinkQueue(u32),
    /// The pool is removed.
    #[serde(untagged)]
    Remove {
        /// Its name.
        #[serde(rename = "remove")]
        name: String,
        /// How: `graceful`, `immediate`.
        mode: String,
        /// Its settings; only inside the service.
        #[serde(skip)]
        before: Map<String, Value>,
    },
    /// A setting changes.
    #[serde(untagged)]
    Set {
        /// The key.
        #[serde(rename = "set")]
        name: String,
        /// Its value as in a file, in the key's unit; `null` if it is unset.
        value: Value,
        /// The previous value; only inside the service.
        #[serde(skip)]
        before: Value,
    },
}

impl fmt::Display for PoolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: &str = self.into();
        match self {
            Self::Add(name) => write!(f, "{what} {name}"),
            Self::Start(count)
            | Self::StopIdle(count)
            | Self::StopReturned(count)
            | Self::StopUsed(count)
            | Self::ShrinkQueue(count) => write!(f, "{what} {count}"),
            Self::Remove { name, mode, .. } => write!(f, "{what} {name} ({mode})"),
            Self::Set { name, value, .. } => match value {
                Value::Null => write!(f, "unset {name}"),
                Value::String(text) => write!(f, "{what} {name} {text}"),
                value => write!(f, "{what} {name} {value}"),
            },
        }
    }
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
                    before: Map::new(),
                },
                json!({"remove": "py", "mode": "immediate"}),
            ),
            (
                PoolChange::Set {
                    name: "max".into(),
                    value: json!(3),
                    before: Value::Null,
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
