//! The layers of a cell, and which of them hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, VariantArray};

/// Something that is taken away from a child.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Layer {
    /// The service's environment.
    Environment,
    /// Every descriptor but standard input, output and error.
    Descriptors,
    /// Capabilities, and programs that raise privileges.
    Privileges,
    /// The service's user.
    User,
    /// Files.
    Files,
    /// Sockets.
    Network,
    /// Seeing other processes, and for the built-in server starting any.
    Processes,
    /// Signals to other processes.
    Signals,
    /// System calls that are not needed.
    SystemCalls,
    /// Memory without limit.
    Memory,
    /// Processes without limit.
    ProcessCount,
    /// Processor time without limit.
    Cpu,
    /// Processes that outlive the child.
    End,
}

/// Which layers hold; of the others, why not. A layer that nobody asked for is in neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Those that hold, in any order.
    pub held: Vec<Layer>,
    /// Those that do not -> why.
    pub missing: BTreeMap<Layer, String>,
    /// What a command needs and its user may not read, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}
