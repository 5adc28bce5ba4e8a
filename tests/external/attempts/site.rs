//! Where attempts are made: a service whose only language runs unrestricted Python.
//!
//! PROMISES  A shared site is one service for all its holders; when the last one drops it, it serves one more client,
//!           stops, and leaves nothing behind.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::attempt::Outcome;
use super::run_by::RunBy;
use crate::support::daemon::{
    Client, Service, assert_nothing_runs_for, configure, make_private_folder, serve_command,
};
use crate::support::folder::open_folder;
use crate::support::program::{copy_program, python3};

/// The query server that functions run in.
pub const SERVER: &str = include_str!("server.py");
const CALLS: &str = include_str!("calls.py");

/// Timeout of one attempt: bombs are slow on a busy machine. Milliseconds.
const ATTEMPT_MAX: u64 = 30_000;

/// How long a memory bomb in a cell keeps its memory, unless it is killed. Seconds.
const KEEPS: u64 = 10;

/// The memory limit of a cell, below what the bombs take. Bytes.
const MEMORY_MAX: u64 = 128 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Off,
    Standard,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Standard => "standard",
        }
    }
}

/// A service, and what its functions must not reach.
pub struct Site {
    service: Option<Service>,
    places: Value,
    outside: Outside,
    is_shared: bool,
}

/// Files, a process and listeners that functions must not reach.
struct Outside {
    folder: TempDir,
    neighbour: Child,
    _path: UnixListener,
    _abstract: UnixListener,
    _datagrams: UnixDatagram,
}

type Shared = BTreeMap<(Mode, bool), Weak<Site>>;
static SHARED: Mutex<Shared> = Mutex::new(Shared::new());

impl Site {
    /// Returns the shared site, whose processes each serve one call.
    pub fn shared(mode: Mode, network: bool) -> Arc<Self> {
        // Without a cell the network is always there.
        let network = network && mode == Mode::Standard;
        let mut shared = SHARED
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let place = shared.entry((mode, network)).or_default();
        place.upgrade().unwrap_or_else(|| {
            let pool = format!("max_uses = 1\nnetwork = {network}\n");
            let mut site = Self::start(mode, &pool);
            site.is_shared = true;
            let site = Arc::new(site);
            *place = Arc::downgrade(&site);
            site
        })
    }

    /// Starts a site with these lines for the pool.
    pub fn start(mode: Mode, pool: &str) -> Self {
        Self::start_by(RunBy::Root, mode, pool)
    }

    /// Starts a site that this user runs, who owns what its functions must not reach.
    pub fn start_by(run_by: RunBy, mode: Mode, pool: &str) -> Self {
        let outside = Outside::new(run_by.user());
        let folder = outside.folder.path();
        let server = folder.join("program/server.py");
        let extra = format!(
            "[couchdb]\nos_process_timeout = 10000\n\
             [query_server_config]\nsandbox = \"{}\"\nreuse = \"\"\nmemory_max = {MEMORY_MAX}\n\
             [query_servers]\nattempts = \"{} -IS {}\"\n[pools.attempts]\n{pool}",
            mode.name(),
            python().display(),
            server.display(),
        );
        let directory = tempfile::tempdir().unwrap();
        make_private_folder(&directory.path().join("data"));
        let config = configure(directory.path(), &extra);
        let inherited = fs::File::open(&server).unwrap();
        fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
        let mut command = serve_command(&config);
        command
            .env(
                "SETTEE__STORE__PATH",
                directory.path().join("data/settee.redb"),
            )
            .env("SETTEE__SERVER__HTTP", "127.0.0.1:0")
            .env("SETTEE__SERVER__TCP", "127.0.0.1:0")
            .env("SECRET_OF_THE_TESTS", "1")
            .env("LD_LIBRARY_PATH", "/nowhere");
        if run_by != RunBy::Root {
            make_private_folder(&directory.path().join("run"));
            run_by.owns(directory.path());
            run_by.owns(folder);
            command = run_by.command(folder, &[], "", &command);
        }
        let mut service = Service::start_command(directory, command);
        let tcp = service.next_address("tcp:").port();
        let http = service.next_address("http://").port();
        let mut places = outside.places();
        std::os::unix::fs::symlink(&config, folder.join("program/link")).unwrap();
        for (name, place) in [
            ("config", config),
            ("store", service.path("data/settee.redb")),
            ("password", service.path("data/admin-password")),
            ("socket", service.socket()),
        ] {
            assert!(place.exists(), "{}", place.display());
            places[name] = json!(place);
        }
        let group = rustix::process::getpgid(rustix::process::Pid::from_raw(service.pid() as i32));
        places["service"] = json!(service.pid());
        places["group"] = json!(group.unwrap().as_raw_pid());
        places["address"] = json!(mapped(service.pid(), ""));
        places["keeps"] = json!(if mode == Mode::Off { 0 } else { KEEPS });
        (places["http"], places["tcp"]) = (json!(http), json!(tcp));
        Self {
            service: Some(service),
            places,
            outside,
            is_shared: false,
        }
    }

    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("the service runs")
    }

    /// Runs a function as a new client.
    pub fn run(&self, source: &str, more: &Value) -> Outcome {
        self.run_by(&mut self.service().connect(), source, more)
    }

    /// Runs a function for this client.
    pub fn run_by(&self, client: &mut Client, source: &str, more: &Value) -> Outcome {
        Outcome::from_reply(self.service(), &client.call(&self.call(source, more)))
    }

    /// Returns the request that runs a function.
    pub fn call(&self, source: &str, more: &Value) -> Value {
        let mut document = self.places.clone();
        let members = document.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        call_of("attempts", source, &document)
    }

    /// Stops the service.
    pub fn stop(&mut self) {
        self.service.take().expect("the service runs").stop();
    }

    /// Kills the service.
    pub fn kill(&mut self) {
        self.service.take().expect("the service runs").kill();
    }

    pub fn wait_for_its_query_servers_to_end(&self) {
        assert_nothing_runs_for(self.outside.folder.path());
    }

    pub fn serves_the_next_client(&self) {
        let honest = json!({"attempt": "honest", "function": "works", "n": 41});
        let outcome = self.run("", &honest);
        assert!(
            matches!(&outcome, Outcome::Did(value) if *value == 42),
            "{outcome:?}\n{}",
            self.service().log()
        );
    }

    /// Returns whether this machine lacks a layer, and prints why.
    pub fn lacks(&self, layer: &str) -> bool {
        let mut client = self.service().connect();
        let missing = &client.pool("attempts")["sandbox"]["missing"][layer];
        if let Some(why) = missing.as_str() {
            println!("not tried in a cell, because this machine has no layer '{layer}': {why}");
        }
        !missing.is_null()
    }
}

