//! Decisions only: no actors, no clock, no environment, no input or output.
//!
//! Everything here is a plain struct that maps an event and a time to a list of actions. The actors of `settee`
//! translate messages to events and carry the actions out.

pub mod admission;
pub mod attach;
pub mod counted;
pub mod exchange;
pub mod growth;
pub mod increases;
pub mod invariants;
pub mod listening;
pub mod ownership;
pub mod pool;
pub mod pressure;
pub mod schedule;
pub mod time;
