//! The first process of a cell: it enters every layer, starts the command, and leads the cell.
//!
//! SUMMARY   [`run`] never returns. The process dies with the launcher, and so do all processes of the cell if they
//!           have their own pid namespace. It reaps ended processes, answers the calls that the filter refuses,
//!           executes orders to [suspend](super::rest), and notifies the launcher when the command ends, stops or
//!           continues.
//! PROMISES  The command does not run until every layer is entered and the launcher ignores requests to end.
//!           With `strict`, a missing layer is fatal. The first refused call of each kind is reported.
//! SOURCE    pid_namespaces(7), seccomp_unotify(2), credentials(7).

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::exit;

use landlock::{LandlockStatus, RulesetCreated};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Gid, Pid, Uid, WaitOptions, set_dumpable_behavior, wait};
use rustix::thread::{self, CapabilitySet};
use seccompiler::BpfProgram;

use super::cgroup::Cgroup;
use super::launcher::{
    GROUP_GONE_STATUS, Launch, NOT_EXECUTED_STATUS, NOT_MADE_STATUS, events_now, leave_pipes,
};
use super::layers::{Held, Layer, Layers};
use super::report::Report;
use super::rest::Rest;
use super::{CellSpec, NO_CAPABILITIES, SandboxMode, limits, os, reach, system_calls};
use crate::parent_death::die_with_parent;

/// The user inside a user namespace: nobody, by convention.
pub(super) const NOBODY: u32 = 65534;

/// Messages of the first process to the launcher, four bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The process of the command waits for the launcher before it executes the command.
    AboutToExecute,
    /// Whether the cell is suspended, after each change. Sent only to a launcher that watches its memory.
    Rests(bool),
    /// A change of the command's state, as a status of `wait`: never negative.
    Status(i32),
}

impl Told {
    pub(super) const SIZE: usize = size_of::<i32>();

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let number: i32 = match self {
            Self::AboutToExecute => -1,
            Self::Rests(true) => -2,
            Self::Rests(false) => -3,
            Self::Status(status) => status,
        };
        number.to_ne_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        match i32::from_ne_bytes(bytes) {
            -1 => Self::AboutToExecute,
            -2 => Self::Rests(true),
            -3 => Self::Rests(false),
            status => Self::Status(status),
        }
    }
}

/// The namespaces that the first process was started in, or why it was started without them.
#[derive(Clone, Debug)]
pub(super) struct Namespaces {
    pub user: Held,
    pub pid: Held,
}

/// Prepared by the launcher.
pub(super) struct Prepared {
    pub cgroup: Cgroup,
    /// The paths that the command may read.
    pub paths: Vec<PathBuf>,
    pub ruleset: Result<RulesetCreated, String>,
    pub filter: Result<BpfProgram, String>,
    /// Whether the launcher can inspect the cell's memory.
    pub can_watch_memory: bool,
    /// Whether descriptors above standard error are closed when the command is executed, or why not.
    pub descriptors: Held,
}

impl Prepared {
    pub(super) fn is_memory_watched(&self, spec: &CellSpec) -> bool {
        let is_limited = spec.memory_max > 0 && !self.cgroup.held.contains(&Layer::Memory);
        self.can_watch_memory && is_limited
    }
}

/// Connects the first process to the launcher.
pub(super) struct Connection {
    /// Becomes readable when the launcher is ready, again when it has received [`Told::AboutToExecute`], and
    /// closes when it is gone.
    pub go: PipeReader,
    /// Receives [`Told::AboutToExecute`], then every other [`Told`] as it happens.
    pub status: PipeWriter,
}

/// Leads the cell until its command ends.
pub(super) fn run(
    launch: &Launch,
    prepared: Prepared,
    namespaces: Namespaces,
    connection: Connection,
) -> ! {
    let mut init = Init {
        launch,
        rest: Rest::new(launch.reporter.0.as_ref(), namespaces.pid.is_ok()),
        prepared,
        namespaces,
        connection,
        layers: Layers::default(),
        listener: None,
    };
    if let Err(why) = init.enter() {
        launch.reporter.tell(&Report::Error(why));
        exit(NOT_MADE_STATUS);
    }
    if launch.only_report {
        init.print_layers();
    }
    init.lead()
}

