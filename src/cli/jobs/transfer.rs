//! `settee jobs export` and `import`: replications in one file, for a backup, a restore, or a move to another store.
//!
//! SUMMARY   An export is a snapshot of the running service. An import reads and verifies the whole file before it
//!           writes the first row: to the running service, which gets the documents that it lacks, or, with
//!           `--replace`, to the store, whose content it replaces.
//! PROMISES  Credentials leave the service only with `--secrets`, and only into a new file readable by its owner
//!           alone. A file is complete and on disk, or does not exist.
//! LIMITS    Documents are sent in batches of at most [`DOCUMENTS_MAX`]; one that reaches [`BYTES_MAX`] ends its batch.
//!           Input other than a plain file is held in memory, at most [`INPUT_BYTES_MAX`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::to_raw_value;

use crate::actors::language::Registry;
use crate::cli::config_args::ConfigArgs;
use crate::cli::exit::{CliError, CliResult, Exit};
use crate::cli::output::{self, Output, json_or};
use crate::cli::service_socket::Service;
use crate::cli::table::count;
use crate::client::{Imported, ServiceError, with_query};
use crate::config::new_file::NewFile;
use crate::replicator::members::DocMembers;
use crate::replicator::{DocStates, export_lines};
use store::{ExportEnd, ExportError, ExportHead, ExportReader, ExportRow, StoreError, StorePlace};

/// Maximum documents of a batch.
const DOCUMENTS_MAX: usize = 500;

/// Size of documents at which a batch ends, in bytes.
const BYTES_MAX: usize = 256 << 10;

/// Maximum bytes of an import that is not a plain file.
const INPUT_BYTES_MAX: u64 = 512 << 20;

/// Maximum bytes of the last line.
const END_BYTES_MAX: usize = 4096;

/// The beginning of an export. Files of the previous version have no head, only one document a line.
const HEAD: &[u8] = b"{\"settee_export\":";

#[derive(clap::Args)]
pub(super) struct ExportArgs {
    /// A new file, readable only by this user; default: standard output.
    file: Option<PathBuf>,
    /// Include user names, passwords, `auth` and `headers`; needs a file.
    #[arg(long, requires = "file")]
    secrets: bool,
    /// Read the store of the configuration, without a service: a file not in use, or a database.
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(clap::Args)]
pub(super) struct ImportArgs {
    /// A file written by `export`; `-` is standard input.
    file: PathBuf,
    /// Replace the whole store of the configuration; its services must be stopped.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) async fn export(
    service: &Service,
    args: &ExportArgs,
    languages: &Registry,
) -> CliResult {
    let mut sink = Sink::open(args)?;
    if args.offline {
        let place = StorePlace::of_config(&args.config.load(languages)?.config.store);
        let mut lines = export_lines(place.snapshot().await?, args.secrets);
        while let Some(lines) = lines.next().await? {
            if sink.write(&lines)?.is_break() {
                return Ok(());
            }
        }
    } else {
        let query = [("secrets", args.secrets.to_string())];
        let path = with_query("/_scheduler/_export", query);
        let mut pieces = service.answer(service.operator.open(&path)).await?;
        while let Some(piece) = service.answer(pieces.next()).await? {
            if sink.write(&piece)?.is_break() {
                return Ok(());
            }
        }
    }
    sink.finish()
}

/// The destination of an export.
struct Sink<'a> {
    to: Target<'a>,
    /// The last bytes written, at most [`END_BYTES_MAX`]: they hold the last line.
    tail: Vec<u8>,
}

enum Target<'a> {
    File(NewFile, &'a Path),
    Standard(Output),
}

impl<'a> Sink<'a> {
    fn open(args: &'a ExportArgs) -> CliResult<Self> {
        let to = match &args.file {
            Some(path) => {
                let file = NewFile::create(path);
                Target::File(
                    file.map_err(|error| CliError::new_file(path, &error))?,
                    path,
                )
            }
            None => Target::Standard(Output::standard()),
        };
        let tail = Vec::new();
        Ok(Self { to, tail })
    }

