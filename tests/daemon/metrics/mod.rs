//! What is counted, and what of it is served.

mod alerts;
mod counted;
mod served_names;
