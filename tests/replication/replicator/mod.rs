//! The replicator as a service: documents, jobs and recovery after a restart.

mod apply;
mod backup;
mod bulk;
mod calls;
mod changes;
mod crashes;
mod documents;
mod failed;
mod groups;
mod jobs;
pub mod kept;
mod listings;
mod orders;
mod outages;
mod outgoing;
mod reasons;
mod restarts;
mod resumes;
mod transfer;
mod upkeep;
pub mod world;
