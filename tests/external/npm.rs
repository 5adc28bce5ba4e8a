//! npm packages that tests need, installed once below the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of these packages, `node_modules`. The first caller installs them, the others wait.
pub fn packages(name: &str, packages: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let modules = folder.join("node_modules");
    let complete = folder.join("complete");
    fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !complete.exists() {
        // Removes the remains of an interrupted installation.
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("package.json"), "{\"private\":true}").unwrap();
        let output = Command::new("npm")
            .args([
                "install",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--no-save",
            ])
            .args(packages)
            .current_dir(&folder)
            .output()
            .unwrap_or_else(|error| {
                panic!("npm: {error}; install npm (Debian: apt-get install npm)")
            });
        assert!(
            output.status.success(),
            "npm could not install {packages:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        File::create(complete).unwrap();
    }
    modules
}
