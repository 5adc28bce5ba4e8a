//! Test folders that every user may enter: users of cells are in no group, so they read only what others may.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use tempfile::{Builder, TempDir};

/// Creates a folder that is removed when dropped. Private files belong in a private folder inside it.
pub fn open_folder() -> TempDir {
    let permissions = Permissions::from_mode(0o755);
    Builder::new().permissions(permissions).tempdir().unwrap()
}
