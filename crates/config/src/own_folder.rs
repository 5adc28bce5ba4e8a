//! Folders of the service that other users cannot enter.
//!
//! CALLED    By code that keeps secrets in one: the socket, the store, generated files.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// The permission bits that let others enter a folder.
pub const OTHERS_ENTER: u32 = 0o011;

/// Creates a folder and its parents, for the service's own user; leaves an existing one unchanged.
///
/// # Errors
/// The system refuses.
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Returns why others could access a folder's content: it belongs to another user, or has one of the bits `too_much`.
pub fn exposure(found: &Metadata, too_much: u32) -> Option<String> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        let uid = found.uid();
        return Some(format!("the directory belongs to another user (uid {uid})"));
    }
    let mode = found.mode() & 0o777;
    let can = match too_much {
        OTHERS_ENTER => "enter",
        _ => "write to",
    };
    (mode & too_much != 0).then(|| format!("others can {can} the directory (mode {mode:04o})"))
}
