//! `settee store backup`, `restore` and `migrate`: a store is copied to a file, from it, or to another place.
//!
//! SUMMARY   All are a copy, and end with a summary. A backup asks the service that has the file for the rows; otherwise
//!           both sides are opened here.
//! PROMISES  The source stays as it is. A backup is there whole and on the disk, or not at all. A password is shown
//!           nowhere.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::actors::language::Registry;
use crate::client::with_query;
use crate::config::Surroundings;
use crate::config::new_file::NewFile;
use crate::config::store_url::StoreUrl;
use crate::replicator::DocStates;
use store::{
    Copied, CopyError, CopyRow, CopySource, HeldCopy, RowKind, StoreError, StorePlace, Watcher,
    copy, copy_from,
};

use super::config_args::ConfigArgs;
use super::exit::{CliError, Exit};
use super::output;
use super::serve::open_code;
use super::service_socket::{Service, SocketArgs, block_on};
use super::table::count;

/// The variable of the environment with the password of URLs that have none.
const PASSWORD: &str = "SETTEE_STORE_PASSWORD";

/// Options of `settee store`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   done
  64  the command line is wrong
  65  the target holds something else, or is not the same at the end
  69  no service answers
  74  reading or writing failed, a store is damaged, or the file is there already
  75  a service runs on the target or a file, or the database does not answer: try again later
  77  the file of another user
  78  the configuration is wrong, or the database cannot be used

Example:
  settee store backup /backup/monday.redb")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write the store into a new file while the service runs.
    ///
    /// All is of one moment: documents with revisions and deletions, local documents, pauses and priorities, the uuid.
    /// Asks the running service; with `[store] url` in the configuration it reads the database. The file is a store,
    /// which has credentials and only this user can read.
    #[command(after_long_help = "\
Example:
  settee store backup /backup/monday.redb")]
    Backup(BackupArgs),
    /// Put a backup where the configuration keeps the store.
    ///
    /// Stop the service first; there must be no store yet. The checksums of the backup are verified. If it is interrupted,
    /// run it again: it goes on. At the end both sides are compared. Replications start with the service. Root gives the
    /// file to the owner of its folder.
    #[command(after_long_help = "\
Example:
  settee store restore /backup/monday.redb")]
    Restore(RestoreArgs),
    /// Copy a store to an empty place, with revisions, deletions and the uuid.
    ///
    /// Stop the services first: one that runs on a file or on the target is noticed, one on a database as source is not.
    /// If it is interrupted, run it again: it goes on. At the end both sides are read again and compared. The source
    /// stays as it is.
    #[command(after_long_help = "\
Example:
  SETTEE_STORE_PASSWORD=.. settee store migrate --from /var/lib/settee/settee.redb --to postgres://settee@db/settee")]
    Migrate(MigrateArgs),
}

#[derive(Debug, clap::Args)]
struct BackupArgs {
    /// A new file.
    file: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Debug, clap::Args)]
struct RestoreArgs {
    /// What `settee store backup` has written.
    file: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, clap::Args)]
struct MigrateArgs {
    /// A file, or postgres://user@host:port/database; $SETTEE_STORE_PASSWORD keeps the password out of the command line,
    /// where all users of this machine see it.
    #[arg(long, value_parser = place)]
    from: StorePlace,
    /// A file that is not there yet, or a database without documents.
    #[arg(long, value_parser = place)]
    to: StorePlace,
}

fn place(text: &str) -> Result<StorePlace, String> {
    if !text.contains("://") {
        return Ok(StorePlace::of(Some(text.as_ref())));
    }
    let url = StoreUrl::parse(text)?;
    let variables = Surroundings::of_process().variables;
    let password = variables.iter().find(|(name, _)| name == PASSWORD);
    let password = password.and_then(|(_, value)| value.to_str());
    Ok(StorePlace::Postgres(match password {
        Some(password) => url.with_password(password),
        None => url,
    }))
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub(super) fn run(args: &Args, languages: &Registry) -> Result<(), CliError> {
    let watcher: Arc<dyn Watcher> = Arc::new(DocStates::default());
    let printed = block_on(async {
        match &args.command {
            Command::Migrate(MigrateArgs { from, to }) => {
                Ok(summary(&copy(from, to, &watcher).await?, from, to))
            }
            Command::Backup(args) => {
                let place = StorePlace::of_config(&args.config.load(languages)?.config.store);
                backup(&args.file, &place, &args.socket, &watcher).await
            }
            Command::Restore(args) => {
                let place = StorePlace::of_config(&args.config.load(languages)?.config.store);
                restore(&args.file, &place, &watcher).await
            }
        }
    });
    output::print(&printed?)
}

async fn backup(
    path: &Path,
    place: &StorePlace,
    socket: &SocketArgs,
    watcher: &Arc<dyn Watcher>,
) -> Result<String, CliError> {
    let refused = |error: io::Error| CliError::new_file(path, &error);
    let file = NewFile::create(path).map_err(refused)?;
    let part = StorePlace::File(file.part().to_owned());
    let (copied, from) = match place {
        StorePlace::Postgres(_) => (copy(place, &part, watcher).await?, place.to_string()),
        place => {
            let source = Running::hold(place, socket).await?;
            let head = (&*source.held.uuid, source.held.seq);
            let copied = copy_from(&source, head, &part, watcher).await?;
            (copied, source.service.socket.display().to_string())
        }
    };
    file.finish().map_err(refused)?;
    Ok(summary(&copied, from, path.display()))
}

async fn restore(
    path: &Path,
    place: &StorePlace,
    watcher: &Arc<dyn Watcher>,
) -> Result<String, CliError> {
    if *place == StorePlace::Memory {
        let what = "[store] path is \"memory\", where nothing can be restored";
        return Err(CliError::new(Exit::Config, what, "name a file in it"));
    }
    let from = StorePlace::File(path.to_owned());
    let copied = copy(&from, place, watcher).await.map_err(|error| match error {
        CopyError::Foreign(_) => CliError {
            hint: "nothing of it was changed: name an empty place in [store] path or url, or see docs/replication.md, Backup and restore".to_owned(),
            ..error.into()
        },
        CopyError::Store(StoreError::Open(ref open)) if open.place == from.to_string() => CliError {
            hint: "nothing was restored: name a backup that can be read".to_owned(),
            ..error.into()
        },
        error => error.into(),
    })?;
    if let (StorePlace::File(file), true) = (place, rustix::process::geteuid().is_root()) {
        give_to_owner_of_folder(file).map_err(|error| CliError::io(file.display(), &error))?;
    }
    Ok(summary(&copied, from, place))
}

/// The service that is to use the file is seldom root's. Whoever has the folder may have put another file there since,
/// or a link to one.
fn give_to_owner_of_folder(path: &Path) -> io::Result<()> {
    let folder = path.canonicalize()?;
    let folder = folder.parent().unwrap_or(&folder).metadata()?;
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_link)
        .open(path)?;
    match file.metadata()?.nlink() {
        1 => fchown(&file, Some(folder.uid()), Some(folder.gid())),
        _ => Err(io::Error::other("another name of it stands elsewhere")),
    }
}

