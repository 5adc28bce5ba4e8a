//! Who hears of what goes on between a store and its database.

use std::fmt;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

/// What a database is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DatabaseRequest {
    /// To read rows.
    Read,
    /// To carry out one transaction of writes.
    Write,
    /// To renew a lease, to claim or to release documents.
    Lease,
}

/// Hears of requests to a database and of the connections to it, on the store's thread.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "no database"))]
pub trait DatabaseObserver: Send + Sync + fmt::Debug {
    /// A request has ended, well or not.
    fn ended(&self, request: DatabaseRequest, took: Duration);
    /// A connection was made.
    fn connected(&self);
    /// A connection that was made is gone.
    fn disconnected(&self);
}

/// Ignores them.
impl DatabaseObserver for () {
    fn ended(&self, _: DatabaseRequest, _: Duration) {}

    fn connected(&self) {}

    fn disconnected(&self) {}
}
