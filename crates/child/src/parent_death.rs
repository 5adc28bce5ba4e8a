//! Children that die with the thread that started them.
//!
//! The built-in server and a cell's launcher set their own parent-death signal, because a hook between fork and exec
//! costs the parent more than the whole start of such a child. Other programs get the hook.

use std::io;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Makes the process die with the thread that started it, so that an endless loop of a user function does not outlive
/// a killed parent.
///
/// # Errors
/// The system refuses.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}
