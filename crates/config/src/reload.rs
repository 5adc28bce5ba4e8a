//! The difference between two configurations, and whether a reload may apply it.
//!
//! SUMMARY   [`diff`] lists differences and when they take effect; [`require_reload`] refuses the whole list if any
//!           needs a restart.
//! PROMISES  Either all differences are applied or none. Both configurations are valid.
//! CALLED    On HUP and over HTTP, which answers with the changes.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::keys;
use super::settings::Setting;
use super::types::Config;

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Effect {
    /// On a reload.
    Reload,
    /// On a restart: until then a reload is refused.
    Restart,
    /// Once the current value, which was set over HTTP, is deleted.
    Overridden,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Section of the key.
    pub section: String,
    /// The key.
    pub key: String,
    /// The old value, for display; `None` if the key (of a language, or a new section) is new.
    pub old: Option<String>,
    /// The new value, or the overridden one; `None` if the key (of a language, or a removed section) was removed.
    pub new: Option<String>,
    /// When it takes effect.
    pub effect: Effect,
}

/// The configuration is unchanged, because some changes need a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} cannot change while the service runs, so nothing was changed: restart the service, or put \
     back the old {}",
    .refused.iter().map(|c| format!("[{}] {}", c.section, c.key)).collect::<Vec<_>>().join(", "),
    if .refused.len() == 1 { "value" } else { "values" }
)]
pub struct ReloadRefused {
    /// The changes that need a restart; at least one.
    pub refused: Vec<Change>,
}

/// Returns the differences between `old` and `new`, in the order of `config/default.toml`.
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let (before, after) = (old.settings(), new.settings());
    let mut counterparts: HashMap<_, _> = after.iter().map(|new| (new.place(), new)).collect();
    let mut changes = Vec::new();
    for setting in &before {
        let counterpart = counterparts.remove(&setting.place());
        if counterpart.is_none_or(|other| other.value != setting.value) {
            changes.push(change(setting, Some(setting), counterpart));
        }
    }
    changes.extend(
        after
            .iter()
            .filter(|new| counterparts.contains_key(&new.place()))
            .map(|new| change(new, None, Some(new))),
    );
    changes.sort_by(|a, b| keys::rank(&a.section).cmp(&keys::rank(&b.section)));
    changes
}

/// Requires that a reload can apply all of these changes.
///
/// # Errors
/// One of them needs a restart: then none may be applied. The operator's fault; a retry does not help.
pub fn require_reload(changes: &[Change]) -> Result<(), ReloadRefused> {
    let refused = changes
        .iter()
        .filter(|change| change.effect == Effect::Restart);
    let refused: Vec<Change> = refused.cloned().collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(ReloadRefused { refused })
    }
}

fn change(named: &Setting, old: Option<&Setting>, new: Option<&Setting>) -> Change {
    // Family sections are added and removed as a whole.
    let comes_or_goes = keys::family(&named.section).is_some() && (old.is_none() || new.is_none());
    let at_run_time = comes_or_goes || keys::runtime(&named.section, &named.key);
    Change {
        section: named.section.clone(),
        key: named.key.clone(),
        old: old.map(Setting::shown),
        new: new.map(Setting::shown),
        effect: if at_run_time {
            Effect::Reload
        } else {
            Effect::Restart
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::LanguageCommand;

    fn plan(old: &Config, new: &Config) -> Result<Vec<Change>, ReloadRefused> {
        let changes = diff(old, new);
        require_reload(&changes).map(|()| changes)
    }

    #[test]
    fn equal_configurations_have_no_difference() {
        assert_eq!(diff(&Config::default(), &Config::default()), []);
    }

    #[test]
    fn changes_at_run_time_are_planned_in_the_order_of_the_file() {
        let old = Config::default();
        let mut new = old.clone();
        new.query_server_config.os_process_limit = 7;
        new.couchdb.os_process_timeout = Duration::from_secs(9);
        let python = LanguageCommand::Command("couchpy".into());
        new.languages.insert("python".into(), python);
        let changes = plan(&old, &new).expect("all of them can change");
        let seen: Vec<_> = changes
            .iter()
            .map(|c| (c.key.as_str(), c.old.as_deref(), c.new.as_deref()))
            .collect();
        let expected = [
            ("os_process_timeout", Some("5000 ms"), Some("9000 ms")),
            ("os_process_limit", Some("100"), Some("7")),
            ("python", None, Some("couchpy")),
        ];
        assert_eq!(seen, expected);
        let back = plan(&new, &old).expect("all of them can change");
        assert_eq!(back[2].new, None);
    }

    #[test]
    fn one_change_that_takes_a_restart_refuses_them_all() {
        let old = Config::default();
        let mut new = old.clone();
        new.couchdb.os_process_timeout = Duration::from_secs(9);
        new.server.socket = "/elsewhere".into();
        let refused = plan(&old, &new).expect_err("the socket cannot move");
        assert_eq!(refused.refused.len(), 1);
        let text = refused.to_string();
        assert!(text.starts_with("[server] socket cannot change"), "{text}");
    }

    #[test]
    fn passwords_do_not_show_in_a_difference() {
        let old = Config::default();
        let mut new = old.clone();
        let command = LanguageCommand::Command("proxy https://me:secret@host/x".into());
        new.languages.insert("remote".into(), command);
        let changes = diff(&old, &new);
        assert_eq!(
            changes[0].new.as_deref(),
            Some("proxy https://me:***@host/x")
        );
    }

    #[test]
    fn a_pool_comes_and_goes_at_run_time_and_keeps_its_language() {
        let old = Config::default();
        let mut new = old.clone();
        let pool = |language: &str| crate::PoolConfig {
            language: Some(language.to_owned()),
            ..Default::default()
        };
        new.pools.insert("a".into(), pool("javascript"));
        let added = plan(&old, &new).expect("a pool can be added");
        assert_eq!(added[0].section, "pools.a");
        assert!(added.iter().all(|change| change.old.is_none()));
        assert!(plan(&new, &old).is_ok());
        let mut other = new.clone();
        other.pools.insert("a".into(), pool("query"));
        let refused = plan(&new, &other).expect_err("a pool keeps its language");
        assert!(
            refused
                .to_string()
                .starts_with("[pools.a] language cannot change")
        );
    }
}
