//! Tenants: what one tenant plants in a query server affects no other.
//!
//! PROMISES  Each test first proves that the attack works where processes are shared.

use serde_json::json;

use super::attempt::Outcome;
use super::site::{Mode, Site};

const SOURCE: &str = include_str!("tenants.py");

/// Calls by the tenant in between: a spy that polls may miss some.
const CALLS: usize = 50;

/// The answer to the tenant in between, and what the planter learned.
struct Between {
    answer: Outcome,
    learned: Outcome,
}

/// Plants something, has another client call, and asks what was kept.
fn plant(mode: Mode, function: &str) -> Between {
    // With one process, everything that can be shared is shared.
    let reuse = match mode {
        Mode::Off => "reuse = \"any\"\n",
        Mode::Standard => "",
    };
    let site = Site::start(mode, &format!("max = 1\n{reuse}"));
    let (mut planter, mut other) = (site.service().connect(), site.service().connect());
    let plants = json!({"attempt": "plant", "function": function});
    let planted = site.run_by(&mut planter, SOURCE, &plants);
    assert!(matches!(planted, Outcome::Did(_)), "{planted:?}");
    let honest =
        json!({"attempt": "honest", "function": "works", "n": 41, "secret": "another tenant"});
    let answers = (0..CALLS).map(|_| site.run_by(&mut other, "", &honest));
    let mut answers: Vec<_> = answers.collect();
    let answer = answers.pop().unwrap();
    let tells = json!({"attempt": "plant", "function": "tells"});
    let learned = site.run_by(&mut planter, SOURCE, &tells);
    Between { answer, learned }
}

fn is_right(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Did(value) if *value == 42)
}

fn cannot_spy(function: &str) {
    let off = plant(Mode::Off, function);
    assert!(matches!(off.learned, Outcome::Did(_)), "{:?}", off.learned);
    let cell = plant(Mode::Standard, function);
    assert!(
        matches!(cell.learned, Outcome::Nothing(_)),
        "{:?}",
        cell.learned
    );
    assert!(is_right(&cell.answer), "{:?}", cell.answer);
}

#[test]
fn cannot_spy_on_the_next_tenant_by_the_servers_loop() {
    cannot_spy("spies_by_its_loop");
}

#[test]
fn cannot_spy_on_the_next_tenant_by_the_servers_input() {
    cannot_spy("spies_by_its_input");
}

#[test]
fn cannot_spy_on_the_next_tenant_by_the_servers_json() {
    cannot_spy("spies_by_its_json");
}

#[test]
fn cannot_spy_on_the_next_tenant_by_a_leftover_thread() {
    cannot_spy("spies_by_a_thread");
}

#[test]
fn cannot_spy_on_the_next_tenant_by_a_leftover_tracer() {
    cannot_spy("spies_by_a_tracer");
}

#[test]
fn cannot_falsify_the_next_tenants_answers() {
    let off = plant(Mode::Off, "falsifies_by_its_output");
    assert!(!is_right(&off.answer), "{:?}", off.answer);
    let cell = plant(Mode::Standard, "falsifies_by_its_output");
    assert!(is_right(&cell.answer), "{:?}", cell.answer);
}
