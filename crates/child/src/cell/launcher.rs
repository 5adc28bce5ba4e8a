//! `settee cell`: makes a cell, runs a command in it, and ends with the command's status.
//!
//! SUMMARY   Three processes. The launcher stays outside with the service's rights: it prepares the layers, starts
//!           the cell's first process ([`super::init`]), sets its user, and waits. The first process applies the
//!           layers and starts the command.
//! PROMISES  The cell ends with its command, with the launcher, and with the process that started the launcher. The
//!           launcher ends when all of the cell has ended, with the command's status or by its signal. Termination
//!           signals to its process group are for the command; before the command is executed, they end the launcher
//!           and the cell. The launcher stops while the command is stopped, unless it watches memory. Standard input
//!           and output belong to the command.
//! CALLED    By the spawner of children, with a socket for reports and orders; manually, with reports on standard
//!           error.
//! LIMITS    Without a pid namespace, orphans of the command are killed at the end only if the launcher still exists.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, exit};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_dumpable_behavior, wait, waitpid,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};

use super::cgroup::{self, Cgroup, OwnGroups};
use super::init::{self, Connection, Namespaces, Prepared, Told};
use super::layers::{Held, Layer};
use super::memory_watch::{self, MemoryWatch};
use super::report::{MetLimit, Report, Reporter};
use super::user::CellUser;
use super::{CellSpec, Guarded, OOM_SCORE, files, os, system_calls};
use crate::parent_death::die_with_parent;

/// Exit status if the cell could not be made.
pub(super) const NOT_MADE_STATUS: i32 = 125;

/// Exit status of a first process whose control group was removed before it entered.
pub(super) const GROUP_GONE_STATUS: i32 = 124;

/// Exit status if the command could not be executed, as in shells.
pub(super) const NOT_EXECUTED_STATUS: i32 = 126;

/// A shorter stop of the command is ignored: it may be about to continue.
const STOP_NS: i64 = 10_000_000;

/// Maximum control groups made for a cell in sequence, if they are removed by others.
const GROUPS_MAX: usize = 2;

/// Maximum rounds of killing leftovers at the end, without a namespace.
const LEFTOVER_ROUNDS_MAX: usize = 10_000;

/// The command and its cell.
pub struct Request {
    /// The cell.
    pub spec: CellSpec,
    /// The program to start in it.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The descriptor that reports are written to; standard error without one.
    pub report_to: Option<i32>,
    /// The descriptor of the namespace with the service's subordinate users, or why there is none.
    pub users: Option<Result<i32, String>>,
    /// Whether to print the layers instead of starting the command.
    pub only_report: bool,
}

/// A request, with facts about this process.
pub(super) struct Launch {
    pub spec: CellSpec,
    /// The program to start in it.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub only_report: bool,
    pub reporter: Reporter,
    /// The cell's user, as seen from outside.
    pub user: CellUser,
}

impl Launch {
    pub(super) fn guards_ports(&self) -> bool {
        self.spec.network && !self.spec.refused_ports.is_empty()
    }
}

/// Runs the request and ends this process.
pub fn run(request: Request) -> ! {
    let pipe = request.report_to.map(os::inherited).transpose();
    let users = request.users.map(|handed| {
        let opened = handed.map(os::inherited);
        opened.and_then(|opened| opened.map_err(|error| format!("--users: {error}")))
    });
    let descriptors = os::close_above_stderr(os::ON_EXEC);
    let (reporter, user) = match pipe {
        Ok(pipe) => {
            let user = CellUser::choose(&request.spec, users);
            (Reporter(pipe.map(File::from)), user)
        }
        Err(error) => {
            let why = format!("--report-to is not an open descriptor: {error}");
            (Reporter(None), Err(why))
        }
    };
    let user = user.unwrap_or_else(|why| not_made(&reporter, why));
    let launch = Launch {
        user,
        spec: request.spec,
        program: request.program,
        arguments: request.arguments,
        only_report: request.only_report,
        reporter,
    };
    let descriptors = descriptors.map_err(|error| format!("close_range: {error}"));
    for _ in 0..GROUPS_MAX {
        match launch.run(descriptors.clone()) {
            Ok(Some(status)) => end_as(status),
            Ok(None) => launch.user.stop_acting(),
            Err(why) => not_made(&launch.reporter, why),
        }
    }
    launch.reporter.tell(&Report::HostError(format!(
        "its control group was removed {GROUPS_MAX} times before its first process entered; find out what removes \
         'settee-cell-*' below {}",
        cgroup::ROOT
    )));
    exit(NOT_MADE_STATUS)
}

