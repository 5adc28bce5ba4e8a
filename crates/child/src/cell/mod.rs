//! Cells: what the operating system lets a child do.
//!
//! SUMMARY   A cell is a number of [`Layer`]s, each of which takes something away from a child. [`CellSpec`]
//!           says which cell a child gets, [`Layers`] which layers of it hold on this machine.
//! PROMISES  A child with `sandbox = "strict"` has every layer or is not started. With `standard` it has
//!           every layer that this machine offers, and the others are named.

pub(crate) mod cgroup;
pub mod files;
mod init;
pub mod launcher;
pub mod layers;
mod limits;
mod memory_watch;
mod os;
pub mod own;
mod own_calls;
mod own_os;
mod reach;
pub mod report;
pub mod rest;
pub mod subordinate;
mod system_calls;
pub mod terms;
pub mod trial;
pub mod user;

use std::path::PathBuf;

pub use cgroup::{enter_leaf as enter_leaf_group, remove_abandoned as remove_abandoned_groups};
pub use system_calls::is_system_call;

use serde::{Deserialize, Serialize};

use user::UserRange;

/// How much of a cell a child is put in.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SandboxMode {
    /// All of it; a process is not started where a layer is missing.
    Strict,
    /// Every layer that the machine offers.
    Standard,
    /// None.
    #[default]
    Off,
}

/// How a child comes into its cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// It has none: it inherits the service's environment and may do what the service may.
    #[default]
    None,
    /// The program puts itself into a cell before it reads its first line: the built-in server.
    Own(SandboxMode),
    /// The program is `settee cell`, which makes one for a trial.
    Trial,
    /// `settee cell` makes the cell and starts the program in it.
    Launched {
        /// The program that has the subcommand `cell`: this one.
        launcher: PathBuf,
        /// What the cell lets in.
        spec: CellSpec,
    },
}

/// The cell of one external command, as `settee cell` gets it, in JSON. By default it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Whether it may lack a layer.
    pub mode: SandboxMode,
    /// The user that it runs as; only root can give it another one than its own.
    pub user: Option<UserIds>,
    /// Where the number of a user of its own comes from, if there is no other; nothing: it has none.
    pub user_range: Option<UserRange>,
    /// Files, and folders with all that is in them, that it may read beside those of its program.
    pub read_paths: Vec<PathBuf>,
    /// Folders that no other folder makes readable: of the configuration and of the data.
    pub hidden_paths: Vec<PathBuf>,
    /// Whether it may open network connections.
    pub network: bool,
    /// The TCP ports of the service itself, which it may not connect to.
    pub refused_ports: Vec<u16>,
    /// System calls that it may make beside those that every command may, by name.
    pub system_calls: Vec<String>,
    /// Most memory of all its processes together, in bytes; 0 is no limit.
    pub memory_max: u64,
    /// Most processes and threads in it; 0 is no limit.
    pub processes_max: u32,
    /// Most processor time, in percent of one core; 0 is no limit.
    pub cpu_max: u32,
}

/// What of a cell is kept in ways that a command could get around.
#[derive(Clone, Copy, Debug, Default)]
struct Guarded {
    /// Landlock keeps ports: nothing may connect past it.
    ports: bool,
    /// Memory is counted by what processes map: nothing may keep what they do not.
    mapped_memory: bool,
}

/// A user of the machine, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    /// The user itself.
    pub uid: u32,
    /// The only group that it is in.
    pub gid: u32,
}
