//! Child processes: starting, confining, reading, signalling, killing and reaping them. The only crate that makes
//! system calls about processes.
//!
//! SUMMARY   [`Spawner`] starts children from one thread; [`Child`] is one of them. A child is started in its
//!           [`cell`], so cell and start are one crate: separate ones would depend on each other. Independent of
//!           query servers, their protocol, pools and configuration.
//! PROMISES  A child leads its own process group, and a session unless it is in a cell. Its holder reaps it after
//!           killing its group; dropping it kills and reaps it. Signals go only to unreaped processes, so never to an
//!           unrelated process with a reused PID. When this program is killed, the system kills every child.
//! SOURCE    couch_os_process and its killer process; defect D14 (`kill -9 PID` after the fact, the
//!           direct child only) is not ported.
//! LIMITS    Without a cell, a grandchild that starts its own session escapes the group, and when this program is
//!           killed, grandchildren live until their input ends. Without pidfds (Linux before 5.3), the group of a child
//!           that ends by itself is not killed. Waiting for children needs a tokio runtime whose tasks stay on their
//!           thread.

#![warn(missing_docs)]

pub mod cell;
mod exit;
pub mod line_buffer;
pub mod parent_death;
pub mod pipe;
mod posix;
pub mod stderr;
pub mod unpooled_child;
pub mod usage;
pub mod watches;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use cell::report::Reports;
use cell::{Cell, OwnGroups, SandboxMode};
use exit::signal_text;
use posix::Unreaped;

pub use exit::Exit;
pub use posix::{Pipes, watch};

/// Poll interval for a child's exit if the system has no pidfd (Linux before 5.3).
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A program and its arguments, ready to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program: a path, or a name to look up in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its environment; without a cell it is added to the inherited one.
    pub environment: Vec<(String, String)>,
    /// Its sandbox.
    pub cell: Cell,
}

/// A child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program.
    #[error("the program '{}' was not found; correct the command or install it", .0.display())]
    NotFound(PathBuf),
    /// The program exists but cannot be executed.
    #[error("the program '{}' cannot be executed: {source}", program.display())]
    NotExecutable {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system cannot create another process.
    #[error("the system refused to start a process: {0}")]
    Refused(#[from] io::Error),
    /// The spawning thread is gone: the service is ending.
    #[error("the service is ending")]
    Ending,
}

struct SpawnRequest {
    command: CommandSpec,
    reply: oneshot::Sender<Result<(Unreaped, Pipes), SpawnError>>,
}

/// Starts children from a dedicated thread.
///
/// A start blocks the thread for 0.1 to 0.4 ms, and longer if the program is on a slow disk. The thread lives as
/// long as the last clone of its spawner, because a child's parent-death signal is tied to the thread that started
/// it.
#[derive(Clone, Debug)]
pub struct Spawner {
    requests: mpsc::Sender<SpawnRequest>,
}

impl Spawner {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot create another thread.
    pub fn start() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<SpawnRequest>();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for request in inbox {
                    let result = spawn(&request.command);
                    // If the caller gave up, the child is dropped, which kills and reaps it.
                    drop(request.reply.send(result));
                }
            })?;
        Ok(Self { requests })
    }

    /// Starts a child.
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub async fn spawn(&self, command: CommandSpec) -> Result<(Child, Pipes), SpawnError> {
        let launched = match &command.cell {
            Cell::Launched { spec, .. } => Some(spec.mode),
            Cell::None | Cell::Own(_) | Cell::Trial => None,
        };
        let (reply, result) = oneshot::channel();
        self.requests
            .send(SpawnRequest { command, reply })
            .map_err(|_| SpawnError::Ending)?;
        let (process, pipes) = result.await.map_err(|_| SpawnError::Ending)??;
        Ok((Child::watch(process, launched)?, pipes))
    }
}

fn spawn(command: &CommandSpec) -> Result<(Unreaped, Pipes), SpawnError> {
    let program = find_program(&command.program)?;
    posix::spawn(&program, command).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => SpawnError::NotFound(program),
        Some(libc::EACCES | libc::ENOEXEC | libc::EISDIR) => {
            SpawnError::NotExecutable { program, source }
        }
        _ => SpawnError::Refused(source),
    })
}

/// Looks up a bare program name in `PATH`, to distinguish a missing program from a failing one.
pub(crate) fn find_program(program: &Path) -> Result<PathBuf, SpawnError> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Ok(program.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| SpawnError::NotFound(program.to_owned()))
}

