//! What OTP gives to Erlang's processes and actix does not give to actors: monitors, links, supervision,
//! registered names, casts, deferred replies, deadlines, and one clock. Nothing here knows CouchDB.

pub mod clock;
pub mod deadline;
pub mod deferred;
pub mod pid;
pub mod registered_name;
pub mod supervisor;
pub mod tell;
