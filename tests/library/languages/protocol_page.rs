//! `docs/query-server-protocol.md`: the built-in server answers its examples as documented, and no
//! command and no ability is missing.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use regex::Regex;
use settee::conform::case::{Case, Step};
use settee::conform::report::CaseResult;
use settee::conform::run::Subject;
use settee::conform_target::Target;
use settee::query_server::abilities::Ability;
use settee::query_server::cell::Cell;
use settee::query_server::child::{CommandSpec, Spawner};
use settee::query_server::prompt::Command;
use strum::VariantArray;

use crate::docs::{read, tables};
use crate::support::program::SETTEE;

/// Deadline of a block.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the blocks of examples as cases, each with its own process.
fn examples(page: &str) -> Vec<Case> {
    let blocks = page
        .split("\n```")
        .filter(|block| block.starts_with("\n> "));
    let numbered = blocks.enumerate();
    numbered
        .map(|(number, block)| case(number, block))
        .collect()
}

fn case(number: usize, block: &str) -> Case {
    let (mut steps, mut exit) = (Vec::new(), vec![0]);
    for line in block.lines().skip(1) {
        let (mark, text) = line.split_at(2);
        match mark {
            "> " => steps.push(Step::Send {
                bytes: format!("{text}\n").into_bytes(),
                closes: false,
            }),
            "< " => steps.push(Step::OutRaw(text.to_owned())),
            "= " => exit = vec![text.parse().unwrap()],
            _ => panic!("not a line of an example: {line}"),
        }
    }
    if exit != [0] {
        steps.push(Step::Closed { may_say: None });
    }
    Case {
        id: format!("block {number}"),
        ability: "page".into(),
        why: String::new(),
        steps,
        exit,
        ordered: true,
        skip_logs: false,
    }
}

#[actix_rt::test]
async fn the_built_in_server_answers_the_examples_as_documented() {
    let cases = examples(&read("docs/query-server-protocol.md"));
    assert!(cases.len() >= 8, "{}", cases.len());
    let subject = Subject {
        target: Target::Command(CommandSpec {
            program: SETTEE.into(),
            arguments: vec!["couchjs".into()],
            environment: [("SETTEE_ISOLATES_MAX", "2"), ("SETTEE_TENANT_NONCE", "k3y")]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            cell: Cell::None,
        }),
        time: DEADLINE,
        spawner: Spawner::start().unwrap(),
    };
    let reports: Vec<_> = subject.reports(&cases).collect().await;
    for report in reports {
        assert_eq!(report.result, CaseResult::Pass, "{report:?}");
    }
}

#[test]
fn every_command_is_listed_and_has_an_example() {
    let page = read("docs/query-server-protocol.md");
    let cases = examples(&page);
    let steps = cases.iter().flat_map(|case| &case.steps);
    let sent = steps.filter_map(|step| match step {
        Step::Send { bytes, .. } => Some(bytes.trim_ascii_end()),
        _ => None,
    });
    let sent: Vec<&[u8]> = sent.collect();
    for command in Command::VARIANTS {
        let is_it = |line: &&&[u8]| Command::of(line) == Some(*command);
        assert!(
            sent.iter().any(|line| is_it(&line)),
            "{command:?} has no example"
        );
    }
    let word = Regex::new(r#"\["(\w+)""#).unwrap();
    let rows = &tables(&page)["Commands"];
    let listed = rows.iter().flat_map(|row| word.captures_iter(&row[0]));
    let listed: BTreeSet<String> = listed.map(|found| found[1].to_owned()).collect();
    let used = sent.iter().filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        Some(word.captures(line)?[1].to_owned())
    });
    let mut used: BTreeSet<String> = used.collect();
    // A command that no server knows.
    assert!(used.remove("nothing"));
    assert_eq!(listed, used);
}

#[test]
fn every_ability_is_listed() {
    let page = read("docs/query-server-protocol.md");
    let rows = &tables(&page)["Abilities"];
    let listed: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let known: Vec<&str> = Ability::VARIANTS
        .iter()
        .map(|ability| ability.name())
        .collect();
    assert_eq!(listed, known);
}
