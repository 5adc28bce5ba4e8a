//! Tests that need external programs, such as Python, Node, couchpy, express-pouchdb, HAProxy, Prometheus, PostgreSQL
//! and a browser.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod attempts;
mod clients;
mod conform;
mod containerfile;
mod couchpy;
mod dashboard;
mod dashboard_fleet;
mod dashboard_orders;
mod filters;
mod fleet;
mod grafana;
mod haproxy;
mod languages;
mod npm;
mod openapi;
mod own_cell;
mod own_programs;
mod picture;
mod pip;
mod postgres;
mod pouch;
mod pouchdb;
mod promtool;
mod readme;
mod tls_proxies;
mod tutorial;
mod webdriver;
