//! Messages to the PoolProber, which probes the pools' query servers.

use std::sync::Arc;
use std::time::Duration;

use actix::Message;

use crate::query_server::abilities::{Abilities, Ability};
use crate::query_server::language::LanguageName;
use crate::query_server::tried_cell::TriedCell;
use policy::pool::PoolId;

/// Probes an ability, unless it is known by then. Answered once it is known.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ProbeAbility {
    /// The results of probes.
    pub(crate) abilities: Arc<Abilities>,
    pub(crate) ability: Ability,
    pub(crate) language: LanguageName,
    /// How long it may take.
    pub(crate) time: Duration,
}

/// A pool and the cell of its processes, if they have one.
pub(crate) struct PoolCell {
    pub(crate) pool: PoolId,
    pub(crate) name: Arc<str>,
    pub(crate) cell: Option<Arc<TriedCell>>,
}

/// Tests the cells of new and changed pools, unless tested before.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TryCells(pub(crate) Vec<PoolCell>);

/// Forgets everything about cells, warns of pools without one, and tests the cells of all pools.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TryAllCells(pub(crate) Vec<PoolCell>);
