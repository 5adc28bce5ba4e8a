//! The cell that the built-in JavaScript server puts itself into.
//!
//! SUMMARY   [`OwnCell::enter`] drops all rights that can be dropped before the engine has a thread;
//!           [`OwnCell::seal`] restricts all threads to a few system calls before the first line is read.
//! PROMISES  A function, even with native code, can then only use the three standard streams, allocate memory up to
//!           the limit, read the clock and exit; any other system call kills the process, which reports the call.
//! CALLED    By `settee couchjs`. [`report`] by `settee cell --report-own`, in a separate process.
//! LIMITS    The engine's process keeps its initial memory: the command line and the environment, which has at most
//!           `TZ` if the service started it. A call of the 32-bit interface kills the process without a report, as
//!           does one made while all signals are blocked, as when the C library starts a thread.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::panic;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Uid, getppid, getrlimit, getuid, parent_process_death_signal,
    set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::layers::{Held, Layer, Layers};
use super::{NO_CAPABILITIES, OOM_SCORE, SandboxMode, limits, os, own_calls, own_os, user};

pub use super::own_os::set_allocator;

/// Maximum descriptors; the server needs the standard streams, two duplicates and the system's memory statistics.
const DESCRIPTORS_MAX: u64 = 16;

/// The newest Landlock ABI in use; older ones enforce what they support.
const LANDLOCK: ABI = ABI::V7;

/// The server does not start: `strict` requires a layer that this machine lacks.
#[derive(Debug, thiserror::Error)]
#[error(
    "the sandbox is strict, and its layer '{layer}' is missing: {reason}; fix that, or set \
     `sandbox = \"standard\"`"
)]
pub struct MissingLayer {
    layer: Layer,
    reason: String,
}

/// The process's own cell, still without the restrictions that would stop the engine from starting.
#[derive(Debug)]
pub struct OwnCell {
    mode: SandboxMode,
    layers: Layers,
}

impl OwnCell {
    /// Puts the process into its cell, and returns it with the result of `open`, which runs before files are
    /// restricted. Requires one thread and no open files: closes all descriptors but the standard streams.
    ///
    /// # Errors
    /// A layer is missing, and the mode is strict.
    pub fn enter<T>(
        mode: SandboxMode,
        open: impl FnOnce() -> T,
    ) -> Result<(Self, T), MissingLayer> {
        let mut cell = OwnCell {
            mode,
            layers: Layers::default(),
        };
        if mode == SandboxMode::Off {
            return Ok((cell, open()));
        }
        own_os::load_time_zone();
        // The standard library's hook would read files to locate the panic.
        panic::set_hook(Box::new(|panic| eprintln!("couchjs: {panic}")));
        cell.put(Layer::Descriptors, leave_descriptors())?;
        let opened = open();
        // Must precede the loss of /proc and capabilities.
        let less_wanted = fs::write("/proc/self/oom_score_adj", OOM_SCORE)
            .map_err(|error| format!("/proc/self/oom_score_adj cannot be written ({error})"));
        cell.put(Layer::User, leave_user())?;
        cell.put(Layer::Files, leave_files())?;
        cell.put(
            Layer::Privileges,
            less_wanted.and_then(|()| leave_privileges()),
        )?;
        cell.put(Layer::Memory, has_memory_limit())?;
        Ok((cell, opened))
    }

    /// Restricts all threads to a few system calls, and returns the effective layers.
    ///
    /// # Errors
    /// A layer is missing, and the mode is strict.
    pub fn seal(mut self) -> Result<Layers, MissingLayer> {
        if self.mode != SandboxMode::Off {
            let sealed = own_calls::leave_calls();
            for layer in [
                Layer::Network,
                Layer::Processes,
                Layer::Signals,
                Layer::SystemCalls,
                Layer::ProcessCount,
            ] {
                self.put(layer, sealed.clone())?;
            }
        }
        Ok(self.layers)
    }

