//! Cells: what the operating system allows a child.
//!
//! SUMMARY   A cell consists of [`Layer`]s, each of which restricts a child. [`CellSpec`] specifies a child's cell,
//!           [`Layers`] the effective layers on this machine.
//! PROMISES  A child with `sandbox = "strict"` has every layer or is not started. With `standard` it has every layer
//!           that this machine offers, and the missing ones are reported.

mod cgroup;
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

use rustix::thread::{CapabilitySet, CapabilitySets};

pub use cgroup::OwnGroups;
pub use system_calls::is_system_call;

use serde::{Deserialize, Serialize};

use user::UserRange;

/// How strict a child's cell is.
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
    /// Every layer; a process is not started if one is missing.
    Strict,
    /// Every layer that the machine offers.
    Standard,
    /// None.
    #[default]
    Off,
}

/// How a child gets its cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// No cell: it inherits the service's environment and permissions.
    #[default]
    None,
    /// The program enters its own cell before it reads its first line: the built-in server.
    Own(SandboxMode),
    /// The program is `settee cell`, making a cell for a trial.
    Trial,
    /// `settee cell` makes the cell and starts the program in it.
    Launched {
        /// The program with the subcommand `cell`: this one.
        launcher: PathBuf,
        /// The cell's access rights.
        spec: CellSpec,
    },
}

/// The cell of one external command, passed to `settee cell` as JSON. No cell by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// How strict it is.
    pub mode: SandboxMode,
    /// The user that it runs as. Any but the service's own needs root, or the capabilities to switch users.
    pub user: Option<UserIds>,
    /// The range from which the cell gets its own user, if no user is set; `None`: it gets none.
    pub user_range: Option<UserRange>,
    /// Files, and folders with all their content, that it may read besides its program's.
    pub read_paths: Vec<PathBuf>,
    /// Folders that stay unreadable even if a parent is readable: those of the configuration and the data.
    pub hidden_paths: Vec<PathBuf>,
    /// Whether it may open network connections.
    pub network: bool,
    /// The service's own TCP ports, which it must not connect to.
    pub refused_ports: Vec<u16>,
    /// Names of system calls allowed in addition to the common ones.
    pub system_calls: Vec<String>,
    /// Maximum memory of all its processes together, in bytes; 0 is no limit.
    pub memory_max: u64,
    /// Maximum processes and threads in it; 0 is no limit.
    pub processes_max: u32,
    /// Maximum processor time, in percent of one core; 0 is no limit.
    pub cpu_max: u32,
}

/// OOM score adjustment of a cell's processes; the maximum is 1000, the service has 0.
const OOM_SCORE: &str = "500";

/// The capabilities of what runs in a cell.
const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Mechanisms of a cell that a command could bypass without further restrictions.
#[derive(Clone, Copy, Debug, Default)]
struct Guarded {
    /// Landlock guards ports: other ways to connect must be closed.
    ports: bool,
    /// Memory is limited by mappings: memory outside of mappings must be impossible.
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
