//! `[pools.NAME]`: a pool of processes under a name of its own, or a language's own pool.
//!
//! SUMMARY   [`PoolConfig`] is one section; [`PoolConfig::patched`] changes some of its keys, by the
//!           same rules whether a file or a request brings them.
//! PROMISES  No key holds a command: a pool names the language whose command it uses.
//! SOURCE    pidq and pooler for the settings; Postfix master for throttling.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::keys;
use super::nearest::slip;
use super::origin::Origin;
use super::settings::Setting;
use super::stressed::Stressed;
use super::types::{Reuse, SandboxMode};
use super::value::{Fault, NAME_BYTES_MAX, Raw};

/// What becomes of a process whose client crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnClientCrash {
    /// It goes back after a reset that was seen to work, as in CouchDB.
    Return,
    /// It is stopped, and another one started: nobody knows its state (pidq).
    Replace,
}

/// In which order waiters are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fairness {
    /// In order of arrival.
    Fifo,
    /// The databases in turn.
    PerDb,
}

/// One section `[pools.NAME]`. What is `None` was not set, and follows from elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolConfig {
    /// Which language's command starts its processes; a language's own pool needs none.
    pub language: Option<String>,
    /// The pools that stand in for each other.
    pub group: Option<String>,
    /// Processes that are started with the pool.
    pub init_size: u32,
    /// Processes that are kept free while there is room.
    pub min_free: u32,
    /// Most processes; `None` is `os_process_limit`.
    pub max: Option<u32>,
    /// Most requests that wait; `None` is any number.
    pub queue_max: Option<u32>,
    /// What becomes of a process whose client crashed; `None` is `return` for a language's own
    /// pool, `replace` for others.
    pub on_client_crash: Option<OnClientCrash>,
    /// How often a process is lent before it is replaced; 0 is without end.
    pub max_uses: Stressed<u64>,
    /// How old a process gets before it is replaced; zero is without end.
    pub max_age: Stressed<Duration>,
    /// By how much a life may be shorter than `max_age`, in percent, so that processes that were
    /// born together do not go together.
    pub jitter: u8,
    /// Memory above which a process is replaced once it is free, in bytes; 0 is none.
    pub max_memory: u64,
    /// Memory above which a process is stopped at once, also under a client, in bytes; 0 is none.
    pub max_memory_hard: u64,
    /// How long processes beyond `init_size` may be free; zero leaves it to the soft limit.
    pub cull_after: Stressed<Duration>,
    /// How often that is looked at.
    pub cull_interval: Duration,
    /// The line that a process is sent before its input is closed; empty is none.
    pub stop_send: String,
    /// How long a process whose input was closed may take before TERM, and again before KILL;
    /// `None` is `[server] stop_grace`.
    pub stop_grace: Option<Stressed<Duration>>,
    /// How long a process may take to start and to answer its first `reset`.
    pub start_timeout: Stressed<Duration>,
    /// How long no process is started after a start that failed, at first; zero does not throttle.
    /// `None` is zero for a language's own pool, a minute for others.
    pub throttle_delay: Option<Duration>,
    /// How long it becomes at most while it doubles.
    pub throttle_delay_max: Duration,
    /// Whether processes are started with stress on while the pool is at its limit.
    pub stress: bool,
    /// In which order waiters are served.
    pub fairness: Fairness,
    /// How many of `max` processes map and reduce functions leave to validate, update, show and
    /// filter functions.
    pub interactive_reserved: u32,
    /// How many of its processes one user, or one address, may hold at a time; zero is as many as `max`.
    pub held_max: u32,
    /// Whether users with the role `caller` may use it where its language has a command of the
    /// configuration.
    pub callers: bool,
    /// How much of a cell its processes are put in; `None`, here and in all that follow, is what
    /// `[query_server_config]` says.
    pub sandbox: Option<SandboxMode>,
    /// Whether a process may serve several databases.
    pub reuse: Option<Reuse>,
    /// The user whom its processes run as; empty is the service's own.
    pub user: Option<String>,
    /// What they may read beside what they are made of.
    pub read_paths: Option<Vec<PathBuf>>,
    /// What they find in their environment beside the usual.
    pub env: Option<Vec<String>>,
    /// Whether they may open network connections.
    pub network: Option<bool>,
    /// Most memory of one of them with its descendants, in bytes; 0 is no limit.
    pub memory_max: Option<u64>,
    /// Most processes and threads of one of them; 0 is no limit.
    pub processes_max: Option<u32>,
    /// Most processor time of one of them, in percent of one core; 0 is no limit.
    pub cpu_max: Option<u32>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            language: None,
            group: None,
            init_size: 0,
            min_free: 0,
            max: None,
            queue_max: None,
            on_client_crash: None,
            max_uses: 0.into(),
            max_age: Duration::ZERO.into(),
            jitter: 10,
            max_memory: 0,
            max_memory_hard: 0,
            cull_after: Duration::ZERO.into(),
            cull_interval: Duration::from_secs(30),
            stop_send: String::new(),
            stop_grace: None,
            start_timeout: Duration::from_secs(10).into(),
            throttle_delay: None,
            throttle_delay_max: Duration::from_secs(600),
            stress: false,
            fairness: Fairness::Fifo,
            interactive_reserved: 0,
            held_max: 0,
            callers: false,
            sandbox: None,
            reuse: None,
            user: None,
            read_paths: None,
            env: None,
            network: None,
            memory_max: None,
            processes_max: None,
            cpu_max: None,
        }
    }
}

