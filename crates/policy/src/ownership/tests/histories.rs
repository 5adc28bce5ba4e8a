//! Random histories: daemons are killed, paused, cut off, woken and stopped, the database fails over, and servers of
//! replications are slow, or unreachable for some daemons.
//!
//! SUMMARY   Faults for [`CHAOS`], then none until [`END`], when every document must have an owner and an outcome.
//!           Slow servers stay slow, and some unreachable ones stay unreachable.
//!
//! # Replay
//! `SETTEE_HISTORIES` is the number of histories. A violation names its history's seed: `SETTEE_SEED=..
//! SETTEE_HISTORIES=1` repeats it and prints its events.

use super::daemon::Cut;
use super::database::{Mistakes, Ms, ms};
use super::world::{SERVER_MAX, Servers, World, WorldEvent};
use super::*;
use crate::schedule::Server;

/// The time until which faults begin, in milliseconds.
const CHAOS: Ms = 100_000;

/// The end of a history, well after the last fault.
const END: Ms = 300_000;

/// Maximum duration of a fault.
const FAULT_MAX: Ms = 50_000;

/// The default number of histories; `SETTEE_HISTORIES` sets another.
const HISTORIES: usize = 150;

/// A fault.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Kill(usize, Option<Ms>),
    /// SIGSTOP, or a sleeping machine.
    Pause(usize, Ms),
    Cut(usize, Cut, Ms),
    /// Messages are lost or slow, this many in a thousand.
    Noise(usize, usize),
    Jump(usize, Ms),
    /// The database's clock jumps forward.
    DatabaseJump(Ms),
    /// Loses the commits of this period; then down for this long.
    Failover(Ms, Ms),
    Add(usize),
    Delete(usize),
    Stop(usize),
    Start(usize),
    Drain(usize, Ms),
    /// The servers of a document's replication become slow.
    Slow(usize, Servers),
    /// A daemon cannot reach a server, for this long or forever.
    Unreach(usize, Server, Option<Ms>),
}

fn doc_name(n: usize) -> String {
    let kind = if n.is_multiple_of(3) { "once" } else { "doc" };
    format!("{kind}-{n}")
}

impl World {
    pub(super) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(at, restart) => {
                self.kill(at);
                if let Some(after) = restart {
                    self.later_to(after, at, None, WorldEvent::Start);
                }
            }
            Fault::Pause(at, how_long) => {
                if self.daemons[at].acts() {
                    self.daemons[at].is_paused = true;
                    self.judge.fault(self.now);
                    self.later(how_long, at, WorldEvent::Resume);
                }
            }
            Fault::Cut(at, cut, how_long) => {
                self.daemons[at].cut = cut;
                self.judge.fault(self.now);
                self.later_to(how_long, at, None, WorldEvent::Heal);
            }
            Fault::Noise(lost, slow) => (self.lost, self.slow) = (lost, slow),
            Fault::Jump(at, by) => {
                self.daemons[at].clock.jump(by);
                self.judge.fault(self.now);
            }
            Fault::DatabaseJump(by) => {
                self.database.ahead += by;
                self.judge.fault(self.now);
            }
            Fault::Failover(loss, down) => {
                self.later_to(0, 0, None, WorldEvent::Snapshot(loss, down));
            }
            Fault::Add(n) => self.add(&doc_name(n)),
            Fault::Delete(n) => {
                let row = self.database.tables.docs.get_mut(&*doc_name(n));
                if let Some(row) = row {
                    row.wanted = false;
                }
                self.judge.changed(self.now);
            }
            Fault::Stop(at) => self.later(0, at, WorldEvent::Stop),
            Fault::Start(at) => self.start(at),
            Fault::Drain(at, how_long) => {
                if self.daemons[at].life.is_some() {
                    self.later(0, at, WorldEvent::Drain(how_long));
                }
            }
            // Not a fault of daemons or database.
            Fault::Unreach(at, server, how_long) => {
                self.unreach(at, server.clone());
                if let Some(how_long) = how_long {
                    self.later_to(how_long, at, None, WorldEvent::Reached(server));
                }
            }
            Fault::Slow(n, servers) => drop(self.servers.insert(doc_name(n).into(), servers)),
        }
    }
}

