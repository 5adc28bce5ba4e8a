//! What somebody may do.
//!
//! SUMMARY   [`Rights`] are the roles of the caller, and the pools that a caller is held to;
//!           [`Right`] is what a request takes. HTTP and the socket ask the same question.
//! PROMISES  Without a role nothing is allowed. A right that no role names is the administrators'.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use crate::config::Role;

/// What a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Right {
    /// To see pools, processes, numbers and jobs.
    Look,
    /// To see the configuration, which documents ask for replications, and what functions of databases log.
    Inspect,
    /// To shape pools, and to pause, resume and restart jobs.
    Operate,
    /// To replicate, and to see what one replicates oneself.
    Replicate,
    /// To call functions, and to take processes.
    Call,
    /// Everything else.
    Administer,
}

impl Right {
    /// Returns the roles that have it, beside the administrators'.
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

/// What somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    roles: Vec<Role>,
    pools: Option<Arc<[String]>>,
}

impl Rights {
    /// Returns those of an administrator.
    pub fn all() -> Self {
        Self::of(&[Role::Admin], &[])
    }

    /// Returns those of somebody with these roles, held to these pools if there are any.
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

    /// Returns whether they have a right.
    pub fn has(&self, right: Right) -> bool {
        self.is_admin() || right.roles().iter().any(|role| self.roles.contains(role))
    }

    /// Returns the names of the rights that they have.
    pub(crate) fn may(&self) -> Vec<&'static str> {
        let held = Right::VARIANTS.iter().filter(|right| self.has(**right));
        held.map(Into::into).collect()
    }

    /// Returns the roles.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Returns what somebody who calls functions is held to; an administrator is held to nothing.
    pub fn limits(&self) -> Option<CallerLimits> {
        (!self.is_admin()).then(|| CallerLimits {
            pools: self.pools.clone(),
            built_in_only: false,
        })
    }

    /// Requires a right.
    ///
    /// # Errors
    /// What is missing, as a message.
    pub fn require(&self, right: Right) -> Result<(), String> {
        if self.has(right) {
            return Ok(());
        }
        let roles = [&[Role::Admin], right.roles()].concat();
        let names: Vec<&str> = roles.iter().map(Into::into).collect();
        Err(format!("this requires the role {}", names.join(" or ")))
    }
}

/// What somebody who calls functions is held to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerLimits {
    /// The only pools; none is every pool that is for callers.
    pub pools: Option<Arc<[String]>>,
    /// No command of the configuration, in any pool: the code, and the choice of its language, are those of
    /// somebody who has no account here.
    pub built_in_only: bool,
}

impl CallerLimits {
    /// Returns what code of another database is held to.
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
