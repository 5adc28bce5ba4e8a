//! Configuration: types, loading, validation, reload as a difference.
//!
//! SUMMARY   [`load()`] makes a [`Config`] of the built-in defaults, files, environment and flags;
//!           [`reload`] says what changes between two of them.
//! PROMISES  Every value knows where it came from. Every mistake is reported, with its place and a
//!           remedy, and none of it takes effect.
//! LIMITS    Commands of languages come from files and the environment only; nothing that a client
//!           can reach sets one.

mod environment;
pub mod generated;
mod ini_file;
pub mod keys;
mod layer;
mod load;
mod names;
mod nearest;
mod origin;
mod over_http;
mod overlay;
pub mod password;
mod pools;
pub mod reload;
mod replicator;
mod services;
mod settings;
pub mod stressed;
mod surroundings;
mod toml_file;
mod types;
mod users;
mod validate;
mod value;

pub use load::{DEFAULTS, Flag, Loaded, Sources, load};
pub use origin::{ConfigError, Notice, Origin, Problem};
pub use over_http::refused_over_http;
pub use overlay::Overlay;
pub(crate) use pools::above_ceiling;
pub use pools::{Fairness, OnClientCrash, PatchError, PoolConfig};
pub use replicator::{Replicator, Store};
pub use services::{FrontTerms, ServiceAddress, ServiceConfig};
pub use settings::Setting;
pub use stressed::Stressed;
pub use surroundings::Surroundings;
pub use types::{
    ChttpdAuth, Config, CouchDb, DbTag, LanguageCommand, Log, LogFormat, LogLevel,
    QueryServerConfig, ReduceLimit, Sandbox, Server, language_name,
};
pub use users::{Role, UserConfig};
pub use value::{NAME_RULE, is_name};
