//! `settee map --reduce` with every built-in reducer: grouping against a naive model, CouchDB's own
//! figures, limits, names, memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;

use crate::support::program::run;
use crate::support::work::{ONE, Work, documents, fails, lines, stderr};
use serde_json::{Value, json};
use settee::query_server::reduce::Builtin;
use settee_testkit::TestRandom;

/// A row of the model. Rust orders arrays of integers as views do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ModelRow {
    key: Vec<i64>,
    id: String,
    value: i64,
}

fn model_rows(random: &mut TestRandom, count: usize) -> Vec<ModelRow> {
    let mut below = |bound: usize| i64::try_from(random.below(bound)).unwrap();
    let mut row = |number| ModelRow {
        key: (0..below(4)).map(|_| below(3) - 1).collect(),
        id: format!("d{number:05}"),
        value: below(20) - 10,
    };
    (0..count).map(&mut row).collect()
}

fn reduced(reducer: &str, rows: &[ModelRow]) -> Value {
    let values = || rows.iter().map(|row| row.value);
    let different: BTreeSet<i64> = values().collect();
    let ordered: BTreeSet<&ModelRow> = rows.iter().collect();
    match reducer {
        "_sum" => json!(values().sum::<i64>()),
        "_count" => json!(rows.len()),
        "_stats" => json!({
            "sum": values().sum::<i64>(),
            "count": rows.len(),
            "min": values().min(),
            "max": values().max(),
            "sumsqr": values().map(|value| value * value).sum::<i64>(),
        }),
        "_top_3" => json!(different.iter().rev().take(3).collect::<Vec<_>>()),
        "_bottom_3" => json!(different.iter().take(3).collect::<Vec<_>>()),
        "_first" => json!(ordered.first().unwrap().value),
        "_last" => json!(ordered.last().unwrap().value),
        other => panic!("{other} has no model"),
    }
}

#[test]
fn every_reducer_groups_like_a_naive_model() {
    let mut random = TestRandom::for_test("every_reducer_groups_like_a_naive_model");
    let rows = model_rows(&mut random, 400);
    let input: String = rows
        .iter()
        .map(|row| format!("{}\n", json!({"_id": row.id, "k": row.key, "v": row.value})))
        .collect();
    let work = Work::new();
    let groupings: [(&[&str], usize); 4] = [
        (&[], 0),
        (&["--group"], usize::MAX),
        (&["--group-level", "1"], 1),
        (&["--group-level", "2"], 2),
    ];
    let reducers = [
        "_sum",
        "_count",
        "_stats",
        "_top_3",
        "_bottom_3",
        "_first",
        "_last",
        "_approx_count_distinct",
    ];
    for (grouping, level) in groupings {
        let mut groups: BTreeMap<Vec<i64>, Vec<ModelRow>> = BTreeMap::new();
        for row in &rows {
            let group = row.key.iter().take(level).copied().collect();
            groups.entry(group).or_default().push(row.clone());
        }
        for reducer in reducers {
            let mut command = work.map(
                "function(doc) { emit(doc.k, doc.v) }",
                &["--reduce", reducer],
            );
            let got = lines(&run(command.args(grouping), input.as_bytes()));
            assert_eq!(got.len(), groups.len(), "{reducer} {grouping:?}");
            for (row, (group, members)) in got.iter().zip(&groups) {
                let key = if level == 0 {
                    json!(null)
                } else {
                    json!(group)
                };
                assert_eq!(row["key"], key, "{reducer} {grouping:?}");
                if reducer == "_approx_count_distinct" {
                    let keys: BTreeSet<_> = members.iter().map(|row| &row.key).collect();
                    let estimate = usize::try_from(row["value"].as_u64().unwrap()).unwrap();
                    assert!(estimate.abs_diff(keys.len()) <= 1, "{estimate} {keys:?}");
                } else {
                    assert_eq!(row["value"], reduced(reducer, members), "{reducer} {key}");
                }
            }
        }
    }
}

#[test]
fn estimates_of_distinct_keys_equal_couchdbs() {
    let integers = |count: i64| -> Vec<Value> { (1..=count).map(|key| json!(key)).collect() };
    let strings = (1..=1000).map(|key| json!(key.to_string())).collect();
    let arrays = (1..=1000).map(|key| json!([key, "x"])).collect();
    let work = Work::new();
    for (keys, estimate) in [
        (integers(1), 1),
        (integers(50), 50),
        (integers(500), 512),
        (integers(2000), 1983),
        (integers(10_000), 9944),
        (strings, 1010),
        (arrays, 985),
    ] {
        let mut twice = keys.clone();
        twice.extend(keys);
        let mut command = work.map(ONE, &["--reduce", "_approx_count_distinct"]);
        let rows = lines(&run(&mut command, documents(&twice).as_bytes()));
        assert_eq!(rows, [json!({"key": null, "value": estimate})]);
    }
}

