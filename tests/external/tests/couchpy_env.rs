//! couchpy, the Python query server of the package `CouchDB` 1.2, as it is: installed once.
//!
//! PROMISES  [`couchpy`] returns a program that works, or fails the test saying what is missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "CouchDB==1.2";

/// Returns the path of `couchpy`, in a virtual environment below the target directory. Whoever
/// comes first makes it, the others wait.
pub fn couchpy() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("couchpy-1.2");
    let program = folder.join("bin/couchpy");
    let complete = folder.join("complete");
    fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !complete.exists() {
        // What an interrupted attempt left is of no use.
        drop(fs::remove_dir_all(&folder));
        let python = folder.join("bin/python");
        let install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            PACKAGE,
        ];
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        run(Command::new(python).args(install));
        assert!(program.exists(), "{PACKAGE} brings no couchpy");
        File::create(complete).unwrap();
    }
    program
}

fn run(command: &mut Command) {
    let told = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| {
        panic!("{told}: {error}; these tests need Python 3 with venv, and the package {PACKAGE}")
    });
    assert!(
        output.status.success(),
        "{told}: {}; these tests need Python 3 with venv, and the package {PACKAGE} from an index: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}
