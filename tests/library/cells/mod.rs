//! Cells: what the system lets query servers do.

mod launched;
mod missing;
pub mod own;
mod pools;
mod running;
mod users;
