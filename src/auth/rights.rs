//! Permissions.
//!
//! SUMMARY   [`Rights`] are a caller's roles, with the pools that it is limited to; [`Right`] is the requirement of a
//!           request. HTTP and the socket use the same check.
//! PROMISES  Without a role nothing is allowed. A right that no role has belongs to administrators only.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use crate::config::Role;

/// The requirement of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Right {
    /// See pools, processes, metrics and jobs.
    Look,
    /// See the configuration, the documents that request replications, and log lines of databases' functions.
    Inspect,
    /// Change pools, and pause, resume and restart jobs.
    Operate,
    /// Replicate, and see one's own replications.
    Replicate,
    /// Call functions, and take processes.
    Call,
    /// Everything else.
    Administer,
}

impl Right {
    /// Returns the roles with this right, other than the administrators'.
    #[must_use]
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Look => &[Role::Operator, Role::Viewer],
            Self::Inspect | Self::Operate => &[Role::Operator],
            Self::Replicate => &[Role::Replicator],
            Self::Call => &[Role::Caller],
            Self::Administer => &[],
        }
    }
}

/// The rights of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    roles: Vec<Role>,
    pools: Option<Arc<[String]>>,
}

impl Rights {
    /// Returns an administrator's rights.
    pub fn all() -> Self {
        Self::of(&[Role::Admin], &[])
    }

    /// Returns the rights of these roles, limited to these pools, if any.
    pub fn of(roles: &[Role], pools: &[String]) -> Self {
        Self {
            roles: roles.to_vec(),
            pools: (!pools.is_empty()).then(|| pools.into()),
        }
    }

    /// Returns whether this is an administrator.
    pub(crate) fn is_admin(&self) -> bool {
        self.roles.contains(&Role::Admin)
    }

    /// Returns whether they include a right.
    pub fn has(&self, right: Right) -> bool {
        self.is_admin() || right.roles().iter().any(|role| self.roles.contains(role))
    }

    /// Returns the names of all rights included.
    pub(crate) fn may(&self) -> Vec<&'static str> {
        Right::VARIANTS
            .iter()
            .filter(|right| self.has(**right))
            .map(Into::into)
            .collect()
    }

    /// Returns the roles.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Returns a caller's limits; administrators have none.
    pub fn limits(&self) -> Option<CallerLimits> {
        (!self.is_admin()).then(|| CallerLimits {
            pools: self.pools.clone(),
            built_in_only: false,
        })
    }

    /// Requires a right.
    ///
    /// # Errors
    /// The right is missing; the message names the roles that have it.
    pub fn require(&self, right: Right) -> Result<(), String> {
        if self.has(right) {
            return Ok(());
        }
        let names: Vec<&str> = [&[Role::Admin], right.roles()]
            .concat()
            .iter()
            .map(Into::into)
            .collect();
        Err(format!("this requires the role {}", names.join(" or ")))
    }
}

/// The limits of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerLimits {
    /// The only pools that the caller may use; `None`: no such limit.
    pub pools: Option<Arc<[String]>>,
    /// Whether languages run by configured commands are excluded in every pool, because both the code and the choice
    /// of its language come from outside.
    pub built_in_only: bool,
}

impl CallerLimits {
    /// Returns the limits of code from another database.
    #[must_use]
    pub(crate) fn of_other_databases() -> Self {
        Self {
            pools: None,
            built_in_only: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_exactly_its_rights() {
        use Right::*;
        let all = [Look, Inspect, Operate, Replicate, Call, Administer];
        let cases: [(Role, &[Right]); 5] = [
            (Role::Admin, &all),
            (Role::Operator, &[Look, Inspect, Operate]),
            (Role::Replicator, &[Replicate]),
            (Role::Caller, &[Call]),
            (Role::Viewer, &[Look]),
        ];
        for (role, may) in cases {
            let rights = Rights::of(&[role], &[]);
            for right in all {
                assert_eq!(rights.has(right), may.contains(&right), "{role} {right:?}");
                assert_eq!(rights.require(right).is_ok(), rights.has(right));
            }
        }
        assert!(!Rights::default().has(Look));
        assert_eq!(
            Rights::of(&[Role::Operator], &[]).may(),
            ["look", "inspect", "operate"]
        );
        let told = Rights::default().require(Look).unwrap_err();
        assert_eq!(told, "this requires the role admin or operator or viewer");
    }
}
