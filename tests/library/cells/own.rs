//! The cell of the built-in JavaScript server, tested from outside, and the server's work in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::{Value, json};
use settee::config::SandboxMode;
use settee::query_server::cell::Cell;
use settee::query_server::child::{CommandSpec, Spawner};

use crate::support::program::{SETTEE, run};

/// The strictest mode that this machine allows.
pub fn strictest() -> SandboxMode {
    let strict = run(&mut couchjs(&["--sandbox", "strict"]), b"[\"reset\"]\n");
    if strict.status.success() {
        return SandboxMode::Strict;
    }
    eprintln!("not strict: {}", String::from_utf8_lossy(&strict.stderr));
    SandboxMode::Standard
}

fn couchjs(options: &[&str]) -> Command {
    let mut command = Command::new(SETTEE);
    command.arg("couchjs").args(options);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A server that has answered, and so is in its cell.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running {
            child,
            input,
            output,
        };
        assert_eq!(running.ask(&json!(["reset"])), json!(true));
        running
    }

    fn ask(&mut self, prompt: &Value) -> Value {
        writeln!(self.input, "{prompt}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// Returns what a map function emits for an empty document.
    fn value(&mut self, expression: &str) -> Value {
        assert_eq!(self.ask(&json!(["reset"])), json!(true));
        let map = format!("function(doc) {{ emit(null, {expression}); }}");
        assert_eq!(self.ask(&json!(["add_fun", map])), json!(true));
        self.ask(&json!(["map_doc", {}]))[0][0][1].clone()
    }

    fn proc(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn resident_kib(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    /// The status of each of its threads: names and values.
    fn statuses(&self) -> Vec<BTreeMap<String, String>> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let status = |path: &Path| {
            let text = fs::read_to_string(path.join("status")).unwrap();
            let values = text.lines().filter_map(|line| line.split_once(':'));
            let values = values.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
            values.collect()
        };
        threads
            .map(|thread| status(&thread.unwrap().path()))
            .collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_server_started_without_options_is_in_a_cell_with_all_its_threads() {
    let server = Running::start(&mut couchjs(&[]));
    let statuses = server.statuses();
    assert!(statuses.len() > 1, "the engine has a thread of its own");
    for status in statuses {
        assert_eq!(status["Seccomp"], "2");
        assert_eq!(status["NoNewPrivs"], "1");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set}");
        }
    }
    assert_eq!(server.proc("oom_score_adj").trim(), "500");
}

#[test]
fn a_server_without_a_cell_has_the_rights_of_its_parent() {
    let server = Running::start(&mut couchjs(&["--sandbox", "off"]));
    let own = fs::read_to_string("/proc/self/status").unwrap();
    for status in server.statuses() {
        for name in ["Seccomp", "NoNewPrivs", "CapEff"] {
            let line = format!("{name}:\t{}", status[name]);
            assert!(own.lines().any(|own| own == line), "{line}");
        }
    }
}

#[test]
fn a_server_in_a_cell_does_not_grow_over_repeated_forgets() {
    const ROUNDS: usize = 100;
    // Less than the growth if one round in twenty leaked, and more than the memory prepared for the next round.
    const GROWTH_KIB_MAX: u64 = 4 << 10;
    let mode = strictest().to_string();
    let mut server = Running::start(&mut couchjs(&["--sandbox", &mode]));
    let show = "function(doc) { globalThis.all = []; for (var i = 0; i < 1e4; i++) all.push({i: i}); return doc.n; }";
    let ddoc = json!({"_id": "_design/d", "shows": {"s": show}});
    let mut resident = Vec::new();
    for _ in 0..ROUNDS {
        assert_eq!(server.value("typeof all"), json!("undefined"));
        assert_eq!(
            server.ask(&json!(["ddoc", "new", "_design/d", ddoc])),
            json!(true)
        );
        let shown = server.ask(&json!(["ddoc", "_design/d", ["shows", "s"], [{"n": "x"}, {}]]));
        assert_eq!(shown, json!(["resp", {"body": "x"}]));
        assert_eq!(server.ask(&json!(["forget", {}])), json!(true));
        resident.push(server.resident_kib());
    }
    let (first, last) = (resident[1], resident[ROUNDS - 1]);
    assert!(last <= first + GROWTH_KIB_MAX, "from {first} to {last} KiB");
}

#[test]
fn a_server_in_a_cell_may_open_few_descriptors_and_write_no_files_or_core_dumps() {
    let server = Running::start(&mut couchjs(&[]));
    let limits = server.proc("limits");
    for (name, limit) in [
        ("Max file size", "0"),
        ("Max core file size", "0"),
        ("Max open files", "16"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let values: Vec<&str> = line[name.len()..].split_whitespace().collect();
        assert_eq!(values[..2], [limit, limit], "{name}");
    }
}

#[test]
fn a_server_in_a_cell_closes_inherited_descriptors() {
    let file = fs::File::open("/etc/passwd").unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    let server = Running::start(&mut couchjs(&[]));
    fcntl_setfd(&file, FdFlags::CLOEXEC).unwrap();
    let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", server.child.id())) else {
        return eprintln!("skipped: reading the descriptors requires root");
    };
    let mut open: Vec<String> = entries
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    // Its streams, and its own timer.
    open.retain(|target| !target.starts_with("pipe:") && target != "anon_inode:[timerfd]");
    let status = format!("/proc/{}/status", server.child.id());
    assert_eq!(open, [status], "{}", file.as_raw_fd());
}

#[test]
fn a_server_in_a_cell_has_its_own_user_namespace_without_mapped_users() {
    if strictest() != SandboxMode::Strict {
        return eprintln!("skipped: this machine lacks a layer");
    }
    let server = Running::start(&mut couchjs(&[]));
    assert_eq!(server.proc("uid_map"), "");
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user"));
    if let Ok(its) = of(&server.child.id().to_string()) {
        assert_ne!(its, of("self").unwrap());
    }
}

#[test]
fn a_program_that_enters_its_own_cell_gets_only_the_given_environment() {
    actix_rt::System::new().block_on(async {
        let command = CommandSpec {
            program: "sh".into(),
            // Variables that a shell sets itself are ignored.
            arguments: vec![
                "-c".into(),
                "[ \"$(env | grep -vE '^(PWD|OLDPWD|SHLVL|_)=')\" = TZ=UTC ]".into(),
            ],
            environment: vec![("TZ".into(), "UTC".into())],
            cell: Cell::Own(SandboxMode::Standard),
        };
        let spawner = Spawner::start().unwrap();
        let (child, _pipes) = spawner.spawn(command).await.unwrap();
        let exit = child.reap().await;
        assert!(exit.is_success(), "{exit}");
    });
}

#[test]
fn functions_in_the_cell_see_local_summer_and_winter_time() {
    let mode = match strictest() {
        SandboxMode::Strict => "strict",
        _ => "standard",
    };
    let rules = ":Europe/Berlin";
    let mut zones = vec![("CET-1CEST,M3.5.0,M10.5.0/3", [-60, -120])];
    match Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
        true => zones.push((rules, [-60, -120])),
        false => eprintln!("skipped: this machine has no time zone files"),
    }
    for (zone, offsets) in zones {
        let mut server = Running::start(couchjs(&["--sandbox", mode]).env("TZ", zone));
        let offset = |month| format!("new Date(2024, {month}, 15).getTimezoneOffset()");
        let expression = format!("[{}, {}]", offset(0), offset(6));
        assert_eq!(server.value(&expression), json!(offsets), "{zone}");
        let now = server.value("Date.now()").as_i64().unwrap();
        let then = server.value("new Date().getTime()").as_i64().unwrap();
        assert!(now > 1_700_000_000_000 && then >= now);
    }
}

#[test]
fn a_suspended_server_in_a_cell_continues_after_sigcont() {
    let mut server = Running::start(&mut couchjs(&[]));
    for _ in 0..5 {
        // While the later commands run, the writer's thread waits to write the first answer.
        let busy = json!([
            "add_fun",
            "function(doc) { for (var i = 0; i < 1e6; i++); emit(1, 1); }"
        ]);
        for prompt in [&json!(["reset"]), &busy, &json!(["map_doc", {}])] {
            writeln!(server.input, "{prompt}").unwrap();
        }
        server.signal(Signal::STOP);
        server.signal(Signal::CONT);
        let mut answers = String::new();
        for _ in 0..3 {
            server.output.read_line(&mut answers).unwrap();
        }
        assert_eq!(answers, "true\ntrue\n[[[1,1]]]\n");
    }
}

#[test]
fn answers_can_be_redirected_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers");
    let output = fs::File::create(&path).unwrap();
    let done = run(
        Command::new("sh")
            .args(["-c", "exec \"$0\" couchjs > \"$1\"", SETTEE])
            .arg(&path),
        b"[\"reset\"]\n",
    );
    drop(output);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "true\n");
}

