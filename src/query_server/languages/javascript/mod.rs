//! The built-in JavaScript query server.
