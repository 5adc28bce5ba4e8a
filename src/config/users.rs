//! `[users.NAME]`: who may log in, and what for.
//!
//! SUMMARY   [`UserConfig`] is one section, [`Role`] what a user may do; the administrators of
//!           `[admins]` have the role `admin`.
//! SOURCE    The roles are our own; passwords are as in [`super::password`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::origin::Problem;
use super::password::PasswordHash;
use super::types::{Config, comma_list};

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// See everything but documents and passwords; shape pools, processes and jobs.
    Operator,
    /// Replicate, and see what they replicate.
    Replicator,
    /// Call functions.
    Caller,
    /// See pools, processes and jobs.
    Viewer,
}

impl Role {
    /// The names, in the order of what they may do.
    pub const NAMES: &[&str] = &["admin", "operator", "replicator", "caller", "viewer"];

    const ALL: [Self; 5] = [
        Self::Admin,
        Self::Operator,
        Self::Replicator,
        Self::Caller,
        Self::Viewer,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("{text:?} is no role"))
    }
}

/// One section `[users.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserConfig {
    /// `None` was not set, and is a mistake.
    #[serde(skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub password: Option<PasswordHash>,
    /// None is a mistake.
    #[serde(with = "comma_list")]
    pub roles: Vec<Role>,
    /// The only pools that a caller may use; empty is all that callers may use.
    #[serde(with = "comma_list")]
    pub pools: Vec<String>,
}

impl Config {
    /// Returns whether anybody can log in who may do everything.
    pub fn has_admin(&self) -> bool {
        let is_admin = |user: &UserConfig| user.roles.contains(&Role::Admin);
        !self.admins.is_empty() || self.users.values().any(is_admin)
    }
}

/// Returns what is wrong with the users.
pub(super) fn check(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, user) in &config.users {
        let section = format!("users.{name}");
        let mut wrong = |key: &str, what: &str, remedy: &str| {
            let origin = ["password", "roles", "pools"]
                .into_iter()
                .map(|other| config.origin(&section, other))
                .max();
            let origin = match config.origin(&section, key) {
                super::Origin::Default => origin.unwrap_or(super::Origin::Default),
                origin => origin,
            };
            let what = format!("[{section}] {what}");
            problems.push(Problem::new(origin, what, remedy));
        };
        if user.password.is_none() {
            wrong(
                "password",
                "has no password",
                "set password, plain or hashed as CouchDB writes it",
            );
        }
        if user.roles.is_empty() {
            let roles = format!("set roles to one or more of {}", Role::NAMES.join(", "));
            wrong("roles", "has no roles", &roles);
        }
        if name.contains(':') {
            wrong(
                "password",
                "has a colon in its name, and could never log in",
                "use a name without colons",
            );
        }
        if config.admins.contains_key(name) {
            wrong(
                "password",
                "is in [admins] too",
                "keep one of the two; roles = [\"admin\"] means the same",
            );
        }
        if !user.pools.is_empty() && !user.roles.contains(&Role::Caller) {
            wrong(
                "pools",
                "has pools without the role caller, which alone they limit",
                "add the role caller, or leave pools out",
            );
        }
    }
    problems
}

/// A password travels through the layers as the text of its hash.
mod hash_or_none {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::PasswordHash;

    pub(super) fn serialize<S: Serializer>(
        value: &Option<PasswordHash>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(hash) => to.serialize_str(&hash.text()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PasswordHash>, D::Error> {
        let text = String::deserialize(from)?;
        PasswordHash::of_config(&text)
            .map(Some)
            .map_err(Error::custom)
    }
}
