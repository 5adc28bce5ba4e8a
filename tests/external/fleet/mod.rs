//! Three daemons share the replications of one PostgreSQL, whatever happens to one of them, or to what they
//! replicate.
//!
//! LIMITS    What is measured is printed, and asserted with room for a machine under load: the bounds that docs/fleet.md
//!           promises are those of a machine that has time.

mod avoided;
mod mending;
mod outages;
mod refused;
mod relay;
mod shares;
pub mod site;
mod slow;
