//! Tenants: what one plants in a query server meets no other.
//!
//! PROMISES  Each first proves that it works where processes are reused for anybody.

use serde_json::json;

use super::attempt::Outcome;
use super::site::{Mode, Site};

const SOURCE: &str = include_str!("tenants.py");

/// How often the tenant in between calls its function: a spy that looks now and then may miss some calls.
const CALLS: usize = 50;

/// What became of the document of the tenant in between.
struct Between {
    answer: Outcome,
    told: Outcome,
}

/// Plants something, lets another client in, and asks what was kept.
fn plant(mode: Mode, function: &str) -> Between {
    // One process at a time: what can be shared is.
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
    let told = site.run_by(&mut planter, SOURCE, &tells);
    Between { answer, told }
}

fn is_right(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Did(value) if *value == 42)
}

fn cannot_spy(function: &str) {
    let off = plant(Mode::Off, function);
    assert!(matches!(off.told, Outcome::Did(_)), "{:?}", off.told);
    let cell = plant(Mode::Standard, function);
    assert!(matches!(cell.told, Outcome::Nothing(_)), "{:?}", cell.told);
    assert!(is_right(&cell.answer), "{:?}", cell.answer);
}

#[test]
fn cannot_spy_on_the_next_by_the_servers_loop() {
    cannot_spy("spies_by_its_loop");
}

#[test]
fn cannot_spy_on_the_next_by_the_servers_input() {
    cannot_spy("spies_by_its_input");
}

#[test]
fn cannot_spy_on_the_next_by_the_servers_json() {
    cannot_spy("spies_by_its_json");
}

#[test]
fn cannot_spy_on_the_next_by_a_thread_that_is_left() {
    cannot_spy("spies_by_a_thread");
}

#[test]
fn cannot_spy_on_the_next_by_a_tracer_that_is_left() {
    cannot_spy("spies_by_a_tracer");
}

#[test]
fn cannot_falsify_the_answers_to_the_next() {
    let off = plant(Mode::Off, "falsifies_by_its_output");
    assert!(!is_right(&off.answer), "{:?}", off.answer);
    let cell = plant(Mode::Standard, "falsifies_by_its_output");
    assert!(is_right(&cell.answer), "{:?}", cell.answer);
}
