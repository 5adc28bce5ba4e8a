//! `settee check-config`: validates a configuration and prints it with the origin of every value.
//!
//! SUMMARY   The output is TOML: origins are in comments, and so are the results of [`cells`]. With
//!           `--against-running` the service reports what a reload would change ([`against_running`]).
//! PROMISES  Passwords in commands are hidden. Nothing is changed, and without `--sandbox` nothing is started except
//!           shells that parse commands. Certificates are read, and the folders of files and sockets checked, with the
//!           same errors as in `serve`.

mod against_running;
mod cells;

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use rustix::io::Errno;
use slog::{Discard, Logger, o};

use crate::actors::language::Registry;
use crate::actors::service::socket::{MAKE_FOLDER, missing_folder};
use crate::app::StartError;
use crate::config::{Config, LanguageCommand, Loaded, Origin, ServiceAddress, Setting, is_ini};
use crate::languages::command::CommandLanguage;
use crate::replicator::http_config;
use crate::tls;
use replication::endpoint::Http;

use super::config_args::ConfigArgs;
use super::exit::{CliError, CliResult, Exit};
use super::output;
use super::serve::log_file_error;
use super::service_socket::SocketArgs;

/// The column of origins begins after the longest `key = value` of at most this many characters.
const ALIGNED_MAX: usize = 60;

/// Options of `settee check-config`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   the configuration is valid; with --against-running, a reload would accept it
  1   with --against-running: a reload would be refused, because a change needs a restart
  64  the command line is wrong
  69  with --against-running: no service answers
  74  writing standard output failed
  75  with --against-running: the service is shutting down
  77  with --against-running: this user is not an administrator of the service
  78  the configuration is wrong; each mistake is reported with file and line; or, with --sandbox, the
      program of a pool's command is missing, or a pool is strict and a layer of its cell is missing

Example:
  settee check-config -c /opt/couchdb/etc/local.ini -c /etc/settee.toml
  settee check-config --sandbox -c /etc/settee.toml
  settee check-config --against-running && systemctl reload settee")]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Try the cell of each pool, and print its layers on this machine.
    #[arg(long)]
    sandbox: bool,
    /// Show what a reload of the running service would change, what needs a restart, and what HTTP overrides, without
    /// changing anything. The service reads the files and options of its start.
    #[arg(long, conflicts_with_all = ["files", "sandbox"])]
    against_running: bool,
    /// The service's socket; default: $SETTEE__SERVER__SOCKET, or where `serve` puts it.
    #[arg(long, value_name = "PATH", requires = "against_running")]
    socket: Option<PathBuf>,
    /// Print the changes as the service sends them: JSON on one line.
    #[arg(long, requires = "against_running")]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub(super) fn run(args: &Args, languages: &Registry) -> CliResult {
    if args.against_running {
        let socket = args.socket.clone();
        return against_running::run(&SocketArgs { socket }, args.json);
    }
    let loaded = args.config.load(languages)?;
    require_openable(&loaded.config)?;
    let mut text = report(&loaded);
    text.push_str(differences(&loaded, &args.config.files));
    text.push_str(&commands(&loaded.config));
    if !args.sandbox {
        return output::print(&text);
    }
    let findings = cells::try_all(&loaded.config, languages)?;
    text.push_str(&findings.text);
    text.push_str(&cells::of_service(&loaded.config));
    output::print(&text)?;
    findings.verdict()
}

/// Opens certificates, and checks that the folders of files and sockets exist.
fn require_openable(config: &Config) -> CliResult {
    tls::read(config).map_err(StartError::Certificate)?;
    Http::new(
        http_config(&config.replicator),
        &Logger::root(Discard, o!()),
    )
    .map_err(StartError::Replication)?;
    let log = &config.log;
    let files = [
        ("file", &log.file),
        ("access_log", &log.access_log),
        ("audit", &log.audit),
    ];
    for (key, path) in files {
        let Some(path) = path else { continue };
        let folder = path.parent().unwrap_or(path);
        let found = match fs::metadata(folder) {
            Ok(_) if path.is_dir() => Err(Errno::ISDIR.into()),
            Ok(folder) if !folder.is_dir() => Err(Errno::NOTDIR.into()),
            found => found,
        };
        found.map_err(|error| log_file_error(key, path, &error))?;
    }
    for (name, service) in &config.services {
        let Some(address @ ServiceAddress::Unix(path)) = &service.listen else {
            continue;
        };
        // `serve` creates the folder of [server] socket.
        let is_made = path.parent() == config.server.socket.parent();
        if let Some(what) = missing_folder(path).filter(|_| !is_made) {
            return Err(CliError::at(
                Exit::Config,
                format!("[services.{name}] listen = \"{address}\""),
                what,
                MAKE_FOLDER,
            ));
        }
    }
    Ok(())
}

