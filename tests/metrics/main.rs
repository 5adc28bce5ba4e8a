//! What is counted, and what of it is served.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../service/mod.rs"]
mod service;

mod counted;
mod served_names;
