//! `[users.NAME]`: users and their roles.
//!
//! SUMMARY   [`UserConfig`] is one section, [`Role`] a user's role; the administrators in `[admins]` have the role
//!           `admin`.
//! SOURCE    The roles are our own; passwords are as in [`crate::password`].

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::section::section;
use super::value::{self, Kind, LET_IN};
use crate::password::PasswordHash;

/// A user's role.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// May do everything.
    Admin,
    /// Sees everything except documents and passwords; changes pools, processes and jobs.
    Operator,
    /// Replicates, and sees its own replications.
    Replicator,
    /// Calls functions.
    Caller,
    /// Sees pools, processes and jobs.
    Viewer,
}

section! {
    /// One section `[users.NAME]`.
    #[derive(Debug, Default)]
    #[serde(default)]
    pub struct UserConfig {
        /// As in `[admins]`; required.
        password: Option<PasswordHash>, value::PASSWORD;
        /// One or more of `admin`, `operator`, `replicator`, `caller`, `viewer`.
        roles: Vec<Role>, Kind::Words(Role::VARIANTS), only_in_files(LET_IN);
        /// The only pools that a caller may use. Empty: no restriction.
        pools: Vec<String> = "", value::NAMES, only_in_files(LET_IN);
    }
}