/// Returns a note on the setting whose default differs from CouchDB's, if CouchDB's files are read and leave it unset.
fn differences(loaded: &Loaded, files: &[PathBuf]) -> &'static str {
    let origin = loaded
        .config
        .origin("replicator", "verify_ssl_certificates");
    if origin == Origin::Default && files.iter().any(|path| is_ini(path)) {
        "\n# Different from CouchDB:\n\
             # [replicator] verify_ssl_certificates is true by default, and false in CouchDB: replications do not\n\
             # connect to servers with a certificate of an unknown authority. Name the authority in\n\
             # ssl_trusted_certificates_file.\n"
    } else {
        ""
    }
}

/// Returns the commands that cannot be started: `serve` continues without their pools.
fn commands(config: &Config) -> String {
    let text: String = config
        .languages
        .iter()
        .filter_map(|(name, command)| {
            let LanguageCommand::Command(command) = command else {
                return None;
            };
            let mistake = one_line(CommandLanguage::mistake(command)?);
            Some(format!("# [query_servers] {name}: {mistake}\n"))
        })
        .collect();
    match &*text {
        "" => text,
        _ => format!("\n# Commands that cannot be started:\n{text}"),
    }
}

/// Returns the whole configuration as TOML with comments.
fn report(loaded: &Loaded) -> String {
    let settings = loaded.config.settings();
    let lines: Vec<String> = settings.iter().map(Setting::toml).collect();
    let width = lines
        .iter()
        .map(|line| line.chars().count())
        .filter(|length| *length <= ALIGNED_MAX)
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    let mut section: &str = "";
    for (setting, line) in settings.iter().zip(&lines) {
        if setting.section != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            section = &setting.section;
            text.push_str(&format!("{gap}[{}]\n", setting.heading()));
        }
        let unit = setting
            .unit()
            .map_or_else(String::new, |unit| format!(" ({unit})"));
        let origin = one_line(&setting.origin);
        writeln!(text, "{line:width$}  # {origin}{unit}").expect("a String takes any text");
    }
    if !loaded.notices.is_empty() {
        text.push_str("\n# Settings without effect:\n");
    }
    for notice in &loaded.notices {
        text.push_str(&format!("# {}\n", one_line(notice)));
    }
    text
}

/// Returns the text of a comment: a file name may contain line feeds.
fn one_line(value: impl ToString) -> String {
    value.to_string().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Config, Notice, default_file};

    #[test]
    fn the_report_of_the_defaults_is_toml_with_the_same_values() {
        let loaded = Loaded {
            config: Config::default(),
            notices: Vec::new(),
            overridden: Vec::new(),
            texts: Vec::new(),
        };
        let printed: toml::Table = report(&loaded).parse().expect("the report is TOML");
        let mut defaults: toml::Table = default_file().parse().expect("the defaults are TOML");
        // The default paths of the socket and the store are shown.
        defaults["server"]["socket"] = printed["server"]["socket"].clone();
        defaults["store"]["path"] = printed["store"]["path"].clone();
        assert_eq!(printed, defaults);
    }

    #[test]
    fn odd_names_and_values_are_toml_too() {
        let odd = "two\nlines \"\'\'\'quoted\\";
        let mut config = Config::default();
        config
            .languages
            .insert("my.\"lang".into(), LanguageCommand::Command(odd.into()));
        config.query_server_config.os_process_idle_limit = Duration::from_millis(1500);
        let origin = Origin::File {
            path: "a\nb".into(),
            line: 1,
        };
        let notices = vec![Notice {
            origin,
            text: "x".into(),
        }];
        let printed = report(&Loaded {
            config,
            notices,
            overridden: Vec::new(),
            texts: Vec::new(),
        });
        let printed: toml::Table = printed.parse().expect("the report is TOML");
        assert_eq!(printed["query_servers"]["my.\"lang"].as_str(), Some(odd));
        let limit = printed["query_server_config"]["os_process_idle_limit"].as_str();
        assert_eq!(limit, Some("1500 ms"));
    }
}