fn not_made(reporter: &Reporter, why: String) -> ! {
    reporter.tell(&Report::Error(why));
    exit(NOT_MADE_STATUS)
}

impl Launch {
    /// Returns how the command ended; `None` if it was not started, because the control group was removed.
    fn run(&self, descriptors: Held) -> Result<Option<ExitStatus>, String> {
        let parent = getppid();
        self.die_with_service(parent)?;
        // Inherited by the whole cell; on failure, it keeps the service's score.
        drop(fs::write("/proc/self/oom_score_adj", OOM_SCORE));
        let prepared = self.prepare(descriptors);
        self.user
            .act()
            .map_err(|error| format!("cannot switch to the cell's user: {error}"))?;
        let cell = self.start(prepared)?;
        // Switching users resets the parent-death signal.
        self.die_with_service(parent)?;
        // Other processes no longer need to read this one's memory.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        Ok(cell.wait(&self.spec, &self.reporter))
    }

    fn die_with_service(&self, parent: Option<Pid>) -> Result<(), String> {
        die_with_parent()
            .map_err(|error| format!("cannot set the parent-death signal: {error}"))?;
        // ERR if the reader of a pipe is gone, HUP if that of a socket is.
        let is_unread = |pipe: &File| {
            events_now(pipe, PollFlags::empty()).intersects(PollFlags::ERR | PollFlags::HUP)
        };
        if getppid() != parent || self.reporter.0.as_ref().is_some_and(is_unread) {
            return Err("the service is gone".into());
        }
        Ok(())
    }

    fn prepare(&self, descriptors: Held) -> Prepared {
        let paths = files::readable(&self.program, &self.arguments, &self.spec);
        let cgroup = Cgroup::make(&OwnGroups::read(), std::process::id(), &self.spec);
        // A control group of version 2 may still have to be abandoned.
        let is_kept = cgroup.held.contains(&Layer::Memory) && cgroup.start_in.is_none();
        let can_watch_memory = !is_kept && memory_watch::is_possible();
        let mut prepared = Prepared {
            cgroup,
            paths,
            ruleset: Err(String::new()),
            filter: Err(String::new()),
            can_watch_memory,
            descriptors,
        };
        self.guard(&mut prepared);
        prepared
    }

    /// Sets up the cell's guards other than its control group.
    fn guard(&self, prepared: &mut Prepared) {
        let spec = &self.spec;
        let guarded = Guarded {
            ports: self.guards_ports(),
            mapped_memory: prepared.is_memory_watched(spec),
        };
        let ruleset = files::ruleset(&prepared.paths, spec, guarded);
        prepared.ruleset = ruleset.map_err(|error| format!("Landlock refuses: {error}"));
        let filter = system_calls::filter(spec, guarded);
        prepared.filter = filter.map_err(|error| error.to_string());
    }

