//! Resources that cells share through the kernel: a cell that takes them deprives neither another nor the service.
//!
//! SUMMARY   In each test, a function takes as much as it can of a resource that the kernel counts or that others
//!           use, and keeps it. Then another function needs a little of it.
//! PROMISES  [`Counter::deprives_no_other`] passes only if the first function, without a cell, leaves nothing to
//!           the second (or just succeeds, where exhaustion would harm the machine), and, in a cell, leaves enough to
//!           another cell and to the service's own user. It tries services run by root and by ordinary users, with and
//!           without subordinate ids. [`Counter::shared_by`] lists what is shared nevertheless, as SECURITY.md does,
//!           and the test shows that it is.
//! LIMITS    A resource that no test can exhaust is bounded by another limit of the cell.

use std::time::Instant;

use super::attempt::Outcome;
use super::host::{Guest, Host, Where};
use super::run_by::RunBy;
use crate::support::daemon::{DEADLINE, wait_until};

pub const SOURCE: &str = include_str!("counters.py");

pub struct Counter {
    pub name: &'static str,
    /// Whether the test exhausts it.
    is_used_up: bool,
    /// Whether functions in cells may take some.
    is_needed_in_cells: bool,
    /// Whether the cells may use the network.
    has_network: bool,
    /// Whose cells share it.
    shared_by: &'static [RunBy],
}

impl Counter {
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_used_up: true,
            is_needed_in_cells: false,
            has_network: false,
            shared_by: &[],
        }
    }

    /// Only requires that taking some works without a cell: exhausting it would affect the machine.
    pub const fn not_used_up(mut self) -> Self {
        self.is_used_up = false;
        self
    }

    /// Lets functions in cells take some too.
    pub const fn needed_in_cells(mut self) -> Self {
        self.is_needed_in_cells = true;
        self
    }

    /// Uses cells that may use the network.
    pub const fn with_network(mut self) -> Self {
        self.has_network = true;
        self
    }

    /// Lists whose cells share it with each other, and possibly with the service.
    pub const fn shared_by(mut self, users: &'static [RunBy]) -> Self {
        self.shared_by = users;
        self
    }

    pub fn deprives_no_other(&self) {
        let possible = RunBy::possible();
        // All hosts are held, so that none is restarted for each counter.
        let kept: Vec<_> = possible
            .iter()
            .map(|run_by| Host::shared(*run_by))
            .collect();
        if kept.is_empty() {
            return;
        }
        self.matters_without_a_cell();
        for run_by in possible {
            self.is_bounded(run_by);
        }
    }

    fn takes(&self, guest: &mut Guest<'_>) -> Outcome {
        guest.runs(self.name, &format!("takes_{}", self.name))
    }

    fn needs(&self, guest: &mut Guest<'_>) -> Outcome {
        guest.runs(self.name, &format!("needs_{}", self.name))
    }

    /// Returns a guest whose needs are met. What earlier ones took is not always freed at once.
    fn in_need<'a>(&self, host: &'a Host, place: Where) -> Guest<'a> {
        let mut guest = host.enters(place, SOURCE);
        let until = Instant::now() + DEADLINE;
        loop {
            let outcome = self.needs(&mut guest);
            if outcome.did() {
                return guest;
            }
            assert!(Instant::now() < until, "{place:?}, before: {outcome:?}");
            std::thread::yield_now();
        }
    }

    fn matters_without_a_cell(&self) {
        let host = Host::shared(RunBy::User);
        let _alone = host.alone();
        let mut taker = started(&host, Where::Open);
        let mut other = self.is_used_up.then(|| self.in_need(&host, Where::Open));
        let taken = self.takes(&mut taker);
        assert!(taken.did(), "without a cell: {taken:?}");
        if let Some(other) = &mut other {
            // Takes again what earlier guests had, which the kernel frees with a delay.
            wait_until("exhaustion", || {
                !self.needs(other).did() || {
                    self.takes(&mut taker);
                    false
                }
            });
        }
        for guest in [Some(taker), other].iter_mut().flatten() {
            ends(guest);
        }
    }

    fn is_bounded(&self, run_by: RunBy) {
        let host = Host::shared(run_by);
        if lacks_a_layer(&host, run_by) {
            return;
        }
        let _alone = host.alone();
        let cell = if self.has_network {
            Where::CellWithNetwork
        } else {
            Where::Cell
        };
        let mut taker = started(&host, cell);
        let mut others = Vec::new();
        if self.is_used_up || self.is_needed_in_cells {
            others.push(self.in_need(&host, Where::Open));
        }
        if self.is_needed_in_cells {
            others.push(self.in_need(&host, cell));
        }
        let taken = self.takes(&mut taker);
        let is_kept = taken.is_refused_by_a_cell() || matches!(taken, Outcome::Nothing(_));
        let is_right = is_kept || (self.is_needed_in_cells && taken.did());
        assert!(is_right, "in a cell of {run_by}: {taken:?}");
        let mut are_met = true;
        for other in &mut others {
            let (left, place) = (self.needs(other), other.place());
            are_met &= left.did();
            println!("{}, {run_by}, {place:?}: left {left:?}", self.name);
        }
        let is_shared = self.shared_by.contains(&run_by);
        assert_eq!(are_met, !is_shared, "after {taken:?} in a cell of {run_by}");
        for guest in others.iter_mut().chain([&mut taker]) {
            ends(guest);
        }
    }
}

