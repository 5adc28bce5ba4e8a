//! The configuration of one pool's cells: its own section overrides `[query_server_config]`.
//!
//! SUMMARY   [`Config::cell`] combines the two; no cell can access [`Config::kept_paths`] and [`Config::own_ports`].
//! PROMISES  An unknown user is nobody, never the service's own user.

use std::fs;
use std::path::{Path, PathBuf};

use super::kinds::*;
use super::pools::PoolConfig;
use super::section::{Declared, section};
use super::services::ServiceAddress;
use super::types::Config;
use super::value::{self, Kind};
use child::cell::subordinate::accounts;
use child::cell::{CellSpec, SandboxMode, UserIds};
use policy::pool::Reuse;
use settee_client::operator_socket;

/// Lists the users of the machine.
const USERS_FILE: &str = "/etc/passwd";

/// Folders of the system, which are not only the service's.
const SHARED_FOLDERS: [&str; 9] = [
    "/",
    "/etc",
    "/usr/local/etc",
    "/run",
    "/var/run",
    "/tmp",
    "/var/tmp",
    "/var/lib",
    "/opt",
];

/// The user without rights, and its group.
const NOBODY: UserIds = UserIds {
    uid: 65534,
    gid: 65534,
};

section! {
    /// The keys of cells, in `[query_server_config]` and in the sections of pools, which default to the former.
    #[derive(Debug, Default)]
    #[serde(default)]
    pub struct CellKeys {
        /// The [cell](cells.md) of query servers: `"strict"` has every layer, `"standard"` every layer that this
        /// machine offers, `"off"` none.
        sandbox: Option<SandboxMode> = "standard", one_of::<SandboxMode>(), only_in_files(CELL);
        /// [Whom a process serves](pools.md#whom-a-process-serves) once it has run code of one database: `"database"`
        /// or `"any"`. Empty: `"isolates"` for built-in languages, `"database"` for commands.
        reuse: Option<Reuse> = "", REUSE, only_in_files(CELL);
        /// The system user, by name or number, that commands run as; any but the service's own needs a service that
        /// runs as root. All its cells share the kernel's limits: prefer `user_range`, which applies if this is empty.
        user: Option<String> = "", value::USER, only_in_files(CELL), of_machine();
        /// Absolute paths that commands [may read](cells.md#the-layers) besides their program, its libraries and
        /// `/usr`.
        read_paths: Option<Vec<PathBuf>> = "", value::READ_PATHS, only_in_files(CELL), of_machine();
        /// Variables of commands besides `PATH`, `LANG`, `LC_*` and `TZ`, as a list if a value has a comma:
        /// `NAME=VALUE`, or `NAME` for the service's value; not `SETTEE_*` and `COUCHDB_*`. Values are never shown.
        env: Option<Vec<String>> = "", value::ENV, only_in_files(CELL), of_machine();
        /// Lets commands open network connections; the service's own ports stay closed to them.
        network: Option<bool> = false, Kind::Boolean, only_in_files(CELL);
        /// Names of [system calls](cells.md#the-layers) that commands may make besides those that interpreters need.
        system_calls_allowed: Option<Vec<String>> = "", value::SYSTEM_CALLS, only_in_files(CELL);
        /// Maximum memory of a command with all its processes; at least 1 MiB, or 0 for no limit. For the built-in
        /// server: `[sandbox] javascript_memory_max`.
        memory_max: Option<u64> = 536870912, MEMORY_MAX, of_machine();
        /// Maximum processes and threads of a command. 0: no limit.
        processes_max: Option<u32> = 64, PROCESSES, unit("processes"), of_machine();
        /// Maximum processor time of a command with all its processes: 50 is half a core, 200 two cores. 0: no limit.
        cpu_max: Option<u32> = 100, count(0, 1_000_000), unit("percent of a core"), of_machine();
    }
}

