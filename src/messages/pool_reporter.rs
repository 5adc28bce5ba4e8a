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

/// The ProcManager's state of a process.
pub(crate) struct KnownProc {
    pub(crate) id: ProcId,
    pub(crate) pool: Arc<str>,
    pub(crate) language: LanguageName,
    pub(crate) life: ProcLife,
}

/// The stage of a process's life.
pub(crate) enum ProcLife {
    /// Being opened for this long.
    Opening(Duration),
    /// Running, or about to end.
    Started {
        shared: Arc<ProcShared>,
        /// The core's state; `None` once it was asked to end.
        core: Option<ProcStatus>,
        holder: Option<KnownHolder>,
    },
}

/// The ProcManager's data on a process's holder.
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

/// Starts sampling the memory of processes in pools that limit it, and goes on while there is such a pool.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct WatchMemory {
    /// Answers with the processes that have a limit.
    pub(crate) limited: Recipient<GetLimitedProcs>,
    /// Receives the samples.
    pub(crate) read: Recipient<MemoryRead>,
}

/// Requests the processes in pools with a memory limit, with their PIDs. `None`: there is no such pool.
#[derive(Message)]
#[rtype(result = "Option<Vec<(u32, ProcId)>>")]
pub(crate) struct GetLimitedProcs;

/// Memory of processes, in bytes.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct MemoryRead(pub(crate) Vec<(ProcId, u64)>);

/// An event of a pool, for display.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct PoolNews {
    pub(crate) pool: PoolId,
    pub(crate) name: Arc<str>,
    pub(crate) language: LanguageName,
    pub(crate) event: PoolEvent,
}

/// Events of a pool.
pub(crate) enum PoolEvent {
    /// A process has started.
    Started {
        generation: u64,
        os_pid: Option<u32>,
    },
    /// Most calls started a process because all free processes belonged to other databases.
    MostCallsStart {
        exchanges: Exchanges,
        /// The limit that prevents more processes, and its name.
        limit: u32,
        raise: Arc<str>,
        /// How its databases could share processes.
        share: &'static str,
    },
    /// A process could not be started: starts pause for a while.
    Throttled {
        failure: Option<Arc<str>>,
        rest: Duration,
    },
    /// Starts may resume.
    Unthrottled,
    /// Processes keep ending by themselves soon after their start.
    EndsEarly { failure: Option<Arc<str>> },
    /// A request needs a new process, and one more would reach the limit.
    Stressed {
        limit: u32,
        /// The limit's name.
        raise: Arc<str>,
    },
    /// The limit was not reached for a while.
    Unstressed,
    /// A decision of the core broke the admission rules, and was not carried out.
    SpawnRefused(SpawnRefused),
    /// The pool is gone; its identity may be reused.
    Gone,
}
