//! Metrics: what moves them, which are served, and the alerts on them.

mod alerts;
mod counted;
mod served_names;