/// Names under which a request might bring a command.
const COMMANDS: &[&str] = &["command", "cmd", "program", "args", "arguments"];

/// Any section of the family: all have the same keys.
const SAMPLE: &str = "pools.any";

impl PoolConfig {
    /// Returns it with some keys changed: an object whose members are keys of a section. A value is
    /// as in a file, or as text; `null` takes a key back to its default.
    ///
    /// # Errors
    /// An unknown key, a value that is none, a command, or what would open a cell: the fault of whoever
    /// asked; not worth a retry.
    pub fn patched(&self, settings: &Map<String, Value>) -> Result<Self, Fault> {
        let (mut patched, defaults) = (json!(self), json!(Self::default()));
        for (key, value) in settings {
            let kind = keys::kind(SAMPLE, key).ok_or_else(|| unknown(key))?;
            if let Some(why) = keys::refused_over_http(SAMPLE, key) {
                return Err(only_in_files(key, why));
            }
            patched[key] = match raw(value) {
                Raw::Unset => defaults[key].clone(),
                raw => kind.read(&raw).map_err(|fault| {
                    Fault::new(format!("'{key}': {}", fault.what), fault.remedy)
                })?,
            };
        }
        serde_json::from_value(patched).map_err(|error| {
            let what = format!("the settings do not fit together ({error})");
            Fault::new(what, "this is a mistake in settee: please report it")
        })
    }

    /// Returns a section with the keys of cells alone.
    #[must_use]
    pub fn of_cell(&self) -> Self {
        Self {
            sandbox: self.sandbox,
            user: self.user.clone(),
            read_paths: self.read_paths.clone(),
            env: self.env.clone(),
            network: self.network,
            memory_max: self.memory_max,
            processes_max: self.processes_max,
            cpu_max: self.cpu_max,
            ..Self::default()
        }
    }

