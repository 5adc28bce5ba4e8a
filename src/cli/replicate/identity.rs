//! Who replicates: part of the id under which checkpoints are found again.
//!
//! SUMMARY   The id is kept in a file beside the store, so that the command needs no service. A new
//!           one is the store's, when the store can be had: then a replication that the service ran
//!           goes on from its checkpoints.
//! PROMISES  The same user has the same id every time; a file that cannot be written is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slog::{Logger, warn};

use crate::config::password::random;
use crate::config::{Config, Surroundings};
use crate::replication::id::Identity;
use crate::store::{Place, Store};

/// The file with the id.
const FILE: &str = "replicate.uuid";
/// How long the store may take to say its id.
const STORE_MAX: Duration = Duration::from_secs(2);
/// Where Linux keeps it.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// The port in ids of version 2.
const COUCHDB_PORT: u16 = 5984;

/// Returns who this user is.
pub(super) async fn of(config: &Config, log: &Logger) -> Identity {
    let folder = folder(config);
    let file = folder.join(FILE);
    let uuid = match read(&file) {
        Some(uuid) => uuid,
        None => {
            let uuid = new(config).await;
            if let Err(error) = write(&file, &uuid) {
                warn!(log, "the id of this user cannot be kept";
                    "file" => file.display().to_string(), "error" => %error,
                    "effect" => "the next run looks at everything again");
            }
            uuid
        }
    };
    let host = fs::read_to_string(HOST_NAME).unwrap_or_default();
    let host = host.trim().to_owned();
    Identity {
        uuid,
        host,
        port: COUCHDB_PORT,
    }
}

fn folder(config: &Config) -> PathBuf {
    let store = config.store.file().map(Path::to_owned);
    let store = store.unwrap_or_else(|| Surroundings::of_process().store_path());
    store.parent().map_or_else(PathBuf::new, Path::to_owned)
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let uuid = text.trim();
    let is_one = uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| uuid.to_owned())
}

fn write(file: &Path, uuid: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = file.with_extension(format!("{}.new", std::process::id()));
    fs::write(&new, format!("{uuid}\n"))?;
    fs::rename(new, file)
}

/// The store's, or one of its own when there is no store, or a service has it.
async fn new(config: &Config) -> String {
    let exists = config.store.file().filter(|file| file.exists());
    if let Some(file) = exists
        && let Ok(store) = Store::start(Place::File(file.to_owned()))
        && let Ok(Ok(uuid)) = tokio::time::timeout(STORE_MAX, store.uuid()).await
    {
        return uuid;
    }
    data_encoding::HEXLOWER.encode(&random::<16>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("deeper").join(FILE);
        assert_eq!(read(&file), None);
        let uuid = "0123456789abcdef0123456789abcdef";
        write(&file, uuid).expect("it is written");
        assert_eq!(read(&file).as_deref(), Some(uuid));
        fs::write(&file, "nonsense").expect("it is written");
        assert_eq!(read(&file), None, "a file that is none is replaced");
    }
}