impl CellKeys {
    /// Returns these keys, with unset ones taken from another section.
    fn over(&self, other: &Self) -> Self {
        let (one, other) = (self.clone(), other.clone());
        Self {
            sandbox: one.sandbox.or(other.sandbox),
            reuse: one.reuse.or(other.reuse),
            user: one.user.or(other.user),
            read_paths: one.read_paths.or(other.read_paths),
            env: one.env.or(other.env),
            network: one.network.or(other.network),
            system_calls_allowed: one.system_calls_allowed.or(other.system_calls_allowed),
            memory_max: one.memory_max.or(other.memory_max),
            processes_max: one.processes_max.or(other.processes_max),
            cpu_max: one.cpu_max.or(other.cpu_max),
        }
    }
}

impl Config {
    /// Returns the cell specification for a pool whose section has these keys, and the environment of its commands:
    /// `NAME=VALUE`, or `NAME` for the service's own value. The caller adds the hidden paths and the refused ports.
    pub fn cell(&self, keys: &CellKeys) -> (CellSpec, Vec<String>) {
        let keys = keys
            .over(&self.query_server_config.cell)
            .over(&CellKeys::declared());
        let user = keys.user.filter(|name| !name.is_empty());
        let user = user.map(|name| self.user_ids.get(&name).copied().unwrap_or(NOBODY));
        let spec = CellSpec {
            mode: keys.sandbox.unwrap_or(SandboxMode::Strict),
            user,
            user_range: self.query_server_config.user_range,
            read_paths: keys.read_paths.unwrap_or_default(),
            network: keys.network.unwrap_or_default(),
            system_calls: keys.system_calls_allowed.unwrap_or_default(),
            memory_max: keys.memory_max.unwrap_or_default(),
            processes_max: keys.processes_max.unwrap_or_default(),
            cpu_max: keys.cpu_max.unwrap_or_default(),
            ..CellSpec::default()
        };
        (spec, keys.env.unwrap_or_default())
    }

    /// Returns a pool's section with the effective keys of cells, except `reuse`, which its language may decide.
    pub fn with_cell(&self, mut pool: PoolConfig) -> PoolConfig {
        let reuse = pool.cell.reuse;
        pool.cell = CellKeys {
            reuse,
            ..pool.cell.over(&self.query_server_config.cell)
        };
        pool
    }

    /// Returns the folders of the configuration, the store and the sockets, and the private keys, each with a
    /// description. Instead of a folder of the system, returns only the file.
    pub fn kept_paths(&self) -> Vec<(&'static str, PathBuf)> {
        let files = self.files.iter().map(|file| ("the configuration", &**file));
        let store = self.store.file().map(|file| ("the store", file));
        let managing = operator_socket(&self.server.socket);
        let sockets = [
            ("the socket", &*self.server.socket),
            ("the socket of HTTP", &managing),
        ];
        let places = files
            .chain(store)
            .chain(sockets)
            .map(|(what, file)| (what, place_of(file)));
        let keys = [&self.replicator.key_file, &self.ssl.key_file]
            .into_iter()
            .flatten()
            .cloned()
            .map(|key| ("the key of the certificate", key));
        let mut places: Vec<_> = places.chain(keys).collect();
        // A path through a link has two names.
        let real: Vec<_> = places
            .iter()
            .filter_map(|(what, place)| {
                let real = place.canonicalize().ok()?;
                (real != *place).then_some((*what, real))
            })
            .collect();
        places.extend(real);
        places
    }

    /// Returns the TCP ports that the service itself listens on, as configured.
    pub fn own_ports(&self) -> Vec<u16> {
        let services = self.services.values();
        let of_services = services.filter_map(|service| match service.listen.as_ref()? {
            ServiceAddress::Tcp(address) => Some(address.port()),
            ServiceAddress::Unix(_) => None,
        });
        self.own_addresses()
            .into_iter()
            .map(|(_, address)| address.port())
            .chain(of_services)
            .filter(|port| *port != 0)
            .collect()
    }

    /// Looks up the users that the keys of cells name.
    pub(super) fn find_users(&mut self) {
        let named: Vec<String> = self
            .pools
            .values()
            .filter_map(|pool| pool.cell.user.as_ref())
            .chain(self.query_server_config.cell.user.as_ref())
            .filter(|name| !name.is_empty())
            .cloned()
            .collect();
        if named.is_empty() {
            return;
        }
        let known = fs::read_to_string(USERS_FILE).unwrap_or_default();
        self.user_ids = named
            .into_iter()
            .filter_map(|name| {
                let ids = user_ids(&known, &name)?;
                Some((name, ids))
            })
            .collect();
    }
}

