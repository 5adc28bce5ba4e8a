//! A service in its own namespaces, run by root or by an ordinary user: there, functions with and without a cell
//! exhaust what the kernel counts, without affecting the machine.
//!
//! PROMISES  A shared host is one service for all its holders; it is stopped when the last one drops it. System V IPC,
//!           message queues, terminals, ports, `/dev/shm` and the disk that functions write to are the namespaces'.
//! LIMITS    Requires root.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::attempt::Outcome;
use super::run_by::RunBy;
use super::site::{SERVER, call_of, python};
use crate::support::daemon::{Client, Service, configure, make_private_folder, serve_command};
use crate::support::folder::open_folder;

/// Which of the service's pools runs a function.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    Cell,
    CellWithNetwork,
    /// Without a cell: as the service's own user.
    Open,
}

/// Replaces the machine's limits by small ones.
const SETUP: &str = r#"
mount -t tmpfs -o size=256k,nr_inodes=64,mode=1777 none "$folder/spare"
mount -t tmpfs -o size=256k,mode=1777 none /dev/shm
mount -t devpts -o newinstance,max=8,mode=0666,ptmxmode=0666 none /dev/pts
mount --bind /dev/pts/ptmx /dev/ptmx
echo 16 >/proc/sys/kernel/shmmni
echo 64 >/proc/sys/kernel/shmall
echo 16 >/proc/sys/kernel/msgmni
echo "250 32000 100 16" >/proc/sys/kernel/sem
echo 32 >/proc/sys/fs/mqueue/queues_max
echo "40000 40019" >/proc/sys/net/ipv4/ip_local_port_range
limits="prlimit --nproc=170 --nofile=1024 --sigpending=400 --msgqueue=200000 --memlock=65536"
"#;

pub struct Host {
    service: Option<Service>,
    /// The layers that its cells lack, each with why.
    missing: Value,
    folder: TempDir,
    /// Makes one attempt run at a time: each exhausts what others need.
    alone: Mutex<()>,
}

type Shared = BTreeMap<RunBy, Weak<Host>>;
static SHARED: Mutex<Shared> = Mutex::new(Shared::new());

impl Host {
    /// Returns the shared host, and starts it if needed.
    pub fn shared(run_by: RunBy) -> Arc<Self> {
        let mut shared = SHARED
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let place = shared.entry(run_by).or_default();
        place.upgrade().unwrap_or_else(|| {
            let host = Arc::new(Self::start(run_by));
            *place = Arc::downgrade(&host);
            host
        })
    }

    fn start(run_by: RunBy) -> Self {
        let (folder, directory) = (open_folder(), open_folder());
        let path = |name: &str| folder.path().join(name);
        for name in ["program", "spare"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("program/server.py"), SERVER).unwrap();
        fs::write(path("program/module"), "what functions load").unwrap();
        let command = format!(
            "{} -IS {}",
            python().display(),
            path("program/server.py").display()
        );
        let (first, last) = run_by.cells();
        let config = configure(
            directory.path(),
            &format!(
                "[couchdb]\nos_process_timeout = 10000\n\
                 [query_server_config]\nreuse = \"database\"\nsandbox = \"standard\"\nuser_range = \"{first}-{last}\"\n\
                 [query_servers]\ncell = \"{command}\"\nnetwork = \"{command}\"\nopen = \"{command}\"\n\
                 [pools.network]\nnetwork = true\n[pools.open]\nsandbox = \"off\"\n",
            ),
        );
        make_private_folder(&directory.path().join("run"));
        run_by.owns(directory.path());
        run_by.owns(&path("program"));
        let serve = serve_command(&config);
        let command = run_by.command(folder.path(), &["--ipc", "--net"], SETUP, &serve);
        let service = Service::start_command(directory, command);
        // Asked before any attempt: the service needs a thread for its answer, and attempts exhaust threads.
        let missing = service.connect().pool("cell")["sandbox"]["missing"].take();
        assert!(missing.is_object(), "{missing}");
        Self {
            service: Some(service),
            missing,
            folder,
            alone: Mutex::new(()),
        }
    }

    /// Keeps other attempts from running until the guard is dropped.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("the service runs")
    }

    /// Returns why its cells lack a layer, or `None` if they have it.
    pub fn lacks(&self, layer: &str) -> Option<String> {
        self.missing[layer].as_str().map(str::to_owned)
    }

    /// Returns a new client with its own query server.
    pub fn enters(&self, place: Where, source: &'static str) -> Guest<'_> {
        Guest {
            host: self,
            client: self.service().connect(),
            place,
            source,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let service = self.service.take();
        if let Some(service) = service.filter(|_| !std::thread::panicking()) {
            service.stop();
        }
    }
}

/// A client whose query server keeps what its functions have taken.
pub struct Guest<'a> {
    host: &'a Host,
    client: Client,
    place: Where,
    source: &'static str,
}

impl Guest<'_> {
    pub fn place(&self) -> Where {
        self.place
    }

    pub fn runs(&mut self, attempt: &str, function: &str) -> Outcome {
        let path = |name: &str| self.host.folder.path().join(name);
        let document = json!({
            "_id": "attempt", "attempt": attempt, "function": function, "n": 41,
            "folder": path("program"), "module": path("program/module"), "spare": path("spare"),
        });
        let language = match self.place {
            Where::Cell => "cell",
            Where::CellWithNetwork => "network",
            Where::Open => "open",
        };
        let reply: Value = self.client.call(&call_of(language, self.source, &document));
        Outcome::from_reply(self.host.service(), &reply)
    }
}
