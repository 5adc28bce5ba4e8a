//! The replicator's identity: part of the id that checkpoints are found by.
//!
//! SUMMARY   The id is kept in a file next to the store ([`uuid_file`]), so that the command needs no service:
//!           replications that the command or the service runs continue from the same checkpoints.
//! PROMISES  A user keeps the same id, unless the file cannot be written, which is reported.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, warn};

use crate::config::password::random;
use crate::config::{Config, Surroundings};
use crate::replicator::identity::on_this_host;
use replication::id::Identity;
use store::{Store, StorePlace, uuid_file};

/// How long the store may take to return its id.
const STORE_MAX: Duration = Duration::from_secs(2);

/// Returns this user's identity.
pub(super) async fn of(config: &Config, log: &Logger) -> Identity {
    // The file beside the id's file: that of `[store] path`, or the default one if the store is in memory.
    let file = config.store.file().map(Path::to_owned);
    let file = file.unwrap_or_else(|| Surroundings::of_process().store_path());
    let place = StorePlace::File(file);
    let file = uuid_file::beside(&place).unwrap_or_default();
    let uuid = match uuid_file::read(&file) {
        Some(uuid) => uuid,
        None => {
            let store = match config.store.url {
                Some(_) => StorePlace::of_config(&config.store),
                None => place,
            };
            let uuid = new(store, log).await;
            if let Err(error) = uuid_file::write(&file, &uuid) {
                warn!(log, "the id of this user cannot be kept";
                    "file" => file.display().to_string(), "error" => %error,
                    "effect" => "the next run compares everything again");
            }
            uuid
        }
    };
    on_this_host(uuid)
}

/// Returns the store's id; a new one if there is no store, a service has it open, or it does not answer within
/// [`STORE_MAX`].
async fn new(place: StorePlace, log: &Logger) -> String {
    if place.exists()
        && let Ok(store) = Store::start(place, Arc::new(()), Arc::new(()), log)
        && let Ok(Ok(uuid)) = tokio::time::timeout(STORE_MAX, store.uuid()).await
    {
        return uuid;
    }
    data_encoding::HEXLOWER.encode(&random::<16>())
}
