//! Cells: what the system lets query servers do.

mod launched;
pub mod own;