/// Where a running service hands out its store.
const BACKUP: &str = "/_scheduler/_backup";

/// The store of a running service, as it was when it was asked to hold that.
struct Running {
    service: Service,
    held: HeldCopy,
}

impl Running {
    async fn hold(place: &StorePlace, socket: &SocketArgs) -> Result<Self, CliError> {
        let service = Service::at(socket, |_, _| None);
        let held: Result<Option<HeldCopy>, CliError> = service.get(BACKUP).await;
        let held = held.map_err(|error| match (error.code, place) {
            (Exit::Unavailable, StorePlace::File(file)) => {
                let file = file.display();
                let hint = format!(
                    "start it, name its socket with --socket, or copy its file with `settee store migrate --from {file} --to ..`"
                );
                CliError { hint, ..error }
            }
            _ => error,
        })?;
        match held {
            Some(held) => Ok(Self { service, held }),
            None => {
                let what = "the documents of this service are in a database";
                let hint = "name its configuration with -c: then the database is read";
                Err(CliError::at(
                    Exit::Config,
                    service.socket.display(),
                    what,
                    hint,
                ))
            }
        }
    }
}

impl CopySource for Running {
    type Error = CliError;

    async fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<CopyRow>, CliError> {
        let kind = serde_json::to_value(kind).unwrap_or_default();
        let query = [
            ("copy", self.held.copy.to_string()),
            ("kind", kind.as_str().unwrap_or_default().to_owned()),
            ("after", after.to_owned()),
        ];
        let path = with_query(BACKUP, query);
        let rows: Option<Vec<CopyRow>> = self.service.get(&path).await?;
        rows.ok_or_else(|| {
            let what = "the service has ended this backup: another one began, or this one paused for a minute";
            CliError::new(Exit::TryAgain, what, "try again")
        })
    }
}

fn summary(copied: &Copied, from: impl Display, to: impl Display) -> String {
    let number = |number: u64, one, more| count(usize::try_from(number).unwrap_or(0), one, more);
    let rows = copied.documents + copied.locals + copied.jobs;
    format!(
        "{documents} ({deleted} deleted), {locals}, {jobs} with settings of their own\n\
         from {from}\nto   {to}\n\
         {before} of {rows} rows were there already; update {seq}; uuid {uuid}\n\
         both sides have the SHA-256 {hash}\n",
        documents = number(copied.documents, "document", "documents"),
        deleted = copied.deleted,
        locals = number(copied.locals, "local document", "local documents"),
        jobs = number(copied.jobs, "job", "jobs"),
        before = copied.before,
        seq = copied.seq,
        uuid = copied.uuid,
        hash = copied.hash,
    )
}

impl From<CopyError> for CliError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Store(StoreError::Open(error)) => {
                Self::new(open_code(&error.problem), error.to_string(), error.remedy())
            }
            CopyError::Store(error) => Self::new(Exit::Io, error.to_string(), "try again"),
            CopyError::NoSource(place) => {
                let what = format!("there is no store {place}");
                Self::new(Exit::Io, what, "name the one to copy from")
            }
            CopyError::Foreign(place) => {
                let what = format!("the store {place} holds something else");
                Self::new(Exit::Data, what, "name an empty one")
            }
            CopyError::Differs(place) => {
                let what = format!("the store {place} is not what was copied");
                let hint = "one of the two has changed meanwhile: empty it and copy again";
                Self::new(Exit::Data, what, hint)
            }
        }
    }
}
