//! The cell of the built-in JavaScript server, which it puts itself into.
//!
//! SUMMARY   [`OwnCell::enter`] takes everything away that can be taken before the engine has a thread;
//!           [`OwnCell::seal`] leaves a few system calls to all threads, before the first line is read.
//! PROMISES  A function, and also native code in its place, can then read and write the three standard
//!           streams, take memory up to the limit, tell the time and end; the process dies of any other
//!           system call, and says of which.
//! CALLED    By `settee couchjs`. [`report`] by `settee cell --report-own`, in a process of its own.
//! LIMITS    The engine's process keeps what its start left in memory: the command line and the
//!           environment, which is empty but for `TZ` if the service started it.
//!           A call of the 32-bit interface kills the process silently, and so does one that is made
//!           while all signals are blocked, as when the C library starts a thread.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::panic;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, getppid, getrlimit, getuid,
    parent_process_death_signal, set_dumpable_behavior, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::SandboxMode;
use super::layers::{Layer, Layers};
use super::{own_calls, own_os, user};

/// Most descriptors: the standard streams, two of them a second time, the system's account of the memory.
const DESCRIPTORS_MAX: u64 = 16;

/// `oom_score_adj` of the process, of 1000.
const OOM_SCORE: &str = "500";

/// The newest of Landlock's interfaces that is used; older ones hold what they know.
const LANDLOCK: ABI = ABI::V7;

/// Makes memory behave as a server needs it, in every mode.
pub fn set_allocator() {
    own_os::set_allocator();
}

/// The server does not start, because `strict` asks for a layer that this machine does not have.
#[derive(Debug, thiserror::Error)]
#[error(
    "the sandbox is strict, and its layer '{layer}' is missing: {reason}; fix that, or let \
     `sandbox` be \"standard\""
)]
pub struct MissingLayer {
    layer: Layer,
    reason: String,
}

/// A cell that the process is in, but for what its engine needs to start.
#[derive(Debug)]
pub struct OwnCell {
    mode: SandboxMode,
    layers: Layers,
}

impl OwnCell {
    /// Puts the process into its cell, with what `open` opens. Call it while the process has one thread and
    /// nothing open: all descriptors but the standard streams are closed.
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
        // The standard library's own would read files to tell where a panic comes from.
        panic::set_hook(Box::new(|panic| eprintln!("couchjs: {panic}")));
        cell.put(Layer::Descriptors, leave_descriptors())?;
        let opened = open();
        // Files of /proc are written and capabilities needed before they are gone.
        let less_wanted = be_ended_first();
        cell.put(Layer::User, leave_user())?;
        cell.put(Layer::Files, leave_files())?;
        cell.put(
            Layer::Privileges,
            less_wanted.and_then(|()| leave_privileges()),
        )?;
        cell.put(Layer::Memory, has_memory_limit())?;
        Ok((cell, opened))
    }

    /// Leaves a few system calls to all threads of the process, and returns which layers hold.
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

    fn put(&mut self, layer: Layer, done: Result<(), String>) -> Result<(), MissingLayer> {
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

/// Puts the process into the cell that a server of this mode gets from the service, and returns which
/// layers hold. The process can do nothing afterwards but write that down and end. The limit of its memory is
/// set before, as a server has it set.
pub fn report(mode: SandboxMode) -> Layers {
    if mode == SandboxMode::Off {
        return Layers::default();
    }
    // Every layer is tried, also behind one that strict would stop at.
    let cell = OwnCell::enter(SandboxMode::Standard, || ()).and_then(|(cell, ())| cell.seal());
    let mut layers = cell.expect("cell: standard goes without what is missing");
    // The service sees to these two when it starts a server.
    layers.held.extend([Layer::Environment, Layer::End]);
    layers
}

fn leave_descriptors() -> Result<(), String> {
    let closed = own_os::close_descriptors();
    closed.map_err(|error| format!("close_range fails ({error}); it needs Linux 5.9"))?;
    limit(Resource::Nofile, DESCRIPTORS_MAX)
}

fn be_ended_first() -> Result<(), String> {
    let written = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    written.map_err(|error| format!("/proc/self/oom_score_adj cannot be written ({error})"))
}

/// Enters a user namespace that no user is mapped into: the process is nobody in it. It is neither root nor the
/// service's user outside, where it may become another.
fn leave_user() -> Result<(), String> {
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

/// Becomes a user without a name, and keeps the capabilities for as long as namespaces are entered.
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
    // Not every system wants them for a namespace.
    let _ = set_capabilities(None, sets);
    // The change has taken it back.
    set_parent_process_death_signal(end)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::other("the service is gone"))
    }
}

fn leave_files() -> Result<(), String> {
    let status = restrict_files().map_err(|error| format!("Landlock fails ({error})"))?;
    if status == RulesetStatus::NotEnforced {
        return Err(
            "this kernel has no Landlock; it needs Linux 5.13 and `landlock` in lsm=".into(),
        );
    }
    // A person may have sent the answers, or what is said beside them, to a file.
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

fn leave_privileges() -> Result<(), String> {
    let said = |what| move |error: rustix::io::Errno| format!("{what} fails ({error})");
    set_no_new_privs(true).map_err(said("PR_SET_NO_NEW_PRIVS"))?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, none).map_err(said("capset"))?;
    limit(Resource::Core, 0)?;
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hidden.map_err(said("PR_SET_DUMPABLE"))
}

fn has_memory_limit() -> Result<(), String> {
    match getrlimit(Resource::Data).maximum {
        Some(_) => Ok(()),
        None => Err("the system did not take the limit of the process's data".into()),
    }
}

/// Lowers a limit of the process, if it is higher.
fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let Rlimit { current, maximum } = getrlimit(resource);
    let lowered = Rlimit {
        current: least(current),
        maximum: least(maximum),
    };
    let limited = setrlimit(resource, lowered);
    limited.map_err(|error| format!("the limit of {resource:?} cannot be lowered ({error})"))
}
