//! For tests of every crate: [`TestRandom`] makes repeatable choices, [`eventually`] and [`within`] wait with a
//! deadline, [`Probe`] records messages, [`effort`] scales long tests.

#![allow(
    clippy::missing_panics_doc,
    reason = "tests report by panicking; each item says when"
)]

mod effort;
mod probe;
mod random;
mod wait;

pub use effort::effort;
pub use probe::Probe;
pub use random::TestRandom;
pub use wait::{PATIENCE, eventually, turns_beside, within};
