//! The administrator of a service whose configuration names none, and the signing key of session cookies.
//!
//! SUMMARY   The first start makes an administrator [`NAME`] with a random password in the file [`FILE`] of the data
//!           folder (next to the store, or to the socket if the store is in memory), and a key for cookies in
//!           [`SECRET_FILE`]. Later starts read the files.
//! PROMISES  Only the service's own user can read the files, or have written them.
//! CALLED    By [`super::load()`], for a service only. Daemons that share a database [`replace`] the contents.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use super::origin::{Notice, Origin, Problem};
use super::types::Config;
use super::users::{Role, UserConfig};
use crate::new_file::NewFile;
use crate::own_folder::{self, OTHERS_ENTER};
use crate::password::{PASSWORD_BYTES_MAX, PasswordHash, random};

/// The administrator's name.
pub const NAME: &str = "admin";

/// The password's file; it ends in a line feed.
pub const FILE: &str = "admin-password";

/// The signing key's file; it ends in a line feed.
pub const SECRET_FILE: &str = "cookie-secret";

/// Section and key of the signing key in the configuration.
pub const SECRET: (&str, &str) = ("chttpd_auth", "secret");

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

impl Config {
    /// Returns the file of the generated administrator's password, if there is one.
    pub fn admin_password_file(&self) -> Option<PathBuf> {
        self.generated(super::keys::ADMINS, NAME)
    }

    /// Returns the file of a generated value; `None` if the value is not generated.
    pub fn generated(&self, section: &str, key: &str) -> Option<PathBuf> {
        match self.origin(section, key) {
            Origin::Generated(path) => Some(path),
            _ => None,
        }
    }

    fn data_folder(&self) -> &Path {
        let file = self.store.file().unwrap_or(&self.server.socket);
        file.parent().unwrap_or(file)
    }
}

/// Checks that others cannot enter the store's folder, which has passwords.
pub(super) fn check_folder(config: &Config) -> Result<(), Problem> {
    let folder = config.store.file().map(|_| config.data_folder());
    if let Some(folder) = folder
        && let Ok(found) = fs::metadata(folder)
        && let Some(what) = own_folder::exposure(&found, OTHERS_ENTER)
    {
        return Err(Problem {
            is_of_rights: true,
            ..Problem::new(
                folder.display(),
                what,
                "chmod 0700 it, or name a file in a directory of this user's own in [store] path",
            )
        });
    }
    Ok(())
}

/// Adds the administrator, if logins are required but no user is an administrator.
pub(super) fn add_admin(config: &mut Config) -> Result<(), Problem> {
    let server = &config.server;
    let asks = !config.own_addresses().is_empty();
    let is_admin = |user: &UserConfig| user.roles.contains(&Role::Admin);
    let has_admin = !config.admins.is_empty() || config.users.values().any(is_admin);
    if server.open || !asks || has_admin {
        return Ok(());
    }
    if config.users.contains_key(NAME) {
        return Err(Problem::new(
            config.origin(&format!("users.{NAME}"), "roles"),
            format!(
                "[users.{NAME}] has the name of the administrator who is created where there is none"
            ),
            "name an administrator in [admins], or give the user another name",
        ));
    }
    let path = config.data_folder().join(FILE);
    let password = kept(&path).map_err(|error| {
        Problem::new(
            path.display(),
            format!("cannot keep the password of the administrator {NAME:?} there ({error})"),
            "let the service write there, or name an administrator in [admins], or set [server] \
             http and tcp to \"off\"",
        )
    })?;
    let hash = PasswordHash::of_config(&password).map_err(|what| {
        Problem::new(
            path.display(),
            what,
            "remove the file: the next start makes another password",
        )
    })?;
    config.admins.insert(NAME.to_owned(), hash);
    config.origins.insert(
        (super::keys::ADMINS.to_owned(), NAME.to_owned()),
        Origin::Generated(path),
    );
    Ok(())
}

/// Adds a signing key if the configuration has none, so that sessions survive a restart. If it cannot be saved,
/// sessions end with the service.
pub(super) fn add_secret(config: &mut Config) -> Option<Notice> {
    let has_http = config.server.http.is_some() || config.ssl.enable;
    if !config.chttpd_auth.secret.is_empty() || !has_http || config.server.open {
        return None;
    }
    let path = config.data_folder().join(SECRET_FILE);
    let why = match kept(&path) {
        Ok(secret) if !secret.is_empty() => {
            config.chttpd_auth.secret = secret;
            config.origins.insert(
                (SECRET.0.to_owned(), SECRET.1.to_owned()),
                Origin::Generated(path),
            );
            return None;
        }
        Ok(_) => "the file is empty: remove it".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(Notice {
        origin: Origin::Generated(path),
        text: format!("the session secret is not saved, so sessions end with the service ({why})"),
    })
}

/// Replaces a generated file's content atomically.
///
/// # Errors
/// The system refuses it. The file is unchanged, unless only its folder could not be synced: then it has the new
/// content, which a crash of the machine may still lose.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = NewFile::begin(path)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.replace()
}

/// Returns the file's content; creates a missing file.
///
/// # Errors
/// The system refuses it, or the file may be another user's.
pub fn kept(path: &Path) -> io::Result<String> {
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
        return refuse("it is not a regular file");
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

/// Creates the file atomically: another service starting now sees all of it, or nothing.
fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        own_folder::make(folder)?;
    }
    let secret = HEXLOWER.encode(&random::<16>());
    let made = NewFile::create(path).and_then(|mut file| {
        file.write_all(format!("{secret}\n").as_bytes())?;
        file.finish()
    });
    match made {
        // Another service was first: its value is used.
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
    fn the_secret_of_cookies_is_made_once_and_is_for_the_services_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let secret = || {
            let mut config = config(folder.path());
            assert_eq!(add_secret(&mut config), None);
            (
                config.generated(SECRET.0, SECRET.1).unwrap(),
                config.chttpd_auth.secret,
            )
        };
        let (file, first) = secret();
        assert_eq!(file, folder.path().join("data").join(SECRET_FILE));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(secret().1, first);
        replace(&file, "another").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(secret().1, "another");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let mut config = config(folder.path());
        let notice = add_secret(&mut config).unwrap().to_string();
        assert!(notice.contains("chmod 0600"), "{notice}");
        assert_eq!(config.chttpd_auth.secret, "");
    }

    #[test]
    fn a_configured_secret_is_used_and_none_is_generated() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        config.chttpd_auth.secret = "explicit".to_owned();
        assert_eq!(add_secret(&mut config), None);
        assert_eq!(config.chttpd_auth.secret, "explicit");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_administrator_is_created_where_one_is_configured_or_no_login_is_required() {
        let folder = tempfile::tempdir().unwrap();
        let hash = || PasswordHash::of_config("secret").unwrap();
        let cases: [fn(&mut Config, PasswordHash); 4] = [
            |config, hash| drop(config.admins.insert("ann".into(), hash)),
            |config, hash| {
                let user = UserConfig {
                    password: Some(hash),
                    roles: vec![Role::Admin],
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
    fn a_file_that_others_can_read_and_a_link_are_refused() {
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
