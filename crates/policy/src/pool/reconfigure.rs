//! What new settings change in a pool that is running, as a list.
//!
//! SUMMARY   [`reconfigure`] turns the old settings and the new ones into a list of [`Change`]s. What
//!           becomes of processes and waiters is what becomes of them in a copy of the pools, so that
//!           the list says exactly what is done. It is the answer to whoever asked, and it is logged.
//! PROMISES  Pure. All or nothing: settings that are wrong anywhere change nothing.
//! CALLED    By [`super::Pools::plan`]; the event that carries it out asks for what is wrong only.
//! SOURCE    pooler's reconfiguration of pools: settings as data, changes as a list.

use std::fmt;
use std::time::Duration;

use super::settings::{Cull, Fairness, GroupId, OnClientCrash, PoolSettings, SettingsError, Wrong};

/// A value of a setting, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Off, or no limit.
    Off,
    /// A number.
    Number(u64),
    /// A time.
    Time(Duration),
    /// One of several words.
    Word(&'static str),
    /// A group, by the number that the shell gave it.
    Group(GroupId),
}

/// One change of a pool that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A setting has another value from now on.
    Set {
        /// The setting, by its name in the configuration.
        name: &'static str,
        /// Its new value.
        value: Value,
    },
    /// So many idle processes are stopped: they are above `max`.
    StopIdle(u32),
    /// So many processes in use are stopped when they come back: they are above `max`.
    StopReturned(u32),
    /// So many waiters, those that came last, are refused: they are more than `queue_max`, and no
    /// other pool of their group has room for them.
    ShrinkQueue(u32),
    /// So many processes are opened: for those who wait, for `init_size` and `min_free`.
    Start(u32),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(time) => write!(f, "{time:?}"),
            Self::Word(word) => f.write_str(word),
            Self::Group(group) => write!(f, "{}", group.0),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { name, value } => write!(f, "set {name} {value}"),
            Self::StopIdle(count) => write!(f, "stop_idle {count}"),
            Self::StopReturned(count) => write!(f, "stop_returned {count}"),
            Self::ShrinkQueue(count) => write!(f, "shrink_queue {count}"),
            Self::Start(count) => write!(f, "start {count}"),
        }
    }
}

/// Returns which settings change when `new` takes the place of `old`.
///
/// # Errors
/// Everything that is wrong with `new`, and every setting that cannot change while a pool lives.
pub fn reconfigure(old: &PoolSettings, new: &PoolSettings) -> Result<Vec<Change>, SettingsError> {
    let fixed = [
        ("language", old.language != new.language),
        ("kind", old.kind != new.kind),
    ];
    let changed = fixed.into_iter().filter(|(_, changed)| *changed);
    let why = "cannot change while the pool lives; remove the pool and add it again";
    let mut wrong: Vec<Wrong> = changed.map(|(name, _)| Wrong { name, why }).collect();
    if let Err(error) = new.validate() {
        wrong.extend(error.wrong());
    }
    SettingsError::unless_empty(wrong)?;
    let before = values(old);
    let after = values(new);
    let pairs = before.into_iter().zip(after);
    let changed = pairs.filter(|(before, after)| before != after);
    Ok(changed
        .map(|(_, (name, value))| Change::Set { name, value })
        .collect())
}

/// Every setting that can change, by the name in the configuration, in the order of the answer.
fn values(settings: &PoolSettings) -> [(&'static str, Value); 20] {
    let number = |n: u32| Value::Number(u64::from(n));
    let perhaps = |n: Option<u64>| n.map_or(Value::Off, Value::Number);
    let time = |time: Option<Duration>| time.map_or(Value::Off, Value::Time);
    let recycle = &settings.recycle;
    let throttle = settings.throttle;
    [
        ("max", number(settings.limits.hard_limit)),
        ("soft_limit", number(settings.limits.soft_limit)),
        ("affinity_wait", Value::Time(settings.limits.affinity_wait)),
        ("group", settings.group.map_or(Value::Off, Value::Group)),
        ("init_size", number(settings.init_size)),
        ("min_free", number(settings.min_free)),
        ("queue_max", settings.queue_max.map_or(Value::Off, number)),
        (
            "on_client_crash",
            Value::Word(match settings.on_client_crash {
                OnClientCrash::Return => "return",
                OnClientCrash::Replace => "replace",
            }),
        ),
        ("max_uses", perhaps(recycle.max_uses)),
        ("max_age", time(recycle.max_age)),
        ("jitter", number(u32::from(recycle.jitter_percent))),
        ("memory_soft", perhaps(recycle.memory_soft)),
        ("memory_hard", perhaps(recycle.memory_hard)),
        (
            "cull_after",
            time(settings.cull.map(|Cull { after, .. }| after)),
        ),
        (
            "cull_interval",
            time(settings.cull.map(|Cull { interval, .. }| interval)),
        ),
        (
            "throttle_delay",
            time(throttle.map(|throttle| throttle.delay)),
        ),
        (
            "throttle_delay_max",
            time(throttle.map(|throttle| throttle.delay_max)),
        ),
        (
            "stress",
            Value::Word(if settings.stress { "on" } else { "off" }),
        ),
        (
            "fairness",
            Value::Word(match settings.fairness {
                Fairness::Fifo => "fifo",
                Fairness::PerDb => "per_db",
            }),
        ),
        (
            "interactive_reserved",
            number(settings.interactive_reserved),
        ),
    ]
}
