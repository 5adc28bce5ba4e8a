//! A PostgreSQL server for tests: Debian's programs, in a temporary folder, on a Unix socket.
//!
//! PROMISES  It stops with the last test that uses it, and leaves nothing. By default it listens on no network.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// Maximum wait for each line that the starting server logs.
const START_MAX: Duration = Duration::from_secs(120);

/// The user and group of the server if root runs the tests: `nobody`.
pub const NOBODY: u32 = 65_534;

/// The server that tests share.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A server.
pub struct Server {
    folder: TempDir,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
}

/// A connection, closed on drop.
pub struct Session {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Runs statements that return no rows.
    pub fn run(&mut self, sql: &str) {
        let asked = self.child.stdin.as_mut().unwrap();
        writeln!(asked, "{sql};\n\\echo done").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "{sql}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One test's own database, and its server, which must live as long.
pub struct TestDatabase {
    server: Arc<Server>,
    name: String,
}

pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Returns the folder of the newest version's programs.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let versions = versions.expect("PostgreSQL: apt-get install postgresql");
    let number = |path: &PathBuf| -> u32 {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.parse().unwrap_or(0)
    };
    let versions = versions.map(|entry| entry.unwrap().path());
    versions.max_by_key(number).unwrap().join("bin")
}

fn program(name: &str) -> Command {
    let mut command = Command::new(programs().join(name));
    command.env("LC_ALL", "C").current_dir("/");
    command
}

/// For a program that refuses to run as root: changes to `nobody` if the tests run as root.
fn as_nobody(mut command: Command) -> Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

impl Server {
    /// Returns the server that all tests share; starts it for the first.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::new(&[], |_| {}));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts a server with these settings, after `prepare` has put files into its folder.
    pub fn new(settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut init = program("initdb");
        init.args([
            "--no-sync",
            "--auth=trust",
            "--username=settee",
            "--encoding=UTF8",
            "-D",
        ]);
        init.arg(folder.path().join("data"));
        succeeded(as_nobody(init).output().unwrap());
        prepare(folder.path());
        let server = Self {
            folder,
            settings: settings
                .iter()
                .map(|setting| (*setting).to_owned())
                .collect(),
            child: Mutex::default(),
        };
        server.start();
        server
    }

    /// The folder of its socket and data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn port(&self) -> u16 {
        let mut ports = self
            .settings
            .iter()
            .filter_map(|setting| setting.strip_prefix("port="));
        ports.next().map_or(5432, |port| port.parse().unwrap())
    }

    /// Starts the server, or restarts it after [`stop`](Self::stop).
    pub fn start(&self) {
        let mut command = program("postgres");
        command.arg("-D").arg(self.folder().join("data"));
        command.arg("-k").arg(self.folder());
        let always = ["listen_addresses=", "fsync=off", "max_connections=300"];
        for setting in always
            .into_iter()
            .chain(self.settings.iter().map(String::as_str))
        {
            command.args(["-c", setting]);
        }
        let command = &mut as_nobody(command);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        *self.child.lock().unwrap() = Some(child);
        let (said, heard) = mpsc::channel();
        // The thread ends with the server.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The receiver is gone once the server is ready.
                drop(said.send(line));
            }
        });
        let mut log = Vec::new();
        loop {
            match heard.recv_timeout(START_MAX) {
                Ok(line) if line.contains("ready to accept connections") => return,
                Ok(line) => log.push(line),
                Err(error) => panic!("{error}: {log:#?}"),
            }
        }
    }

    /// Stops the server as a crash would.
    pub fn stop(&self) {
        let child = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut child) = child {
            kill_process(Pid::from_child(&child), Signal::QUIT).unwrap();
            child.wait().unwrap();
        }
    }

    /// Copies all that was committed, for [`fail_over`](Self::fail_over).
    pub fn back_up(&self) {
        let mut copy = program("pg_basebackup");
        copy.args(["--no-sync", "--checkpoint=fast", "-U", "settee", "-h"]);
        copy.arg(self.folder()).arg("-D").arg(self.standby());
        copy.env("PGPORT", self.port().to_string());
        succeeded(as_nobody(copy).output().unwrap());
    }

    fn standby(&self) -> PathBuf {
        self.folder().join("standby")
    }

    /// Stops the server as a crash would; the copy takes over, as a standby that received nothing after the backup.
    pub fn fail_over(&self) {
        self.stop();
        let data = self.folder().join("data");
        fs::remove_dir_all(&data).unwrap();
        fs::rename(self.standby(), &data).unwrap();
        // The copy has nothing more to restore, and starts a new timeline.
        fs::write(data.join("recovery.signal"), "").unwrap();
        let settings = data.join("postgresql.auto.conf");
        fs::write(&settings, "restore_command = 'false'\n").unwrap();
        self.start();
    }

    /// Runs a statement and returns its output.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.psql(database);
        psql.args(["-c", sql]);
        succeeded(psql.output().unwrap()).trim().to_owned()
    }

    fn psql(&self, database: &str) -> Command {
        let mut psql = program("psql");
        psql.args([
            "-X",
            "-q",
            "-At",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "settee",
            "-h",
        ]);
        psql.arg(self.folder()).args(["-d", database]);
        psql.env("PGPORT", self.port().to_string());
        psql
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl TestDatabase {
    /// Makes a database on the server that all tests share.
    pub fn new() -> Self {
        Self::on(Server::shared())
    }

    /// Makes a database on this server.
    pub fn on(server: Arc<Server>) -> Self {
        let name = format!("test{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        server.sql(
            "postgres",
            &format!("CREATE DATABASE {name} TEMPLATE template0"),
        );
        Self { server, name }
    }

    pub fn url(&self) -> String {
        let folder = self.server.folder().display();
        format!("postgres://settee:secret@/{}?host={folder}", self.name)
    }

    /// Returns its URL if the server is reached at another address.
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!(
            "postgres://settee:secret@{address}/{}?sslmode=disable",
            self.name
        )
    }

    /// The socket of its server.
    pub fn socket(&self) -> PathBuf {
        let name = format!(".s.PGSQL.{}", self.server.port());
        self.server.folder().join(name)
    }

    pub fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }

    /// Opens a connection on which transactions can stay open.
    pub fn session(&self) -> Session {
        let mut psql = self.server.psql(&self.name);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Session { child, answers }
    }

    /// Suspends the backends of all connections to it; returns them for [`resume`].
    pub fn pause(&self) -> Vec<Pid> {
        let others = "SELECT pid FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let pids = self.sql(others);
        let pids = pids
            .lines()
            .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap());
        let pids: Vec<Pid> = pids.collect();
        assert!(!pids.is_empty());
        for pid in &pids {
            kill_process(*pid, Signal::STOP).unwrap();
        }
        pids
    }

    /// Terminates all connections to it; returns how many.
    pub fn cut(&self) -> usize {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.sql(cut).parse().unwrap()
    }
}

/// Resumes suspended processes.
pub fn resume(pids: &[Pid]) {
    for pid in pids {
        kill_process(*pid, Signal::CONT).unwrap();
    }
}
