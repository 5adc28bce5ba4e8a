//! Loads the configuration: defaults, files, environment, flags, values set over HTTP; later ones override.
//!
//! SUMMARY   [`load`] reads each source into a layer, validates it, lets the `config` crate merge the layers, and
//!           validates the result.
//! PROMISES  All or nothing: every value of a [`Loaded`] configuration is valid, and an error lists every mistake of
//!           every source.
//! CALLED    At the start of a subcommand, and again on HUP; for a value set over HTTP, with the files as last read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::iter;
use std::path::{Path, PathBuf};

use super::layer::Layer;
use super::origin::{ConfigError, Notice, Origin, Problem, is_ini};
use super::pages::default_file;
use super::reload::{Change, Effect};
use super::replicator::Store;
use super::surroundings::Surroundings;
use super::types::Config;
use super::{environment, generated, ini_file, keys, toml_file, validate, value};

/// The default file, read if it exists and no file is named.
pub const USUAL_FILE: &str = "/etc/settee/settee.toml";

/// Maximum length of a configuration file, in bytes: protects against a device or a log named by mistake.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// All sources of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files in order: `.toml`, or CouchDB's `.ini`.
    pub files: Vec<PathBuf>,
    /// Read if `files` is empty and it exists; [`USUAL_FILE`] for the program. A service must be able to read it;
    /// other commands skip a file that this user may not read, with a notice.
    pub usual_file: Option<PathBuf>,
    /// The files as [read before](Loaded::texts); `None`: they are read now.
    pub texts: Option<Vec<(PathBuf, String)>>,
    /// Environment and user.
    pub surroundings: Surroundings,
    /// The program's own languages; sections may name them like those of `[query_servers]`.
    pub languages: Vec<String>,
    /// The option `--socket`, which overrides all of these.
    pub socket: Option<PathBuf>,
    /// Values set over HTTP, by section and key, as text: they override everything, survive a reload, and end with
    /// the service unless daemons share them. CouchDB writes them into its last file.
    pub overlay: BTreeMap<(String, String), String>,
    /// Whether a service is about to run with it: a missing administrator or cookie secret is then generated, and a
    /// lack of permissions is a problem.
    pub is_for_service: bool,
}

/// A configuration, and notices about its sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Skipped sections and keys, variables without effect, and overridden values.
    pub notices: Vec<Notice>,
    /// Values of files, environment and options that are overridden over HTTP.
    pub overridden: Vec<Change>,
    /// Paths and texts of the files, in order.
    pub texts: Vec<(PathBuf, String)>,
}

/// Loads and validates the configuration.
///
/// # Errors
/// All problems of all sources; their authors' fault.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let variables = &sources.surroundings.variables;
    let defaults = toml_file::read(Path::new("config/default.toml"), &default_file(), true);
    let (mut problems, mut notices) = (Vec::new(), Vec::new());
    let texts = read_files(sources, &mut problems, &mut notices);
    let files = texts.iter().map(|(path, text)| parse(path, text));
    let read = iter::once(defaults).chain(files).chain([
        environment::own(variables),
        environment::couchdb(variables),
        option_layer(sources),
        http_layer(sources),
    ]);
    let mut layers: Vec<Layer> = Vec::new();
    for layer in read {
        let mut layer = layer.settle();
        problems.append(&mut layer.problems);
        notices.append(&mut layer.notices);
        // A value unset by a layer falls back to the defaults, the lowest layer.
        for place in &layer.unset {
            for below in layers.iter_mut().skip(1) {
                below.values.remove(place);
            }
        }
        layers.push(layer);
    }
    let (overridden, without_effect): (_, Vec<Notice>) = overridden(&layers).into_iter().unzip();
    notices.extend(without_effect);
    let mut config = match merge(layers) {
        Ok(config) => config,
        Err(problem) => {
            problems.push(problem);
            return Err(ConfigError { problems });
        }
    };
    problems.extend(settle_paths(&mut config, &sources.surroundings));
    config.files = texts
        .iter()
        .map(|(file, _)| std::path::absolute(file).unwrap_or_else(|_| file.clone()))
        .collect();
    config.program_languages = sources.languages.clone();
    config.find_users();
    notices.extend(validate::adjust(&mut config));
    // Nothing is generated for an invalid configuration.
    if sources.is_for_service && problems.is_empty() {
        problems.extend(generated::check_folder(&config).err());
    }
    if sources.is_for_service && problems.is_empty() {
        problems.extend(generated::add_admin(&mut config).err());
        notices.extend(generated::add_secret(&mut config));
    }
    let service_user = sources.surroundings.user_id;
    problems.extend(validate::check(
        &config,
        sources.is_for_service.then_some(service_user),
    ));
    if problems.is_empty() {
        Ok(Loaded {
            config,
            notices,
            overridden,
            texts,
        })
    } else {
        Err(ConfigError { problems })
    }
}