/// Sends `reset` to a server for which a system call fails.
fn where_it_fails(call: libc::c_long, error: i32, mode: &str) -> Output {
    let rules = [(call, Vec::new())].into();
    let refused = SeccompAction::Errno(error.unsigned_abs());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    let mut command = couchjs(&["--sandbox", mode]);
    // Children inherit the filter of the thread that starts them.
    let filtered = thread::spawn(move || {
        seccompiler::apply_filter(&filter).unwrap();
        run(&mut command, b"[\"reset\"]\n")
    });
    filtered.join().unwrap()
}

#[test]
fn strict_refuses_to_start_if_a_layer_is_missing_and_reports_the_layer_and_the_cause() {
    if strictest() != SandboxMode::Strict {
        return eprintln!("skipped: this machine lacks a layer");
    }
    for (call, error, layer, reason) in [
        (
            libc::SYS_close_range,
            libc::ENOSYS,
            "descriptors",
            "Linux 5.9",
        ),
        (
            libc::SYS_unshare,
            libc::EPERM,
            "user",
            "max_user_namespaces",
        ),
        (
            libc::SYS_landlock_create_ruleset,
            libc::ENOSYS,
            "files",
            "no Landlock",
        ),
        (libc::SYS_capset, libc::EPERM, "privileges", "capset"),
        (
            libc::SYS_seccomp,
            libc::ENOSYS,
            "network",
            "filter of system calls",
        ),
    ] {
        let strict = where_it_fails(call, error, "strict");
        let stderr = String::from_utf8_lossy(&strict.stderr);
        assert_eq!(strict.status.code(), Some(125), "{layer}: {stderr}");
        assert_eq!(strict.stdout, b"", "{layer}");
        let start = format!("couchjs: the sandbox is strict, and its layer '{layer}' is missing: ");
        assert!(
            stderr.starts_with(&start) && stderr.contains(reason),
            "{stderr}"
        );
        let standard = where_it_fails(call, error, "standard");
        assert!(standard.status.success(), "{layer}: {standard:?}");
        assert_eq!(standard.stdout, b"true\n", "{layer}");
    }
}

#[cfg(target_env = "gnu")]
#[test]
fn servers_share_the_code_of_the_program() {
    let server = Running::start(&mut couchjs(&[]));
    let Ok(maps) = fs::read_to_string(format!("/proc/{}/smaps", server.child.id())) else {
        return eprintln!("skipped: reading the memory map requires root");
    };
    let program = fs::canonicalize(SETTEE).unwrap();
    let (mut is_code, mut own_kib) = (false, 0);
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Anonymous:") {
            let kib: u64 = kib.trim().trim_end_matches(" kB").parse().unwrap();
            own_kib += if is_code { kib } else { 0 };
        } else if line
            .split(' ')
            .next()
            .is_some_and(|word| word.contains('-'))
        {
            is_code = line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap());
        }
    }
    assert_eq!(own_kib, 0, "KiB of the code are private");
}
