//! Isolates: tenants of one process cannot observe each other.

use std::collections::BTreeSet;
use std::io;

use serde_json::{Value, json};
use test_support::{TestRandom, effort};

use super::{Answers, Lines};
use crate::{Options, ProcessStatus, Tenancy};

const NONCE: &str = "a nonce";

/// A server's answers without log lines, its log lines, and its exit status.
struct Played {
    answers: Vec<Value>,
    logs: Vec<Value>,
    status: u8,
}

fn play_within(isolates_max: usize, memory_bytes: usize, commands: &[Value]) -> Played {
    let input: String = commands.iter().map(|it| format!("{it}\n")).collect();
    let options = Options {
        memory_bytes,
        text_reasons: true,
        ..Options::default()
    };
    let tenancy = Tenancy {
        isolates_max,
        nonce: NONCE.to_owned(),
    };
    let input = Lines(io::Cursor::new(input.into_bytes()));
    let (status, output) = (ProcessStatus::open(), Answers::default());
    let ready = || Ok(());
    let status = crate::run(options, Some(tenancy), status, input, output.clone(), ready).unwrap();
    let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let (logs, answers) = lines.partition(|line: &Value| line[0] == "log");
    Played {
        answers,
        logs,
        status,
    }
}

fn play(isolates_max: usize, commands: &[Value]) -> Played {
    play_within(isolates_max, Options::default().memory_bytes, commands)
}

fn tenant(name: &str) -> Value {
    json!(["tenant", NONCE, name])
}

fn evicted(names: &[&str]) -> Value {
    json!({"evicted": names})
}

fn teach(id: &str, show: &str) -> Value {
    let source = format!("function(doc, req) {{ {show} }}");
    let ddoc = json!({"shows": {"s": source}, "lib": {"state": "exports.seen = [];"}});
    json!(["ddoc", "new", id, ddoc])
}

fn show(id: &str) -> Value {
    json!(["ddoc", id, ["shows", "s"], [{"_id": "x"}, {}]])
}

/// Leaves something in every place a function can reach.
const PLANT: &str = "globalThis.planted = 1; Object.prototype.planted = 2; Array.prototype.map = null; \
    JSON.stringify = function() { return '7'; }; Object.freeze(Math); /(secret)/.test('secret'); \
    registerType('planted', 'text/planted'); this.shows.other = 'x'; require('lib/state').seen.push(1); \
    (async function() { await null; globalThis.late = 1; log('late secret'); })(); return 'planted';";

/// Reports leftovers.
const TELL: &str = "return JSON.stringify([typeof planted, ({}).planted, typeof [].map, Object.isFrozen(Math), \
    RegExp.$1, Object.keys(this.shows), require('lib/state').seen, typeof late, typeof console]);";

/// Prompts of a tenant to a new isolate.
fn asking() -> Vec<Value> {
    vec![
        json!(["reset", {}]),
        json!(["map_doc", {"_id": "a"}]),
        json!([
            "add_fun",
            "function(doc) { emit(typeof planted, [({}).planted, typeof [].map, typeof console]); }"
        ]),
        json!(["map_doc", {"_id": "a"}]),
        json!(["add_fun", "function(doc) { require('views/lib/m'); }"]),
        json!([
            "reduce",
            [format!("function() {{ return '{}'; }}", "x".repeat(5000))],
            []
        ]),
        json!(["reduce", ["function() { throw {no: 'text'}; }"], []]),
        teach("_design/d", TELL),
        show("_design/d"),
        teach(
            "_design/d",
            "provides('planted', function() { return 'planted'; });",
        ),
        json!(["ddoc", "_design/d", ["shows", "s"], [null, {"query": {"format": "planted"}}]]),
    ]
}

/// State that a tenant leaves behind: functions, a library, settings, a pending report.
fn planting() -> Vec<Value> {
    let settings = json!({"console": true, "report": true, "text_reasons": false,
                          "reduce_limit": true, "reduce_limit_threshold": 10, "reduce_limit_ratio": 2});
    vec![
        json!(["reset", settings]),
        teach("_design/d", PLANT),
        teach("_design/secret", PLANT),
        show("_design/d"),
        json!([
            "reduce",
            ["function() { Object.prototype.planted = 1; return 1; }"],
            []
        ]),
        json!(["add_lib", {"m": "exports.secret = 1;"}]),
        json!([
            "add_fun",
            "function(doc) { globalThis.planted = 1; return (async function() {})(); }"
        ]),
        json!(["map_doc", {"_id": "secret"}]),
    ]
}

