//! The service over HTTP: what is asked, who may ask, and what passes line by line.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../service/mod.rs"]
mod service;

mod admins;
mod config;
mod dashboard;
mod hosts;
mod lines;
mod requests;
mod webdriver;