/// Returns whether this machine lacks a layer that these tests need in a cell, and prints which. Cells of a user
/// without subordinate ids lack the layer `user` on every machine, and must report that.
fn lacks_a_layer(host: &Host, run_by: RunBy) -> bool {
    let user = host.lacks("user");
    if run_by == RunBy::User {
        let why = user.expect("the layer 'user' is missing");
        assert!(why.contains("/etc/subuid has no range"), "{why}");
    }
    let needed = [
        "user",
        "files",
        "system_calls",
        "processes",
        "process_count",
    ];
    let needed = &needed[usize::from(run_by == RunBy::User)..];
    let missing = needed.iter().find_map(|layer| host.lacks(layer));
    if let Some(why) = &missing {
        println!("not tried in cells of {run_by}, which lack a layer here: {why}");
    }
    missing.is_some()
}

fn started(host: &Host, place: Where) -> Guest<'_> {
    let mut guest = host.enters(place, SOURCE);
    let outcome = guest.runs("honest", "works");
    assert!(outcome.did(), "{outcome:?}");
    guest
}

fn ends(guest: &mut Guest<'_>) {
    let outcome = guest.runs("end", "gives_back");
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome:?}");
}

/// Defines a test for each counter, and a list of all.
macro_rules! counters {
    ($($name:ident $(.$how:ident($($with:expr),*))*;)*) => {
        pub const ALL: &[Counter] = &[$(
            Counter::new(stringify!($name))$(.$how($($with),*))*
        ),*];

        $(#[test]
        fn $name() {
            let it = ALL.iter().find(|it| it.name == stringify!($name));
            it.unwrap().deprives_no_other();
        })*
    };
}

counters! {
    timers;
    pending_signals.needed_in_cells();
    pages_by_large_pipes;
    pages_by_many_pipes.needed_in_cells().shared_by(&[RunBy::User]);
    sockets_in_flight.needed_in_cells().with_network().shared_by(&[RunBy::User]);
    watches_of_epoll.not_used_up().needed_in_cells();
    processes.needed_in_cells();
    threads.needed_in_cells();
    instances_of_inotify;
    watches_of_inotify.not_used_up();
    groups_of_fanotify;
    keys;
    bytes_of_keys;
    bytes_of_message_queues;
    message_queues;
    locked_segments;
    locked_memory.not_used_up();
    memory_of_performance_events.not_used_up();
    segments_of_shared_memory;
    pages_of_shared_memory;
    semaphores;
    queues_of_system_v;
    asynchronous_operations.not_used_up();
    terminals;
    ports;
    abstract_socket_names;
    a_lease.needed_in_cells();
    a_lock;
    a_lock_on_a_part;
    folder_notifications.not_used_up();
    disk_space;
    space_in_dev_shm;
    disk_inodes;
}

#[test]
fn every_taker_in_the_source_has_a_test() {
    for line in SOURCE.lines() {
        let name = line.strip_prefix("def takes_");
        let name = name.and_then(|rest| rest.split('(').next());
        let tried = |name| ALL.iter().any(|counter| counter.name == name);
        assert!(name.is_none_or(tried), "{name:?} has no test");
    }
}
