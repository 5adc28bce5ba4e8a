//! `settee jobs export` and `import`: the documents of `_replicator` as lines of JSON.
//!
//! SUMMARY   An export is a document a line, in the order of their ids, with `_job` where its job was paused or
//!           given a priority. An import is an ordinary write of each; documents that are there stay.
//! PROMISES  Credentials leave the service only with `--secrets`, and only into a new file that its owner alone can
//!           read. A file is there whole and on the disk, or not at all.
//! LIMITS    [`DOCUMENTS_MAX`] documents, or [`BYTES_MAX`] bytes and one document, are sent at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::{Imported, with_query};
use crate::config::new_file::NewFile;

use super::super::exit::{CliError, Exit};
use super::super::output::{self, Output};
use super::super::service_socket::Service;
use super::super::table::count;

/// Documents that are sent at a time.
const DOCUMENTS_MAX: usize = 500;

/// Bytes of documents after which no more are sent at a time.
const BYTES_MAX: usize = 256 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// A new file, which only this user can read; standard output if left out.
    file: Option<PathBuf>,
    /// With user names, passwords, `auth` and `headers`; takes a file.
    #[arg(long, requires = "file")]
    secrets: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// A document a line, as `export` writes them; `-` is standard input.
    file: PathBuf,
    /// Replace documents of the same ids that say something else.
    #[arg(long)]
    replace: bool,
}

pub(super) async fn export(service: &Service, args: &ExportArgs) -> Result<(), CliError> {
    let Some(path) = &args.file else {
        let mut output = Output::standard();
        let done = send_lines(service, false, |text| output.write(text));
        return done.await.map(drop);
    };
    let refused = |error: io::Error| CliError::new_file(path, &error);
    let mut file = NewFile::create(path).map_err(refused)?;
    let write = |text: &str| match file.write_all(text.as_bytes()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) => Err(refused(error)),
    };
    let sent = send_lines(service, args.secrets, write).await?;
    file.finish().map_err(refused)?;
    let documents = count(sent, "document", "documents");
    output::print(&format!("{documents} in {}\n", path.display()))
}

/// Hands all documents on, many lines at a time. Returns how many there were.
async fn send_lines(
    service: &Service,
    secrets: bool,
    mut to: impl FnMut(&str) -> Result<ControlFlow<()>, CliError>,
) -> Result<usize, CliError> {
    let (mut after, mut sent) = (None, 0);
    loop {
        let docs = exported(service, after.as_deref(), secrets).await?;
        let Some(last) = docs.last() else {
            return Ok(sent);
        };
        after = Some(id_of(last)?);
        sent += docs.len();
        let lines: String = docs.iter().flat_map(|doc| [doc.get(), "\n"]).collect();
        if to(&lines)?.is_break() {
            return Ok(sent);
        }
    }
}

/// Returns some documents of `_replicator` after an id, in the order of their ids; none at the end.
pub(super) async fn exported(
    service: &Service,
    after: Option<&str>,
    secrets: bool,
) -> Result<Vec<Box<RawValue>>, CliError> {
    let after = after.map(|after| ("after", after.to_owned()));
    let query = [("secrets", secrets.to_string())].into_iter().chain(after);
    service.get(&with_query("/_scheduler/_export", query)).await
}

/// Returns the id of a document of an export.
fn id_of(document: &RawValue) -> Result<String, CliError> {
    let value: Value = serde_json::from_str(document.get()).unwrap_or_default();
    let id = value["_id"].as_str().map(str::to_owned);
    id.ok_or_else(|| {
        let message = "the service sent a document without an _id";
        let hint = "look at its log, and whether it is of the same version as this program";
        CliError::new(Exit::Unavailable, message, hint)
    })
}

pub(super) async fn import(
    service: &Service,
    args: &ImportArgs,
    json: bool,
) -> Result<(), CliError> {
    let name = args.file.display().to_string();
    let unreadable = |error: io::Error| CliError::io(&name, &error);
    let input: Box<dyn BufRead> = match &*name {
        "-" => Box::new(io::stdin().lock()),
        _ => {
            let opened = File::open(&args.file).map_err(unreadable)?;
            Box::new(BufReader::new(opened))
        }
    };
    let (mut docs, mut bytes, mut sent, mut refused) = (Vec::new(), 0, 0, 0);
    let mut lines = input.lines().zip(1..);
    loop {
        let next = lines.next();
        let is_end = next.is_none();
        if let Some((line, number)) = next {
            let line = line.map_err(unreadable)?;
            bytes += line.len();
            docs.extend(document(line).map_err(|error| wrong(&name, number, &error))?);
        }
        if is_end || docs.len() >= DOCUMENTS_MAX || bytes >= BYTES_MAX {
            let import = Import {
                docs: &docs,
                replace: args.replace,
            };
            let results: Vec<Imported> = service.post("/_scheduler/_import", &import).await?;
            sent += results.len();
            refused += results.iter().filter(|one| one.ok.is_none()).count();
            output::print(&results.iter().map(|one| row(one, json)).collect::<String>())?;
            docs.clear();
            bytes = 0;
        }
        if is_end {
            break;
        }
    }
    match refused {
        0 => Ok(()),
        _ => Err(CliError::new(
            Exit::Data,
            format!(
                "{refused} of {} were not imported",
                count(sent, "document", "documents")
            ),
            "the list says why; --replace replaces documents that are there",
        )),
    }
}

/// What is imported at a time.
#[derive(Serialize)]
struct Import<'a> {
    docs: &'a [Box<RawValue>],
    replace: bool,
}

/// Reads a line; a blank one has no document.
fn document(line: String) -> Result<Option<Box<RawValue>>, String> {
    match line.trim().chars().next() {
        None => Ok(None),
        Some('{') => {
            let document = RawValue::from_string(line);
            document.map(Some).map_err(|error| error.to_string())
        }
        Some(_) => Err("not a JSON object".to_owned()),
    }
}

fn wrong(name: &str, number: usize, error: &str) -> CliError {
    let hint = "correct it and import again; what is imported already stays as it is";
    CliError::at(Exit::Data, format!("{name}: line {number}"), error, hint)
}

/// Returns what became of a document, on one line.
fn row(one: &Imported, json: bool) -> String {
    match (&one.ok, json) {
        (_, true) => serde_json::to_string(one).unwrap_or_default() + "\n",
        (Some(ok), _) => format!("{ok} {}\n", one.id),
        (None, _) => format!("{} {}: {}\n", one.error, one.id, one.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_ends_at_a_document_without_an_id_and_does_not_begin_again() {
        let id = |text: &str| id_of(&RawValue::from_string(text.to_owned()).unwrap()).ok();
        assert_eq!(id(r#"{"_id":"a","n":1}"#).as_deref(), Some("a"));
        assert_eq!(id(r#"{"n":1}"#), None);
        assert_eq!(id(r#"{"_id":1}"#), None);
    }
}
