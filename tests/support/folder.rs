//! Folders of tests that everybody may enter: users of cells are in no group, and read what others may read.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use tempfile::{Builder, TempDir};

/// Makes a folder that is removed with its value. What is nobody else's belongs into a folder in it.
pub fn open_folder() -> TempDir {
    let permissions = Permissions::from_mode(0o755);
    Builder::new().permissions(permissions).tempdir().unwrap()
}
