//! What new settings change in a pool that is running, as a list.
//!
//! SUMMARY   [`reconfigure`] turns the old settings, the new ones and what there is into a list of
//!           [`Change`]s. The list is the answer to whoever asked, it is logged, and it is what the
//!           pool carries out.
//! PROMISES  Pure. All or nothing: settings that are wrong anywhere change nothing.
//! CALLED    By [`super::Pools::plan`] and by the event that carries it out.
//! SOURCE    pooler's reconfiguration of pools: settings as data, changes as a list.

use std::fmt;
use std::time::Duration;

use super::settings::{Cull, Fairness, GroupId, OnClientCrash, PoolSettings, SettingsError, Wrong};

/// What there is in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Processes that are assigned, learning, or being reset.
    pub used: u32,
    /// Idle processes.
    pub free: u32,
    /// Openings in flight.
    pub opening: u32,
    /// Requests in the queue.
    pub waiting: u32,
    /// Whether nothing may be opened for now: the pool is throttled, or it is going.
    pub blocked: bool,
}

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
    /// So many waiters, those that came last, are refused: they are more than `queue_max`.
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

/// Returns what changes in a pool when `new` takes the place of `old`; nothing when they are the
/// same and nothing is missing.
///
/// # Errors
/// Everything that is wrong with `new`, and every setting that cannot change while a pool lives.
pub fn reconfigure(
    old: &PoolSettings,
    new: &PoolSettings,
    live: Live,
) -> Result<Vec<Change>, SettingsError> {
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
    let mut changes: Vec<Change> = pairs
        .filter(|(before, after)| before != after)
        .map(|(_, (name, value))| Change::Set { name, value })
        .collect();
    changes.extend(work(new, live));
    Ok(changes)
}

/// What has to be done so that what there is accords with the settings.
fn work(new: &PoolSettings, live: Live) -> impl Iterator<Item = Change> {
    let max = new.limits.hard_limit;
    let count = live.used + live.free + live.opening;
    let stop_idle = count.saturating_sub(max).min(live.free);
    let stop_returned = (count - stop_idle).saturating_sub(max);
    let shrink = new
        .queue_max
        .map_or(0, |most| live.waiting.saturating_sub(most));
    let room = match live.blocked {
        true => 0,
        false => max.saturating_sub(count),
    };
    // Those who wait come first; what is opened for them counts as opening until it is theirs.
    let for_waiters = (live.waiting - shrink).min(room);
    let count = count - stop_idle + for_waiters;
    let free = live.free - stop_idle + live.opening + for_waiters;
    let missing = new.init_size.saturating_sub(count);
    let start = for_waiters
        + missing
            .max(new.min_free.saturating_sub(free))
            .min(room - for_waiters);
    [
        (stop_idle, Change::StopIdle(stop_idle)),
        (stop_returned, Change::StopReturned(stop_returned)),
        (shrink, Change::ShrinkQueue(shrink)),
        (start, Change::Start(start)),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(_, change)| change)
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