    /// Writes bytes. Returns `Break` if the reader of standard output has closed.
    fn write(&mut self, bytes: &[u8]) -> CliResult<ControlFlow<()>> {
        self.tail.extend(bytes);
        let too_much = self.tail.len().saturating_sub(END_BYTES_MAX);
        self.tail.drain(..too_much);
        match &mut self.to {
            Target::File(file, path) => {
                file.write_all(bytes)
                    .map_err(|error| CliError::new_file(path, &error))?;
                Ok(ControlFlow::Continue(()))
            }
            Target::Standard(output) => output.write(bytes),
        }
    }

    /// Gives the complete file its name, and prints the number of its documents.
    ///
    /// # Errors
    /// The export has no last line, or a write fails.
    fn finish(self) -> CliResult {
        let tail = String::from_utf8_lossy(&self.tail);
        let last = tail.lines().last().unwrap_or_default();
        let Ok(end) = serde_json::from_str::<ExportEnd>(last) else {
            let why = match serde_json::from_str::<ServiceError>(last) {
                Ok(error) => error.to_string(),
                Err(_) => "it has no last line".to_owned(),
            };
            return Err(CliError::new(
                Exit::TryAgain,
                format!("the export broke off: {why}"),
                "try again",
            ));
        };
        let Target::File(file, path) = self.to else {
            return Ok(());
        };
        file.finish()
            .map_err(|error| CliError::new_file(path, &error))?;
        let rows = count(end.rows, "document");
        output::print(&format!("{rows} in {}\n", path.display()))
    }
}

type Rows<'a> = Box<dyn Iterator<Item = CliResult<ExportRow>> + 'a>;

/// The import's input, read twice.
struct Input<'a> {
    path: &'a Path,
    /// The content, unless it is a plain file.
    bytes: Option<Vec<u8>>,
}

impl<'a> Input<'a> {
    fn of(args: &'a ImportArgs) -> CliResult<Self> {
        let path = &*args.file;
        let mut input = Self { path, bytes: None };
        let unreadable = |error: io::Error| CliError::io(path.display(), &error);
        let other: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else if path.is_file() {
            return Ok(input);
        } else {
            Box::new(File::open(path).map_err(unreadable)?)
        };
        let mut bytes = Vec::new();
        let length = other
            .take(INPUT_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        if length as u64 > INPUT_BYTES_MAX {
            return Err(CliError::at(
                Exit::Data,
                path.display(),
                format!("more than {} MiB", INPUT_BYTES_MAX >> 20),
                "nothing was imported: write it to a file, and name that",
            ));
        }
        input.bytes = Some(bytes);
        Ok(input)
    }

    /// Returns the head and the rows; an export of the previous version has no head.
    fn read(&self) -> CliResult<(Option<ExportHead>, Rows<'_>)> {
        let unreadable = |error: io::Error| CliError::io(self.path.display(), &error);
        let mut input: Box<dyn BufRead + '_> = match &self.bytes {
            Some(bytes) => Box::new(&**bytes),
            None => Box::new(BufReader::new(File::open(self.path).map_err(unreadable)?)),
        };
        if input.fill_buf().map_err(unreadable)?.starts_with(HEAD) {
            let wrong = |error| match error {
                ExportError::Io(error) => CliError::io(self.path.display(), &error),
                error => self.wrong(&error.to_string()),
            };
            let (head, mut reader) = ExportReader::open(input).map_err(wrong)?;
            let rows = std::iter::from_fn(move || reader.row().map_err(wrong).transpose());
            return Ok((Some(head), Box::new(rows.fuse())));
        }
        let rows = input.lines().zip(1..).filter_map(move |(line, number)| {
            line.map_err(unreadable)
                .and_then(|line| {
                    document(&line).map_err(|what| self.wrong(&format!("line {number}: {what}")))
                })
                .transpose()
        });
        Ok((None, Box::new(rows)))
    }

