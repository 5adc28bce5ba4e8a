//! What is counted, and what of it is served.

mod counted;
mod served_names;