/// A running child.
pub struct Child {
    process: RefCell<Unreaped>,
    pidfd: Option<AsyncFd<OwnedFd>>,
    /// The mode of its launched cell.
    launched: Option<SandboxMode>,
    /// Its processor time when it was reaped.
    cpu_time_at_end: RefCell<Option<Duration>>,
    pid: u32,
}

impl Child {
    fn watch(process: Unreaped, launched: Option<SandboxMode>) -> io::Result<Self> {
        // Without a pidfd of the system, its end is polled.
        let pidfd = pidfd_open(process.pid, PidfdFlags::empty()).ok();
        let pidfd = pidfd.map(|fd| watch(fd, Interest::READABLE)).transpose()?;
        Ok(Self {
            pid: process.pid.as_raw_pid().unsigned_abs(),
            process: RefCell::new(process),
            pidfd,
            launched,
            cpu_time_at_end: RefCell::default(),
        })
    }

    /// Returns the child's PID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns a function that checks whether the processor limit has throttled its cell so far; `None` without a
    /// launcher. The function reads files and blocks: call it on its own thread.
    pub fn held_back(&self) -> Option<impl FnOnce() -> bool + Send + 'static> {
        let launcher = self.pid;
        self.launched
            .map(|_| move || OwnGroups::read().has_held_back(launcher))
    }

    /// Asks the child and its group to end (SIGTERM). A suspended one does so once resumed.
    pub fn terminate(&self) {
        self.process.borrow().signal_group(Signal::TERM);
    }

    /// Kills the child and its group (SIGKILL).
    pub fn kill(&self) {
        self.process.borrow().signal_group(Signal::KILL);
    }

    /// Returns whether the child was stopped or continued since the last call. The group of a launcher follows it.
    pub fn stop_or_continue(&self) -> Option<StopOrContinue> {
        let process = self.process.borrow();
        if process.reaped {
            return None;
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(process.pid), options).ok()??;
        let follow = |signal| {
            // A stop or continuation of the launcher is meant for its command.
            if self.launched.is_some() {
                process.signal_group(signal);
            }
        };
        if let Some(signal) = status.stopping_signal() {
            follow(Signal::STOP);
            return Some(StopOrContinue::Stopped(signal_text(signal)));
        }
        status.continued().then(|| {
            follow(Signal::CONT);
            StopOrContinue::Continued
        })
    }

    /// Returns how it ended, for reports about a child that ended by itself. One in a cell that has `answered`
    /// nothing and exits with an error may lack something that its cell denies.
    pub fn describe(&self, exit: Exit, reports: Option<&Reports>, answered: bool) -> String {
        let error = reports.and_then(|reports| reports.error.as_ref());
        let described = match (error, self.launched) {
            (Some(why), _) => format!("was not started: {why}"),
            (None, Some(_)) if !answered && !exit.is_failure() => {
                format!("{exit} before its first answer")
            }
            (None, Some(mode)) if !answered => format!(
                "{exit} before its first answer, in a cell (sandbox = \"{mode}\"; if it lacks a file, the \
                 network or a variable there, see read_paths, network and env in its pool; what it reads must be \
                 readable by others)"
            ),
            _ => exit.to_string(),
        };
        match reports.and_then(|reports| reports.met) {
            Some(met) => format!("{described}: {met}"),
            None => described,
        }
    }

    /// Returns its processor time when it was reaped; for a launcher that of its cell, which it has waited for.
    pub fn cpu_time_at_end(&self) -> Option<Duration> {
        *self.cpu_time_at_end.borrow()
    }

    fn note_cpu_time(&self) {
        if !self.process.borrow().reaped {
            *self.cpu_time_at_end.borrow_mut() = match self.launched {
                Some(_) => usage::cpu_time_waited_for(self.pid),
                None => usage::cpu_time(self.pid),
            };
        }
    }

    /// Waits until the child has ended, kills the rest of its group if the system has pidfds, and reaps it.
    ///
    /// The group is killed before the child is reaped, while its number cannot be reused. Safe to cancel. After it
    /// has returned, further calls never return.
    pub async fn reap(&self) -> Exit {
        loop {
            match &self.pidfd {
                // A pidfd becomes readable when its process ends, and stays so.
                Some(pidfd) => drop(pidfd.readable().await),
                None => tokio::time::sleep(EXIT_POLL_INTERVAL).await,
            }
            if self.pidfd.is_some() {
                self.kill();
            }
            self.note_cpu_time();
            let reaped = self.process.borrow_mut().try_reap();
            if let Some(status) = reaped {
                return Exit(status);
            }
            if self.process.borrow().reaped {
                return std::future::pending().await;
            }
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({})", self.pid)
    }
}

