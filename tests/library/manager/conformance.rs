//! Conformance cases run through a pool, as for a language built into the program.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use settee::conform::case::Case;
use settee::conform::play::Kind;
use settee::conform::run::Subject;
use settee::conform_target::Target;
use settee::query_server::child::Spawner;
use settee::query_server::language::LanguageName;
use settee_testkit::{Script, ScriptedChild, Step, TestPool};

/// The time limit of a case; the silent case uses all of it.
const TIME: Duration = Duration::from_secs(1);

fn case(steps: &Value) -> Case {
    let case = json!({"id": "own/x", "category": "map", "why": "Why.", "exit": 0, "steps": steps});
    Case::parse(&case.to_string(), "none").unwrap().unwrap()
}

#[actix_rt::test]
async fn each_case_runs_in_its_own_process_and_output_and_exit_are_compared() {
    let child = Script::echo()
        .on("say", [Step::log("x"), Step::Echo])
        .on("hang", [Step::Hang])
        .on("exit", [Step::Exit(3)])
        .on("fatal", [Step::fatal("n", "r")]);
    let child = ScriptedChild::new(child);
    let pool = TestPool::builder().script("mine", &child).start();
    let subject = Subject {
        target: Target::Language {
            name: LanguageName::new("mine"),
            language: Arc::new(child.language()),
            caller: Rc::new(pool.caller()),
        },
        time: TIME,
        spawner: Spawner::start().unwrap(),
    };
    assert_eq!(subject.greets().await, Ok(()));
    let cases = [
        json!([{"in": ["say", 1]}, {"out": ["log", "x"]}, {"out": ["say", 1]}]),
        json!([{"in": ["exit"]}, {"closed": true}]),
        json!([{"in": ["fatal"]}, {"out": ["fatal", "n", "r"]}, {"closed": true}]),
        json!([{"in": ["hang"]}, {"out": true}]),
        json!([{"in": ["exit"]}, {"out": true}]),
        json!([{"in": ["echo"]}, {"out": ["echo"]}, {"closed": true}]),
        json!([{"in": ["echo"]}, {"out": ["other"]}]),
    ];
    let cases: Vec<Case> = cases.iter().map(case).collect();
    let reports: Vec<_> = subject.reports(&cases).collect().await;
    let failures = reports.iter().map(|report| report.failure.as_ref());
    let kinds: Vec<_> = failures
        .map(|failure| failure.map(|failure| failure.kind))
        .collect();
    let failed = [Kind::Silence, Kind::End, Kind::Line, Kind::Line].map(Some);
    assert_eq!(kinds, [&[None; 3][..], &failed].concat(), "{reports:?}");
    let ended = reports[4].failure.as_ref().unwrap();
    assert_eq!(ended.got, "no more output; it exited with status 3");
    drop(subject);
    pool.assert_quiet().await;
}
