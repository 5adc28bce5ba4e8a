//! Which files a command may read, as Landlock rules.
//! SUMMARY   [`readable`] finds the files that the program needs to run: the system's programs and libraries, the
//!           folders of its own files, and configured paths. [`ruleset`] turns them into rules.
//! PROMISES  Only `/dev/null` is writable. Folders that the service hides are never readable, only the command's own
//!           files in them. The same holds for folders that the command shares with others (`/`, `/tmp`, `/etc`, a
//!           home).
//! LIMITS    Files that a script loads from elsewhere are unknown here: `read_paths` names them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::{CellSpec, Guarded};

/// The system's programs and libraries, and files that libraries read.
const SYSTEM: [&str; 11] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/alternatives",
];

/// Files needed to resolve host names.
const NAMES: [&str; 4] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
];

/// Readable devices; the first is also writable.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/urandom", "/dev/random"];

/// Not readable if mapped memory is counted: a shared mapping of it keeps all its memory while any part is mapped.
const ZERO: &str = "/dev/zero";

/// Folders with a subfolder for each of many users or programs.
const SHARED: [&str; 6] = ["/home", "/var", "/var/lib", "/var/tmp", "/run", "/mnt"];

/// Parts of a program next to its folder `bin`.
const BESIDE_BIN: [&str; 4] = ["lib", "lib64", "share", "pyvenv.cfg"];

/// Maximum interpreters followed, each named by the first line of the previous one.
const INTERPRETERS_MAX: usize = 4;

/// Maximum words of a shell command that are looked up as programs.
const PROGRAM_WORDS_MAX: usize = 8;

/// Bytes at the start of a program that are searched for its interpreter: as many as the kernel searches.
const FIRST_LINE_BYTES: u64 = 256;

/// The version of Landlock that has every feature used here.
const NEWEST: ABI = ABI::V6;

/// Finds the files that a command may read.
pub(super) fn readable(program: &Path, arguments: &[OsString], spec: &CellSpec) -> Vec<PathBuf> {
    let mut found = Found {
        hidden: &spec.hidden_paths,
        paths: Vec::new(),
    };
    let names: &[&str] = if spec.network { &NAMES } else { &[] };
    let system = SYSTEM.iter().chain(names).map(Path::new);
    let configured = spec.read_paths.iter().map(PathBuf::as_path);
    system
        .chain(configured)
        .for_each(|path| found.add_around_hidden(path));
    found.add_program(program, INTERPRETERS_MAX);
    for argument in arguments {
        words(argument)
            .filter(|word| word.as_bytes().contains(&b'/'))
            .for_each(|word| found.add_file(Path::new(word)));
    }
    arguments
        .iter()
        .flat_map(|argument| programs(argument))
        .for_each(|path| found.add_program(&path, INTERPRETERS_MAX));
    found.paths
}

/// Returns the paths that a command may read around one of its files: the file's folder, or only the file if the
/// folder is shared with others.
pub fn of_own_file(file: &Path) -> Vec<PathBuf> {
    let mut found = Found {
        hidden: &[],
        paths: Vec::new(),
    };
    found.add_file(file);
    found.paths
}

/// Splits an argument into words that may be file names: it may be a shell command.
fn words(argument: &OsStr) -> impl Iterator<Item = &OsStr> {
    let is_between = |byte: &u8| b" \t\n'\"=;&|()<>".contains(byte);
    let bytes = argument.as_bytes();
    let whole = bytes.iter().any(is_between).then_some(argument);
    let parts = bytes
        .split(is_between)
        .filter(|part| !part.is_empty())
        .map(OsStr::from_bytes);
    whole.into_iter().chain(parts)
}

/// Returns the programs that a shell command `exec ..` may name, outside the system's folders, which are readable
/// anyway.
fn programs(argument: &OsStr) -> Vec<PathBuf> {
    argument
        .as_bytes()
        .starts_with(b"exec ")
        .then(|| words(argument).skip(2))
        .into_iter()
        .flatten()
        .filter(|word| !word.as_bytes().starts_with(b"-"))
        .take(PROGRAM_WORDS_MAX)
        .filter_map(in_path)
        .collect()
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let is_name = !name.as_bytes().contains(&b'/');
    let folders = std::env::var_os("PATH").filter(|_| is_name)?;
    let is_system = |folder: &PathBuf| SYSTEM.iter().any(|system| folder.starts_with(system));
    let mut candidates = std::env::split_paths(&folders)
        .filter(|folder| !is_system(folder))
        .map(|folder| folder.join(name));
    candidates.find(|candidate| candidate.is_file())
}

struct Found<'a> {
    hidden: &'a [PathBuf],
    paths: Vec<PathBuf>,
}

