//! The client socket: its calls, and what it makes of clients that misbehave.

mod bad_input;
mod digests;
mod group;
mod library;
mod protocol;
mod report;
mod tcp;
mod tls;
