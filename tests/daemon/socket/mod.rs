//! The client socket: its calls, and how it handles clients that misbehave.

mod bad_input;
mod digests;
mod group;
mod library;
mod protocol;
mod report;
mod tcp;
mod tls;
