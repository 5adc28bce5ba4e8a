//! The service over HTTP: what is asked, who may ask, and what passes line by line.

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
