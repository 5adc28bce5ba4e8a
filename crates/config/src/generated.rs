//! The administrator of a service whose configuration names none.
//!
//! SUMMARY   The first start makes an administrator [`NAME`] with a random password, and keeps that in
//!           the file [`FILE`] of the data folder: beside the store, or beside the socket where the
//!           store is in memory. Later starts read the file.
//! PROMISES  Nobody but the service's own user can read the file, or have written it.
//! CALLED    By [`super::load()`], for a service only.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use super::origin::{Origin, Problem};
use super::types::Config;
use crate::new_file::NewFile;
use crate::password::{PASSWORD_BYTES_MAX, PasswordHash, random};

/// The administrator's name.
pub const NAME: &str = "admin";

/// The file that holds the password, and a line feed.
pub const FILE: &str = "admin-password";

/// The permission bits of others than the owner.
const OTHERS: u32 = 0o077;

impl Config {
    /// Returns where the password of the administrator is kept whom the service has made, if it has.
    pub fn admin_password_file(&self) -> Option<PathBuf> {
        match self.origin(super::keys::ADMINS, NAME) {
            Origin::Generated(path) => Some(path),
            _ => None,
        }
    }

    fn data_folder(&self) -> &Path {
        let file = self.store.file().unwrap_or(&self.server.socket);
        match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }
}

/// Adds the administrator, if nobody else could log in where a login is asked for.
pub(super) fn add_admin(config: &mut Config) -> Result<(), Problem> {
    let server = &config.server;
    let asks = server.http.or(server.tcp).is_some();
    if server.open || !asks || config.has_admin() {
        return Ok(());
    }
    if config.users.contains_key(NAME) {
        let origin = config.origin(&format!("users.{NAME}"), "roles");
        let what = format!(
            "[users.{NAME}] has the name of the administrator who is made where there is none"
        );
        let remedy = "name an administrator in [admins], or give the user another name";
        return Err(Problem::new(origin, what, remedy));
    }
    let path = config.data_folder().join(FILE);
    let password = password(&path).map_err(|error| {
        let what =
            format!("cannot keep the password of the administrator {NAME:?} there ({error})");
        let remedy = "make it possible, or name an administrator in [admins], or set [server] http and \
                      tcp to \"off\"";
        Problem::new(path.display(), what, remedy)
    })?;
    let hash = PasswordHash::of_config(&password).map_err(|what| {
        let remedy = "remove the file: the next start makes another password";
        Problem::new(path.display(), what, remedy)
    })?;
    config.admins.insert(NAME.to_owned(), hash);
    let place = (super::keys::ADMINS.to_owned(), NAME.to_owned());
    config.origins.insert(place, Origin::Generated(path));
    Ok(())
}

/// Returns the password in the file, which is made if it is not there.
fn password(path: &Path) -> io::Result<String> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path)?;
            read(path)
        }
        result => result,
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    if !found.is_file() {
        return refuse("what stands there is no file");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refuse("the file belongs to another user");
    }
    if found.mode() & OTHERS != 0 {
        return refuse("others can read or write the file: chmod 0600 it, or remove it");
    }
    let mut text = String::new();
    file.take(PASSWORD_BYTES_MAX as u64 + 2)
        .read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Makes the file whole: another service that starts at the same time sees all of it, or none.
fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let password = HEXLOWER.encode(&random::<16>());
    let made = NewFile::create(path).and_then(|mut file| {
        file.write_all(format!("{password}\n").as_bytes())?;
        file.finish()
    });
    match made {
        // Another service was first: its password counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config(folder: &Path) -> Config {
        let mut config = Config::default();
        config.store.path = folder.join("data/settee.redb");
        config
    }

    #[test]
    fn the_password_is_made_once_and_is_for_the_services_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = config(folder.path());
        add_admin(&mut first).unwrap();
        let file = first.admin_password_file().unwrap();
        assert_eq!(file, folder.path().join("data").join(FILE));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let parent = fs::metadata(file.parent().unwrap()).unwrap();
        assert_eq!(parent.mode() & 0o777, 0o700);
        let password = fs::read_to_string(&file).unwrap();
        assert_eq!(password.trim_end().len(), 32);
        assert!(first.admins[NAME].matches(password.trim_end()));
        let mut second = config(folder.path());
        add_admin(&mut second).unwrap();
        assert_eq!(first.admins, second.admins);
        let left = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn nobody_is_made_where_somebody_is_named_or_nobody_logs_in() {
        let folder = tempfile::tempdir().unwrap();
        let hash = || PasswordHash::of_config("secret").unwrap();
        let cases: [fn(&mut Config, PasswordHash); 4] = [
            |config, hash| drop(config.admins.insert("ann".into(), hash)),
            |config, hash| {
                let user = super::super::UserConfig {
                    password: Some(hash),
                    roles: vec![super::super::Role::Admin],
                    pools: vec![],
                };
                config.users.insert("ann".into(), user);
            },
            |config, _| config.server.open = true,
            |config, _| config.server.http = None,
        ];
        for case in cases {
            let mut config = config(folder.path());
            case(&mut config, hash());
            let before = config.clone();
            add_admin(&mut config).unwrap();
            assert_eq!(config, before);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_leads_elsewhere_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        let file = folder.path().join("data").join(FILE);
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "guessed\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let problem = add_admin(&mut config).unwrap_err();
        assert!(problem.what.contains("chmod 0600"), "{problem}");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
        add_admin(&mut config).unwrap_err();
        fs::remove_file(&file).unwrap();
        fs::write(&file, "\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let problem = add_admin(&mut config).unwrap_err();
        assert!(problem.remedy.contains("remove the file"), "{problem}");
    }
}
