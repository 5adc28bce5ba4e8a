//! Attempts to do from inside a query server what a cell forbids.
//!
//! SUMMARY   [`attempt`] says how each is judged, [`site`] where it is made. `server.py` is the query server,
//!           `calls.py` what its functions share. [`counters`] has what cells share through the kernel, tried on a
//!           [`host`]. The other files list the attempts by threat; their code is in the Python files beside them.
//! LIMITS    The numbers of system calls are those of x86-64.

mod attempt;
mod bombs;
mod counters;
mod end;
mod environment;
mod files;
mod floods;
mod host;
mod network;
mod ordinary;
mod processes;
mod run_by;
mod site;
mod sockets;
mod system_calls;
mod tenants;
mod unchanged;

use std::collections::BTreeSet;

use attempt::Attempt;
use site::{Mode, Site};

/// Minimum number of attempts that must work without a cell: only those are tried in one.
const TRIED_MIN: usize = 60;

fn all() -> impl Iterator<Item = &'static Attempt> {
    let groups = [
        files::ALL,
        environment::ALL,
        sockets::ALL,
        network::ALL,
        processes::ALL,
        system_calls::ALL,
        bombs::processes::ALL,
        bombs::memory::ALL,
        bombs::files::ALL,
    ];
    groups.into_iter().flatten()
}

#[test]
fn many_attempts_are_possible_without_a_cell() {
    let _kept = Site::shared(Mode::Off, false);
    let tried = all().filter(|attempt| attempt.is_possible()).count();
    println!(
        "{tried} of {} attempts are possible without a cell",
        all().count()
    );
    assert!(tried >= TRIED_MIN, "{tried}");
}

#[test]
fn every_attempt_in_the_sources_has_a_test() {
    let made: BTreeSet<&str> = all().map(|attempt| attempt.function).collect();
    for source in [
        files::GROUP.source,
        environment::GROUP.source,
        sockets::GROUP.source,
        processes::GROUP.source,
        system_calls::GROUP.source,
        bombs::PROCESSES.source,
    ] {
        for line in source.lines() {
            let name = line
                .strip_prefix("def cannot_")
                .and_then(|rest| rest.split('(').next());
            let made = |name| made.contains(format!("cannot_{name}").as_str());
            assert!(name.is_none_or(made), "{name:?} has no test");
        }
    }
}
