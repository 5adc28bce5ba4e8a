//! Digests of settings that must be equal on all daemons of a fleet; they reveal only whether the settings are equal.
//!
//! PROMISES  No secret is in a digest: it covers values as shown, and of commands only the language names, since
//!           commands may contain credentials, and their paths may differ.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::keys;
use super::types::Config;

/// Bytes of a hash that are shown, enough to distinguish values.
const BYTES: usize = 8;

impl Config {
    /// Returns a digest of each section that should be equal on all daemons of a fleet; a family is one section,
    /// `pools.*`.
    pub fn digests(&self) -> BTreeMap<String, String> {
        let mut sections: BTreeMap<String, BTreeSet<[String; 3]>> = BTreeMap::new();
        for setting in self.settings() {
            if keys::is_of_fleet(&setting.section, &setting.key) {
                let section = keys::family(&setting.section).map_or_else(
                    || setting.section.clone(),
                    |(family, _)| format!("{family}.*"),
                );
                let value = match setting.section.as_str() {
                    keys::QUERY_SERVERS => String::new(),
                    _ => setting.shown(),
                };
                sections
                    .entry(section)
                    .or_default()
                    .insert([setting.section, setting.key, value]);
            }
        }
        sections
            .into_iter()
            .map(|(section, lines)| {
                let hash = Sha256::digest(format!("{lines:?}"));
                (section, HEXLOWER.encode(&hash[..BYTES]))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{LanguageCommand, TenantConfig};

    /// Returns the sections in which a configuration differs from the default.
    fn differing(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let (before, mut after) = (Config::default().digests(), Config::default());
        change(&mut after);
        let after = after.digests();
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differ = names.into_iter();
        let differ = differ.filter(|name| before.get(*name) != after.get(*name));
        differ.cloned().collect()
    }

    #[test]
    fn a_section_that_decides_how_replications_and_functions_run_has_a_digest_of_its_own() {
        let replicator = differing(|config| config.replicator.retries_per_request += 1);
        assert_eq!(replicator, ["replicator"]);
        let timeout =
            differing(|config| config.couchdb.os_process_timeout = Duration::from_secs(9));
        assert_eq!(timeout, ["couchdb"]);
        let tenant = differing(|config| {
            let tenant = TenantConfig {
                queue_max: Some(7),
                ..TenantConfig::default()
            };
            config.tenants.insert("acme-*".to_owned(), tenant);
        });
        assert_eq!(tenant, ["tenants.*"]);
        let share = differing(|config| {
            config.replicator.shares.insert("ann".into(), 7);
        });
        assert_eq!(share, ["replicator.shares"]);
    }

    #[test]
    fn digests_leave_out_settings_of_one_machine_and_secrets() {
        let of_machine = differing(|config| {
            config.replicator.max_jobs = 7;
            config.replicator.threads = Some(7);
            config.replicator.cert_file = Some("/elsewhere.pem".into());
            config.query_server_config.os_process_limit = 7;
            config.server.socket = "/elsewhere".into();
            config.chttpd_auth.secret = "secret".to_owned();
            config.log.level = crate::LogLevel::Debug;
        });
        assert_eq!(of_machine, [] as [&str; 0]);
        let language = |command: &'static str| {
            let mut config = Config::default();
            let command = LanguageCommand::Command(command.into());
            config.languages.insert("remote".into(), command);
            config.digests()
        };
        assert_eq!(
            language("proxy --token one"),
            language("/opt/proxy --token two")
        );
        assert_ne!(language("proxy"), Config::default().digests());
    }
}
