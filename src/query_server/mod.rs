//! The query-server protocol: lines, prompts, reports of a process, and the built-in reducers.

pub mod abilities;
pub mod call;
pub mod cells;
pub mod child_log;
pub mod ddoc;
pub mod isolates;
pub mod known_ddocs;
pub mod language;
pub mod line;
mod probe;
pub mod proc_shared;
pub mod prompt;
pub mod prompt_error;
pub mod reduce;
pub mod request_id;
pub(crate) mod run_time;
pub(crate) mod tally;
pub(crate) mod taught;
pub(crate) mod tenant_logs;
pub mod told;
pub(crate) mod tried_cell;

/// Shown as the command of a language without one.
pub(crate) const NATIVE: &str = "native";

pub use ::child::{self, cell};
pub use settee_client::status;
