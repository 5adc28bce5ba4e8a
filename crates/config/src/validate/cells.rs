//! Rules of cells: what a section may let query servers at, and as whom.

use std::path::Path;

use super::{QUERY, Rules};
use crate::PoolConfig;
use crate::SandboxMode;
use crate::cells::overlap;
use crate::keys::POOLS;

impl Rules<'_> {
    /// Notes what does not fit together about cells. `service_user` is who runs the service, where this is
    /// for one.
    pub(super) fn cells(&mut self, service_user: Option<u32>) {
        let config = self.config;
        let all = &config.query_server_config;
        let of_all = PoolConfig {
            sandbox: Some(all.sandbox),
            user: Some(all.user.clone()),
            read_paths: Some(all.read_paths.clone()),
            ..PoolConfig::default()
        };
        self.cell(QUERY, &of_all, service_user);
        for (name, pool) in &config.pools {
            self.cell(&format!("{POOLS}.{name}"), pool, service_user);
        }
    }

    fn cell(&mut self, section: &str, keys: &PoolConfig, service_user: Option<u32>) {
        let config = self.config;
        for path in keys.read_paths.iter().flatten() {
            self.read_path(section, path);
        }
        let mut section = self.section(section);
        let Some(user) = keys.user.as_ref().filter(|user| !user.is_empty()) else {
            return;
        };
        if config.cell(keys).sandbox == SandboxMode::Off {
            let what = format!("user = {user:?} takes a cell, and sandbox is \"off\"");
            let remedy = "leave user out, or set sandbox to \"standard\"";
            section.problem("user", what, remedy);
        }
        match (config.user_ids.get(user), service_user) {
            (None, _) => {
                let what = format!("user = {user:?}: this machine has no such user");
                let remedy = "create the user, or give the number of one";
                section.problem("user", what, remedy);
            }
            (Some((uid, _)), Some(own)) if own != 0 && own != *uid => {
                let what = format!(
                    "user = {user:?}: the service runs as user {own}, and only root can start processes \
                     as another user"
                );
                let remedy = "leave user out, or start the service as root";
                section.problem("user", what, remedy);
            }
            _ => {}
        }
    }

    fn read_path(&mut self, section: &str, path: &Path) {
        let folders = self.config.kept_folders();
        let Some((of_what, folder)) = folders.iter().find(|(_, folder)| overlap(path, folder))
        else {
            return;
        };
        let how = match (path == folder, path.starts_with(folder)) {
            (true, _) => "is",
            (_, true) => "lies in",
            _ => "contains",
        };
        let what = format!(
            "read_paths: {} {how} the folder of {of_what} ({}), which query servers must not read",
            path.display(),
            folder.display()
        );
        let remedy =
            format!("name what they need one by one, or move {of_what} into a folder of its own");
        self.section(section).problem("read_paths", what, remedy);
    }
}
