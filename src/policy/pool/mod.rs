//! couch_proc_manager as a pure state machine.

mod event;

pub use event::*;