fn any_fault(random: &mut TestRandom, daemons: usize) -> Fault {
    let long = |random: &mut TestRandom| match random.below(3) {
        0 => random.below(2_000) as Ms,
        _ => random.below(FAULT_MAX as usize) as Ms,
    };
    let at = random.below(daemons);
    match random.below(15) {
        // The first daemon always restarts.
        0 if at == 0 => Fault::Kill(at, Some(long(random))),
        0 => Fault::Kill(at, (random.below(2) == 0).then(|| long(random))),
        1 | 2 => Fault::Pause(at, long(random)),
        3 | 4 => {
            let (requests, answers) = *random.one_of(&[(true, true), (true, false), (false, true)]);
            Fault::Cut(at, Cut { requests, answers }, long(random))
        }
        5 => Fault::Noise(random.below(100), random.below(100)),
        6 => Fault::Jump(at, long(random)),
        7 => Fault::DatabaseJump(random.below(2_000) as Ms),
        8 | 9 => Fault::Failover(random.below(1_000) as Ms, random.below(10_000) as Ms),
        10 | 11 => Fault::Add(random.below(12)),
        12 => Fault::Delete(random.below(12)),
        13 => Fault::Drain(at, long(random)),
        _ if at > 0 => random.one_of(&[Fault::Stop(at), Fault::Start(at)]).clone(),
        _ => Fault::Pause(at, long(random)),
    }
}

/// Commits take a moment, longer than the rest of a lease, longer than a lease, or too long.
fn any_slow(random: &mut TestRandom) -> Fault {
    let most = *random.one_of(&[5_000, 25_000, ms(LEASE) as usize * 3 / 2, 90_000]);
    let servers = Servers {
        commit: random.below(most) as Ms,
        write: random.below(15_000) as Ms,
    };
    Fault::Slow(random.below(12), servers)
}

/// One server is unreachable for one daemon, or both for all.
fn any_unreach(random: &mut TestRandom, daemons: usize) -> Vec<Fault> {
    let how_long = match random.below(3) {
        0 => None,
        1 => Some(random.below(120_000) as Ms),
        _ => Some(random.below(40_000) as Ms),
    };
    let (one, server) = (random.below(daemons), random.below(2));
    let is_all = random.below(4) == 0;
    let all = (0..daemons).flat_map(|at| [(at, 0), (at, 1)]);
    let them = all.filter(|them| is_all || *them == (one, server));
    // The first daemon eventually reaches everything.
    let how_long_at = |at| how_long.or((at == 0).then_some(FAULT_MAX));
    them.map(|(at, n)| Fault::Unreach(at, format!("server-{n}").into(), how_long_at(at)))
        .collect()
}

/// Returns the world at the end of a seed's history.
pub(super) fn history(
    seed: u64,
    sabotage: Sabotage,
    mistakes: Mistakes,
    keeps_story: bool,
) -> World {
    let mut random = TestRandom::with_seed(seed);
    let daemons = 1 + random.below(4);
    let mut world = World::new(random.fork(), daemons);
    (world.sabotage, world.database.mistakes) = (sabotage, mistakes);
    world.story = keeps_story.then(Vec::new);
    let mut faults: Vec<_> = (0..random.below(12))
        .map(|n| (500 * n as Ms, Fault::Add(n)))
        .collect();
    faults.extend((0..daemons).map(|at| (random.below(20_000) as Ms, Fault::Start(at))));
    for _ in 0..random.below(12) {
        let fault = any_fault(&mut random, daemons);
        faults.push((random.below(CHAOS as usize) as Ms, fault));
    }
    for _ in 0..random.below(6) {
        let fault = any_slow(&mut random);
        faults.push((random.below(CHAOS as usize) as Ms, fault));
    }
    for _ in 0..random.below(4) {
        let at = random.below(CHAOS as usize) as Ms;
        let all = any_unreach(&mut random, daemons).into_iter();
        faults.extend(all.map(|fault| (at + random.below(3_000) as Ms, fault)));
    }
    // No faults from here on.
    faults.push((CHAOS + FAULT_MAX, Fault::Noise(0, 0)));
    faults.push((CHAOS + FAULT_MAX, Fault::Start(0)));
    for (at, fault) in faults {
        world.later_to(at, 0, None, WorldEvent::Fault(fault));
    }
    world.run_until(END);
    let mut judge = std::mem::take(&mut world.judge);
    judge.at_the_end(&world);
    world.judge = judge;
    world
}