    fn wrong(&self, what: &str) -> CliError {
        CliError::at(
            Exit::Data,
            self.path.display(),
            what,
            "nothing was imported: name a complete export",
        )
    }
}

/// Reads a line of an export of the previous version; a blank one has no document.
fn document(line: &str) -> Result<Option<ExportRow>, String> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let mut doc = DocMembers::parse(line).map_err(|error| format!("not a JSON object: {error}"))?;
    let id = doc.text("_id").ok_or("the document has no _id")?;
    let job = doc.remove("_job");
    doc.retain(|name, _| !matches!(name, "_id" | "_rev"));
    Ok(Some(ExportRow {
        id,
        rev: String::new(),
        seq: 0,
        deleted_at: None,
        job,
        doc: to_raw_value(&doc).map_err(|error| error.to_string())?,
    }))
}

pub(super) async fn import(
    service: &Service,
    args: &ImportArgs,
    json: bool,
    languages: &Registry,
) -> CliResult {
    let input = Input::of(args)?;
    let (head, rows) = input.read()?;
    // Documents include deleted ones.
    let [mut documents, mut deleted, mut locals, mut jobs] = [0_usize; 4];
    for row in rows {
        let row = row?;
        jobs += usize::from(row.job.is_some());
        deleted += usize::from(row.deleted_at.is_some());
        match row.local() {
            Some(_) => locals += 1,
            None => documents += 1,
        }
    }
    let (_, rows) = input.read()?;
    if !args.replace {
        let to_send = rows.filter(|row| {
            let is_one = |row: &ExportRow| row.deleted_at.is_none() && row.local().is_none();
            head.is_none() || row.as_ref().map_or(true, is_one)
        });
        return send(service, to_send, json).await;
    }
    let Some(head) = head.filter(|head| head.secrets) else {
        return Err(CliError::at(
            Exit::Data,
            input.path.display(),
            "not a full export: credentials or revisions are missing",
            "export with --secrets, or import it without --replace",
        ));
    };
    let place = StorePlace::of_config(&args.config.load(languages)?.config.store);
    place.replace(&head, rows, &DocStates::default()).await?;
    output::print(&format!(
        "{} ({deleted} deleted), {}, {} with settings of their own\nin {place}; update {}; uuid {}\n",
        count(documents, "document"),
        count(locals, "local document"),
        count(jobs, "job"),
        head.seq,
        head.uuid,
    ))
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Open(error) => error.into(),
            error => Self::new(Exit::Io, error.to_string(), "try again"),
        }
    }
}

/// Sends documents to the running service.
async fn send(
    service: &Service,
    mut rows: impl Iterator<Item = CliResult<ExportRow>>,
    json: bool,
) -> CliResult {
    let (mut sent, mut refused) = (0, 0);
    loop {
        let some = ExportRow::next_of(&mut rows, DOCUMENTS_MAX, BYTES_MAX)?;
        if some.is_empty() {
            break;
        }
        let results: Vec<Imported> = service
            .post("/_scheduler/_import", &Import { rows: &some })
            .await?;
        sent += results.len();
        refused += results.iter().filter(|one| one.ok.is_none()).count();
        output::print(&results.iter().map(|one| row(one, json)).collect::<String>())?;
    }
    match refused {
        0 => Ok(()),
        _ => Err(CliError::new(
            Exit::Data,
            format!("{refused} of {} were not imported", count(sent, "document")),
            "the list says why; `settee jobs apply` changes existing documents",
        )),
    }
}

/// The current batch of an import.
#[derive(Serialize)]
struct Import<'a> {
    rows: &'a [ExportRow],
}

/// Returns a document's result on one line.
fn row(one: &Imported, json: bool) -> String {
    json_or(json, one, || match &one.ok {
        Some(ok) => format!("{ok} {}\n", one.id),
        None => format!("{} {}: {}\n", one.error, one.id, one.reason),
    })
}
