//! `[pools.NAME]`: a named pool of processes, or a language's own pool.
//!
//! SUMMARY   [`PoolConfig`] is one section; [`PoolConfig::patched`] changes some of its keys, by the same rules for a
//!           file and a request.
//! PROMISES  No key holds a command: a pool names the language whose command it uses.
//! SOURCE    pidq and pooler for the settings; Postfix master for throttling.

use std::time::Duration;

use policy::pool::{Fairness, OnClientCrash};
use serde_json::{Map, Value, json};

use super::cells::CellKeys;
use super::keys;
use super::kinds::*;
use super::nearest::hint;
use super::origin::Origin;
use super::section::{Declared, Key, section};
use super::settings::Setting;
use super::value::{self, Fault, Kind, NAME_BYTES_MAX, Raw};

section! {
    /// One section `[pools.NAME]`. `None` means not set: the value comes from elsewhere.
    #[derive(Debug)]
    #[serde(default)]
    pub struct PoolConfig {
        /// The language of its processes; required, except in the section of a language.
        language: Option<String>, value::NAME, at_start();
        /// Pools of one language with the same group serve each other's requests.
        group: Option<String>, value::NAME;
        /// Processes started with the pool, and replaced when they die.
        init_size: u32 = 0, PROCESSES, unit("processes"), of_machine();
        /// While fewer than this are free or starting, another is started, up to `max`.
        min_free: u32 = 0, PROCESSES, unit("processes"), of_machine();
        /// Maximum processes, used, free and starting; further requests wait. Stopping ones count only beyond a tenth
        /// of `max` plus one. At most `[server] processes_max`.
        max: Option<u32>, PROCESSES, unit("processes"), otherwise("`os_process_limit`"), of_machine();
        /// Maximum waiting requests; further ones are refused at once with `pool_busy`. `"off"`: no limit.
        queue_max: Option<u32> = "off", QUEUE_MAX, unit("requests"), of_machine();
        /// For a process whose client crashed: `"return"` resets and keeps it, unless it is busy; `"replace"` stops it
        /// and starts another.
        on_client_crash: Option<OnClientCrash>, one_of::<OnClientCrash>(), otherwise("`\"replace\"`; a language's own: `\"return\"`");
        /// A process is stopped on return after this many loans. 0: never.
        max_uses: u64 = 0, count(0, 1 << 53), unit("loans");
        /// A process older than this is stopped when it is free. 0: never.
        max_age: Duration = 0, seconds(0, YEAR);
        /// Maximum reduction of each process's `max_age`, so that not all stop together.
        jitter: u8 = 10, count(0, 100), unit("percent");
        /// A process that uses more is stopped on return. 0: no limit.
        max_memory: u64 = 0, bytes(0, 1 << 50), of_machine();
        /// A process that uses more is stopped at once, even while lent. 0: no limit.
        max_memory_hard: u64 = 0, bytes(0, 1 << 50), of_machine();
        /// How long processes beyond `init_size` may be free. 0 leaves it to the soft limit.
        cull_after: Duration = 0, seconds(0, YEAR);
        /// How often `cull_after` is checked.
        cull_interval: Duration = 30, seconds(1000, DAY);
        /// A line, such as `["exit"]`, sent to a process before its input is closed to stop it. Not for native query
        /// servers. Empty: none.
        stop_send: String = "", value::LINE;
        /// How long a process may take to end after its input is closed, before TERM, and again before KILL.
        stop_grace: Option<Duration>, ms(0, HOUR), otherwise("`[server] stop_grace`");
        /// How long a start may take, including the answer to the first `reset`; then the process is killed.
        start_timeout: Duration = 10, seconds(1, HOUR);
        /// How long no process is started after [three failed starts in a row](pools.md#when-starts-fail). 0: retries
        /// each time.
        throttle_delay: Option<Duration>, seconds(0, DAY), otherwise("60; a language's own: 0");
        /// Upper bound of `throttle_delay`, which doubles with each further failure.
        throttle_delay_max: Duration = 600, seconds(0, DAY);
        /// Starts processes with [stress](services.md#stress) on while the pool is at its limit.
        stress: bool = false, Kind::Boolean;
        /// Which waiter is next: `"fifo"` the oldest, `"per_db"` that of the database which had processes [for the
        /// least time lately](pools.md#whose-turn-it-is).
        fairness: Fairness = "fifo", one_of::<Fairness>();
        /// Processes of `max` reserved for validate, update, show and filter functions.
        interactive_reserved: u32 = 0, PROCESSES, unit("processes"), of_machine();
        /// Maximum processes that one user or address [holds](pools.md#how-many-one-may-hold) at a time. 0: `max`.
        held_max: u32 = 0, PROCESSES, unit("processes"), of_machine();
        /// Lets users with the [role](http.md#who-may-do-what) `caller` use the pool if its language has a configured
        /// command. Only an administrator can set it.
        callers: bool = false, Kind::Boolean;
    }
    beside {
        /// The keys of cells.
        #[serde(flatten)]
        cell: CellKeys;
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self::declared()
    }
}

