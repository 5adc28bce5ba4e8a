//! A service in namespaces of its own, run by root or by an ordinary user: there, functions in cells and without
//! one take what the kernel counts, and touch nothing of the machine.
//!
//! PROMISES  A shared host is one service for all who hold it at a time; it is stopped with the last of them. An
//!           ordinary user is a number that nobody else has, so that what is counted for it is these tests' own.
//!           Files of users, System V IPC, message queues, terminals, ports, `/dev/shm` and the disk that functions
//!           write to are the namespaces'.
//! LIMITS    It takes root.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::attempt::Outcome;
use super::site::{SERVER, call_of, python};
use crate::support::daemon::{Client, Service, configure, make_private_folder, serve_command};
use crate::support::folder::open_folder;

/// Who runs the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunBy {
    Root,
    /// An ordinary user with numbers in `/etc/subuid`.
    UserWithNumbers,
    User,
}

/// Which of the service's pools runs a function.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    Cell,
    CellWithNetwork,
    /// Without a cell: as the service's own user.
    Open,
}

/// Users whom nobody has, above all others that these tests use: those of services, and those of cells.
const USERS: u32 = 2_099_000_000;
const USERS_OF_CELLS: u32 = 2_090_000_000;

/// How many users of cells each process of these tests has.
const CELLS_MAX: u32 = 64;

/// Puts small limits and files of its own in place of the machine's, in namespaces that have been made, and then
/// starts the service: `sh -c SETUP sh FOLDER USER PROGRAM..`.
const SETUP: &str = r#"
set -e
folder=$1 user=$2
shift 2
ip link set lo up
for file in passwd subuid subgid; do
    if [ -e "$folder/$file" ]; then
        [ -e "/etc/$file" ] || { echo "no /etc/$file" >&2; exit 1; }
        mount --bind "$folder/$file" "/etc/$file"
    fi
done
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
exec prlimit --nproc=170 --nofile=1024 --sigpending=400 --msgqueue=200000 --memlock=65536 \
    setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"#;

pub struct Host {
    service: Option<Service>,
    folder: TempDir,
    /// One attempt is made at a time: they use up what others need.
    alone: Mutex<()>,
}

type Shared = BTreeMap<RunBy, Weak<Host>>;
static SHARED: Mutex<Shared> = Mutex::new(Shared::new());

impl RunBy {
    pub const ALL: [Self; 3] = [Self::Root, Self::UserWithNumbers, Self::User];

    fn user(self) -> u32 {
        match self {
            Self::Root => 0,
            _ => USERS + 4 * std::process::id() + self as u32,
        }
    }
}

impl fmt::Display for RunBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::UserWithNumbers => "a user with subordinate numbers",
            Self::User => "a user without subordinate numbers",
        })
    }
}

impl Host {
    /// Returns the host that others use too.
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
        let user = run_by.user();
        chown(path("program/module"), Some(user), Some(user)).unwrap();
        let cells = USERS_OF_CELLS + CELLS_MAX * (std::process::id() * 4 + run_by as u32);
        let (last, range) = (
            cells + CELLS_MAX - 1,
            format!("{user}:{cells}:{CELLS_MAX}\n"),
        );
        if run_by != RunBy::Root {
            let users = fs::read_to_string("/etc/passwd").unwrap();
            let line = format!("settee-tests:x:{user}:{user}::/:/bin/sh\n");
            fs::write(path("passwd"), users + &line).unwrap();
        }
        if run_by == RunBy::UserWithNumbers {
            fs::write(path("subuid"), &range).unwrap();
            fs::write(path("subgid"), &range).unwrap();
        }
        let command = format!(
            "{} -IS {}",
            python().display(),
            path("program/server.py").display()
        );
        let config = configure(
            directory.path(),
            &format!(
                "[couchdb]\nos_process_timeout = 10000\n\
                 [query_server_config]\nreuse = \"database\"\nsandbox = \"standard\"\nuser_range = \"{cells}-{last}\"\n\
                 [query_servers]\ncell = \"{command}\"\nnetwork = \"{command}\"\nopen = \"{command}\"\n\
                 [pools.network]\nnetwork = true\n[pools.open]\nsandbox = \"off\"\n",
            ),
        );
        make_private_folder(&directory.path().join("run"));
        for path in [directory.path(), &directory.path().join("run"), &config] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        let command = within(folder.path(), user, &serve_command(&config));
        Self {
            service: Some(Service::start_command(directory, command)),
            folder,
            alone: Mutex::new(()),
        }
    }

    /// Keeps others from it.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("it runs")
    }

    /// Returns why a layer of its cells is missing.
    pub fn lacks(&self, layer: &str) -> Option<String> {
        let pool = self.service().connect().pool("cell");
        let why = pool["sandbox"]["missing"][layer].as_str();
        why.map(str::to_owned)
    }

    /// Gives a query server of its own to a new client.
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
        Outcome::told(self.host.service(), &reply)
    }
}

/// Returns the command, with its environment, as a user runs it in namespaces of its own.
fn within(folder: &Path, user: u32, inner: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--ipc", "--net", "sh", "-c", SETUP, "sh"]);
    command.arg(folder).arg(user.to_string());
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}
