//! Settings shared by the daemons of one database: those set over HTTP, generated secrets, and explicit secrets,
//! which must be equal.
//!
//! SUMMARY   [`join`] runs once at each start: it compares explicit secrets with those of the other daemons, and
//!           adopts the generated ones. [`take_overrides`] reads values set over HTTP.
//! PROMISES  The database has an explicit secret only as a slow, salted hash. A setting in the database that must not
//!           be set over HTTP has no effect.
//! CALLED    At the start, and by the ConfigListener. Slow parts run off the arbiter.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use super::error::StoreError;
use super::fleet::{FleetStore, Override};
use settee_config::password::{fingerprint, random};
use settee_config::{Config, Origin, Sources, generated, keys};

/// The section of overrides with the hashes of explicit secrets; no configuration has it.
const EXPLICIT: &str = "explicit";

/// The name of the explicit secrets' salt among the shared secrets.
const EXPLICIT_SALT: &str = "explicit-salt";

/// Settings of this daemon and the others conflict, or are unreadable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SharedSettingsError {
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Explicit secrets differ from another daemon's.
    #[error("{keys}: another daemon of this database has another value: both must be the same")]
    Differ {
        /// Sections and keys.
        keys: String,
    },
    /// The file of a shared secret cannot be used.
    #[error("{path}: cannot be read or written ({error})", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
}

impl SharedSettingsError {
    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Store(_) => "check that the database of [store] url can be reached",
            Self::Differ { .. } => {
                "to change it, change it for all daemons and reload them, or stop all first (one that died counts as running for 30 s)"
            }
            Self::File { .. } => {
                "let this user, and no other, read and write the file and its folder"
            }
        }
    }
}

/// Compares explicit secrets with those of the running daemons, and adopts the generated ones. Returns whether the
/// latter changed: then the configuration has to be reread.
///
/// # Errors
/// See [`SharedSettingsError`].
pub async fn join(fleet: &dyn FleetStore, config: &Config) -> Result<bool, SharedSettingsError> {
    let daemons = fleet.daemons().await?;
    let is_alone = !daemons
        .iter()
        .any(|(daemon, _)| daemon.lease.is_some() && !daemon.is_leaving);
    let known = explicit_of(&fleet.overrides().await?);
    let own = explicit(fleet, config).await?;
    let differs = |(key, own): &(&String, &String)| known.get(*key).is_some_and(|one| one != *own);
    let keys: Vec<&str> = own.iter().filter(differs).map(|(key, _)| &**key).collect();
    if !is_alone && !keys.is_empty() {
        return Err(SharedSettingsError::Differ {
            keys: keys.join(", "),
        });
    }
    let gone = known
        .keys()
        .filter(|key| is_alone && !own.contains_key(*key));
    tell(fleet, &known, &own, gone).await?;
    take_secrets(fleet, config).await
}

/// Publishes hashes of this daemon's explicit secrets after a change: from then on the others must have the same
/// secrets.
///
/// # Errors
/// See [`SharedSettingsError`].
pub async fn tell_explicit(
    fleet: &dyn FleetStore,
    config: &Config,
) -> Result<(), SharedSettingsError> {
    let known = explicit_of(&fleet.overrides().await?);
    let own = explicit(fleet, config).await?;
    tell(fleet, &known, &own, std::iter::empty()).await
}

/// Returns `sources` with the values set over HTTP at any daemon, and a list of the settings in the database that have
/// no effect, each as `[SECTION] KEY`.
///
/// # Errors
/// See [`StoreError`].
pub async fn take_overrides(
    fleet: &dyn FleetStore,
    sources: &Sources,
) -> Result<(Sources, Vec<String>), StoreError> {
    let mut overlay: BTreeMap<_, _> = sources
        .overlay
        .clone()
        .into_iter()
        .filter(|((section, _), _)| !keys::is_shared(section))
        .collect();
    let mut without_effect = Vec::new();
    for Override {
        section,
        key,
        value,
    } in fleet.overrides().await?
    {
        let Some(value) = value.filter(|_| section != EXPLICIT) else {
            continue;
        };
        if keys::is_shared(&section) && keys::refused_over_http(&section, &key).is_none() {
            overlay.insert(keys::canonical((section, key)), value);
        } else {
            without_effect.push(format!("[{section}] {key}"));
        }
    }
    Ok((
        Sources {
            overlay,
            ..sources.clone()
        },
        without_effect,
    ))
}