/// Names under which a request might try to set a command.
const COMMANDS: &[&str] = &["command", "cmd", "program", "args", "arguments"];

/// Any section of the family: all have the same keys.
const SAMPLE: &str = "pools.any";

impl PoolConfig {
    /// Returns a copy with the keys in `settings` changed. Values are written as in a file, or as text; `null` resets a
    /// key to its default.
    ///
    /// # Errors
    /// An unknown key, an invalid value, a command, or a key that would weaken a cell. All are the caller's fault; a
    /// retry does not help.
    pub fn patched(&self, settings: &Map<String, Value>) -> Result<Self, Fault> {
        let (mut patched, defaults) = (json!(self), json!(Self::default()));
        for (key, value) in settings {
            let kind = keys::kind(SAMPLE, key).ok_or_else(|| unknown(key))?;
            if let Some(why) = keys::refused_over_http(SAMPLE, key) {
                return Err(Fault::new(
                    format!("'{key}' can be set only in files and the environment, because {why}"),
                    "set it in [pools.NAME] of a file, and reload the configuration",
                ));
            }
            patched[key] = match raw(value) {
                Raw::Unset => defaults[key].clone(),
                raw => kind.read(&raw).map_err(|fault| {
                    Fault::new(format!("'{key}': {}", fault.what), fault.remedy)
                })?,
            };
        }
        serde_json::from_value(patched).map_err(|error| {
            Fault::new(
                format!("the settings do not fit together ({error})"),
                "this is a mistake in settee: please report it",
            )
        })
    }

    /// Returns the keys that a request may set.
    pub fn keys_of_requests() -> impl Iterator<Item = &'static Key> {
        keys::rows(SAMPLE).filter(|key| keys::refused_over_http(SAMPLE, key.name).is_none())
    }

    /// Returns a section with only the keys of cells.
    #[must_use]
    pub fn of_cell(&self) -> Self {
        Self {
            cell: self.cell.clone(),
            ..Self::default()
        }
    }

    /// Returns the set keys, in order.
    pub fn settings(&self) -> Vec<Setting> {
        Setting::of_section(SAMPLE, &json!(self), |_| Origin::Default)
    }
}

fn raw(given: &Value) -> Raw {
    match given {
        Value::String(text) => Raw::Text(text.clone()),
        Value::Bool(flag) => Raw::Boolean(*flag),
        Value::Number(number) => match number.as_i128() {
            Some(whole) => Raw::Integer(Some(whole)),
            None => number.as_f64().map_or(Raw::Integer(None), Raw::Float),
        },
        Value::Array(_) => Raw::Other("a list"),
        Value::Object(_) => Raw::Other("an object"),
        Value::Null => Raw::Unset,
    }
}