    fn put(&mut self, layer: Layer, done: Held) -> Result<(), MissingLayer> {
        match done {
            Ok(()) => self.layers.held.push(layer),
            Err(reason) if self.mode == SandboxMode::Strict => {
                return Err(MissingLayer { layer, reason });
            }
            Err(reason) => drop(self.layers.missing.insert(layer, reason)),
        }
        Ok(())
    }
}

/// Puts the process into the cell of a server in this mode, and returns the effective layers. Afterwards the process
/// can only write the result and exit. Its memory limit is already set, as for a server.
pub fn report(mode: SandboxMode) -> Layers {
    if mode == SandboxMode::Off {
        return Layers::default();
    }
    // Tries every layer, even after one that strict would stop at.
    let mut layers = OwnCell::enter(SandboxMode::Standard, || ())
        .and_then(|(cell, ())| cell.seal())
        .expect("cell: standard does not fail for a missing layer");
    // The service itself provides these two when it starts a server.
    layers.held.extend([Layer::Environment, Layer::End]);
    layers
}

fn leave_descriptors() -> Held {
    os::close_above_stderr(0)
        .map_err(|error| format!("close_range fails ({error}); it needs Linux 5.9"))?;
    limit(Resource::Nofile, DESCRIPTORS_MAX)
}

/// Enters a user namespace without any mapping: the process is nobody in it. Outside, it is neither root nor the
/// service's user if it can switch to another.
fn leave_user() -> Held {
    let left = match user::lacking() {
        None => become_other().map_err(|error| format!("the user cannot be changed ({error})")),
        Some(lacking) if getuid().is_root() => Err(format!("root lacks {lacking} here")),
        Some(_) => Ok(()),
    };
    let entered = own_os::enter_user_namespace().map_err(|error| {
        format!(
            "the system refuses a user namespace ({error}); see user.max_user_namespaces, the rules \
             of AppArmor, and those of the container"
        )
    });
    left.and(entered)
}

/// Switches to a nameless user, keeping the capabilities until the namespaces are entered.
fn become_other() -> io::Result<()> {
    let number = user::DEFAULT_RANGE.of_this_process();
    let (parent, end) = (getppid(), parent_process_death_signal()?);
    let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted;
    // Not every system requires them for a namespace.
    let _ = set_capabilities(None, sets);
    // Switching the user has reset the signal.
    set_parent_process_death_signal(end)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::other("the service is gone"))
    }
}

fn leave_files() -> Held {
    let status = restrict_files().map_err(|error| format!("Landlock fails ({error})"))?;
    if status == RulesetStatus::NotEnforced {
        return Err(
            "this kernel has no Landlock; it needs Linux 5.13 and `landlock` in lsm=".into(),
        );
    }
    // A user may have redirected answers or messages to a file.
    if is_file(io::stdout()) || is_file(io::stderr()) {
        Ok(())
    } else {
        limit(Resource::Fsize, 0)
    }
}

fn is_file(stream: impl AsFd) -> bool {
    let stream = stream.as_fd().try_clone_to_owned().map(File::from);
    let metadata = stream.and_then(|stream| stream.metadata());
    metadata.is_ok_and(|metadata| metadata.is_file())
}

fn restrict_files() -> Result<RulesetStatus, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    Ok(ruleset.restrict_self()?.ruleset)
}

fn leave_privileges() -> Held {
    let said = |what| move |error: rustix::io::Errno| format!("{what} fails ({error})");
    set_no_new_privs(true).map_err(said("PR_SET_NO_NEW_PRIVS"))?;
    set_capabilities(None, NO_CAPABILITIES).map_err(said("capset"))?;
    limit(Resource::Core, 0)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(said("PR_SET_DUMPABLE"))
}

fn has_memory_limit() -> Held {
    match getrlimit(Resource::Data).maximum {
        Some(_) => Ok(()),
        None => Err("the process has no limit for its data (RLIMIT_DATA)".into()),
    }
}

/// Lowers a limit of the process, if it is higher.
fn limit(resource: Resource, most: u64) -> Held {
    limits::limit(resource, most)
        .map_err(|error| format!("the limit of {resource:?} cannot be lowered ({error})"))
}