    /// Starts the cell's first process, in as many namespaces as the machine allows.
    fn start(&self, mut prepared: Prepared) -> Result<Cell, String> {
        let mut namespaces = Namespaces {
            user: Ok(()),
            pid: Ok(()),
        };
        loop {
            let pipe = || io::pipe().map_err(|error| format!("no pipe: {error}"));
            let ((go, mut go_writer), (status, status_writer)) = (pipe()?, pipe()?);
            let cgroup = prepared.cgroup.start_in.as_ref().map(AsFd::as_fd);
            let init = match os::clone(namespaces.flags(), cgroup) {
                Ok(Some(init)) => init,
                Ok(None) => {
                    drop((go_writer, status));
                    let status = status_writer;
                    init::run(self, prepared, namespaces, Connection { go, status })
                }
                Err(error) if prepared.cgroup.start_in.is_some() => {
                    prepared.cgroup.give_up_start(&error);
                    self.guard(&mut prepared);
                    continue;
                }
                Err(error) => {
                    namespaces.give_up_one(&error)?;
                    continue;
                }
            };
            drop((go, status_writer));
            if namespaces.user.is_ok()
                && let Err(error) = self.user.map(init)
            {
                let _ = kill_process(init, Signal::KILL);
                let _ = waitpid(Some(init), WaitOptions::empty());
                namespaces.user = Err(format!("its user cannot be set: {error}"));
                continue;
            }
            go_on(&mut go_writer);
            let is_watched = prepared.is_memory_watched(&self.spec);
            return Ok(Cell {
                memory_watch: is_watched.then(|| MemoryWatch::new(&self.spec)),
                has_too_much: false,
                may_execute: false,
                init,
                go: go_writer,
                status,
                cgroup: prepared.cgroup,
                has_namespace: namespaces.pid.is_ok(),
            });
        }
    }
}

/// Releases standard input and output, which belong to the command, so that they end for the service when the command
/// closes them. `instead` takes their numbers, so that no later descriptor does.
pub(super) fn leave_pipes(instead: impl AsFd) {
    // Fails only for a closed descriptor.
    let _ = dup2_stdin(&instead);
    let _ = dup2_stdout(&instead);
}

/// Lets the cell's waiting process continue. If it has ended, its status shows why.
fn go_on(go: &mut PipeWriter) {
    drop(go.write_all(&[1]));
}

impl Namespaces {
    fn flags(&self) -> i32 {
        let user = if self.user.is_ok() { os::NEW_USER } else { 0 };
        let pid = if self.pid.is_ok() { os::NEW_PID } else { 0 };
        user | pid
    }

    /// Gives up one namespace that the system refused.
    fn give_up_one(&mut self, error: &io::Error) -> Result<(), String> {
        let refused = |what| Err(format!("the system refused {what} namespace: {error}"));
        if self.user.is_ok() {
            self.user = refused("a user");
        } else if self.pid.is_ok() {
            self.pid = refused("a pid");
            // Then orphans of the cell are reparented to this process, which ends them.
            let _ = set_child_subreaper(Some(getpid()));
        } else {
            return Err(format!("the system refused to start a process: {error}"));
        }
        Ok(())
    }
}

/// Returns what happened to a descriptor so far: an error, or one of the `wanted` events.
pub(super) fn events_now(source: &impl AsFd, wanted: PollFlags) -> PollFlags {
    let mut polled = [PollFd::new(source, wanted)];
    poll(&mut polled, Some(&Timespec::default()))
        .map_or(PollFlags::empty(), |_| polled[0].revents())
}

/// A running cell.
struct Cell {
    init: Pid,
    go: PipeWriter,
    status: PipeReader,
    cgroup: Cgroup,
    has_namespace: bool,
    /// Present if no control group limits its memory.
    memory_watch: Option<MemoryWatch>,
    /// Whether it was killed for exceeding its memory limit.
    has_too_much: bool,
    /// Whether the command was allowed to execute.
    may_execute: bool,
}