impl Found<'_> {
    fn add(&mut self, path: &Path) {
        if !self.paths.iter().any(|known| path.starts_with(known)) {
            self.paths.push(path.to_owned());
        }
    }

    /// Adds an existing path, without the hidden folders in it. Skips links beside those: they may lead elsewhere.
    fn add_around_hidden(&mut self, path: &Path) {
        let Ok(path) = path.canonicalize() else {
            return;
        };
        if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return;
        }
        if !self.hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            return self.add(&path);
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.add_around_hidden(&entry.path());
            }
        }
    }

    /// Adds the folders of one of the command's files and of its link target; only the file if one is hidden or shared.
    fn add_file(&mut self, file: &Path) {
        let (Ok(real), true) = (file.canonicalize(), file.is_file()) else {
            return;
        };
        let linked = file.parent().and_then(|folder| folder.canonicalize().ok());
        for folder in linked.iter().map(PathBuf::as_path).chain(real.parent()) {
            if self.is_own(folder) {
                self.add(folder)
            } else {
                self.add(&real)
            }
        }
    }

    /// Adds a program with everything it needs to run.
    fn add_program(&mut self, program: &Path, interpreters_max: usize) {
        self.add_file(program);
        let real = program.canonicalize();
        for file in [Some(program), real.as_deref().ok()].into_iter().flatten() {
            self.add_beside_bin(file);
        }
        if interpreters_max > 0 {
            for interpreter in interpreters(program) {
                self.add_program(&interpreter, interpreters_max - 1);
            }
        }
    }

    fn add_beside_bin(&mut self, program: &Path) {
        let folder = program
            .parent()
            .and_then(|folder| folder.canonicalize().ok());
        let Some(folder) = folder.filter(|folder| folder.ends_with("bin")) else {
            return;
        };
        let Some(above) = folder.parent() else {
            return;
        };
        BESIDE_BIN
            .iter()
            .for_each(|name| self.add_around_hidden(&above.join(name)));
    }

    /// Returns whether a folder is the command's: neither hidden nor shared with others.
    fn is_own(&self, folder: &Path) -> bool {
        let hides = |hidden: &PathBuf| hidden.starts_with(folder) || folder.starts_with(hidden);
        let is_home = folder.parent() == Some(Path::new("/home"));
        let is_top = folder
            .parent()
            .is_none_or(|parent| parent == Path::new("/"));
        let is_shared =
            is_top || is_home || SHARED.iter().any(|shared| folder == Path::new(shared));
        let is_system = SYSTEM.iter().any(|system| folder == Path::new(system));
        !self.hidden.iter().any(hides) && (is_system || !is_shared)
    }
}

/// Returns the programs that a script's first line names: the interpreter, and the program that `env` starts.
pub(super) fn interpreters(program: &Path) -> Vec<PathBuf> {
    let mut start = Vec::new();
    let read =
        File::open(program).and_then(|file| file.take(FIRST_LINE_BYTES).read_to_end(&mut start));
    let line = start
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let (Ok(_), Some(line)) = (read, line.strip_prefix(b"#!")) else {
        return Vec::new();
    };
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let Some(first) = words
        .next()
        .map(|word| PathBuf::from(OsStr::from_bytes(word)))
    else {
        return Vec::new();
    };
    let by_env = first.ends_with("env");
    let started: Vec<PathBuf> = words
        .filter(|word| by_env && !word.starts_with(b"-"))
        .filter_map(|word| in_path(OsStr::from_bytes(word)))
        .collect();
    [first].into_iter().chain(started).collect()
}

/// Creates the rules: only these files are readable; no signals or abstract-socket connections leave the cell; and, if
/// the cell has a network, no connections to the service's ports.
///
/// # Errors
/// The system refuses a rule.
pub(super) fn ruleset(
    paths: &[PathBuf],
    spec: &CellSpec,
    guarded: Guarded,
) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    if guarded.ports {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut created = ruleset.create()?;
    for path in paths {
        created = allow(created, path, AccessFs::from_read(NEWEST))?;
    }
    let zero = (!guarded.mapped_memory).then_some(&ZERO);
    for (index, device) in DEVICES.iter().chain(zero).enumerate() {
        let read = BitFlags::from(AccessFs::ReadFile);
        let access = if index == 0 {
            read | AccessFs::WriteFile
        } else {
            read
        };
        created = allow(created, Path::new(device), access)?;
    }
    if guarded.ports {
        created = created.add_rules(
            (0..=u16::MAX)
                .filter(|port| !spec.refused_ports.contains(port))
                .map(|port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::ConnectTcp))),
        )?;
    }
    Ok(created)
}

/// Skips files that cannot be opened: the command could not open them either.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => ruleset.add_rule(PathBeneath::new(opened, access)),
        Err(_) => Ok(ruleset),
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
