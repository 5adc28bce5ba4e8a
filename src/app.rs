//! The application around the actors.

pub mod settings;