pub(super) fn count(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, and is '{text}'")),
    )
}

#[test]
fn documents_have_one_owner_under_all_faults_of_daemons_and_database() {
    let histories = count("SETTEE_HISTORIES").unwrap_or(HISTORIES as u64);
    let mut random =
        TestRandom::for_test("documents_have_one_owner_under_all_faults_of_daemons_and_database");
    let (mut handover_max, mut unserved_max, mut unreached_max) = (0, 0, 0);
    for n in 0..histories {
        let seed = match count("SETTEE_SEED") {
            Some(seed) if histories == 1 => seed,
            _ => random.below(usize::MAX) as u64,
        };
        let world = history(seed, Sabotage::None, Mistakes::default(), histories == 1);
        if let Some(violation) = &world.judge.violation {
            let story = world.story.unwrap_or_default().join("\n");
            panic!(
                "{story}\nhistory {n}: {violation}; repeat with SETTEE_SEED={seed} SETTEE_HISTORIES=1"
            );
        }
        handover_max = world.judge.handover_max.max(handover_max);
        unserved_max = world.judge.unserved_max.max(unserved_max);
        unreached_max = world.judge.unreached_max.max(unreached_max);
    }
    println!(
        "{histories} histories; longest time without an owner after the last fault: {unserved_max} ms, \
         with an owner that does not reach the server: {unreached_max} ms"
    );
}

#[test]
fn a_drained_daemon_owns_nothing_and_regains_its_share_afterwards() {
    for seed in 1..=40 {
        let mut world = World::new(TestRandom::with_seed(seed), 3);
        world.notifies = seed % 2 == 0;
        (0..12).for_each(|n| world.add(&format!("doc-{n}")));
        (0..3).for_each(|at| world.start(at));
        world.run_until(60_000);
        let owned = |world: &World| -> Vec<usize> {
            let daemons = world.daemons.iter();
            daemons.map(|daemon| daemon.core.owned()).collect()
        };
        assert_eq!(owned(&world), [4, 4, 4], "seed {seed}");
        world.fault(Fault::Drain(1, 60_000));
        world.run_until(110_000);
        assert_eq!(owned(&world), [6, 0, 6], "seed {seed}");
        assert_eq!(world.daemons[1].core.owned_or_stopping(), 0, "seed {seed}");
        world.run_until(180_000);
        assert_eq!(owned(&world), [4, 4, 4], "seed {seed}");
        assert_eq!(world.judge.violation, None, "seed {seed}");
    }
}

#[test]
fn jobs_that_a_leaving_daemon_has_stopped_are_taken_over_within_five_seconds() {
    for seed in 1..=40 {
        let mut world = World::new(TestRandom::with_seed(seed), 3);
        // Half of the histories have no notifications.
        world.notifies = seed % 2 == 0;
        (0..12).for_each(|n| world.add(&format!("doc-{n}")));
        (0..3).for_each(|at| world.start(at));
        world.run_until(60_000);
        assert_eq!(world.daemons[1].core.owned(), 4, "seed {seed}");
        world.fault(Fault::Stop(1));
        world.run_until(120_000);
        assert!(world.daemons[1].core.is_gone(), "seed {seed}");
        assert_eq!(world.judge.violation, None, "seed {seed}");
        let handover_max = world.judge.handover_max;
        assert!(
            (1..=5_000).contains(&handover_max),
            "seed {seed}: {handover_max} ms"
        );
    }
}

