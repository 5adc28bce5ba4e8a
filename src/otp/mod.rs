//! Features of Erlang's OTP that actix's actors lack: monitors, supervision, registered names, casts, deferred
//! replies, deadlines, and one clock. Nothing here depends on CouchDB.

pub mod clock;
pub mod deadline;
pub mod deferred;
pub mod pid;
pub mod registered_name;
pub mod supervisor;
pub mod tell;