struct Init<'a> {
    launch: &'a Launch,
    prepared: Prepared,
    namespaces: Namespaces,
    connection: Connection,
    layers: Layers,
    listener: Option<OwnedFd>,
    rest: Rest<'a>,
}

/// Empties the bounding set, so that no program started later gains a capability. Must run before the change of user,
/// which drops CAP_SETPCAP.
fn drop_bounding_set() {
    for number in 0..=63 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // There is no such capability, or this process may not: then only no_new_privs keeps programs from gaining one.
        if thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
}

impl Init<'_> {
    /// Enters every layer.
    fn enter(&mut self) -> Result<(), String> {
        if let Err(error) = self.prepared.cgroup.enter() {
            if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)) {
                exit(GROUP_GONE_STATUS);
            }
            return Err(format!("cannot enter its control group: {error}"));
        }
        let mut go = [0];
        // Fails if the launcher ends.
        self.connection
            .go
            .read_exact(&mut go)
            .map_err(|_| "its launcher is gone".to_owned())?;
        let failed =
            |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
        drop_bounding_set();
        self.take_user().map_err(failed("cannot change its user"))?;
        // Only now: changing the user resets the parent-death signal.
        die_with_parent().map_err(|error| format!("cannot die with its launcher: {error}"))?;
        // The launcher reads the status.
        if events_now(&self.connection.status, PollFlags::empty()).contains(PollFlags::ERR) {
            return Err("its launcher is gone".into());
        }
        self.note(Layer::Environment, Ok(()));
        let descriptors = self.prepared.descriptors.clone();
        self.note(Layer::Descriptors, descriptors);
        self.drop_privileges()
            .map_err(failed("cannot drop its privileges"))?;
        self.note(Layer::Privileges, Ok(()));
        self.note_limits();
        let held = &self.prepared.cgroup.held;
        limits::apply(&self.launch.spec, held, self.counts_processes())
            .map_err(failed("cannot set limits"))?;
        let pid = self.namespaces.pid.clone();
        self.note(Layer::Processes, pid.clone());
        self.note(Layer::End, pid.clone());
        self.confine_files(pid);
        self.filter_calls();
        self.settle()
    }

    fn note(&mut self, layer: Layer, held: Held) {
        match held {
            Ok(()) => self.layers.held.push(layer),
            Err(why) => drop(self.layers.missing.insert(layer, why)),
        }
    }

    /// Becomes nobody, or the configured user if there is no namespace.
    fn take_user(&mut self) -> rustix::io::Result<()> {
        let has_namespace = self.namespaces.user.is_ok();
        let (user, outside) = (&self.launch.user, self.launch.user.outside);
        if has_namespace || user.is_other() {
            let inside = |outside: u32| if has_namespace { NOBODY } else { outside };
            let (uid, gid) = (
                Uid::from_raw(inside(outside.uid)),
                Gid::from_raw(inside(outside.gid)),
            );
            if user.may_change {
                let left = thread::set_thread_groups(&[]);
                // Some containers forbid this; it matters only if the layer is otherwise held.
                user.held().map_or(Ok(()), |()| left)?;
            }
            thread::set_thread_res_gid(gid, gid, gid)?;
            thread::set_thread_res_uid(uid, uid, uid)?;
        }
        self.note(Layer::User, user.held());
        Ok(())
    }

    fn drop_privileges(&self) -> rustix::io::Result<()> {
        let _ = thread::clear_ambient_capability_set();
        thread::set_capabilities(None, NO_CAPABILITIES)?;
        thread::set_no_new_privs(true)?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    }

    /// Whether the process limit counts this cell only: with its own user or in a user namespace, but never for root.
    fn counts_processes(&self) -> bool {
        let user = &self.launch.user;
        user.is_alone() || (self.namespaces.user.is_ok() && user.outside.uid != 0)
    }

    fn note_limits(&mut self) {
        let is_memory_watched = self.prepared.is_memory_watched(&self.launch.spec);
        let cgroup = &mut self.prepared.cgroup;
        let (held, mut missing) = (cgroup.held.clone(), std::mem::take(&mut cgroup.missing));
        held.into_iter().for_each(|layer| self.note(layer, Ok(())));
        if is_memory_watched && missing.remove(&Layer::Memory).is_some() {
            self.note(Layer::Memory, Ok(()));
        }
        if let Some(why) = missing.get_mut(&Layer::Memory) {
            why.push_str(
                "; each process has the limit for itself, and none for memory that it shares",
            );
        }
        if self.counts_processes() && missing.remove(&Layer::ProcessCount).is_some() {
            self.note(Layer::ProcessCount, Ok(()));
        }
        missing
            .into_iter()
            .for_each(|(layer, why)| self.note(layer, Err(why)));
    }

    fn confine_files(&mut self, pid: Held) {
        let ruleset = std::mem::replace(&mut self.prepared.ruleset, Err(String::new()));
        let version = ruleset
            .and_then(|ruleset| {
                ruleset
                    .restrict_self()
                    .map_err(|error| format!("Landlock refuses: {error}"))
            })
            .map(|status| match status.landlock {
                LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
                _ => 0,
            });
        let needs = |least: u32, what: &str| match &version {
            Err(why) => Err(why.clone()),
            Ok(0) => Err("this kernel has no Landlock, or it is turned off".to_owned()),
            Ok(version) if *version < least => Err(format!(
                "Landlock {version} of this kernel does not cover {what} ({least} does)"
            )),
            Ok(_) => Ok(()),
        };
        let files = needs(3, "the truncation of files");
        let signals = pid.or_else(|_| needs(6, "signals"));
        let ports = if self.launch.guards_ports() {
            needs(4, "ports").map_err(|why| format!("the service's ports are open to it: {why}"))
        } else {
            Ok(())
        };
        self.note(Layer::Files, files);
        self.note(Layer::Signals, signals);
        // Whether this layer is held also depends on the filter.
        if let Err(why) = ports {
            self.note(Layer::Network, Err(why));
        }
    }

    fn filter_calls(&mut self) {
        let filter = std::mem::replace(&mut self.prepared.filter, Err(String::new()));
        let filtered = filter.and_then(|filter| {
            match os::filter_with_listener(&system_calls::with_listener(&filter)) {
                Ok(listener) => self.listener = Some(listener),
                // The kernel is older than Linux 5.0, or an outer filter already has a listener.
                Err(_) => seccompiler::apply_filter(&filter)
                    .map_err(|error| format!("seccomp refuses: {error}"))?,
            }
            Ok(())
        });
        self.note(Layer::SystemCalls, filtered.clone());
        if !self.layers.missing.contains_key(&Layer::Network) {
            self.note(Layer::Network, filtered);
        }
    }

    /// Reports missing layers; with `strict` they are an error.
    fn settle(&self) -> Result<(), String> {
        if self.layers.missing.is_empty() || self.launch.only_report {
            return Ok(());
        }
        if self.launch.spec.mode == SandboxMode::Strict {
            let lines: Vec<String> = self
                .layers
                .missing
                .iter()
                .map(|(layer, why)| format!("{layer}: {why}"))
                .collect();
            return Err(format!(
                "sandbox is \"strict\" and layers are missing on this machine ({}); provide them, or set \
                 sandbox = \"standard\"",
                lines.join("; ")
            ));
        }
        self.launch
            .reporter
            .tell(&Report::Missing(self.layers.missing.clone()));
        Ok(())
    }

    fn print_layers(&self) -> ! {
        let mut layers = self.layers.clone();
        layers.held.sort_unstable();
        layers.unreadable = self.unreadable();
        let text = serde_json::to_string(&layers).unwrap_or_default();
        let printed = writeln!(io::stdout(), "{text}");
        exit(if printed.is_ok() { 0 } else { NOT_MADE_STATUS })
    }

    /// Returns the files that the command needs and cannot read, one sentence each.
    fn unreadable(&self) -> Vec<String> {
        let launch = self.launch;
        let of_program = reach::closed_to_program(&launch.program);
        let of_paths = launch
            .spec
            .read_paths
            .iter()
            .map(|path| (path, reach::closed(path)));
        [(&launch.program, of_program)]
            .into_iter()
            .chain(of_paths)
            .filter_map(|(path, closed)| {
                let told = reach::told(&closed?, launch.user.remedy);
                Some(format!("'{}' cannot be used: {told}", path.display()))
            })
            .collect()
    }

    /// Starts the command and waits for its end.
    fn lead(mut self) -> ! {
        if self.namespaces.pid.is_err() {
            // The first process of a pid namespace ignores them anyway.
            os::ignore_requests_to_end();
        }
        let started = self.start_command().and_then(|command| {
            let changes = os::child_changes();
            let changes =
                changes.map_err(|error| format!("its command cannot be watched: {error}"));
            Ok((command, changes?))
        });
        let (command, changes) = match started {
            Ok(started) => started,
            Err(why) => {
                self.launch.reporter.tell(&Report::Error(why));
                exit(NOT_MADE_STATUS);
            }
        };
        leave_pipes(&self.connection.go);
        let mut reported = HashSet::new();
        loop {
            self.collect(command);
            self.wait_for_news(&changes);
            self.refuse(&mut reported);
        }
    }

    /// Starts the command in a new process, which already receives requests to end but executes the command only once
    /// the launcher ignores them, so that none is lost. If the command cannot be executed, this is reported, and the
    /// process exits with [`NOT_EXECUTED_STATUS`].
    fn start_command(&self) -> Result<Pid, String> {
        let program = &self.launch.program;
        let text = |word: &OsStr| {
            CString::new(word.as_bytes()).map_err(|_| format!("{word:?} has a zero byte in it"))
        };
        let words = [program.as_os_str()]
            .into_iter()
            .chain(self.launch.arguments.iter().map(OsString::as_os_str))
            .map(text)
            .collect::<Result<Vec<CString>, String>>()?;
        let Connection { go, status } = &self.connection;
        let may_start = || {
            let told = (&mut &*status).write_all(&Told::AboutToExecute.to_bytes());
            told.and_then(|()| (&mut &*go).read_exact(&mut [0])).is_ok()
        };
        let (command, error) =
            os::execute(&words, &may_start, NOT_EXECUTED_STATUS).map_err(|error| {
                format!("the system refused to start a process in the cell: {error}")
            })?;
        if let Some(error) = error {
            let closed = (error.kind() == io::ErrorKind::PermissionDenied)
                .then(|| reach::closed_to_program(program))
                .flatten();
            let remedy = self.launch.user.remedy;
            let closed = closed.map(|closed| format!("; {}", reach::told(&closed, remedy)));
            self.launch.reporter.tell(&Report::Error(format!(
                "the program '{}' cannot be executed in its cell: {error}{}",
                program.display(),
                closed.unwrap_or_default()
            )));
        }
        Ok(command)
    }

    /// Reaps ended processes; reports changes of the command, and ends with it.
    fn collect(&mut self, command: Pid) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        while let Ok(Some((pid, status))) = rustix::io::retry_on_intr(|| wait(options)) {
            if self.rest.explains(status) || pid != command {
                continue;
            }
            // If this fails, the launcher sees a closed pipe, or is gone.
            drop((&self.connection.status).write_all(&Told::Status(status.as_raw()).to_bytes()));
            if status.exited() || status.signaled() {
                exit(0);
            }
        }
    }

    /// Waits until a child has changed its state, a call is to be refused, or there is an order, which is executed.
    fn wait_for_news(&mut self, changes: &OwnedFd) {
        let orders = self.rest.orders.map(AsFd::as_fd);
        let listener = self.listener.as_ref().map(AsFd::as_fd);
        let mut polled: Vec<PollFd<'_>> = [orders, Some(changes.as_fd()), listener]
            .into_iter()
            .flatten()
            .map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN))
            .collect();
        let _ = poll(&mut polled, None);
        let is_ordered = orders.is_some() && !polled[0].revents().is_empty();
        // The signals' contents are ignored: all children are checked.
        let mut news = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let _ = rustix::io::read(changes, &mut news);
        if is_ordered {
            self.rest.follow();
            if self.prepared.is_memory_watched(&self.launch.spec) {
                let told = Told::Rests(self.rest.is_at_rest);
                drop((&self.connection.status).write_all(&told.to_bytes()));
            }
        }
    }

    /// Refuses the system call that the listener received, if any. It is reported first, so that it belongs to the
    /// report of the current function call.
    fn refuse(&self, reported: &mut HashSet<&'static str>) {
        if let Some(listener) = &self.listener
            && events_now(listener, PollFlags::IN) == PollFlags::IN
        {
            os::refuse_next(listener, |number, arguments| {
                let name = system_calls::name(number);
                let is_news = !system_calls::is_harmless(number, arguments);
                if is_news && reported.insert(name) {
                    self.launch.reporter.tell(&Report::Refused(name.into()));
                }
            });
        }
    }
}
