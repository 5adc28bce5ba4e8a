//! Messages to the PoolReporter, which logs events of pools, and from it to the ProcManager.

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use crate::messages::process::ProcShared;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::admission::SpawnRefused;
use policy::exchange::Exchanges;
use policy::pool::{ClientId, PoolId, ProcId, ProcStatus};

/// What the ProcManager knows of a process.
pub(crate) struct KnownProc {
    pub(crate) id: ProcId,
    /// The name of its pool.
    pub(crate) pool: Arc<str>,
    pub(crate) language: LanguageName,
    pub(crate) life: ProcLife,
}

/// How far the life of a process has come.
pub(crate) enum ProcLife {
    /// It has been opened for so long.
    Opening(Duration),
    /// It runs, or is about to end.
    Started {
        shared: Arc<ProcShared>,
        /// What the core says of it; `None` once it was told to end.
        core: Option<ProcStatus>,
        holder: Option<KnownHolder>,
    },
}

/// What the ProcManager knows of the holder of a process.
pub(crate) struct KnownHolder {
    pub(crate) client: ClientId,
    pub(crate) who: Option<Arc<Holder>>,
}

impl KnownHolder {
    pub(crate) fn describe(&self) -> Holder {
        Holder {
            client: self.client.0,
            ..self.who.as_deref().cloned().unwrap_or_default()
        }
    }
}

/// A pool has a limit of memory: reads what processes take from now on, for as long as one has.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct WatchMemory {
    /// Knows which processes have a limit.
    pub(crate) limited: Recipient<GetLimitedProcs>,
    /// Learns what they take.
    pub(crate) read: Recipient<MemoryRead>,
}

/// Asks for the processes whose pools limit their memory, with the system's numbers of them. `None`: no pool does.
#[derive(Message)]
#[rtype(result = "Option<Vec<(u32, ProcId)>>")]
pub(crate) struct GetLimitedProcs;

/// How much memory processes take, in bytes.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct MemoryRead(pub(crate) Vec<(ProcId, u64)>);

/// Something has happened in a pool that people learn of.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct PoolNews {
    pub(crate) pool: PoolId,
    pub(crate) name: Arc<str>,
    pub(crate) language: LanguageName,
    pub(crate) event: PoolEvent,
}

/// What has happened in a pool.
pub(crate) enum PoolEvent {
    /// A process has started.
    Started {
        generation: u64,
        os_pid: Option<u32>,
    },
    /// Most calls have started a process instead of an idle one of another database.
    MostCallsStart {
        exchanges: Exchanges,
        /// The limit that is in the way of more processes, and what it is called.
        limit: u32,
        raise: Arc<str>,
        /// How its databases could share processes.
        share: &'static str,
    },
    /// A process could not be started: no more are started for a while.
    Throttled {
        failure: Option<Arc<str>>,
        rest: Duration,
    },
    /// That while is over.
    Unthrottled,
    /// Processes end by themselves soon after their starts, again and again.
    EndsEarly { failure: Option<Arc<str>> },
    /// A request came when one process more would reach the limit.
    Stressed {
        limit: u32,
        /// What the limit is called.
        raise: Arc<str>,
    },
    /// Nothing has been at the limit for a while.
    Unstressed,
    /// A decision of ours was against the rules of admission, and was not carried out.
    SpawnRefused(SpawnRefused),
    /// The pool is gone. Its identity may be given to another.
    Gone,
}
