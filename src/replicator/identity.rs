//! The identity under which replication ids are computed: the store's uuid, the host, the port.

use std::sync::{Arc, OnceLock};

use replication::id::Identity;
use store::{Store, StoreError};

/// CouchDB's port, for ids of version 2.
const PORT: u16 = 5984;

/// The identity of this service, known once the store is open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerIdentity(Arc<OnceLock<Identity>>);

impl ServerIdentity {
    /// Returns the identity, queried from the store the first time.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn get(&self, store: &Store) -> Result<Identity, StoreError> {
        if let Some(identity) = self.0.get() {
            return Ok(identity.clone());
        }
        let uuid = store.uuid().await?;
        Ok(self.0.get_or_init(|| on_this_host(uuid)).clone())
    }

    /// Returns the identity if it is known. No job starts before it is known.
    pub fn known(&self) -> Option<Identity> {
        self.0.get().cloned()
    }
}

/// Returns the identity with this uuid on this host; the host name is part of older ids.
pub(crate) fn on_this_host(uuid: String) -> Identity {
    let system = rustix::system::uname();
    let host = match system.nodename().to_string_lossy() {
        name if name.is_empty() => "localhost".to_owned(),
        name => name.into_owned(),
    };
    Identity {
        uuid,
        host,
        port: PORT,
    }
}