/// Returns the request that has a query server run the function that a document names.
pub fn call_of(language: &str, source: &str, document: &Value) -> Value {
    json!({
        "id": 1, "call": "map_docs", "lang": language, "timeout_ms": ATTEMPT_MAX,
        "funs": [format!("{CALLS}\n{source}")], "docs": [document],
    })
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.is_shared && !std::thread::panicking() {
            self.serves_the_next_client();
        }
        let service = self.service.take();
        if let Some(service) = service.filter(|_| !std::thread::panicking()) {
            service.stop();
        }
    }
}

impl Outside {
    fn new(user: u32) -> Self {
        let folder = open_folder();
        let path = |name: &str| folder.path().join(name);
        for name in ["program", "home", "spare", "spoils/folder", "spoils/mount"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for name in [
            "home/private",
            "spoils/removed",
            "spoils/renamed",
            "spoils/spoiled",
        ] {
            fs::write(path(name), "nobody else's").unwrap();
        }
        fs::write(path("program/server.py"), SERVER).unwrap();
        copy_program("/bin/true", path("home/true"));
        let mut neighbour = Command::new("cat");
        neighbour.stdin(Stdio::piped());
        if user != 0 {
            neighbour.uid(user).gid(user);
        }
        let neighbour = neighbour.spawn().unwrap();
        let name = abstract_name(folder.path());
        let address = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
        Self {
            _path: greeting(UnixListener::bind(path("home/path.sock")).unwrap()),
            _abstract: greeting(UnixListener::bind_addr(&address(&name)).unwrap()),
            _datagrams: UnixDatagram::bind_addr(&address(&format!("{name}.datagrams"))).unwrap(),
            neighbour,
            folder,
        }
    }

    fn places(&self) -> Value {
        let path = |name: &str| self.folder.path().join(name);
        let name = abstract_name(self.folder.path());
        let (address, byte) = byte_of(self.neighbour.id());
        json!({
            "_id": "attempt", "private": path("home/private"), "elsewhere": path("home/true"), "folder": path("program"), "spare": path("spare"),
            "spoils": path("spoils"), "spoil": path("spoils/spoiled"),
            "link": path("program/link"), "link_target": path("program/server.py"),
            "path_socket": path("home/path.sock"),
            "abstract_socket": name, "abstract_datagrams": format!("{name}.datagrams"),
            "listener": listener(), "neighbour": self.neighbour.id(),
            "neighbour_address": address, "neighbour_byte": byte,
        })
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // The neighbour exits at the end of its input.
        drop(self.neighbour.stdin.take());
        let ended = self.neighbour.wait();
        assert!(std::thread::panicking() || ended.is_ok_and(|status| status.success()));
    }
}

/// Returns the abstract socket name of a folder.
fn abstract_name(folder: &Path) -> String {
    folder.display().to_string()
}

/// Greets every client that connects.
fn greeting(listener: UnixListener) -> UnixListener {
    let accepting = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for stream in accepting.incoming() {
            drop(stream.unwrap().write_all(b"welcome"));
        }
    });
    listener
}

/// Returns the port of a listener that greets every client.
fn listener() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                drop(stream.unwrap().write_all(b"welcome"));
            }
        });
        port
    })
}

/// Returns the start of a process's first mapping with this name, or 0 if there is none or it cannot be read.
fn mapped(process: u32, name: &str) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let line = maps.lines().find(|line| line.ends_with(name));
    let start = line.and_then(|line| line.split('-').next());
    start.map_or(0, |start| u64::from_str_radix(start, 16).unwrap())
}

/// Returns an address in the stack of a process, and the byte there.
fn byte_of(process: u32) -> (u64, u8) {
    let address = mapped(process, "[stack]");
    let mut byte = [0];
    let memory = fs::File::open(format!("/proc/{process}/mem"));
    drop(memory.and_then(|memory| memory.read_exact_at(&mut byte, address)));
    (address, byte[0])
}

/// Returns the path of the interpreter itself: `python3` may be a link, or a script that selects one.
pub fn python() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let asked = "import os, sys; print(os.path.realpath(sys.executable), end='')";
        let output = Command::new(python3()).args(["-c", asked]).output();
        let output = output.expect("these tests need Python 3");
        PathBuf::from(String::from_utf8(output.stdout).unwrap())
    })
}
