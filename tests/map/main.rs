//! Documents through processes: `settee map` and the engine below it.

#[path = "../served/mod.rs"]
mod served;

mod engine;
mod errors;
mod reduce;
mod rows;
mod selector;
