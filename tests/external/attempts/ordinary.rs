//! All attempts in cells of a service that an ordinary user runs, with subordinate ids and without.
//!
//! SUMMARY   Cells must not reach what the user owns; the attempts' own tests run the service as root. One query
//!           server makes all attempts of a kind, except bombs: a process for each attempt would take minutes.
//!           An ordinary test run makes one in eight of them; SETTEE_TESTS=long, after a change to cells, makes all.
//! LIMITS    Attempts that fail for an ordinary user even without a cell are made in one nevertheless.

use test_support::{TestRandom, effort};

use super::run_by::RunBy;
use super::site::{Mode, Site};
use super::{all, bombs};

fn no_attempt_succeeds(run_by: RunBy) {
    if !RunBy::possible().contains(&run_by) {
        return;
    }
    let start = |mode, network| Site::start_by(run_by, mode, &format!("network = {network}\n"));
    let off = start(Mode::Off, false);
    let cells = [start(Mode::Standard, false), start(Mode::Standard, true)];
    // Minimum number of attempts that must succeed without a cell.
    let possible_min = effort(8, 150);
    let mut random = TestRandom::for_test("no_attempt_succeeds");
    let (mut possible, mut wrong) = (0, Vec::new());
    let clients = || {
        let inside = cells.each_ref().map(|cell| cell.service().connect());
        (off.service().connect(), inside)
    };
    let (mut outside, mut inside) = clients();
    let mut source = "";
    for attempt in all() {
        if random.below(effort(8, 1)) > 0 {
            continue;
        }
        // Bombs leave things in their query server that disturb the next attempt.
        if attempt.group.source != source || source == bombs::PROCESSES.source {
            (outside, inside) = clients();
            source = attempt.group.source;
        }
        let network = usize::from(attempt.group.network);
        let cell = &cells[network];
        let without = attempt.run_by(&off, &mut outside);
        possible += usize::from(without.did());
        if cell.lacks(attempt.group.layer) {
            continue;
        }
        let outcome = attempt.run_by(cell, &mut inside[network]);
        if !attempt.is_prevented(&outcome) {
            wrong.push(format!(
                "{}: {outcome:?}, without a cell {without:?}",
                attempt.id
            ));
        }
    }
    println!(
        "{run_by} makes {possible} of {} attempts without a cell",
        all().count()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(possible >= possible_min, "{possible}");
    for cell in &cells {
        cell.serves_the_next_client();
    }
}

#[test]
fn no_attempt_succeeds_in_cells_of_a_user_with_subordinate_ids() {
    no_attempt_succeeds(RunBy::UserWithNumbers);
}

#[test]
fn no_attempt_succeeds_in_cells_of_a_user_without_subordinate_ids() {
    no_attempt_succeeds(RunBy::User);
}
