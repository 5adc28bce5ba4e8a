//! Languages: the recorded transcripts, Mango, and the examples that the recipes lead to.

#[path = "../served/mod.rs"]
mod served;
#[path = "../service/mod.rs"]
mod service;

mod examples;
mod javascript_transcripts;
mod mango;