fn unknown(key: &str) -> Fault {
    let shown: String = key.chars().take(NAME_BYTES_MAX).collect();
    if COMMANDS.contains(&key.to_lowercase().as_str()) {
        return Fault::new(
            format!("'{shown}': a request cannot bring a command"),
            "name a 'language': its command is in [query_servers], which only files and the \
             environment set",
        );
    }
    Fault::new(
        format!("a pool has no setting '{shown}'"),
        hint(key, &keys::names(SAMPLE), "the settings are"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(settings: Value) -> Result<PoolConfig, Fault> {
        let Value::Object(settings) = settings else {
            panic!("the settings are an object");
        };
        PoolConfig::default().patched(&settings)
    }

    #[test]
    fn a_request_sets_keys_as_a_file_does_typed_or_as_text() {
        let typed = json!({"language": "Python", "max": 3, "max_age": 60, "queue_max": 0,
                           "jitter": 50, "on_client_crash": "return", "max_memory": "64MiB"});
        let texts = json!({"language": "python", "max": "3", "max_age": "1min", "queue_max": "0",
                           "jitter": "50", "on_client_crash": "return", "max_memory": "67108864"});
        let one = patched(typed).unwrap();
        assert_eq!(one.language.as_deref(), Some("python"));
        assert_eq!((one.max, one.queue_max), (Some(3), Some(0)));
        assert_eq!(one.max_age, Duration::from_secs(60));
        assert_eq!(one.on_client_crash, Some(OnClientCrash::Return));
        assert_eq!(patched(texts).unwrap(), one);
    }

    #[test]
    fn null_and_off_unset_a_setting() {
        let set = json!({"max": 3, "queue_max": 7, "stop_grace": 10, "max_uses": 5});
        let one = patched(set).unwrap();
        assert_eq!(one.stop_grace, Some(Duration::from_millis(10)));
        let back = json!({"max": null, "queue_max": "off", "stop_grace": null, "max_uses": null});
        let back = one.patched(back.as_object().unwrap()).unwrap();
        assert_eq!(back, PoolConfig::default());
    }

    #[test]
    fn stop_send_is_one_line() {
        let pool = patched(json!({"stop_send": "[\"exit\"]"})).unwrap();
        assert_eq!(pool.stop_send, "[\"exit\"]");
        let back = json!({"stop_send": null});
        assert_eq!(
            pool.patched(back.as_object().unwrap()),
            Ok(PoolConfig::default())
        );
        for wrong in [
            json!("a\nb"),
            json!("a\u{0}"),
            json!("x".repeat(1001)),
            json!(7),
        ] {
            let error = patched(json!({"stop_send": wrong})).unwrap_err();
            assert!(error.remedy.contains("one line"), "{error}");
        }
    }

    #[test]
    fn a_request_cannot_set_a_command() {
        for key in ["command", "Command", "cmd", "program"] {
            let error = patched(json!({key: "/bin/sh"})).unwrap_err();
            assert!(error.what.contains("cannot bring a command"), "{error}");
        }
    }

    #[test]
    fn a_request_can_tighten_a_cell_but_not_loosen_it() {
        let opening = [
            ("sandbox", json!("off")),
            ("reuse", json!("any")),
            ("user", json!("root")),
            ("read_paths", json!("/home")),
            ("env", json!("LD_PRELOAD=/tmp/x.so")),
            ("network", json!(true)),
            ("system_calls_allowed", json!("ptrace")),
        ];
        for (key, value) in opening {
            for value in [value, Value::Null] {
                let error = patched(json!({key: value})).unwrap_err();
                assert!(
                    error
                        .what
                        .starts_with(&format!("'{key}' can be set only in files")),
                    "{error}"
                );
            }
        }
        let limits = json!({"memory_max": "256MiB", "processes_max": 8, "cpu_max": 50});
        let pool = patched(limits).unwrap();
        assert_eq!(pool.cell.memory_max, Some(256 << 20));
        assert_eq!(
            (pool.cell.processes_max, pool.cell.cpu_max),
            (Some(8), Some(50))
        );
    }

    #[test]
    fn an_unknown_setting_is_reported_with_the_nearest_known_one() {
        let error = patched(json!({"init_sise": 3})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a pool has no setting 'init_sise': did you mean 'init_size'?"
        );
        let error = patched(json!({"max": -1})).unwrap_err();
        assert_eq!(error.what, "'max': the number -1 is negative");
        for wrong in [json!([1]), json!({}), json!(true), json!(1.5)] {
            assert!(patched(json!({"max": wrong})).is_err());
        }
    }
}