#[test]
fn documents_of_a_dead_daemon_are_taken_over_within_the_bound_and_shared_with_its_successor() {
    for seed in 1..=40 {
        let mut world = World::new(TestRandom::with_seed(seed), 2);
        (0..10).for_each(|n| world.add(&format!("doc-{n}")));
        (0..2).for_each(|at| world.start(at));
        world.run_until(50_000 + 100 * seed);
        world.fault(Fault::Kill(1, None));
        world.run_until(world.now + ms(OWNER_WITHIN));
        assert_eq!(world.daemons[0].core.owned(), 10, "seed {seed}");
        world.start(1);
        world.run_until(world.now + ms(SHARE_WITHIN));
        let owned = world.daemons.iter().map(|daemon| daemon.core.owned());
        assert_eq!(owned.collect::<Vec<_>>(), [5, 5], "seed {seed}");
        assert_eq!(world.judge.violation, None, "seed {seed}");
    }
}

/// Two daemons and documents with servers this slow, after three minutes.
fn with_slow_servers(seed: u64, sabotage: Sabotage, servers: Servers) -> World {
    let mut world = World::new(TestRandom::with_seed(seed), 2);
    world.sabotage = sabotage;
    for n in [1, 2, 4, 5] {
        world.fault(Fault::Add(n));
        world.fault(Fault::Slow(n, servers));
    }
    (0..2).for_each(|at| world.start(at));
    world.run_until(180_000);
    world
}

#[test]
fn servers_that_take_longer_than_a_lease_get_checkpoints_while_the_lease_is_renewed() {
    let takes = [(22_000, 0), (ms(LEASE) + 5_000, 8_000)];
    for (seed, (commit, write)) in (1..=20).zip(takes.into_iter().cycle()) {
        let servers = Servers { commit, write };
        let recorded = |sabotage| {
            let world = with_slow_servers(seed, sabotage, servers);
            let docs = [1, 2, 4, 5].map(|n| world.recorded(&doc_name(n)) > 0);
            (
                docs.into_iter().filter(|is| *is).count(),
                world.judge.violation,
            )
        };
        assert_eq!(recorded(Sabotage::None), (4, None), "seed {seed}");
        let (count, violation) = recorded(Sabotage::ChecksLeaseOnce);
        assert!(count == 0 && violation.is_some(), "seed {seed}: {count}");
    }
}

#[test]
fn hanging_servers_get_no_checkpoint_and_no_lease_is_lost() {
    let hang = Servers {
        commit: SERVER_MAX,
        write: 0,
    };
    let world = with_slow_servers(1, Sabotage::None, hang);
    assert_eq!(world.judge.violation, None);
    for n in [1, 2, 4, 5] {
        assert_eq!(world.recorded(&doc_name(n)), 0);
    }
    let owned = world.daemons.iter().map(|daemon| daemon.core.owned());
    assert_eq!(owned.collect::<Vec<_>>(), [2, 2]);
    assert_eq!(world.database.epochs.len(), 2);
}

/// Three daemons and these documents on two servers, one of them unreachable for the first daemon.
fn with_one_cut_off(seed: u64, docs: &[usize]) -> World {
    let mut world = World::new(TestRandom::with_seed(seed), 3);
    docs.iter().for_each(|n| world.add(&format!("doc-{n}")));
    (0..3).for_each(|at| world.start(at));
    world.run_until(60_000);
    world.unreach(0, "server-1".into());
    world.run_until(world.now + ms(REACHED_WITHIN));
    world
}

fn owned_of(world: &World, server: &str) -> Vec<usize> {
    let of_it = |daemon: &daemon::Daemon| {
        let docs = daemon.runs.keys();
        docs.filter(|doc| *database::server_of(doc) == *server)
            .count()
    };
    world.daemons.iter().map(of_it).collect()
}

