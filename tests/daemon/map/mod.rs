//! Documents through processes: `settee map` and the engine below it.

mod engine;
mod errors;
mod inputs;
mod reduce;
mod rows;
mod selector;
mod sources;
