//! The actor test kit: tests pools, for authors of language actors and for our own tests.
//!
//! SUMMARY   [`TestPool`] is a real process manager with its own limits; [`TestClient`] is a scripted client;
//!           [`ScriptedChild`] is a real child that follows its [`Script`]; [`FakeLanguage`] is a
//!           language for paused time; [`Probe`] records messages; [`eventually`] waits for a state.
//! PROMISES  Nothing sleeps for a fixed time: a wait ends with its event, or after [`PATIENCE`] fails the test, naming
//!           the event. [`TestPool::assert_quiet`] proves that no client, waiter, process actor, child, grandchild
//!           or file is left.
//! CALLED    By tests, on the arbiter of the test (`#[actix_rt::test]`).
//! SOURCE    couchdb_os_proc_pool.erl: its scripted clients, and `ping`, which checks that a client gets a process
//!           within a second.
//! LIMITS    Failures are panics, which fail the test. Children need a POSIX `sh`.
//!
//! ```
//! # actix_rt::System::new().block_on(async {
//! use settee_testkit::{Script, ScriptedChild, TestPool};
//!
//! let child = ScriptedChild::new(Script::echo());
//! let pool = TestPool::builder().hard_limit(1).script("echo", &child).start();
//! let mut first = pool.client("first");
//! first.takes(pool.any()).await;
//! let mut second = pool.client("second");
//! second.asks(pool.any());
//! assert!(second.is_waiting().await);
//! first.returns().await;
//! assert!(second.ping().await);
//! assert_eq!(second.proc(), first.last_proc());
//! second.returns().await;
//! pool.assert_quiet().await;
//! # });
//! ```

#![allow(
    clippy::missing_panics_doc,
    reason = "a test kit reports by panicking; each item says when"
)]

mod client;
mod fake;
mod pool;
mod quiet;
mod recorder;
mod script;
mod scripted_child;

pub use client::{PING, Sent, TestClient};
pub use fake::{FakeAnswer, FakeLanguage, FakeStart};
pub use pool::{TestPool, TestPoolBuilder};
pub use script::{Script, Step};
pub use scripted_child::ScriptedChild;
pub use test_support::{PATIENCE, Probe, TestRandom, eventually, within};
