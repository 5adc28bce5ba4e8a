//! Three daemons share the replications of one PostgreSQL, even if a daemon, a source or a target fails.
//!
//! LIMITS    Measured times are printed, and asserted with slack for a loaded machine: the bounds promised in
//!           docs/fleet.md are those of an idle one.

mod avoided;
mod mending;
mod outages;
mod refused;
mod relay;
mod shares;
pub mod site;
mod slow;
