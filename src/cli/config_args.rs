//! The options that name configuration files, shared by every subcommand that has a configuration.

use std::path::PathBuf;

use crate::actors::language::Registry;
use crate::config::{self, Loaded, Sources, Surroundings, USUAL_FILE};

use super::exit::CliResult;

/// `-c FILE`.
#[derive(clap::Args)]
pub(crate) struct ConfigArgs {
    /// A configuration file, .toml or CouchDB's .ini; later ones win. Without any,
    /// /etc/settee/settee.toml is read if it exists.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl ConfigArgs {
    /// Loads the configuration from the defaults, these files and the environment, for a program with these
    /// languages.
    ///
    /// # Errors
    /// Every problem of every source, with exit code 78.
    pub fn load(&self, languages: &Registry) -> CliResult<Loaded> {
        Ok(config::load(&self.sources(languages))?)
    }

    /// Returns the sources of the configuration, to be read now and at each reload.
    pub fn sources(&self, languages: &Registry) -> Sources {
        Sources {
            files: self.files.clone(),
            usual_file: Some(USUAL_FILE.into()),
            surroundings: Surroundings::of_process(),
            languages: languages.names().map(ToString::to_string).collect(),
            ..Sources::default()
        }
    }
}
