//! Sockets passed to a service, as by systemd's socket activation.

use std::os::fd::OwnedFd;
use std::process::Command;

use command_fds::{CommandFdExt, FdMapping};

/// The number of the first descriptor that is passed.
const FIRST: i32 = 3;

/// Returns a command that starts a service and passes it named sockets.
pub fn pass<'a>(serve: Command, sockets: impl IntoIterator<Item = (&'a str, OwnedFd)>) -> Command {
    let (names, sockets): (Vec<&str>, Vec<OwnedFd>) = sockets.into_iter().unzip();
    let mut command = Command::new("sh");
    // A program started by `exec` keeps the pid of this shell.
    command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"]);
    command.arg(serve.get_program()).args(serve.get_args());
    for (name, value) in serve.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("LISTEN_FDS", names.len().to_string());
    command.env("LISTEN_FDNAMES", names.join(":"));
    let mappings = (FIRST..).zip(sockets);
    let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping {
        parent_fd,
        child_fd,
    });
    command.fd_mappings(mappings.collect()).unwrap();
    command
}
