//! Named pools with real processes, through every interface: socket, HTTP, command line, configuration.

mod ceiling;
mod cells;
mod children;
mod command_line;
mod configuration;
mod drain;
mod example;
mod forgetting;
mod groups;
mod holders;
mod http;
mod isolates;
mod library;
mod ps;
mod removal;
mod resting;
mod rules;
mod starts;
mod support;
mod tenants;
mod watching;