    /// Returns what is set, in the order of the keys.
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

/// Says what to do about a size of a pool that all pools together may not have.
pub fn above_ceiling(key: &str) -> String {
    format!("lower {key}, or raise [server] processes_max, or set it to 0 for no ceiling")
}

fn only_in_files(key: &str, why: &str) -> Fault {
    Fault::new(
        format!("'{key}' comes from files and the environment only, for {why}"),
        "set it in [pools.NAME] of a file, and reload the configuration",
    )
}

fn unknown(key: &str) -> Fault {
    let shown: String = key.chars().take(NAME_BYTES_MAX).collect();
    if COMMANDS.contains(&key.to_lowercase().as_str()) {
        return Fault::new(
            format!("'{shown}': a request cannot bring a command"),
            "name a 'language': its command stands in [query_servers], which only files and the \
             environment set",
        );
    }
    let names = keys::names(SAMPLE);
    let remedy = match slip(key, &names) {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("the settings are {}", names.join(", ")),
    };
    Fault::new(format!("a pool has no setting '{shown}'"), remedy)
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
    fn a_request_sets_keys_as_a_file_does_with_types_or_as_text() {
        let typed = json!({"language": "Python", "max": 3, "max_age": 60, "queue_max": 0,
                           "jitter": 50, "on_client_crash": "return", "max_memory": "64MiB"});
        let texts = json!({"language": "python", "max": "3", "max_age": "1min", "queue_max": "0",
                           "jitter": "50", "on_client_crash": "return", "max_memory": "67108864"});
        let one = patched(typed).unwrap();
        assert_eq!(one.language.as_deref(), Some("python"));
        assert_eq!((one.max, one.queue_max), (Some(3), Some(0)));
        assert_eq!(one.max_age, Duration::from_secs(60).into());
        assert_eq!(one.on_client_crash, Some(OnClientCrash::Return));
        assert_eq!(patched(texts).unwrap(), one);
    }

    #[test]
    fn null_and_off_take_a_setting_back() {
        let set = json!({"max": 3, "queue_max": 7, "stop_grace": 10, "max_uses": 5});
        let one = patched(set).unwrap();
        assert_eq!(one.stop_grace, Some(Duration::from_millis(10).into()));
        let back = json!({"max": null, "queue_max": "off", "stop_grace": null, "max_uses": null});
        let back = one.patched(back.as_object().unwrap()).unwrap();
        assert_eq!(back, PoolConfig::default());
    }

    #[test]
    fn a_setting_may_be_another_one_under_stress() {
        let set = json!({"max_uses": "${stress?{10}:{300}}", "max_age": "${stress?{1min}:{1h}}",
                         "stop_grace": "${stress?{100}:{2s}}"});
        let pool = patched(set).unwrap();
        assert_eq!((pool.max_uses.normal, pool.max_uses.stressed), (300, 10));
        assert_eq!(pool.max_age.under(true), Duration::from_secs(60));
        assert_eq!(pool.max_age.under(false), Duration::from_secs(3600));
        let grace = pool.stop_grace.unwrap();
        assert_eq!(grace.under(true), Duration::from_millis(100));
        // It is told as it is written.
        let settings = pool.settings();
        let told = settings.iter().find(|setting| setting.key == "max_uses");
        assert_eq!(told.unwrap().json(), "${stress?{10}:{300}}");
        for wrong in [
            json!({"max_uses": "${stress?{x}:{1}}"}),
            json!({"max": "${stress?{1}:{2}}"}),
        ] {
            assert!(patched(wrong).is_err());
        }
    }

    #[test]
    fn what_is_sent_at_the_end_is_one_line() {
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
    fn a_request_cannot_bring_a_command() {
        for key in ["command", "Command", "cmd", "program"] {
            let error = patched(json!({key: "/bin/sh"})).unwrap_err();
            assert!(error.what.contains("cannot bring a command"), "{error}");
        }
    }

    #[test]
    fn a_request_cannot_open_a_cell_and_can_limit_it() {
        let opening = [
            ("sandbox", json!("off")),
            ("reuse", json!("any")),
            ("user", json!("root")),
            ("read_paths", json!("/home")),
            ("env", json!("LD_PRELOAD=/tmp/x.so")),
            ("network", json!(true)),
        ];
        for (key, value) in opening {
            for value in [value, Value::Null] {
                let error = patched(json!({key: value})).unwrap_err();
                assert!(
                    error.what.starts_with(&format!("'{key}' comes from files")),
                    "{error}"
                );
            }
        }
        let limits = json!({"memory_max": "256MiB", "processes_max": 8, "cpu_max": 50});
        let pool = patched(limits).unwrap();
        assert_eq!(pool.memory_max, Some(256 << 20));
        assert_eq!((pool.processes_max, pool.cpu_max), (Some(8), Some(50)));
    }

    #[test]
    fn an_unknown_setting_is_told_with_the_nearest_known_one() {
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
