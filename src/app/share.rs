//! Prepares, when a service starts, the settings that it shares with the other daemons of its database.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::watch;

use super::StartError;
use crate::actors::config_listener::shared::SharedSettings;
use crate::config::{Config, Sources, load};
use store::Store;
use store::shared_settings::{self, SharedSettingsError};

/// Prepares the settings shared by daemons of one database. If the database is available, explicit secrets are
/// compared before any login, and generated ones adopted; else the ConfigListener does so once it is available. Returns
/// `None` if the store is not shared, or the configuration has no sources to reread.
pub(super) async fn share(
    store: &Store,
    is_open: bool,
    sources: Option<&Sources>,
    current: &watch::Sender<Arc<Config>>,
) -> Result<Option<SharedSettings>, StartError> {
    let Some((fleet, sources)) = store.fleet().zip(sources) else {
        return Ok(None);
    };
    let config = Arc::clone(&current.borrow());
    let mut has_joined = is_open;
    if is_open {
        match shared_settings::join(&*fleet, &config).await {
            Ok(false) => {}
            Ok(true) => {
                let sources = sources.clone();
                let loading = blocking::run("configuration", move || load(&sources)).await?;
                // It was valid a moment ago; a reload reports the new error.
                if let Ok(loaded) = loading {
                    current.send_replace(Arc::new(loaded.config));
                }
            }
            Err(SharedSettingsError::Store(_)) => has_joined = false,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(SharedSettings {
        fleet,
        has_joined: Cell::new(has_joined),
        is_told: Cell::new(has_joined),
    }))
}

#[cfg(test)]
mod tests;
