//! Protects the program's secrets from other users and processes of the machine.
//!
//! SUMMARY   [`take_secrets`] removes the variables that configure Settee and CouchDB, which may have passwords, from
//!           the environment; [`harden`] closes the process to all users except root.
//! PROMISES  No child inherits such a variable, and `/proc/PID/environ` shows none. No other process of the same user
//!           can read a hardened process's memory or environment, or trace it; it leaves no core dump; neither it nor
//!           a child gains privileges by starting a program.
//! CALLED    By [`super::main`], before it starts another thread.
//! LIMITS    Root may read everything. Arguments stay visible to all users.

#![allow(unsafe_code, reason = "the environment as the system has laid it out")]

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;

use crate::config::Surroundings;

/// The prefixes of variables that may have secrets, in any case.
const PREFIXES: [&str; 2] = ["SETTEE_", "COUCHDB_"];

unsafe extern "C" {
    /// Of the C library: pointers to `NAME=VALUE`, the last one null.
    static environ: *const *mut c_char;
}

/// Removes secrets from the environment. [`Surroundings::of_process`] still returns all variables, so a reload finds
/// the same configuration. Has no effect in a program with several threads.
pub(super) fn take_secrets() {
    let surroundings = Surroundings::of_process();
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return;
    }
    let names: Vec<OsString> = surroundings
        .variables
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| is_secret(name))
        .collect();
    // SAFETY: this is the only thread, so nothing reads or changes the environment meanwhile, and no reference into
    // it remains: everything read from it was copied. Each entry is writable and ends with a zero.
    unsafe {
        let entries = secret_entries();
        for name in names {
            std::env::remove_var(name);
        }
        // Removing a variable leaves its text in memory, which the system shows as the environment.
        for entry in entries {
            entry.write_bytes(0, CStr::from_ptr(entry).count_bytes());
        }
    }
}

fn is_secret(name: &OsStr) -> bool {
    PREFIXES.iter().any(|prefix| {
        let head = name.as_bytes().get(..prefix.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(prefix.as_bytes()))
    })
}

/// Returns the addresses of the variables that may have secrets, including duplicates, which other code never sees.
///
/// # Safety
/// Nothing changes the environment meanwhile.
unsafe fn secret_entries() -> Vec<*mut c_char> {
    let mut found = Vec::new();
    // SAFETY: the array ends with a null pointer, and each pointer before it is to a string that ends with a zero. A
    // program without an environment may have no array.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            if is_secret(OsStr::from_bytes(CStr::from_ptr(*at).to_bytes())) {
                found.push(*at);
            }
            at = at.add(1);
        }
    }
    found
}

/// Keeps other processes of this user from reading or tracing this one, permanently.
///
/// # Errors
/// The system refuses.
pub(super) fn harden() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // Applies to this thread and all that it starts.
    Ok(set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_settee_and_couchdb_are_secret_and_no_others() {
        for secret in [
            "SETTEE__ADMINS__ANN=x",
            "settee__chttpd_auth__secret",
            "SETTEE_SOURCE_PASSWORD",
            "COUCHDB_PASSWORD",
        ] {
            assert!(is_secret(OsStr::new(secret)), "{secret}");
        }
        for other in ["PATH", "SETTE", "NOTIFY_SOCKET", "A_SETTEE_"] {
            assert!(!is_secret(OsStr::new(other)), "{other}");
        }
    }
}