#[test]
fn groups_and_ranked_values_are_in_view_order() {
    let work = Work::new();
    let values = [json!("b"), json!(10), json!("B"), json!(2), json!(null)];
    let input = documents(&values);
    let grouped = lines(&run(
        &mut work.map(ONE, &["--reduce", "_count", "--group"]),
        input.as_bytes(),
    ));
    let keys: Vec<&Value> = grouped.iter().map(|row| &row["key"]).collect();
    assert_eq!(
        keys,
        [&values[4], &values[3], &values[1], &values[0], &values[2]]
    );
    let ranked = lines(&run(
        &mut work.map("function(doc) { emit(1, doc.v) }", &["--reduce", "_top_4"]),
        input.as_bytes(),
    ));
    assert_eq!(ranked, [json!({"key": null, "value": ["B", "b", 10, 2]})]);
}

#[test]
fn keys_that_collate_as_equal_are_one_group_under_the_first_rows_key() {
    let work = Work::new();
    // Composed and decomposed, soft hyphen, zero width joiner, a control character; 1 and 1.0.
    let equal = [
        [
            "\"\u{e9}\"",
            "\"e\u{301}\"",
            "\"\u{e9}\u{ad}\"",
            "\"e\u{200d}\\u0301\"",
        ],
        ["\"ab\"", "\"a\\u00adb\"", "\"a\\u0001b\"", "\"\\ufeffab\""],
        [
            "[\"\u{e9}\",1]",
            "[\"e\\u0301\",1.0]",
            "[\"\u{e9}\\u00ad\",1e0]",
            "[\"\u{e9}\",1]",
        ],
        [
            "{\"\u{e9}\":[1]}",
            "{\"e\\u0301\":[1.0]}",
            "{\"\u{e9}\":[10e-1]}",
            "{ \"\u{e9}\" : [1] }",
        ],
        ["1", "1.0", "1", "10e-1"],
    ];
    let other = ["\"e\"", "\"ac\"", "[\"\u{e9}\",2]", "{\"\u{e9}\":1}", "2"];
    let groups = |map: &str, arguments: &[&str], input: &str| -> Vec<(Value, Value)> {
        let mut command = work.map(map, &["--reduce", "_count"]);
        let rows = lines(&run(command.args(arguments), input.as_bytes()));
        rows.iter()
            .map(|row| (row["key"].clone(), row["value"].clone()))
            .collect()
    };
    for (keys, other) in equal.iter().zip(other) {
        // In the order of ids, each key is both before and after the others.
        let document =
            |(number, key): (usize, &&str)| format!("{{\"_id\":\"{number:02}\",\"v\":{key}}}\n");
        let rounds = keys.iter().chain(keys).chain([&other]);
        let input: String = rounds.enumerate().map(document).collect();
        let first: Value = serde_json::from_str(keys[0]).unwrap();
        let grouped = groups(ONE, &["--group"], &input);
        assert_eq!(grouped.len(), 2, "{grouped:?}");
        assert!(grouped.contains(&(first.clone(), json!(8))), "{grouped:?}");
        let below = "function(doc) { emit([doc.v, doc._id], 1) }";
        let grouped = groups(below, &["--group-level", "1"], &input);
        assert_eq!(grouped.len(), 2, "{grouped:?}");
        assert!(grouped.contains(&(json!([first]), json!(8))), "{grouped:?}");
    }
}

#[test]
fn first_and_last_are_by_key_and_id_not_by_the_order_of_the_input() {
    let input = "{\"_id\":\"z\",\"v\":2}\n{\"_id\":\"b\",\"v\":1}\n{\"_id\":\"a\",\"v\":2}\n\
                 {\"_id\":\"B\",\"v\":1}\n";
    let map = "function(doc) { emit(doc.v, doc._id) }";
    let work = Work::new();
    for (reducer, id) in [("_first", "B"), ("_last", "z")] {
        let mut command = work.map(map, &["--reduce", reducer]);
        let rows = lines(&run(&mut command, input.as_bytes()));
        assert_eq!(rows, [json!({"key": null, "value": id})], "{reducer}");
    }
}

