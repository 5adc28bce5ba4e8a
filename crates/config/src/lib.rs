//! Configuration: types, loading, validation, reload as a difference.
//!
//! SUMMARY   [`load()`] makes a [`Config`] from built-in defaults, files, environment and flags; [`reload`] computes
//!           the difference between two of them. The steps:
//!           1. A reader (`toml_file`, `ini_file`, `environment`, `load`) makes a `Layer` from its
//!              source: entries of section, key and value as written, each with its [`Origin`].
//!           2. `Layer::settle` looks up each name in [`keys`], the table of all keys, whose `Kind`
//!              converts the value to its normal form: the JSON that serde produces for the key's Rust type, so that
//!              each type has a single form. A mistake is a [`Problem`] with place, fault and remedy.
//!           3. The `config` crate merges the layers and serde makes the [`Config`].
//!           4. `validate` checks the rules between keys, on the typed values.
//!           5. A [`Setting`] is a value of a `Config` for display, formatted by the same `Kind`.
//! PROMISES  Every value has its origin. Every mistake is reported, with its place and a remedy, and has no effect
//!           otherwise.
//! LIMITS    Commands of languages come only from files and the environment: clients cannot set them.

mod cells;
mod digests;
mod environment;
pub mod generated;
mod ini_file;
pub mod keys;
mod kinds;
mod layer;
mod load;
mod names;
pub mod nearest;
pub mod new_file;
mod origin;
pub mod own_folder;
mod pages;
pub mod password;
mod pool_settings;
mod pools;
pub mod reload;
mod replicator;
mod section;
mod services;
mod settings;
pub mod store_url;
pub mod stressed;
mod surroundings;
mod tenants;
mod toml_file;
mod types;
mod users;
mod validate;
mod value;

pub use child::cell::SandboxMode;

pub use cells::CellKeys;
pub use load::{Loaded, Sources, USUAL_FILE, load};
pub use origin::{ConfigError, Notice, Origin, is_ini};
pub use pages::default_file;
pub use pool_settings::PoolTerms;
pub use pools::PoolConfig;
pub use replicator::{Replicator, Store};
pub use section::Key;
pub use services::{ServiceAddress, ServiceConfig, ServiceTerms};
pub use settings::Setting;
pub use surroundings::Surroundings;
pub use tenants::TenantConfig;
pub use types::{
    Config, LanguageCommand, Log, LogFormat, LogLevel, QueryServerConfig, ReduceLimit, Server, Ssl,
    language_name,
};
pub use users::{Role, UserConfig};
pub use validate::PoolPlace;
pub use value::{Fault, NAME_RULE, is_name};
