//! Cells: what the system lets query servers do.

pub mod own;