#[test]
fn floats_are_added_in_input_order_whichever_process_is_faster() {
    let work = Work::new();
    // Every other document is slow. Views have the documents in reverse order.
    let map = "function(doc) {
        for (var i = 0; i < doc.n % 2 * 20000; i++) { }
        emit(doc.n % 3, 1 / doc.n);
    }";
    let numbers = 1..600_u32;
    let document = |n| format!("{{\"_id\":\"{:04}\",\"n\":{n}}}\n", 1000 - n);
    let input: String = numbers.clone().map(document).collect();
    let sum = |numbers: &mut dyn Iterator<Item = u32>| {
        numbers.fold(0.0, |sum, n| sum + 1.0 / f64::from(n))
    };
    let of_key = |key| numbers.clone().filter(move |n| n % 3 == key);
    let line = |key: &str, sum: f64| format!("{{\"key\":{key},\"value\":{sum:?}}}\n");
    let wanted: String = (0..3)
        .map(|key| line(&key.to_string(), sum(&mut of_key(key))))
        .collect();
    let all = sum(&mut numbers.clone());
    assert_ne!(all, sum(&mut numbers.clone().rev()), "the order matters");
    for (grouping, wanted) in [(&["--group"][..], wanted), (&[], line("null", all))] {
        let mut command = work.map(map, &["--reduce", "_sum"]);
        let output = run(command.args(grouping), input.as_bytes());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_built_in_reducer_keeps_no_rows() {
    /// More than the buffers between the input and the functions hold, in bytes.
    const WAITING: usize = 8 << 20;
    let work = Work::new();
    let map = "function(doc) { for (var i = 0; i < 10; i++) { emit(i, doc.v) } }";
    let mut command = work.map(map, &["--reduce", "_count", "--group"]);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let document = format!("{{\"_id\":\"a\",\"v\":\"{}\"}}\n", "x".repeat(1000));
    let documents = WAITING / document.len();
    let mut write = |count: usize| {
        for _ in 0..count {
            stdin.write_all(document.as_bytes()).unwrap();
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let (_, most) = status.split_once("VmHWM:").unwrap();
        let kib: usize = most.split_whitespace().next().unwrap().parse().unwrap();
        kib << 10
    };
    let before = write(documents);
    let after = write(documents / 2);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let rows = lines(&output);
    assert_eq!(
        rows[9],
        json!({"key": 9, "value": documents + documents / 2})
    );
    // The rows are ten times as long as the documents.
    let more = after.saturating_sub(before);
    assert!(more < WAITING, "{more} bytes more, after {before}");
}

#[test]
fn a_sum_that_does_not_shrink_is_refused_logged_or_accepted_as_configured() {
    let work = Work::new();
    // Each name is longer than the rest of its row.
    let map = "function(doc) { var o = {}; o[doc._id + 'x'.repeat(60)] = 1; emit(null, o) }";
    let input = documents(&vec![json!(1); 300]);
    for (mode, is_refused, is_reported) in [
        ("true", true, true),
        ("\"log\"", false, true),
        ("false", false, false),
    ] {
        let config = work.file(
            "limit.toml",
            format!("[query_server_config]\nreduce_limit = {mode}\n"),
        );
        let mut command = work.map(map, &["--reduce", "_sum", "-c", &config]);
        let output = run(&mut command, input.as_bytes());
        let rows = lines(&output);
        let message = "Reduce output must shrink more rapidly: input size: ";
        if is_refused {
            assert_eq!(rows[0]["value"]["error"], "builtin_reduce_error");
            let reason = rows[0]["value"]["reason"].as_str().unwrap();
            assert!(reason.starts_with(message), "{reason}");
        } else {
            assert_eq!(rows[0]["value"].as_object().unwrap().len(), 300, "{mode}");
        }
        let said = stderr(&output);
        assert_eq!(said.contains(message), is_reported, "{mode}: {said}");
    }
}

#[test]
fn with_sum_a_bad_value_is_an_error_in_the_result_and_with_stats_it_ends_the_map() {
    let work = Work::new();
    let input = documents(&[json!(1), json!("two"), json!(3)]);
    let map = "function(doc) { emit(1, doc.v) }";
    let rows = lines(&run(
        &mut work.map(map, &["--reduce", "_sum"]),
        input.as_bytes(),
    ));
    assert_eq!(rows[0]["value"]["error"], "builtin_reduce_error");
    assert_eq!(rows[0]["value"]["caused_by"], "two");
    fails(
        &mut work.map(map, &["--reduce", "_stats"]),
        &input,
        65,
        &["numbers or arrays of numbers, not '\"two\"'"],
    );
}

#[test]
fn invalid_ranks_exit_with_64() {
    let work = Work::new();
    for (name, words) in [
        ("_top_0", "rank value must be between 1 and 100"),
        ("_bottom_101", "rank value must be between 1 and 100"),
        ("_top_N", "invalid rank reducer"),
    ] {
        fails(
            &mut work.map(ONE, &["--reduce", name]),
            "",
            64,
            &[name, words],
        );
    }
}

#[test]
fn the_help_and_the_manual_list_every_reducer() {
    let output = run(
        &mut crate::support::program::program(&["map", "--help"]),
        b"",
    );
    let help = String::from_utf8(output.stdout).unwrap();
    let manual = std::fs::read_to_string("docs/reducers.md").unwrap();
    for name in Builtin::names() {
        assert!(help.contains(name), "{name}");
        assert!(manual.contains(&format!("`{name}`")), "{name}");
    }
}
