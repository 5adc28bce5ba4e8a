//! The file with this user's uuid, next to the store: `replicate.uuid`.
//!
//! SUMMARY   The service and `settee replicate` use the same uuid for checkpoints, whichever runs first: a new store
//!           takes the file's uuid, and any other writes its own.
//! PROMISES  The file is complete and on disk, or does not exist.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::place::StorePlace;
use settee_config::new_file::{NewFile, sync_folders};
use settee_config::own_folder;

/// The name of the file.
const NAME: &str = "replicate.uuid";

/// Returns the file's path for a store; `None` if the store is not a file.
pub fn beside(place: &StorePlace) -> Option<PathBuf> {
    match place {
        StorePlace::File(path) => Some(path.with_file_name(NAME)),
        StorePlace::Memory | StorePlace::Postgres(_) => None,
    }
}

/// Returns the uuid in a file; `None` if the file cannot be read or has no uuid.
pub fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let uuid = text.trim();
    let is_one = uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| uuid.to_owned())
}

/// Writes a uuid to a file, creating its directory.
///
/// # Errors
/// The system refuses it.
pub fn write(file: &Path, uuid: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        own_folder::make(folder)?;
    }
    let mut new = NewFile::begin(file)?;
    // Root may write it for a service, which reads it as its own user.
    new.file()
        .set_permissions(fs::Permissions::from_mode(0o644))?;
    new.write_all(format!("{uuid}\n").as_bytes())?;
    new.replace()?;
    // The directory may be new.
    sync_folders(file, 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_uuid_is_kept_and_an_invalid_one_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::File(folder.path().join("deeper/s.redb"));
        let file = beside(&place).unwrap();
        assert_eq!(beside(&StorePlace::Memory), None);
        assert_eq!(read(&file), None);
        let uuid = "0123456789abcdef0123456789abcdef";
        write(&file, uuid).unwrap();
        assert_eq!(read(&file).as_deref(), Some(uuid));
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        fs::write(&file, "nonsense").unwrap();
        assert_eq!(read(&file), None);
    }
}