/// Returns the folder of a file, or the file if others also have files in the folder.
fn place_of(file: &Path) -> PathBuf {
    let is_own = |folder: &&Path| {
        SHARED_FOLDERS
            .iter()
            .all(|shared| *folder != Path::new(shared))
    };
    file.parent().filter(is_own).unwrap_or(file).to_owned()
}

/// Returns the numbers of a user and its group. A number without a name is a user with a group of the same number.
fn user_ids(users: &str, user: &str) -> Option<UserIds> {
    let mut rows = accounts(users);
    match user.parse::<u32>() {
        Ok(uid) => {
            let row = rows.find(|(_, ids)| ids.uid == uid);
            Some(row.map_or(UserIds { uid, gid: uid }, |(_, ids)| ids))
        }
        Err(_) => rows.find(|(name, _)| *name == user).map(|(_, ids)| ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_pool_override_one_by_one() {
        let mut config = Config::default();
        let all = &mut config.query_server_config.cell;
        all.network = Some(true);
        all.memory_max = Some(7 << 20);
        all.env = Some(vec!["A=1".into()]);
        let mut pool = PoolConfig::default();
        pool.cell.sandbox = Some(SandboxMode::Strict);
        pool.cell.network = Some(false);
        pool.cell.env = Some(Vec::new());
        let (cell, env) = config.cell(&pool.cell);
        assert_eq!(cell.mode, SandboxMode::Strict);
        assert!(!cell.network && env.is_empty());
        assert_eq!((cell.memory_max, cell.processes_max), (7 << 20, 64));
        let (cell, _) = config.cell(&PoolConfig::default().cell);
        assert_eq!(cell.mode, SandboxMode::Standard);
        assert!(cell.network && cell.user.is_none());
    }

    #[test]
    fn a_user_is_found_by_name_and_number_and_is_nobody_otherwise() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:7:70::/home/ann:/bin/sh\nbroken\n";
        let ids = |uid, gid| Some(UserIds { uid, gid });
        assert_eq!(user_ids(users, "ann"), ids(7, 70));
        assert_eq!(user_ids(users, "7"), ids(7, 70));
        assert_eq!(user_ids(users, "8"), ids(8, 8));
        assert_eq!(user_ids(users, "bob"), None);
        let mut config = Config::default();
        config.query_server_config.cell.user = Some("bob".into());
        let (cell, _) = config.cell(&PoolConfig::default().cell);
        assert_eq!(cell.user, Some(NOBODY));
    }

    #[test]
    fn the_service_s_own_files_and_ports_are_listed_for_cells_to_refuse() {
        let mut config = Config {
            files: vec!["/etc/settee/settee.toml".into()],
            ..Config::default()
        };
        config.store.path = "/var/lib/settee/settee.redb".into();
        config.server.socket = "/run/settee/settee.sock".into();
        config.server.tcp = Some("127.0.0.1:5994".parse().unwrap());
        config.replicator.key_file = Some("/etc/ssl/private/key.pem".into());
        config.ssl.enable = true;
        config.ssl.tcp = Some("127.0.0.1:7994".parse().unwrap());
        config.ssl.key_file = Some("/etc/ssl/private/own.pem".into());
        let kept = |config: &Config, path: &str| {
            let kept = config.kept_paths();
            kept.iter().any(|(_, known)| known == Path::new(path))
        };
        let folders = ["/etc/settee", "/var/lib/settee", "/run/settee"];
        let keys = ["/etc/ssl/private/key.pem", "/etc/ssl/private/own.pem"];
        for path in folders.iter().chain(&keys) {
            assert!(kept(&config, path), "{path}");
        }
        config.files = vec!["/etc/settee.toml".into()];
        assert!(kept(&config, "/etc/settee.toml") && !kept(&config, "/etc"));
        // If the folder is the system's, both sockets are kept from cells.
        config.server.socket = "/run/settee.sock".into();
        assert!(kept(&config, "/run/settee.sock") && !kept(&config, "/run"));
        assert!(kept(&config, "/run/settee.http.sock"));
        assert_eq!(config.own_ports(), [5994, 5995, 6984, 7994]);
    }
}
