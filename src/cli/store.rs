//! `settee store migrate`: takes a store to another place, from a file to PostgreSQL or back.
//!
//! SUMMARY   Asks no service: it opens both sides itself, and ends with a summary.
//! PROMISES  The source stays as it is. A password is shown nowhere.

use std::sync::Arc;

use crate::config::Surroundings;
use crate::config::store_url::StoreUrl;
use crate::replicator::DocStates;
use store::{Copied, CopyError, StoreError, StorePlace, Watcher, copy};

use super::exit::{CliError, Exit};
use super::output;
use super::serve::open_code;
use super::service_socket::block_on;
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
  74  reading or writing failed
  75  a service runs on a file, or the database does not answer: try again later
  77  the file of another user
  78  the database cannot be used

Example:
  SETTEE_STORE_PASSWORD=.. settee store migrate --from /var/lib/settee/settee.redb --to postgres://settee@db/settee")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Copy a store to an empty place, with revisions, deletions and the uuid.
    ///
    /// Stop the services first: one that runs on a file is noticed, one on a database is not. If it is interrupted, run it
    /// again: it goes on. At the end both sides are read again and compared. The source stays as it is.
    #[command(after_long_help = "\
Example:
  SETTEE_STORE_PASSWORD=.. settee store migrate --from /var/lib/settee/settee.redb --to postgres://settee@db/settee")]
    Migrate(MigrateArgs),
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
pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let Command::Migrate(MigrateArgs { from, to }) = &args.command;
    let watcher: Arc<dyn Watcher> = Arc::new(DocStates::default());
    let copied = block_on(async { copy(from, to, &watcher).await.map_err(CliError::from) })?;
    output::print(&summary(&copied, from, to))
}

fn summary(copied: &Copied, from: &StorePlace, to: &StorePlace) -> String {
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
