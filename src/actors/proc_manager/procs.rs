//! The current work of each process (`settee ps`).
//!
//! SUMMARY   Rows combine the core's state of a process, as in `status`, with the process's own report of its work.
//! PROMISES  Rows are made, and processor time and memory read, on a separate thread, one page at a time.

use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use blocking::Turns;
use rustc_hash::FxHashMap;
use strum::IntoStaticStr;

use super::memory::of_leaders;
use super::milliseconds;
use crate::messages::process::ProcShared;
use crate::messages::ps::{KnownHolder, KnownProc, PROCS_LISTED_MAX, ProcLife, ProcName};
use crate::query_server::status::{ProcPage, ProcRow};
use policy::pool::{ProcId, ProcPhase, ProcStatus};

/// Serializes the readings.
static READINGS: Turns = Turns::new(1);

/// The state of a process, in list order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum State {
    Running,
    Teaching,
    Lent,
    Starting,
    Ending,
    Idle,
}

/// A process with its data.
pub(crate) struct Listed {
    pub id: ProcId,
    pub state: State,
    pub row: ProcRow,
    /// `None` while it is being started.
    pub shared: Option<Arc<ProcShared>>,
}

/// Describes processes: one page, busy ones first.
///
/// # Errors
/// No thread is available for it; may be temporary.
pub(crate) async fn page(procs: Vec<KnownProc>) -> io::Result<ProcPage> {
    READINGS
        .turn()
        .await
        .run("usage", move || {
            let mut listed: Vec<Listed> = procs.into_iter().map(describe).collect();
            let total_rows = listed.len();
            keep_first(&mut listed);
            let taken = taken(&listed).into_iter();
            let procs = listed
                .into_iter()
                .zip(taken)
                .map(|(listed, (cpu, memory))| ProcRow {
                    cpu_us: cpu.map(|cpu| u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX)),
                    memory,
                    ..listed.row
                });
            ProcPage {
                total_rows,
                procs: procs.collect(),
            }
        })
        .await
}

/// Describes a process, without resource usage.
pub(crate) fn describe(known: KnownProc) -> Listed {
    let KnownProc {
        id,
        pool,
        language,
        life,
    } = known;
    let name = ProcName {
        pool: &pool,
        proc: id,
    };
    let row = ProcRow {
        name: name.to_string(),
        pool: pool.to_string(),
        language: language.to_string(),
        ..ProcRow::default()
    };
    let (state, row, shared) = match life {
        ProcLife::Opening(age) => {
            let state_ms = milliseconds(age);
            (State::Starting, ProcRow { state_ms, ..row }, None)
        }
        ProcLife::Started {
            shared,
            core,
            holder,
        } => {
            let (state, row) = describe_started(row, &shared, core.as_ref(), holder.as_ref());
            (state, row, Some(shared))
        }
    };
    let row = ProcRow {
        state: <&str>::from(state).to_owned(),
        ..row
    };
    Listed {
        id,
        state,
        row,
        shared,
    }
}

fn describe_started(
    row: ProcRow,
    shared: &ProcShared,
    core: Option<&ProcStatus>,
    holder: Option<&KnownHolder>,
) -> (State, ProcRow) {
    let work = shared.work();
    let is_ending = shared.exit_error().is_some();
    let state = match core.filter(|_| !is_ending).map(|core| core.phase) {
        None => State::Ending,
        Some(ProcPhase::Idle) => State::Idle,
        Some(ProcPhase::Teaching) => State::Teaching,
        Some(ProcPhase::Assigned) if shared.in_flight() > 0 || work.call.is_some() => {
            State::Running
        }
        Some(ProcPhase::Assigned) => State::Lent,
    };
    let call = work.call.as_deref();
    let subject = call.map(|call| &call.subject);
    let of_subject = |part: Option<&Arc<str>>| part.map(|part| part.to_string());
    let tag = core.and_then(|core| core.db.as_ref());
    let row = ProcRow {
        os_pid: shared.os_pid,
        state_ms: milliseconds(work.since.elapsed()),
        holder: holder.map(KnownHolder::describe),
        request_id: call.map(|call| call.request_id.to_string()),
        db: of_subject(subject.and_then(|subject| subject.db.as_ref()).or(tag)),
        ddoc: of_subject(subject.and_then(|subject| subject.ddoc.as_ref())),
        function: subject.map(|subject| subject.function.clone()),
        uses: core.map(|core| core.uses),
        // Read after `state_ms`, and not from the core, which was queried earlier: no state may seem older than its
        // process.
        age_ms: core.map(|_| milliseconds(shared.age())),
        ..row
    };
    (state, row)
}

/// Sorts busy processes to the front, longest first, and drops those beyond the maximum.
fn keep_first(listed: &mut Vec<Listed>) {
    listed.sort_by_key(|listed| (listed.state, Reverse(listed.row.state_ms)));
    listed.truncate(PROCS_LISTED_MAX);
}

/// Returns the processor time and the memory of each.
fn taken(listed: &[Listed]) -> Vec<(Option<Duration>, Option<u64>)> {
    let leader = |listed: &Listed| Some((listed.shared.as_ref()?.os_pid?, listed.id));
    let leaders = listed.iter().filter_map(leader).collect();
    let memory: FxHashMap<ProcId, u64> = of_leaders(&leaders).into_iter().collect();
    listed
        .iter()
        .map(|listed| {
            let cpu = listed.shared.as_ref().and_then(|shared| shared.cpu_time());
            (cpu, memory.get(&listed.id).copied())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::pool::PoolId;

    #[test]
    fn no_state_is_older_than_its_process() {
        let id = ProcId {
            pool: PoolId(0),
            number: 1,
        };
        let shared = ProcShared::new(None);
        // The core was queried before the time passed.
        let core = ProcStatus {
            proc: id,
            phase: ProcPhase::Idle,
            db: None,
            ddocs: 0,
            isolates: 0,
            uses: 0,
            age: Duration::ZERO,
            idle: None,
            holder: None,
            memory: None,
        };
        while shared.age() < Duration::from_millis(2) {}
        let (_, row) = describe_started(ProcRow::default(), &shared, Some(&core), None);
        assert!(row.state_ms >= 2 && row.age_ms >= Some(row.state_ms));
    }

    #[test]
    fn at_most_a_thousand_processes_are_listed_busy_ones_first_and_each_state_longest_first() {
        let listed = |(number, state): (u64, State)| Listed {
            id: ProcId {
                pool: PoolId(0),
                number,
            },
            state,
            row: ProcRow {
                state_ms: number,
                ..ProcRow::default()
            },
            shared: None,
        };
        let idle = (0..2000).map(|number| (number, State::Idle));
        let others = [
            (2000, State::Ending),
            (2001, State::Lent),
            (2002, State::Running),
            (2003, State::Running),
            (2004, State::Teaching),
            (2005, State::Starting),
        ];
        let mut all: Vec<Listed> = idle.chain(others).map(listed).collect();
        keep_first(&mut all);
        assert_eq!(all.len(), 1000);
        let numbers: Vec<u64> = all.iter().map(|listed| listed.id.number).collect();
        assert_eq!(
            numbers[..8],
            [2003, 2002, 2004, 2001, 2005, 2000, 1999, 1998]
        );
    }
}
