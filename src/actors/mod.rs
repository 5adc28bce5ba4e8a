//! The actors: one per file. They translate messages to events of the decision core and carry out its actions; they
//! decide nothing themselves.

mod changes;
pub mod client;
pub mod config_listener;
pub(crate) mod cost_keeper;
pub(crate) mod fleet_member;
pub mod fleet_status;
pub(crate) mod health_watcher;
pub mod job_supervisor;
pub mod language;
pub mod listener;
pub mod native_process;
pub mod opener;
pub mod os_process;
pub(crate) mod past_writer;
pub mod pool_executor;
pub mod pressure_gauge;
pub mod proc_manager;
pub mod process;
pub mod replication_job;
pub mod replication_scheduler;
pub mod replicator_api;
pub mod replicator_documents;
pub mod service;
pub mod service_manager;
