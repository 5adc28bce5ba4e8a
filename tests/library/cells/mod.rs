//! Cells: what query servers are allowed to do.

mod launched;
mod missing;
pub mod own;
mod pools;
mod running;
mod users;
