//! The clients for other languages as their users have them: built, and installed apart from their sources.
//!
//! PROMISES  What is installed was built from the current sources, once per change, so that tests in several processes
//!           share it. Nothing is written into the source folders. A missing program fails the test by name.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::program::project;

/// Names under which Pythons may be installed, the oldest that the package supports first.
const PYTHONS: [&str; 4] = ["python3.9", "python3.10", "python3.11", "python3"];

/// The TypeScript compiler, and the types of Node.
const TYPESCRIPT: [&str; 2] = ["typescript@5.9.3", "@types/node@18.19.130"];

/// The type checker for Python. Version 1 still runs on 3.9.
const MYPY: &str = "mypy==1.19.1";

/// An installed client.
pub struct Installed {
    /// A folder with the tests of the client, apart from its sources.
    pub folder: PathBuf,
    /// The built package.
    pub package: PathBuf,
}

impl Installed {
    fn at(folder: PathBuf, extension: &str) -> Self {
        let package = built(&folder, extension);
        Self { folder, package }
    }
}

/// Returns the wheel, installed in a virtual environment of the oldest Python found: `bin/python` in the folder.
pub fn python() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = once(&with_digest("python"), |folder| {
            copy("python", folder);
            run(Command::new(oldest_python())
                .args(["-m", "venv"])
                .arg(folder));
            let build = ["wheel", "--quiet", "--no-deps", "."];
            run(pip(folder).args(build).current_dir(folder.join("sources")));
            run(pip(folder)
                .args(["install", "--quiet", "--no-index"])
                .arg(built(folder, "whl")));
        });
        Installed::at(folder, "whl")
    })
}

/// Returns the packed package, installed in a folder as in a project that depends on it.
pub fn node() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = once(&with_digest("node"), |folder| {
            copy("node", folder);
            run(npm("pack").current_dir(folder.join("sources")));
            fs::write(folder.join("package.json"), "{\"private\":true}").unwrap();
            run(npm("install").arg(built(folder, "tgz")).current_dir(folder));
        });
        Installed::at(folder, "tgz")
    })
}

/// Returns the folder with `tsc` and the types of Node's own modules, installed once.
pub fn typescript() -> PathBuf {
    let folder = once(&TYPESCRIPT[0].replace('@', "-"), |folder| {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("package.json"), "{\"private\":true}").unwrap();
        run(npm("install").args(TYPESCRIPT).current_dir(folder));
    });
    folder.join("node_modules")
}

/// Returns the path of `mypy`, installed once in its own environment.
pub fn mypy() -> PathBuf {
    let folder = once(&MYPY.replace("==", "-"), |folder| {
        run(Command::new(oldest_python())
            .args(["-m", "venv"])
            .arg(folder));
        run(pip(folder).args(["install", "--quiet", MYPY]));
    });
    folder.join("bin/mypy")
}

/// Returns a folder that `install` fills, unless that was done already.
fn once(name: &str, install: impl FnOnce(&Path)) -> PathBuf {
    let folder = below_target(name);
    let complete = folder.join("complete");
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !complete.exists() {
        // What an interrupted attempt left is unusable.
        drop(fs::remove_dir_all(&folder));
        install(&folder);
        File::create(complete).unwrap();
    }
    folder
}

/// Returns the name of a client's folder, which changes with the client's files.
fn with_digest(language: &str) -> String {
    let mut digest = DefaultHasher::new();
    let mut folders = vec![project().join("clients").join(language)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            path.hash(&mut digest);
            if path.is_dir() {
                folders.push(path);
            } else {
                fs::read(path).unwrap().hash(&mut digest);
            }
        }
    }
    format!("client-{language}-{:x}", digest.finish())
}

/// Copies a client's sources and tests into a folder.
fn copy(language: &str, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let client = project().join("clients").join(language);
    run(Command::new("cp")
        .arg("-R")
        .arg(&client)
        .arg(folder.join("sources")));
    run(Command::new("mv")
        .arg(folder.join("sources/tests"))
        .arg(folder));
}

fn below_target(name: &str) -> PathBuf {
    fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn oldest_python() -> &'static str {
    let runs = |name: &&str| {
        let output = Command::new(name).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = PYTHONS.into_iter().find(runs);
    found.expect("these tests need Python 3.9 or later with venv")
}

fn pip(environment: &Path) -> Command {
    let mut command = Command::new(environment.join("bin/python"));
    command.args(["-m", "pip"]);
    command
}

fn npm(what: &str) -> Command {
    let mut command = Command::new("npm");
    command.args([what, "--ignore-scripts", "--no-audit", "--no-fund"]);
    command
}

/// Returns the one file with this extension among the sources of a folder.
fn built(folder: &Path, extension: &str) -> PathBuf {
    let files = fs::read_dir(folder.join("sources"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut built: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    assert_eq!(built.len(), 1, "{built:?}");
    built.remove(0)
}

/// Runs a program that must succeed, and returns what it printed.
pub fn run(command: &mut Command) -> String {
    let command_line = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command_line}: {error}; CONTRIBUTING.md says what is needed")
    });
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command_line}: {}\n{printed}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
    printed
}
