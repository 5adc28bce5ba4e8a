//! Children that die with the thread that started them.
//!
//! The built-in server sets this itself, because a hook between fork and exec costs the parent more than
//! the whole start of that child. Other programs get the hook.

use std::io;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Set by Settee for the children it starts itself.
pub(crate) const CHILD_VARIABLE: &str = "SETTEE_CHILD";

/// Whether a child with these variables calls [`die_with_parent_if_asked`].
pub(crate) fn asks_itself(environment: &[(String, String)]) -> bool {
    environment.iter().any(|(name, _)| name == CHILD_VARIABLE)
}

/// Makes the process die with the thread that started it, so that an endless loop of a user
/// function does not outlive a killed parent.
///
/// # Errors
/// The system refuses.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// [`die_with_parent`], in a process whose environment has `SETTEE_CHILD=1`.
///
/// # Errors
/// The system refuses.
pub(crate) fn die_with_parent_if_asked() -> io::Result<()> {
    if std::env::var_os(CHILD_VARIABLE).is_some_and(|value| value == "1") {
        die_with_parent()?;
    }
    Ok(())
}
