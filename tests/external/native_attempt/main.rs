//! Tries what native code running instead of the JavaScript engine could do: `settee-attempt MODE NAME`. Reports the
//! layers of the cell on this machine: `settee-attempt report`.
//!
//! SUMMARY   Enters the cell of the built-in server as `settee couchjs` does, then makes the system call of that name
//!           on the engine's thread. Prints whether it worked: `could`, or `could not: ERRNO`. In a cell the call kills
//!           the process. The call is harmless: it concerns the process itself, or changes nothing.

#![allow(unsafe_code, reason = "raw system calls are what is tried")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::mpsc;
use std::thread;

use couchjs::{Input, Options, ProcessStatus};
use settee::config::SandboxMode;
use settee::query_server::cell::own::{OwnCell, report};

/// An empty input.
struct Nothing;

impl Input for Nothing {
    fn readable(&self) -> bool {
        true
    }

    fn read(&mut self, _buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(0)
    }
}

/// Resources of the attempts, created before the filter is installed.
struct Ready {
    parent: libc::pid_t,
    /// A datagram socket: connecting it succeeds even where nothing listens.
    socket: libc::c_int,
    /// A page of memory.
    page: *mut libc::c_void,
    /// A thread started before the filter, which runs the functions it is sent.
    other_thread: mpsc::Sender<fn() -> i64>,
    its_answer: mpsc::Receiver<i64>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = match arguments.next().as_deref() {
        Some("off") => SandboxMode::Off,
        Some("standard") => SandboxMode::Standard,
        Some("report") => {
            couchjs::limit_process(couchjs::DEFAULT_MEMORY_BYTES);
            return println!("{:?}", report(SandboxMode::Strict));
        }
        mode => panic!("the mode is off or standard, not {mode:?}"),
    };
    let name = arguments.next().expect("the name of an attempt");
    let open = || {
        let output = File::from(io::stdout().as_fd().try_clone_to_owned().unwrap());
        (ProcessStatus::open(), output)
    };
    let (cell, (status, output)) = OwnCell::enter(mode, open).unwrap();
    let done = couchjs::run(
        Options::default(),
        None,
        status,
        Nothing,
        output,
        move || {
            let ready = prepare();
            cell.seal().map_err(io::Error::other)?;
            match attempt(&name, &ready) {
                -1 => println!("could not: {}", io::Error::last_os_error()),
                _ => println!("could"),
            }
            Ok(())
        },
    );
    done.unwrap();
}

fn prepare() -> Ready {
    let (other_thread, asked) = mpsc::channel::<fn() -> i64>();
    let (answer, its_answer) = mpsc::channel();
    thread::spawn(move || {
        for work in asked {
            answer.send(work()).unwrap();
        }
    });
    // A thread that is not running yet would hit the filter while it starts.
    other_thread.send(|| 0).unwrap();
    its_answer.recv().unwrap();
    // SAFETY: the calls take numbers, and return a new descriptor and a new page.
    unsafe {
        Ready {
            parent: libc::getppid(),
            socket: libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0),
            page: map(libc::PROT_READ | libc::PROT_WRITE),
            other_thread,
            its_answer,
        }
    }
}

unsafe fn map(protection: libc::c_int) -> *mut libc::c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the system chooses.
    unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0) }
}

fn open_passwords() -> i64 {
    // SAFETY: the path is a C string.
    unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/etc/passwd".as_ptr(),
            libc::O_RDONLY,
        )
    }
}

