//! The replicator database: documents that request replications.
//!
//! SUMMARY   [`document`] defines the readable and writable members, [`state`] how a replication's outcome is written
//!           into its document, [`Database`] applies both to the store.
//! CALLED    By HTTP; by the actor that turns documents into jobs.
//! SOURCE    couch_replicator_docs; the document API of chttpd_db.
//! DIFFERS   There is one database, `_replicator`.

mod checkpoint_guard;
mod database;
mod doc_state;
pub mod document;
pub mod identity;
pub mod kept;
pub(crate) mod lease;
pub mod members;
pub(crate) mod past;
pub(crate) mod selection;
pub mod state;
pub mod states;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod wish;

pub use checkpoint_guard::{CheckpointGuard, JobLease};
pub(crate) use database::export_lines;
pub use database::{Database, NAME, Refused, Written};
pub(crate) use doc_state::DocState;
pub(crate) use states::DocStates;
pub(crate) use table::Page;

use crate::config::Replicator;
use crate::config::keys::AUTH_SESSION;
use replication::endpoint::HttpConfig;
use replication::spec::{Defaults, Tuning};
pub use settee_client::JobOrder;

/// Returns the configured defaults of every replication.
pub fn defaults(config: &Replicator) -> Defaults {
    // The configuration's own bounds are lower.
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Defaults {
        tuning: Tuning {
            use_checkpoints: config.use_checkpoints,
            use_bulk_get: config.use_bulk_get,
            worker_processes: number(config.worker_processes),
            worker_batch_size: number(config.worker_batch_size),
            http_connections: number(config.http_connections),
            connection_timeout: config.connection_timeout,
            retries_per_request: number(config.retries_per_request),
            checkpoint_interval: config.checkpoint_interval,
            feed: config.feed,
        },
        valid_endpoint_protocols: config.valid_endpoint_protocols.clone(),
        valid_proxy_protocols: config.valid_proxy_protocols.clone(),
    }
}

/// Returns the settings for HTTP to databases.
pub fn http_config(config: &Replicator) -> HttpConfig {
    HttpConfig {
        request_timeout: config.request_timeout,
        verify_ssl_certificates: config.verify_ssl_certificates,
        ssl_trusted_certificates_file: config.ssl_trusted_certificates_file.clone(),
        cert_file: config.cert_file.clone(),
        key_file: config.key_file.clone(),
        password: Some(config.password.clone()).filter(|password| !password.is_empty()),
        cacert_reload_interval: config.cacert_reload_interval_hours,
        connection_close_interval: config.connection_close_interval,
        connect_to: Some(config.connect_to.clone()).filter(|text| !text.is_empty()),
        endpoints_allowed: config.endpoints_allowed.join(","),
        endpoints_denied: config.endpoints_denied.join(","),
        redirects_to: config.redirects_to.join(","),
        session_refresh_interval: config.session_refresh_interval_sec,
        session_min_update_interval: config.session_min_update_interval,
        sessions: config
            .auth_plugins
            .first()
            .is_some_and(|name| name == AUTH_SESSION),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::keys::{REPLICATOR, names};
    use replication::spec::TUNING;

    #[test]
    fn each_tuning_member_of_a_document_is_also_a_key_of_the_configuration() {
        let keys = names(REPLICATOR);
        let missing = TUNING.iter().find(|name| !keys.contains(name));
        assert_eq!(missing, None);
    }
}