#[test]
fn nothing_of_a_tenant_is_visible_to_another() {
    let alone = play(9, &[vec![tenant("b")], asking()].concat());
    assert_eq!(alone.answers.len(), asking().len() + 1);
    for others in [vec!["a"], vec!["a", "c", "d"]] {
        let plants = others
            .iter()
            .flat_map(|name| [vec![tenant(name)], planting()].concat());
        let before: Vec<Value> = plants.collect();
        let both = play(9, &[before.clone(), vec![tenant("b")], asking()].concat());
        assert_eq!(both.answers[before.len()..], alone.answers);
        assert_eq!(both.logs[both.logs.len() - alone.logs.len()..], alone.logs);
        let logged = both.logs.len() - alone.logs.len();
        assert_eq!(logged, others.len(), "only the late jobs: {:?}", both.logs);
    }
}

#[test]
fn a_tenant_finds_its_design_documents_with_their_state() {
    let count = "this.n = (this.n || 0) + 1; return '' + this.n + typeof console;";
    let used = |name: &str, console: bool| {
        vec![
            tenant(name),
            json!(["reset", {"console": console}]),
            show("_design/d"),
        ]
    };
    let played = play(
        9,
        &[
            vec![
                tenant("a"),
                json!(["reset", {}]),
                teach("_design/d", count),
                show("_design/d"),
            ],
            vec![
                tenant("b"),
                json!(["reset", {"console": true}]),
                teach("_design/d", count),
                show("_design/d"),
            ],
            used("a", false),
            used("b", true),
            used("a", true),
        ]
        .concat(),
    );
    let bodies = played
        .answers
        .iter()
        .filter(|it| it[0] == "resp")
        .map(|it| it[1]["body"].clone());
    // A changed `console` setting recompiles the functions, without their state.
    let expected = ["1undefined", "1object", "2undefined", "2object", "1object"];
    assert_eq!(bodies.collect::<Vec<_>>(), expected);
    assert!(played.answers.iter().all(|it| *it != json!(null)));
}

#[test]
fn views_end_when_their_isolate_is_left() {
    let played = play(
        9,
        &[
            tenant("a"),
            json!(["add_fun", "function(doc) { emit(1, 1); }"]),
            json!(["map_doc", {}]),
            tenant("a"),
            json!(["map_doc", {}]),
            tenant("b"),
            json!(["map_doc", {}]),
            tenant("a"),
            json!(["map_doc", {}]),
        ],
    );
    let [none, rows] = [json!([]), json!([[[1, 1]]])];
    assert_eq!([&played.answers[2], &played.answers[4]], [&rows, &rows]);
    assert_eq!([&played.answers[6], &played.answers[8]], [&none, &none]);
}

#[test]
fn beyond_the_maximum_the_least_recently_selected_isolate_ends() {
    let answers = |isolates_max, names: &[&str]| {
        let commands: Vec<Value> = names.iter().map(|name| tenant(name)).collect();
        play(isolates_max, &commands).answers
    };
    let none = evicted(&[]);
    assert_eq!(
        answers(2, &["a", "b", "a", "c", "a", "b", "a"]),
        [
            &none,
            &none,
            &none,
            &evicted(&["b"]),
            &none,
            &evicted(&["c"]),
            &none
        ]
        .map(Value::clone)
    );
    assert_eq!(
        answers(1, &["a", "b", "a"]),
        [none.clone(), evicted(&["a"]), evicted(&["b"])]
    );
    assert_eq!(answers(3, &["a", "b", "c", "a", "d"])[4], evicted(&["b"]));
}

#[test]
fn an_isolate_that_begins_anew_knows_nothing_and_ends_no_other() {
    let commands = |begin: Value| {
        vec![
            tenant("a"),
            teach("_design/d", "return 'taught';"),
            tenant("b"),
            begin,
            json!(["ddoc", "_design/d", ["shows", "s"], [null, {}]]),
        ]
    };
    let again = play(9, &commands(tenant("a")));
    assert_eq!(again.answers[4][1]["body"], "taught");
    let anew = play(9, &commands(json!(["tenant", NONCE, "a", "new"])));
    assert_eq!(anew.answers[3], evicted(&[]));
    assert_eq!(anew.answers[4][1], "query_protocol_error");
    let selected = [
        tenant("a"),
        teach("_design/d", "return 'taught';"),
        json!(["tenant", NONCE, "a", "new"]),
        show("_design/d"),
    ];
    let selected = play(9, &selected);
    assert_eq!(selected.answers[2], evicted(&[]));
    assert_eq!(selected.answers[3][1], "query_protocol_error");
}

