//! The input files of `settee map`: functions, modules, documents.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use slog::Logger;

use crate::cli::exit::{CliError, CliResult, Exit};
use crate::config::Config;
use crate::config::keys::MANGO;
use crate::functions::view::{BuiltinReducer, InputError};
use crate::query_server::reduce::{Builtin, OverflowLog, SumLimit};
use couchjs::syntax;
use mango::{Index, Selector};

/// A reduce function.
pub(super) enum Reducer {
    Builtin(BuiltinReducer),
    /// The source of a function in the view's language.
    Source(String),
}

/// File extension of modules.
const MODULE_EXTENSION: &str = "js";

/// Maximum depth of module directories: ends cyclic links.
const MODULE_DEPTH_MAX: usize = 16;

/// Reads the source of a function.
pub(super) fn function(path: &Path) -> CliResult<String> {
    let source = read(path)?;
    if source.trim().is_empty() {
        return Err(wrong(
            path,
            "the file has no function in it",
            "write one, or name another file",
        ));
    }
    Ok(source)
}

/// Reads the map: a function's source as a JSON string; in Mango, which has no sources, an index definition
/// unchanged.
pub(super) fn map(path: &Path, language: &str) -> CliResult<Box<RawValue>> {
    let source = function(path)?;
    if !language.eq_ignore_ascii_case(MANGO) {
        return Ok(to_raw_value(&source).expect("map: a string is always JSON"));
    }
    let hint = "correct the index definition";
    Index::parse(&source).map_err(|error| wrong(path, error, hint))?;
    RawValue::from_string(source.trim().to_owned()).map_err(|error| wrong(path, error, hint))
}

/// Reads a selector.
pub(super) fn selector(path: &Path) -> CliResult<Selector> {
    Selector::parse(&read(path)?).map_err(|error| {
        CliError::at(
            Exit::Data,
            format!("{}:{}:{}", path.display(), error.line, error.column),
            format!("{}: {}", error.name(), error.kind),
            "correct the selector",
        )
    })
}

/// Returns the error of a file with a mistake.
fn wrong(path: &Path, what: impl Display, hint: &str) -> CliError {
    CliError::at(Exit::Data, path.display(), what, hint)
}

fn read(path: &Path) -> CliResult<String> {
    let bytes = fs::read(path).map_err(|error| file_error(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        wrong(path, format!("not UTF-8 at byte {at}"), "convert the file")
    })
}

fn file_error(path: &Path, error: &io::Error) -> CliError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "correct the file's name",
        io::ErrorKind::IsADirectory => "name a file",
        _ => return CliError::io(path.display(), error),
    };
    CliError::at(Exit::Io, path.display(), error, hint)
}

/// Reads a reduce function. A name starting with `_`, given directly or in a file, names a built-in one, as in CouchDB.
pub(super) fn reducer(name: &Path, config: &Config, log: &Logger) -> CliResult<Reducer> {
    let builtin = name.to_str().filter(|name| name.starts_with('_'));
    let source = match builtin {
        Some(name) => name.to_owned(),
        None => function(name)?,
    };
    if !source.trim_start().starts_with('_') {
        return Ok(Reducer::Source(source));
    }
    let found = Builtin::named(source.trim()).map_err(|error| {
        let code = match builtin {
            Some(_) => Exit::Usage,
            None => Exit::Data,
        };
        let names = Builtin::names().join(", ");
        CliError::at(
            code,
            name.display(),
            error,
            format!("use {names}, or a file with a function"),
        )
    })?;
    Ok(Reducer::Builtin(BuiltinReducer {
        builtin: found,
        limit: SumLimit::of(&config.query_server_config),
        log: OverflowLog::new(log.clone()),
    }))
}

/// Modules by name: a source, or an object with the modules of a subdirectory.
type Library = BTreeMap<String, Value>;

/// Reads the modules of a directory and its subdirectories, in the form of `add_lib`; those for the built-in server are
/// checked.
pub(super) fn library(directory: Option<&Path>, is_builtin: bool) -> CliResult<Box<RawValue>> {
    let library = directory.map_or_else(
        || Ok(Library::new()),
        |directory| modules(directory, is_builtin, 1),
    )?;
    Ok(to_raw_value(&library).expect("VW-7: strings by name can be written"))
}

fn module(path: &Path, is_builtin: bool) -> CliResult<Value> {
    let source = read(path)?;
    if is_builtin {
        syntax::check_module(&source).map_err(|error| {
            CliError::at(
                Exit::Data,
                format!("{}:{}:{}", path.display(), error.line, error.column),
                error,
                "correct the module, or take it out",
            )
        })?;
    }
    Ok(source.into())
}

