//! Which pools users with the role `caller` may use.
//!
//! PROMISES  A process whose command comes from the configuration is lent to them only where its pool says
//!           `callers`, and to code of other databases never. If their section of the configuration names
//!           pools, they may use no others. Nothing is started, and nothing probed, before that is known.

use super::ProcManager;
use crate::auth::rights::CallerLimits;
use crate::messages::proc_manager::GetProcError;
use policy::pool::{PoolId, Target};

impl ProcManager {
    /// Requires that each pool which may serve a request may be used by who asks.
    pub(super) fn permit(
        &self,
        target: Target,
        limits: Option<&CallerLimits>,
    ) -> Result<(), GetProcError> {
        let Some(limits) = limits else {
            return Ok(());
        };
        let pools = self.pools.members_of(target);
        pools
            .into_iter()
            .try_for_each(|id| self.permit_pool(id, limits))
    }

    fn permit_pool(&self, id: PoolId, limits: &CallerLimits) -> Result<(), GetProcError> {
        let pool = self.pools.at(id);
        let (name, language) = (&pool.name, &pool.language);
        let is_external = self.settings.external.contains(language);
        let is_among = |pools: &[String]| pools.iter().any(|known| **known == **name);
        let reason = match &limits.pools {
            Some(pools) if !is_among(pools) => format!(
                "the pool '{name}' is not among the pools of this user: name one of {}",
                pools.join(", ")
            ),
            _ if is_external && limits.built_in_only => format!(
                "'{language}' is a command of the configuration, and a design document of another database \
                 may have built-in languages alone: let the source run the filter (`filter_at`), or take a selector"
            ),
            _ if is_external && !pool.section.callers => format!(
                "the pool '{name}' runs a command of the configuration, which administrators \
                 only may call: let callers in with callers = true in [pools.{name}]"
            ),
            _ => return Ok(()),
        };
        Err(GetProcError::NotForCaller(reason))
    }
}
