//! The cell of a pool's processes, and their environment.
//!
//! SUMMARY   [`CellTerms`] puts a command into its cell.
//! CALLED    By languages, for each start.

use std::path::Path;

use super::{Cell, CellSpec, SandboxMode};
use crate::CommandSpec;

/// The cells of a pool's processes; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellTerms {
    /// The cell's access rights.
    pub spec: CellSpec,
    /// Environment variables of a launched command, unless it sets them itself.
    pub environment: Vec<(String, String)>,
}

impl CellTerms {
    /// Returns a configured command in its cell, which `launcher` makes; with `off`, the command unchanged.
    pub fn launched(&self, launcher: &Path, command: CommandSpec) -> CommandSpec {
        if self.spec.mode == SandboxMode::Off {
            return command;
        }
        CommandSpec {
            environment: self
                .environment
                .iter()
                .chain(command.environment.iter())
                .cloned()
                .collect(),
            cell: Cell::Launched {
                launcher: launcher.to_owned(),
                spec: self.spec.clone(),
            },
            ..command
        }
    }

    /// Returns the built-in server, which enters its own cell.
    pub fn own(&self, command: CommandSpec) -> CommandSpec {
        CommandSpec {
            cell: Cell::Own(self.spec.mode),
            ..command
        }
    }
}