/// Returns the hashes of explicit secrets, by section and key.
async fn explicit(
    fleet: &dyn FleetStore,
    config: &Config,
) -> Result<BTreeMap<String, String>, SharedSettingsError> {
    let is_explicit = |section, key| !matches!(config.origin(section, key), Origin::Generated(_));
    let mut named = BTreeMap::new();
    let (section, key) = generated::SECRET;
    let secret = &config.chttpd_auth.secret;
    if !secret.is_empty() && is_explicit(section, key) {
        named.insert(format!("[{section}] {key}"), secret.clone());
    }
    for (name, hash) in &config.admins {
        if is_explicit(keys::ADMINS, name) {
            named.insert(format!("[{}] {name}", keys::ADMINS), hash.text());
        }
    }
    if named.is_empty() {
        return Ok(named);
    }
    let salt = HEXLOWER.encode(&random::<16>());
    let salt = fleet.secret(EXPLICIT_SALT, salt).await?;
    let hashing = blocking::run("secrets", move || {
        named
            .into_iter()
            .map(|(key, secret)| {
                // With the key in the salt, equal secrets have different hashes.
                let hash = fingerprint(&secret, &format!("{salt} {key}"));
                (key, hash)
            })
            .collect()
    });
    hashing.await.map_err(|error| no_thread(&error))
}

fn explicit_of(overrides: &[Override]) -> BTreeMap<String, String> {
    overrides
        .iter()
        .filter(|one| one.section == EXPLICIT)
        .filter_map(|one| Some((one.key.clone(), one.value.clone()?)))
        .collect()
}

/// Writes this daemon's hashes that the database lacks, and removes the hashes of the keys in `gone`.
async fn tell(
    fleet: &dyn FleetStore,
    known: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
    gone: impl Iterator<Item = &String>,
) -> Result<(), SharedSettingsError> {
    let written = own
        .iter()
        .filter(|(key, hash)| known.get(*key) != Some(*hash))
        .map(|(key, hash)| (key, Some(hash.clone())))
        .chain(gone.map(|key| (key, None)));
    let written: Vec<Override> = written
        .map(|(key, value)| Override {
            section: EXPLICIT.to_owned(),
            key: key.clone(),
            value,
        })
        .collect();
    if !written.is_empty() {
        fleet.set_overrides(written).await?;
    }
    Ok(())
}

/// If another daemon was the first to generate a secret, copies it to this daemon's file. Returns whether any changed.
async fn take_secrets(
    fleet: &dyn FleetStore,
    config: &Config,
) -> Result<bool, SharedSettingsError> {
    let (section, key) = generated::SECRET;
    let files = [
        (generated::FILE, config.admin_password_file()),
        (generated::SECRET_FILE, config.generated(section, key)),
    ];
    let mut is_changed = false;
    for (name, path) in files {
        let Some(path) = path else { continue };
        let file = path.clone();
        let own = on_file(&path, move || generated::kept(&file)).await?;
        let shared = fleet.secret(name, own.clone()).await?;
        if shared != own {
            let file = path.clone();
            on_file(&path, move || generated::replace(&file, &shared)).await?;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

async fn on_file<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SharedSettingsError> {
    blocking::run("secrets", work)
        .await
        .map_err(|error| no_thread(&error))?
        .map_err(|error| SharedSettingsError::File {
            path: path.to_owned(),
            error: error.to_string(),
        })
}

fn no_thread(error: &impl ToString) -> SharedSettingsError {
    SharedSettingsError::Store(StoreError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests;