#[test]
fn documents_of_a_server_unreachable_for_one_daemon_are_shared_by_the_others_and_stay_there() {
    let docs: Vec<usize> = (0..12).collect();
    for seed in 1..=5 {
        let mut world = with_one_cut_off(seed, &docs);
        assert_eq!(owned_of(&world, "server-1"), [0, 3, 3], "seed {seed}");
        let moves = world.database.given_up.len();
        world.run_until(world.now + ms(AVOID_FOR) / 2);
        assert_eq!(owned_of(&world, "server-1"), [0, 3, 3], "seed {seed}");
        assert_eq!(world.database.given_up.len(), moves, "seed {seed}");
        world.fault(Fault::Kill(1, None));
        world.run_until(world.now + ms(OWNER_WITHIN));
        assert_eq!(owned_of(&world, "server-1"), [0, 0, 6], "seed {seed}");
        world.fault(Fault::Kill(2, None));
        world.run_until(world.now + ms(OWNER_WITHIN));
        assert_eq!(
            owned_of(&world, "server-1"),
            [6, 0, 0],
            "no other daemon is alive, seed {seed}"
        );
        assert_eq!(world.judge.violation, None, "seed {seed}");
    }
}

#[test]
fn a_daemon_retries_a_server_with_a_growing_delay() {
    let mut world = with_one_cut_off(1, &[3, 4, 5]);
    let mut tries = Vec::new();
    let begun = world.now;
    while tries.len() < 4 && world.now < begun + 4 * ms(AVOID_MAX) {
        let known = world.database.given_up.len();
        world.run_until(world.now + 1_000);
        let is_new = world.database.given_up.len() > known;
        if is_new
            && tries
                .last()
                .is_none_or(|last| world.now > last + ms(REACHED_WITHIN))
        {
            tries.push(world.now);
        }
    }
    let gaps = tries.windows(2).map(|two| two[1] - two[0]);
    let gaps: Vec<Ms> = gaps.map(|gap| gap / 60_000).collect();
    assert!((tries[0] - begun) / 60_000 >= 9, "{tries:?}");
    assert!(matches!(gaps[..], [20..25, 40..45, 60..65]), "{gaps:?}");
    assert_eq!(world.judge.violation, None);
    world.later_to(0, 0, None, WorldEvent::Reached("server-1".into()));
    world.run_until(world.now + ms(AVOID_MAX) + ms(SHARE_WITHIN));
    assert_eq!(owned_of(&world, "server-1"), [1, 1, 1]);
}

#[test]
fn a_daemon_regains_documents_when_only_it_reaches_their_server() {
    for seed in 1..=5 {
        let mut world = World::new(TestRandom::with_seed(seed), 2);
        for n in [3, 4, 5, 9, 10, 11] {
            world.add(&format!("doc-{n}"));
        }
        (0..2).for_each(|at| world.start(at));
        world.run_until(60_000);
        world.unreach(0, "server-1".into());
        world.run_until(world.now + ms(REACHED_WITHIN));
        assert_eq!(owned_of(&world, "server-1"), [0, 6], "seed {seed}");
        world.later_to(0, 0, None, WorldEvent::Reached("server-1".into()));
        world.unreach(1, "server-1".into());
        world.run_until(world.now + 2 * ms(REACHED_WITHIN));
        assert_eq!(owned_of(&world, "server-1"), [6, 0], "seed {seed}");
        assert_eq!(world.judge.violation, None, "seed {seed}");
    }
}

#[test]
fn a_server_outage_for_all_daemons_moves_no_documents() {
    let mut seen = 0;
    for seed in 1..=10 {
        let mut world = World::new(TestRandom::with_seed(seed), 3);
        (0..6).for_each(|n| world.add(&format!("doc-{n}")));
        (0..3).for_each(|at| world.start(at));
        world.run_until(60_000);
        let server: Server = "server-1".into();
        // A daemon without documents of this server does not notice the outage.
        let before = owned_of(&world, &server);
        if before.contains(&0) {
            continue;
        }
        seen += 1;
        (0..3).for_each(|at| world.unreach(at, server.clone()));
        world.run_until(world.now + 120_000);
        for at in 0..3 {
            world.later_to(
                2_000 * at as Ms,
                at,
                None,
                WorldEvent::Reached(server.clone()),
            );
        }
        world.run_until(world.now + 100_000);
        assert_eq!(world.database.given_up, [], "seed {seed}");
        assert_eq!(owned_of(&world, &server), before, "seed {seed}");
        assert_eq!(world.judge.violation, None, "seed {seed}");
    }
    assert!(seen > 0);
}