/// Sets the default paths of the socket and the store, and makes them and those of logs absolute. If the store's path is
/// a directory, the store is `settee.redb` in it. Returns a problem for each path that cannot be made absolute or is not
/// UTF-8.
fn settle_paths(config: &mut Config, surroundings: &Surroundings) -> Vec<Problem> {
    let (socket, store) = (&mut config.server.socket, &mut config.store.path);
    if socket.as_os_str().is_empty() {
        *socket = surroundings.socket_path();
    }
    if store.as_os_str().is_empty() {
        *store = surroundings.store_path();
    }
    let log = &mut config.log;
    let paths = [
        Some(socket),
        Some(store).filter(|path| path.as_os_str() != Store::MEMORY),
        log.file.as_mut(),
        log.access_log.as_mut(),
        log.audit.as_mut(),
    ];
    let mut problems = Vec::new();
    for path in paths.into_iter().flatten() {
        match std::path::absolute(&*path) {
            // Settings are compared and shown as text.
            Ok(absolute) if absolute.to_str().is_some() => *path = absolute,
            _ => problems.push(Problem::new(
                path.display(),
                "the path is not UTF-8, or the current directory is gone",
                "name another one, or correct the home or the current directory",
            )),
        }
    }
    if config.store.file().is_some_and(Path::is_dir) {
        config.store.path.push("settee.redb");
    }
    problems
}

/// Returns the values overridden over HTTP.
fn overridden(layers: &[Layer]) -> Vec<(Change, Notice)> {
    let [_defaults, below @ .., http] = layers else {
        return Vec::new();
    };
    let mut overridden = Vec::new();
    for (place, (value, _)) in &http.values {
        let hidden = below.iter().rev().find_map(|layer| layer.values.get(place));
        if let Some((other, origin)) = hidden.filter(|(other, _)| other != value) {
            let (section, key) = place;
            let shown = |value| Some(value::display(keys::kind(section, key)?, value));
            let change = Change {
                section: section.clone(),
                key: key.clone(),
                old: shown(value),
                new: shown(other),
                effect: Effect::Overridden,
            };
            let text = format!(
                "[{section}] {key}: another value was set over HTTP and applies until DELETE \
                 /_node/_local/_config/{section}/{key} removes it"
            );
            let origin = origin.clone();
            overridden.push((change, Notice { origin, text }));
        }
    }
    overridden
}

/// Merges the layers.
fn merge(layers: Vec<Layer>) -> Result<Config, Problem> {
    let mut origins = BTreeMap::new();
    let mut builder = config::Config::builder();
    for layer in layers {
        origins.extend(
            layer
                .values
                .iter()
                .map(|(place, (_, origin))| (place.clone(), origin.clone())),
        );
        builder = builder.add_source(layer);
    }
    let config = builder
        .build()
        .and_then(config::Config::try_deserialize::<Config>)
        .map_err(|error| {
            Problem::new(
                "configuration",
                error.to_string(),
                "this is a mistake in settee: please report it",
            )
        })?;
    Ok(Config { origins, ..config })
}

/// Returns the files to read, in order.
fn files_of(sources: &Sources, notices: &mut Vec<Notice>) -> Vec<PathBuf> {
    let usual = match &sources.usual_file {
        Some(path) if sources.files.is_empty() => path,
        _ => return sources.files.clone(),
    };
    match File::open(usual).map_err(|error| error.kind()) {
        Err(io::ErrorKind::NotFound) => Vec::new(),
        // It may have passwords that this user must not read; such commands work without it.
        Err(io::ErrorKind::PermissionDenied) if !sources.is_for_service => {
            notices.push(Notice {
                origin: Origin::File {
                    path: usual.clone(),
                    line: 1,
                },
                text: "this user may not read the file; name another one with -c".to_owned(),
            });
            Vec::new()
        }
        _ => vec![usual.clone()],
    }
}

/// Returns paths and texts of the files, in order.
fn read_files(
    sources: &Sources,
    problems: &mut Vec<Problem>,
    notices: &mut Vec<Notice>,
) -> Vec<(PathBuf, String)> {
    if let Some(texts) = &sources.texts {
        return texts.clone();
    }
    let mut texts = Vec::new();
    for path in files_of(sources, notices) {
        match read_text(&path) {
            Ok(text) => texts.push((path, text)),
            Err(problem) => problems.push(problem),
        }
    }
    texts
}

fn parse(path: &Path, text: &str) -> Layer {
    if is_ini(path) {
        ini_file::read(path, text)
    } else {
        toml_file::read(path, text, false)
    }
}

fn read_text(path: &Path) -> Result<String, Problem> {
    let extension = path.extension();
    let is_toml = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    if !is_toml && !is_ini(path) {
        return Err(Problem::new(
            path.display(),
            "a configuration file's name ends in .toml or .ini",
            "rename the file",
        ));
    }
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => "name a file that exists",
                io::ErrorKind::PermissionDenied => "let this user read it",
                _ => "name a file that can be read",
            };
            let what = format!("the file cannot be read ({error})");
            Problem::new(path.display(), what, remedy)
        })?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(Problem::new(
            path.display(),
            format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20),
            "this cannot be a configuration file",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let origin = Origin::File {
            path: path.to_owned(),
            line: memchr::memchr_iter(b'\n', valid).count() + 1,
        };
        Problem::new(origin, "the file is not UTF-8", "save it in that encoding")
    })
}

fn option_layer(sources: &Sources) -> Layer {
    let mut layer = Layer::default();
    if let Some(socket) = &sources.socket {
        layer.text(
            "server",
            "socket",
            socket.to_string_lossy().into(),
            Origin::Flag("--socket"),
        );
    }
    layer
}

fn http_layer(sources: &Sources) -> Layer {
    let mut layer = Layer::default();
    for ((section, key), value) in &sources.overlay {
        layer.text(section, key, value.clone(), Origin::Http);
    }
    layer
}

impl Default for Config {
    /// Returns the built-in defaults, for a user without a home.
    fn default() -> Self {
        load(&Sources::default())
            .expect("config: the built-in defaults are valid")
            .config
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
