//! The layers of a cell, and which of them are effective.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// A restriction of a child. Each variant states what the child is denied.
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
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Layer {
    /// The service's environment.
    Environment,
    /// Every descriptor except standard input, output and error.
    Descriptors,
    /// Capabilities, and privilege-raising programs.
    Privileges,
    /// The service's user.
    User,
    /// Files.
    Files,
    /// Sockets.
    Network,
    /// Seeing other processes and, for the built-in server, starting any.
    Processes,
    /// Signals to other processes.
    Signals,
    /// Unneeded system calls.
    SystemCalls,
    /// Unlimited memory.
    Memory,
    /// Unlimited processes.
    ProcessCount,
    /// Unlimited processor time.
    Cpu,
    /// Processes that outlive the child.
    End,
}

/// Whether a layer is held, or why not.
pub(super) type Held = Result<(), String>;

/// The effective layers, and why others are missing. Layers that were not requested are in neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Effective layers, in any order.
    pub held: Vec<Layer>,
    /// Missing layers -> the reason.
    pub missing: BTreeMap<Layer, String>,
    /// Unreadable files that a command needs, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}
