//! The service over HTTP: requests, permissions, and streams of lines.

mod admins;
mod audit;
mod bounds;
mod config;
mod costs;
mod dashboard;
mod database_in_path;
mod encrypted;
mod errors;
mod floods;
mod hosts;
mod lines;
mod local;
mod memory;
mod names;
mod requests;
mod roles;
mod tenant_log;
mod threads;
mod unknown;