impl Cell {
    /// Waits until all of the cell has ended, and reports the limits that it reached. Returns how its command ended,
    /// or its first process if that ended first; `None` if its control group was removed before the command started.
    fn wait(mut self, spec: &CellSpec, reporter: &Reporter) -> Option<ExitStatus> {
        let mut ended = None;
        let mut told = [0; Told::SIZE];
        loop {
            self.watch_memory();
            if self.status.read_exact(&mut told).is_err() {
                break;
            }
            let status = match Told::from_bytes(told) {
                Told::AboutToExecute => {
                    self.let_execute();
                    continue;
                }
                Told::Rests(is_at_rest) => {
                    let watch = self.memory_watch.as_mut();
                    if watch.is_some_and(|watch| watch.rests(is_at_rest)) {
                        self.end_for_memory();
                    }
                    continue;
                }
                Told::Status(status) => ExitStatus::from_raw(status),
            };
            if status.stopped_signal().is_some() {
                // A launcher that watches memory does not stop.
                if self.memory_watch.is_none() {
                    self.stop_too();
                }
            } else if !status.continued() {
                ended = Some(status);
            }
        }
        let waited = rustix::io::retry_on_intr(|| waitpid(Some(self.init), WaitOptions::empty()));
        if !self.has_namespace {
            end_leftovers();
        }
        let memory = self
            .has_too_much
            .then_some(MetLimit::Memory(spec.memory_max));
        for limit in memory.into_iter().chain(self.cgroup.met(spec)) {
            reporter.tell(&Report::Met(limit));
        }
        self.cgroup.remove();
        let of_init = waited
            .ok()
            .flatten()
            .map_or(NOT_MADE_STATUS << 8, |(_, status)| status.as_raw());
        let of_init = ExitStatus::from_raw(of_init);
        let is_group_gone = !self.may_execute && of_init.code() == Some(GROUP_GONE_STATUS);
        (!is_group_gone).then(|| ended.unwrap_or(of_init))
    }

    /// Watches the cell's memory until its status changes.
    fn watch_memory(&mut self) {
        while let Some(watch) = &mut self.memory_watch {
            if watch.is_due_and_exceeded() {
                return self.end_for_memory();
            }
            let wait = watch.wait().and_then(|wait| Timespec::try_from(wait).ok());
            let mut polled = [PollFd::new(&self.status, PollFlags::IN)];
            // After a signal, the wait is repeated.
            if poll(&mut polled, wait.as_ref()).is_ok_and(|count| count > 0) {
                return;
            }
        }
    }

    /// Ends the cell, which exceeds its memory limit.
    fn end_for_memory(&mut self) {
        (self.memory_watch, self.has_too_much) = (None, true);
        let _ = kill_process(self.init, Signal::KILL);
    }

    /// Leaves termination signals to the command from now on, and lets it be executed.
    fn let_execute(&mut self) {
        self.may_execute = true;
        leave_pipes(&self.status);
        os::ignore_requests_to_end();
        go_on(&mut self.go);
        self.cgroup.remove_abandoned();
    }

    /// Stops like the command, until both are continued.
    fn stop_too(&self) {
        let mut polled = [PollFd::new(&self.status, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: STOP_NS,
        };
        if matches!(poll(&mut polled, Some(&wait)), Ok(0)) {
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }
}

/// Kills processes that outlived the first process of a cell without a namespace: they are children of this process
/// now.
fn end_leftovers() {
    for _ in 0..LEFTOVER_ROUNDS_MAX {
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let pids = children
            .split_whitespace()
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        for pid in pids {
            let _ = kill_process(pid, Signal::KILL);
        }
        let options = if children.is_empty() {
            WaitOptions::NOHANG
        } else {
            WaitOptions::empty()
        };
        if !matches!(wait(options), Ok(Some(_))) {
            return;
        }
    }
}

/// Ends this process with another's exit status, or by its signal.
fn end_as(status: ExitStatus) -> ! {
    match (status.code(), status.signal()) {
        (Some(code), _) => exit(code),
        (None, signal) => os::end_by(signal.unwrap_or(libc::SIGKILL)),
    }
}
