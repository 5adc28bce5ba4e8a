//! Features of Erlang's OTP that actix's actors lack: monitors, supervision, registered names, casts, deferred
//! replies, deadlines, and one clock. Nothing here depends on CouchDB.

pub mod clock;
pub mod deadline;
pub mod deferred;
pub mod pid;
pub mod registered_name;
pub mod supervisor;
pub mod tell;

pub use clock::Clock;
pub(crate) use clock::{BootClock, WallClock, system_time};
pub use deadline::DeadlineTimer;
pub use deferred::{Deferred, Replier, deferred};
pub use pid::{ActorId, Down, ExitReason, MonitorRef, Pid, PidGuard, Watch};
pub use registered_name::{NoProc, RegisteredName};
pub use supervisor::Stop;
pub(crate) use supervisor::{ChildSpec, Intensity, Restarts, Supervisor};
pub use tell::Tell;
