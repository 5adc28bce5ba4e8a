//! The files that `settee map` is given: functions, modules, documents.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;

use serde_json::value::{RawValue, to_raw_value};
use slog::Logger;

use crate::cli::exit::{CliError, Exit};
use crate::config::Config;
use crate::config::keys::MANGO;
use crate::functions::view::{Library, Module, Reducer};
use crate::query_server::reduce::{Builtin, OverflowLog, SumLimit};
use couchjs::syntax::SyntaxError;
use mango::{Index, Selector};

/// What a module's file ends with.
const MODULE_EXTENSION: &str = "js";

/// How many directories deep modules are looked for: a link that leads back ends here.
const MODULE_DEPTH_MAX: usize = 16;

/// Reads the source of a function.
pub(super) fn function(path: &Path) -> Result<String, CliError> {
    let source = read(path)?;
    if source.trim().is_empty() {
        let message = format!("{}: the file has no function in it", path.display());
        return Err(CliError::new(
            Exit::Data,
            message,
            "write one, or name another file",
        ));
    }
    Ok(source)
}

/// Reads what is to map: the source of a function, as a JSON string; in Mango, which has
/// no sources, an index definition as it stands.
pub(super) fn map(path: &Path, language: &str) -> Result<Box<RawValue>, CliError> {
    let source = function(path)?;
    if !language.eq_ignore_ascii_case(MANGO) {
        return Ok(to_raw_value(&source).expect("config: a text is always JSON"));
    }
    let wrong = |error: &dyn Display| {
        let message = format!("{}: {error}", path.display());
        CliError::new(Exit::Data, message, "correct the index definition")
    };
    Index::parse(&source).map_err(|error| wrong(&error))?;
    RawValue::from_string(source.trim().to_owned()).map_err(|error| wrong(&error))
}

/// Reads a selector.
pub(super) fn selector(path: &Path) -> Result<Selector, CliError> {
    Selector::parse(&read(path)?).map_err(|error| {
        let place = format!("{}:{}:{}", path.display(), error.line, error.column);
        let message = format!("{place}: {}: {}", error.name(), error.reason());
        CliError::new(Exit::Data, message, "correct the selector")
    })
}

fn read(path: &Path) -> Result<String, CliError> {
    let bytes = fs::read(path).map_err(|error| file_error(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        let message = format!("{}: not UTF-8 at byte {at}", path.display());
        CliError::new(Exit::Data, message, "convert the file")
    })
}

fn file_error(path: &Path, error: &io::Error) -> CliError {
    let place = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => CliError::new(
            Exit::Io,
            format!("{place}: {error}"),
            "correct the file's name",
        ),
        io::ErrorKind::IsADirectory => {
            CliError::new(Exit::Io, format!("{place}: {error}"), "name a file")
        }
        _ => CliError::io(&place.to_string(), error),
    }
}

/// Reads a reduce function: a name that begins with `_` is a built-in one, as in CouchDB also when
/// it stands in a file.
pub(super) fn reducer(name: &Path, config: &Config, log: &Logger) -> Result<Reducer, CliError> {
    let builtin = name.to_str().filter(|name| name.starts_with('_'));
    let source = match builtin {
        Some(name) => name.to_owned(),
        None => function(name)?,
    };
    if !source.trim_start().starts_with('_') {
        return Ok(Reducer::Source(source));
    }
    let found = Builtin::named(source.trim()).map_err(|error| {
        let code = if builtin.is_some() {
            Exit::Usage
        } else {
            Exit::Data
        };
        let hint = format!(
            "use {}, or a file with a function",
            Builtin::NAMES.join(", ")
        );
        CliError::new(code, format!("{}: {error}", name.display()), hint)
    })?;
    Ok(Reducer::Builtin {
        builtin: found,
        limit: SumLimit::of(&config.query_server_config),
        log: Rc::new(OverflowLog::new(log.clone())),
    })
}

/// Reads the modules of a directory and those below it; `check` says what a source may be.
pub(super) fn library(directory: Option<&Path>, check: Check) -> Result<Library, CliError> {
    let modules = |directory| modules(directory, check, 1);
    directory.map_or_else(|| Ok(Library::new()), modules)
}

/// Tells the mistake in the source of a module.
pub(super) type Check = fn(&str) -> Result<(), SyntaxError>;

fn module(path: &Path, check: Check) -> Result<Module, CliError> {
    let source = read(path)?;
    check(&source).map_err(|error| {
        let message = format!("{}:{}: {error}", path.display(), error.line);
        CliError::new(Exit::Data, message, "correct the module, or take it out")
    })?;
    Ok(Module::Source(source))
}

fn modules(directory: &Path, check: Check, depth: usize) -> Result<Library, CliError> {
    let mut library = Library::new();
    let list = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotADirectory => {
            let message = format!("{}: {error}", directory.display());
            CliError::new(Exit::Io, message, "--lib takes a directory of modules")
        }
        _ => file_error(directory, error),
    };
    if depth > MODULE_DEPTH_MAX {
        let message = format!(
            "{}: more than {MODULE_DEPTH_MAX} directories deep",
            directory.display()
        );
        return Err(CliError::new(
            Exit::Data,
            message,
            "look for a link that leads back",
        ));
    }
    for entry in fs::read_dir(directory).map_err(|error| list(&error))? {
        let path = entry.map_err(|error| list(&error))?.path();
        let is_module = path
            .extension()
            .is_some_and(|extension| extension == MODULE_EXTENSION);
        let (name, module) = if path.is_dir() {
            (
                path.file_name(),
                Module::Directory(modules(&path, check, depth + 1)?),
            )
        } else if is_module {
            (path.file_stem(), module(&path, check)?)
        } else {
            continue;
        };
        let name = name.and_then(|name| name.to_str()).ok_or_else(|| {
            let message = format!("{}: the name is not UTF-8", path.display());
            CliError::new(Exit::Data, message, "give the module another name")
        })?;
        if library.insert(name.to_owned(), module).is_some() {
            let message = format!("{}: a module and a directory of one name", path.display());
            return Err(CliError::new(
                Exit::Data,
                message,
                "give one of them another name",
            ));
        }
    }
    library.retain(|_, module| *module != Module::Directory(Library::new()));
    Ok(library)
}

/// Whether documents come from standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens the documents.
pub(super) fn input(path: &Path) -> Result<Box<dyn Read + Send>, CliError> {
    if is_standard_input(path) {
        let input = io::stdin();
        widen(&input);
        return Ok(Box::new(input));
    }
    let file = File::open(path).map_err(|error| file_error(path, &error))?;
    Ok(Box::new(file))
}

/// The room of a pipe to or from the program, in bytes: with the usual 64 KiB both sides wait for
/// each other most of the time.
const PIPE_BYTES: usize = 1 << 20;

/// Makes a pipe hold more. What is no pipe, or may not grow, stays as it is.
pub(super) fn widen(pipe: impl AsFd) {
    // An optimisation: nothing depends on it.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}