/// Makes a system call; -1 means that it failed.
#[expect(clippy::too_many_lines, reason = "one arm for each attempt")]
fn attempt(name: &str, ready: &Ready) -> i64 {
    let passwords = c"/etc/passwd".as_ptr();
    // SAFETY: every pointer is null or points to a value that outlives the call, of the type or length it expects.
    unsafe {
        match name {
            "openat" => open_passwords(),
            "openat_on_another_thread" => {
                ready.other_thread.send(open_passwords).unwrap();
                ready.its_answer.recv().unwrap()
            }
            "openat2" => {
                let how: [u64; 3] = [0; 3];
                let bytes = size_of_val(&how);
                let folder = libc::AT_FDCWD;
                libc::syscall(libc::SYS_openat2, folder, passwords, how.as_ptr(), bytes)
            }
            "readlinkat" => {
                let mut target = [0_u8; 100];
                let link = c"/proc/self/exe".as_ptr();
                let into = target.as_mut_ptr();
                libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link, into, 100)
            }
            "memfd_create" => libc::syscall(libc::SYS_memfd_create, c"file".as_ptr(), 0),
            "socket" => libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into(),
            "connect" => {
                let mut address: libc::sockaddr_in = mem::zeroed();
                address.sin_family = libc::AF_INET as libc::sa_family_t;
                address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
                address.sin_port = 9;
                let bytes = size_of_val(&address) as libc::socklen_t;
                libc::connect(ready.socket, (&raw const address).cast(), bytes).into()
            }
            "sendto" => {
                let mut address: libc::sockaddr_in = mem::zeroed();
                address.sin_family = libc::AF_INET as libc::sa_family_t;
                address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
                address.sin_port = 9_u16.to_be();
                let bytes = size_of_val(&address) as libc::socklen_t;
                let to = (&raw const address).cast();
                libc::sendto(ready.socket, ready.page, 1, 0, to, bytes) as i64
            }
            "execve" => {
                let words = [c"echo".as_ptr(), c"could".as_ptr(), ptr::null()];
                libc::execv(c"/bin/echo".as_ptr(), words.as_ptr()).into()
            }
            "clone" => {
                let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
                if child == 0 {
                    libc::_exit(0);
                }
                child
            }
            "clone3" => {
                // The C library blocks all signals when it starts a thread with clone3, so that a refusal would not be
                // reported there. `exit_signal` is the fifth member.
                let child: [u64; 8] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
                match libc::syscall(libc::SYS_clone3, child.as_ptr(), size_of_val(&child)) {
                    0 => libc::_exit(0),
                    child => child,
                }
            }
            "kill" => libc::kill(ready.parent, 0).into(),
            "tgkill" => libc::syscall(libc::SYS_tgkill, ready.parent, ready.parent, 0),
            "pidfd_open" => libc::syscall(libc::SYS_pidfd_open, ready.parent, 0),
            // `ESRCH` says that the process is not traced: the call was made.
            "ptrace" => match libc::ptrace(libc::PTRACE_DETACH, ready.parent, 0, 0) {
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) => 0,
                done => done,
            },
            "process_vm_readv" => {
                let mut copy = 0_u64;
                let local = libc::iovec {
                    iov_base: (&raw mut copy).cast(),
                    iov_len: 8,
                };
                let remote = libc::iovec {
                    iov_base: ready.page,
                    iov_len: 8,
                };
                libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
                    as i64
            }
            "mmap" => match map(libc::PROT_READ | libc::PROT_EXEC) {
                libc::MAP_FAILED => -1,
                _ => 0,
            },
            "mprotect" => {
                libc::mprotect(ready.page, 4096, libc::PROT_READ | libc::PROT_EXEC).into()
            }
            "pkey_mprotect" => {
                let protection = libc::PROT_READ | libc::PROT_EXEC;
                libc::syscall(libc::SYS_pkey_mprotect, ready.page, 4096, protection, -1)
            }
            "prctl" => libc::prctl(libc::PR_SET_DUMPABLE, 1).into(),
            "unshare" => libc::unshare(libc::CLONE_FILES).into(),
            "prlimit64" => {
                let mut limit: libc::rlimit = mem::zeroed();
                libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into()
            }
            "io_uring_setup" => {
                let mut parameters = [0_u8; 120];
                libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr())
            }
            "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, 0),
            "personality" => libc::personality(0xffff_ffff).into(),
            "fcntl" => libc::fcntl(0, libc::F_DUPFD, 0).into(),
            "ioctl" => {
                let mut bytes = 0;
                libc::ioctl(ready.socket, libc::FIONREAD, &raw mut bytes).into()
            }
            // Priority-inheritance futexes have had kernel vulnerabilities.
            "futex" => {
                let word = 0_u32;
                libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_LOCK_PI, 0, 0)
            }
            // With another handler the process would survive refused calls.
            "rt_sigaction" => match libc::signal(libc::SIGSYS, libc::SIG_IGN) {
                libc::SIG_ERR => -1,
                _ => 0,
            },
            "seccomp" => {
                let action = libc::SECCOMP_RET_TRAP;
                let is_known = libc::SECCOMP_GET_ACTION_AVAIL;
                libc::syscall(libc::SYS_seccomp, is_known, 0, &raw const action)
            }
            #[cfg(target_arch = "x86_64")]
            "open" => libc::syscall(libc::SYS_open, passwords, libc::O_RDONLY),
            #[cfg(target_arch = "x86_64")]
            "fork" => match libc::syscall(libc::SYS_fork) {
                0 => libc::_exit(0),
                child => child,
            },
            #[cfg(target_arch = "x86_64")]
            "x32" => libc::syscall(0x4000_0000 | libc::SYS_getpid),
            #[cfg(target_arch = "x86_64")]
            "int80" => {
                // getpid of the 32-bit interface.
                let mut call = 20_i64;
                std::arch::asm!("int 0x80", inout("rax") call, out("r8") _, out("r9") _,
                    out("r10") _, out("r11") _);
                call
            }
            "panic" => panic!("on purpose"),
            name => panic!("there is no attempt '{name}'"),
        }
    }
}
