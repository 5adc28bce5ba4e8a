//! Rules for cells: which paths query servers may read, and which users they may run as.

use std::path::Path;

use super::Rules;
use crate::keys::{POOLS, QUERY};
use crate::{CellKeys, SandboxMode};

impl Rules<'_> {
    /// Records problems in the settings of cells. `service_user` is as in [`super::check`].
    pub(super) fn cells(&mut self, service_user: Option<u32>) {
        let config = self.config;
        self.cell(QUERY, &config.query_server_config.cell, service_user);
        self.user_range(service_user);
        for (name, pool) in &config.pools {
            self.cell(&format!("{POOLS}.{name}"), &pool.cell, service_user);
        }
    }

    fn cell(&mut self, section: &str, keys: &CellKeys, service_user: Option<u32>) {
        let config = self.config;
        for path in keys.read_paths.iter().flatten() {
            self.read_path(section, path);
        }
        let mut section = self.section(section);
        let Some(user) = keys.user.as_ref().filter(|user| !user.is_empty()) else {
            return;
        };
        if config.cell(keys).0.mode == SandboxMode::Off {
            section.problem(
                "user",
                format!("user = {user:?} needs a cell, but sandbox is \"off\""),
                "leave user out, or set sandbox to \"standard\"",
            );
        }
        match (config.user_ids.get(user), service_user) {
            (None, _) => {
                section.problem(
                    "user",
                    format!("user = {user:?}: this machine has no such user"),
                    "create the user, or give a user's number",
                );
            }
            (Some(ids), Some(own)) if own != 0 && own != ids.uid => {
                section.problem(
                    "user",
                    format!(
                        "user = {user:?}: the service runs as user {own}, and only root can start \
                         processes as another user"
                    ),
                    "leave user out, or start the service as root",
                );
            }
            _ => {}
        }
    }

    fn user_range(&mut self, service_user: Option<u32>) {
        let (Some(range), Some(own)) = (self.config.query_server_config.user_range, service_user)
        else {
            return;
        };
        if range.contains(own) {
            self.section(QUERY).problem(
                "user_range",
                format!("user_range = \"{range}\" includes {own}, the service's own user"),
                "choose numbers that no user has, or leave user_range out",
            );
        }
    }

    fn read_path(&mut self, section: &str, path: &Path) {
        let kept = self.config.kept_paths();
        let overlaps = |place: &Path| path.starts_with(place) || place.starts_with(path);
        let Some((what, place)) = kept.iter().find(|(_, place)| overlaps(place)) else {
            return;
        };
        let how = match (path == place, path.starts_with(place)) {
            (true, _) => "is",
            (_, true) => "lies in",
            _ => "contains",
        };
        self.section(section).problem(
            "read_paths",
            format!(
                "read_paths: {} {how} {}, the place of {what}, which query servers must not read",
                path.display(),
                place.display()
            ),
            format!("name what they need one by one, or move {what} into a folder of its own"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{Config, PoolConfig};

    /// Returns the problems as the operator reads them.
    fn problems(service_user: Option<u32>, change: impl FnOnce(&mut Config)) -> Vec<String> {
        let mut config = Config {
            files: vec!["/etc/settee/settee.toml".into()],
            ..Config::default()
        };
        config.store.path = "/var/lib/settee/settee.redb".into();
        change(&mut config);
        config.find_users();
        let problems = super::super::check(&config, service_user);
        problems.iter().map(ToString::to_string).collect()
    }

    fn of_read_path(path: &str) -> Vec<String> {
        problems(None, |config| {
            config.query_server_config.cell.read_paths = Some(vec![PathBuf::from(path)]);
        })
    }

    #[test]
    fn read_paths_may_not_include_the_service_s_own_files() {
        for (path, how) in [
            (
                "/etc/settee",
                "is /etc/settee, the place of the configuration",
            ),
            (
                "/etc/settee/more",
                "lies in /etc/settee, the place of the configuration",
            ),
            (
                "/etc",
                "contains /etc/settee, the place of the configuration",
            ),
            (
                "/var/lib/settee/settee.redb",
                "lies in /var/lib/settee, the place of the store",
            ),
            ("/", "contains"),
        ] {
            let told = of_read_path(path);
            assert_eq!(told.len(), 1, "{path}: {told:?}");
            assert!(told[0].contains(how), "{told:?}");
            assert!(told[0].contains("into a folder of its own"), "{told:?}");
        }
        for path in ["/opt/venv", "/etc/settees", "/var/lib/other"] {
            assert_eq!(of_read_path(path), [""; 0], "{path}");
        }
        let pool = PoolConfig {
            language: Some("javascript".into()),
            cell: CellKeys {
                read_paths: Some(vec!["/etc/settee".into()]),
                ..CellKeys::default()
            },
            ..PoolConfig::default()
        };
        let told = problems(None, |config| drop(config.pools.insert("p".into(), pool)));
        assert!(told[0].contains("[pools.p] read_paths"), "{told:?}");
    }

    #[test]
    fn only_root_has_processes_of_another_user() {
        let as_daemon = |service_user| {
            problems(service_user, |config| {
                config.query_server_config.cell.user = Some("7777".into());
            })
        };
        assert_eq!(as_daemon(Some(0)), [""; 0]);
        assert_eq!(as_daemon(Some(7777)), [""; 0]);
        // The program that checks a service's configuration need not be the service.
        assert_eq!(as_daemon(None), [""; 0]);
        let told = as_daemon(Some(1000));
        assert!(told[0].contains("only root can"), "{told:?}");
        assert!(told[0].contains("leave user out"), "{told:?}");
    }

    #[test]
    fn the_users_of_cells_are_not_the_service_s() {
        let as_daemon = |service_user| {
            problems(Some(service_user), |config| {
                config.query_server_config.user_range = "500-600".to_owned().try_into().ok();
            })
        };
        assert_eq!(as_daemon(499), [""; 0]);
        let told = as_daemon(550);
        assert!(
            told[0].contains("user_range = \"500-600\" includes 550"),
            "{told:?}"
        );
    }

    #[test]
    fn a_user_must_exist_and_needs_a_cell() {
        let told = problems(None, |config| {
            config.query_server_config.cell.user = Some("no-such-user".into());
        });
        assert!(told[0].contains("no such user"), "{told:?}");
        let told = problems(None, |config| {
            config.query_server_config.cell.user = Some("7777".into());
            config.query_server_config.cell.sandbox = Some(SandboxMode::Off);
        });
        assert!(told[0].contains("needs a cell"), "{told:?}");
    }
}