fn modules(directory: &Path, is_builtin: bool, depth: usize) -> CliResult<Library> {
    let mut library = Library::new();
    let unlisted = |error: io::Error| match error.kind() {
        io::ErrorKind::NotADirectory => CliError::at(
            Exit::Io,
            directory.display(),
            error,
            "--lib takes a directory of modules",
        ),
        _ => file_error(directory, &error),
    };
    if depth > MODULE_DEPTH_MAX {
        return Err(wrong(
            directory,
            format!("more than {MODULE_DEPTH_MAX} directories deep"),
            "look for a symbolic link to a parent directory",
        ));
    }
    for entry in fs::read_dir(directory).map_err(unlisted)? {
        let path = entry.map_err(unlisted)?.path();
        let is_module = path
            .extension()
            .is_some_and(|extension| extension == MODULE_EXTENSION);
        let (name, module) = if path.is_dir() {
            (
                path.file_name(),
                json!(modules(&path, is_builtin, depth + 1)?),
            )
        } else if is_module {
            (path.file_stem(), module(&path, is_builtin)?)
        } else {
            continue;
        };
        let name = name.and_then(|name| name.to_str()).ok_or_else(|| {
            wrong(
                &path,
                "the name is not UTF-8",
                "give the module another name",
            )
        })?;
        if library.insert(name.to_owned(), module).is_some() {
            return Err(wrong(
                &path,
                "a module and a directory of one name",
                "give one of them another name",
            ));
        }
    }
    library.retain(|_, module| *module != json!({}));
    Ok(library)
}

/// Whether documents come from standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens the documents.
pub(super) fn input(path: &Path) -> CliResult<impl Read + Send + use<>> {
    let input: Box<dyn Read + Send> = if is_standard_input(path) {
        let input = io::stdin();
        // An optimisation: other files, and pipes that may not grow, are unchanged.
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE_BYTES);
        Box::new(input)
    } else {
        Box::new(File::open(path).map_err(|error| file_error(path, &error))?)
    };
    let is_known = false;
    Ok(Lines { input, is_known })
}

/// Converts an error of the documents for the user.
pub(super) fn bad_input(name: &str, error: &InputError) -> CliError {
    let InputError::Read(read) = error else {
        return CliError::at(
            Exit::Data,
            name,
            error,
            "correct the line, take it out, or allow some with --skip-bad N",
        );
    };
    let foreign = read.get_ref().and_then(|inner| inner.downcast_ref());
    match foreign {
        Some(foreign @ Foreign(_, hint)) => CliError::at(Exit::Data, name, foreign, *hint),
        None => CliError::io(name, read),
    }
}

/// Bytes read to detect an input's format.
const BEGIN_BYTES_MAX: usize = 4096;

/// An input that is not lines of JSON: its format, and a command that converts it.
#[derive(Debug, thiserror::Error)]
#[error("{0}, not one JSON document a line")]
struct Foreign(&'static str, &'static str);

/// An input whose first bytes are checked: a known format other than lines of JSON is refused. Skips a UTF-8 byte
/// order mark.
struct Lines {
    input: Box<dyn Read + Send>,
    is_known: bool,
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.is_known {
            let mut begin = self.begin()?;
            self.is_known = true;
            if begin.starts_with(UTF_8) {
                begin.drain(..UTF_8.len());
            }
            if let Some(foreign) = foreign(&begin) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, foreign));
            }
            let rest = std::mem::replace(&mut self.input, Box::new(io::empty()));
            self.input = Box::new(io::Cursor::new(begin).chain(rest));
        }
        self.input.read(buffer)
    }
}

impl Lines {
    /// Reads until the format is certain: a single document is not held back.
    fn begin(&mut self) -> io::Result<Vec<u8>> {
        let mut begin = vec![0; BEGIN_BYTES_MAX];
        let mut length = 0;
        loop {
            match self.input.read(&mut begin[length..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
                Ok(0) => break,
                Ok(bytes) => length += bytes,
            }
            let read = &begin[..length];
            if read.starts_with(b"{") || (length > UTF_8.len() && read.contains(&b'\n')) {
                break;
            }
        }
        begin.truncate(length);
        Ok(begin)
    }
}

const UTF_8: &[u8] = b"\xef\xbb\xbf";

/// Detects the format of an input from its first bytes, unless it may be lines of JSON.
fn foreign(begin: &[u8]) -> Option<Foreign> {
    let text = begin.trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Some(match text {
        [0x1f, 0x8b, ..] => Foreign("compressed with gzip", "zcat FILE | settee map .."),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Foreign("compressed with zstd", "zstdcat FILE | settee map ..")
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Foreign("UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | settee map ..")
        }
        [b'[', ..] => Foreign("a JSON array", "jq -c '.[]' FILE | settee map .."),
        [b'{', ..] => return None,
        _ if line.iter().any(|byte| b",;\t".contains(byte)) => Foreign(
            "CSV",
            "python3 -c 'import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin)]' < FILE | settee map ..",
        ),
        _ => return None,
    })
}

/// Capacity of a pipe to or from the program, in bytes: with the usual 64 KiB both sides wait for each other most of
/// the time.
const PIPE_BYTES: usize = 1 << 20;