#[test]
fn a_line_that_is_not_of_the_parent_is_an_unknown_command() {
    let unknown = json!(["error", "unknown_command", "unknown command 'tenant'"]);
    for wrong in [
        json!(["tenant"]),
        json!(["tenant", "a nonc", "a"]),
        json!(["tenant", "", "a"]),
        json!(["tenant", [NONCE], "a"]),
        json!(["tenant", NONCE]),
        json!(["tenant", NONCE, 7]),
        json!(["tenant", NONCE, null]),
        json!(["tenant", NONCE, "a", "old"]),
        json!(["tenant", NONCE, "a", null]),
        json!(["tenant", NONCE, "a", ["new"]]),
    ] {
        for before in [
            vec![],
            vec![tenant("a"), json!(["reset", {"report": true}])],
        ] {
            let played = play(9, &[before, vec![wrong.clone(), json!(["reset"])]].concat());
            assert_eq!(played.answers.last(), Some(&unknown), "{wrong}");
            assert_eq!(played.status, 255);
            let logs = json!(played.logs).to_string();
            assert!(!logs.contains(NONCE), "{logs}");
        }
    }
}

#[test]
fn a_server_without_isolates_knows_no_tenant() {
    let answers = super::answers(true, &[tenant("a")]);
    assert_eq!(
        answers,
        [r#"["error","unknown_command","unknown command 'tenant'"]"#]
    );
}

#[test]
fn a_tenant_forgets_its_own_isolate_alone() {
    let new = play(9, &asking());
    let used = [
        vec![tenant("a")],
        planting(),
        vec![tenant("b")],
        planting(),
        vec![json!(["forget", {}])],
    ];
    let used = used.concat();
    let played = play(9, &[used.clone(), asking()].concat());
    assert_eq!(played.answers[used.len() - 1], json!(true));
    assert_eq!(played.answers[used.len()..], new.answers);
    let again = play(9, &[used, vec![tenant("a"), show("_design/d")]].concat());
    let [selected, shown] = again.answers.last_chunk().unwrap();
    assert_eq!(*selected, evicted(&[]));
    assert_eq!(shown[0], "resp");
}

#[test]
fn a_design_document_that_is_taught_again_keeps_its_state_only_with_a_tenant() {
    let count = json!({"shows": {"s": "function() { globalThis.n = (globalThis.n || 0) + 1; return '' + n; }"}});
    let taught = json!(["ddoc", "new", "_design/c", count]);
    let twice = vec![taught.clone(), show("_design/c"), taught, show("_design/c")];
    let of = |select: Vec<Value>| {
        let played = play(9, &[select, twice.clone()].concat());
        played.answers.last().unwrap()[1]["body"].clone()
    };
    assert_eq!(
        (of(vec![tenant("a")]), of(Vec::new())),
        (json!("2"), json!("1"))
    );
}

#[test]
fn state_from_before_the_first_tenant_is_invisible_to_it() {
    let commands = [planting(), vec![tenant("a")], asking()].concat();
    let alone = play(9, &[vec![tenant("a")], asking()].concat());
    let played = play(9, &commands);
    assert_eq!(played.answers[planting().len()..], alone.answers);
}

const MIB: usize = 1 << 20;

/// Holds about this many MiB.
fn keep(mib: usize) -> String {
    format!(
        "globalThis.kept = []; for (var i = 0; i < {mib}; i++) kept.push('y'.repeat(1e6) + i); return 'kept';"
    )
}

#[test]
fn idle_isolates_that_hold_too_much_end_and_the_selected_one_may_take_the_whole_limit() {
    let used = |name: &str, show_body: &str| {
        vec![
            tenant(name),
            json!(["reset", {}]),
            teach("_design/d", show_body),
            show("_design/d"),
        ]
    };
    let played = play_within(
        9,
        16 * MIB,
        &[
            used("a", &keep(6)),
            used("b", "return 'small';"),
            used("c", &keep(6)),
            used("d", &keep(12)),
            vec![tenant("e"), tenant("c"), show("_design/d")],
        ]
        .concat(),
    );
    let answers = &played.answers;
    assert!(
        [3, 11, 15]
            .iter()
            .all(|at| answers[*at][1]["body"] == "kept"),
        "{answers:?}"
    );
    assert_eq!([&answers[8], &answers[12]], [&evicted(&[]), &evicted(&[])]);
    assert_eq!(answers[16], evicted(&["a", "b", "c"]));
    assert_eq!(answers[17], evicted(&[]));
    assert_eq!(answers[18][1], "query_protocol_error");
}

#[test]
fn an_isolate_that_runs_out_of_memory_ends_the_process_after_its_answer() {
    let commands = [
        tenant("a"),
        teach("_design/d", &keep(100)),
        show("_design/d"),
        tenant("b"),
    ];
    let played = play_within(9, 16 * MIB, &commands);
    assert_eq!(played.answers.len(), 3, "{:?}", played.answers);
    assert_eq!(played.answers[2][1], "out_of_memory");
    assert_eq!(played.status, 255);
}

#[test]
fn functions_may_take_the_whole_limit_again_once_their_predecessors_are_dropped() {
    let replaced = teach("_design/d", &format!("'anew'; {}", keep(6)));
    // The engine is measured when another tenant is selected, and nothing runs in it before it is changed.
    for change in [replaced, json!(["reset", {"console": true}])] {
        let commands = [
            tenant("a"),
            teach("_design/d", &keep(6)),
            show("_design/d"),
            tenant("b"),
            tenant("a"),
            change,
            show("_design/d"),
        ];
        let played = play_within(9, 8 * MIB, &commands);
        assert_eq!(played.answers[6][1]["body"], "kept", "{:?}", played.answers);
    }
}

/// Number of histories, and of turns in each.
const HISTORIES: usize = 40;
const TURNS: usize = 30;

/// Code that leaves a tenant's token in one place where the next tenant might look, or that takes memory.
fn plant(token: &str, random: &mut TestRandom) -> String {
    let ways = [
        format!("globalThis.token = '{token}';"),
        format!("Object.prototype.token = '{token}';"),
        format!("Array.prototype.join = function() {{ return '{token}'; }};"),
        format!("JSON.stringify = function() {{ return '\"{token}\"'; }};"),
        format!("/({token})/.test('{token}');"),
        format!("registerType('token', '{token}');"),
        format!("require('lib/state').seen.push('{token}');"),
        format!("(async function() {{ await null; log('{token}'); }})();"),
        format!("log('{token}');"),
        format!("throw new Error('{token}');"),
        keep(1),
        keep(3),
    ];
    ways[random.below(ways.len())].clone()
}

#[test]
fn histories_of_three_tenants_with_evictions_show_no_foreign_token() {
    let mut random = TestRandom::for_test("histories_of_three_tenants");
    let histories = effort(HISTORIES, 50 * HISTORIES);
    let (mut seen, mut ended) = (0, 0);
    for history in 0..histories {
        let mut commands = Vec::new();
        // Answer -> its tenant.
        let mut owners = Vec::new();
        for turn in 0..TURNS {
            let name = ["ada", "bob", "cyd"][random.below(3)];
            let token = format!("{name}{history}x{turn}");
            let mut select = tenant(name);
            if random.below(8) == 0 {
                select.as_array_mut().unwrap().push(json!("new"));
            }
            let tell = format!(
                "{} return [typeof token == 'undefined' ? '' : token, ({{}}).token, [1, 2].join(), RegExp.$1, \
                 require('lib/state').seen].map(String).concat(['{token}']).toString();",
                if random.below(3) == 0 {
                    plant(&token, &mut random)
                } else {
                    String::new()
                }
            );
            let view =
                format!("function(doc) {{ emit([({{}}).token, typeof token], '{token}'); }}");
            commands.extend([
                select,
                json!(["reset", {"report": random.below(2) == 0, "console": random.below(4) == 0}]),
                teach("_design/d", &tell),
                show("_design/d"),
                json!(["add_fun", view]),
                json!(["map_doc", {"_id": token}]),
            ]);
            owners.extend([name; 6]);
        }
        let played = play_within(1 + random.below(3), 8 * MIB, &commands);
        assert_eq!(played.answers.len(), owners.len());
        let mut living = BTreeSet::new();
        for ((answer, owner), command) in played.answers.iter().zip(&owners).zip(&commands) {
            let text = answer.to_string();
            if command[0] == "tenant" {
                living.insert(*owner);
                let names = answer["evicted"].as_array().unwrap();
                ended += names.len();
                for name in names {
                    assert_ne!(name, owner);
                    assert!(living.remove(name.as_str().unwrap()), "{text}");
                }
                continue;
            }
            seen += usize::from(text.contains(owner));
            for other in ["ada", "bob", "cyd"] {
                let is_foreign = other != *owner && text.contains(other);
                assert!(!is_foreign, "{text} to {owner}");
            }
        }
    }
    assert!(
        seen > histories * TURNS && ended > histories,
        "{seen} {ended}"
    );
}