/// A change of a child that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopOrContinue {
    /// The signal of this name stopped it.
    Stopped(String),
    /// It was continued.
    Continued,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandSpec {
        CommandSpec {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            cell: Cell::None,
        }
    }

    #[actix_rt::test]
    async fn an_exit_is_reported_in_words_and_as_a_shell_status() {
        let spawner = Spawner::start().unwrap();
        for (script, status, words) in [
            ("exit 3", 3, "exited with status 3"),
            ("kill -KILL $$", 137, "was killed by SIGKILL"),
            (
                "exec /no/such/program",
                127,
                "exited with status 127 (the command was not found)",
            ),
        ] {
            let (child, _pipes) = spawner.spawn(shell(script)).await.unwrap();
            let exit = child.reap().await;
            assert_eq!((exit.status(), exit.to_string().as_str()), (status, words));
        }
    }

    #[actix_rt::test]
    async fn a_program_that_is_missing_or_not_executable_is_an_error_at_once() {
        let spawner = Spawner::start().unwrap();
        let with = |program: &str| CommandSpec {
            program: program.into(),
            ..shell("")
        };
        let missing = spawner
            .spawn(with("no-such-program-anywhere"))
            .await
            .unwrap_err();
        assert!(matches!(missing, SpawnError::NotFound(_)), "{missing}");
        let missing = spawner.spawn(with("/no/such/program")).await.unwrap_err();
        assert!(matches!(missing, SpawnError::NotFound(_)), "{missing}");
        let folder = spawner.spawn(with("/etc/passwd")).await.unwrap_err();
        assert!(
            matches!(folder, SpawnError::NotExecutable { .. }),
            "{folder}"
        );
    }

    #[actix_rt::test]
    async fn a_child_leads_a_session_and_a_group_of_its_own() {
        let spawner = Spawner::start().unwrap();
        let (child, _pipes) = spawner.spawn(shell("sleep 600")).await.unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        // After the name in parentheses: state, parent, group, session.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        let pid = child.pid().to_string();
        assert_eq!(fields[2..4], [pid.as_str(), pid.as_str()]);
    }

    #[actix_rt::test]
    async fn the_environment_is_inherited_with_what_was_added() {
        let spawner = Spawner::start().unwrap();
        let script = r#"[ "$SETTEE_ADDED" = "a=b c" ] && [ -n "$PATH" ] && exit 7"#;
        let mut command = shell(script);
        command.environment = vec![("SETTEE_ADDED".into(), "a=b c".into())];
        let (child, _pipes) = spawner.spawn(command).await.unwrap();
        assert_eq!(child.reap().await.status(), 7);
    }

    #[actix_rt::test]
    async fn killing_a_child_kills_its_whole_group() {
        let spawner = Spawner::start().unwrap();
        let (child, pipes) = spawner
            .spawn(shell("sleep 600 & echo $!; wait"))
            .await
            .unwrap();
        let stdout = watch(std::fs::File::from(pipes.stdout), Interest::READABLE).unwrap();
        let mut line = [0; 32];
        let length = stdout
            .async_io(Interest::READABLE, |mut file| {
                io::Read::read(&mut file, &mut line)
            })
            .await
            .unwrap();
        let grandchild = String::from_utf8_lossy(&line[..length]).trim().to_owned();
        child.kill();
        assert_eq!(child.reap().await.status(), 137);
        // The grandchild held the other end of the pipe: the pipe closes when it ends.
        let end = stdout
            .async_io(Interest::READABLE, |mut file| {
                io::Read::read(&mut file, &mut line)
            })
            .await
            .unwrap();
        assert_eq!(end, 0, "grandchild {grandchild} lives");
    }

    #[actix_rt::test]
    async fn the_processor_time_of_a_child_is_known_after_its_end() {
        let spawner = Spawner::start().unwrap();
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let (child, _pipes) = spawner.spawn(shell(script)).await.unwrap();
        assert_eq!(child.cpu_time_at_end(), None);
        child.reap().await;
        let time = child.cpu_time_at_end().unwrap();
        assert!(time > Duration::from_millis(1), "{time:?}");
        assert_eq!(usage::cpu_time(child.pid()), None);
    }

    #[actix_rt::test]
    async fn a_dropped_child_is_killed_and_reaped() {
        let spawner = Spawner::start().unwrap();
        let (child, _pipes) = spawner.spawn(shell("sleep 600")).await.unwrap();
        let pid = child.pid();
        drop(child);
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while Path::new(&format!("/proc/{pid}")).exists() {
            assert!(
                std::time::Instant::now() < deadline,
                "child {pid} is still there"
            );
            actix_rt::task::yield_now().await;
        }
    }
}
