//! The query-server protocol: lines, prompts, children, and the built-in reducers.

pub mod abilities;
pub mod call;
pub mod cell;
pub mod child;
pub mod child_log;
pub mod ddoc;
pub mod language;
pub mod line;
pub mod parent_death;
pub mod pipe;
mod probe;
pub mod proc_shared;
pub mod prompt;
pub mod prompt_error;
pub mod reduce;
pub mod request_id;
pub(crate) mod run_time;
pub mod stderr;
pub(crate) mod taught;
pub mod told;
pub(crate) mod tried_cell;
pub(crate) mod unpooled_child;
pub(crate) mod usage;

pub use settee_client::status;
