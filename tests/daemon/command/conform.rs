//! `settee conform`, the real program: against good commands, and against every kind of bad one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::daemon::wait_until;
use crate::support::folder::open_folder;
use crate::support::program::SETTEE;

fn conform(arguments: &[&str]) -> Output {
    Command::new(SETTEE)
        .arg("conform")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

#[test]
fn the_built_in_server_passes_and_each_case_has_its_line() {
    let output = conform(&["-k", "reduce", "--", SETTEE, "couchjs"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], "language: javascript (found by trying)");
    let cases = lines.iter().filter(|line| line.starts_with("ok ")).count();
    assert!(cases > 40);
    let counts = format!("{cases} passed, 0 failed");
    assert_eq!(lines[lines.len() - 2], counts);
    let badge = format!("conform: {cases} of {cases} cases, reduce reduce.several");
    assert!(lines[lines.len() - 1].starts_with(&badge), "{lines:?}");
    let uses = "the daemon will use: add_lib ddoc index_doc pipelining reduce reduce_context several_reducers";
    assert!(lines.contains(&uses), "{lines:?}");
    assert!(lines.contains(&"ok    reduce.several  basic/reduce.several/two"));
    assert!(output.stderr.is_empty());
}

#[test]
fn json_is_one_object_with_the_whole_report() {
    let output = conform(&["-k", "ddoc.shows", "--json", "--", SETTEE, "couchjs"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    let report = report(&output);
    assert_eq!(report["command"][1], "couchjs");
    assert_eq!(report["language"], "javascript");
    let count = report["cases"].as_array().unwrap().len();
    assert!(count > 40);
    assert_eq!(report["passed"], count);
    assert_eq!(
        (&report["failed"], &report["not_run"]),
        (&0.into(), &0.into())
    );
    let ability = &report["abilities"][0];
    assert_eq!(
        (&ability["name"], &ability["verdict"]),
        (&"ddoc.shows".into(), &"able".into())
    );
    let badge = format!("conform: {count} of {count} cases, ddoc.shows");
    assert_eq!(report["badge"], badge);
    assert_eq!(report["daemon"]["ddoc"], true);
    let case = &report["cases"][0];
    assert_eq!(case["result"], "pass");
    assert!(!case["why"].as_str().unwrap().is_empty());
}

#[test]
fn a_failure_shows_the_expected_and_the_actual_answer() {
    // Answers `true` to every prompt.
    let server = "while read -r line; do echo true; done";
    let arguments = [
        "--json",
        "--language",
        "python",
        "-k",
        "map",
        "--",
        "sh",
        "-c",
        server,
    ];
    let output = conform(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    let cases = report["cases"].as_array().unwrap();
    let find = |id: &str| cases.iter().find(|case| case["id"] == id).unwrap();
    let failed = find("basic/map/one-row");
    assert_eq!(failed["result"], "fail");
    assert_eq!(failed["step"], 6);
    assert_eq!(failed["expected"], "[[[\"a\",1]]]");
    assert_eq!(failed["got"], "true");
    assert_eq!(
        failed["problem"],
        "step 6: $: expected [[[\"a\",1]]], got true"
    );
    assert_eq!(report["abilities"][0]["verdict"], "absent");
    let line =
        "FAIL  map            basic/map/one-row  step 6: $: expected [[[\"a\",1]]], got true";
    let output = conform(&["--language", "python", "--", "sh", "-c", server]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).lines().any(|printed| printed == line));
    assert!(text(&output.stderr).contains("did not pass"));
}

#[test]
fn a_command_that_is_not_a_query_server_is_reported_in_one_line() {
    for (command, why) in [
        (&["/no/such/program"][..], "was not found"),
        (&["/etc/passwd"], "cannot be executed"),
        (&["true"], "it exited with status 0"),
        (
            &["sh", "-c", "echo a word >&2; kill -9 $$"],
            "it was killed by SIGKILL before its first answer, its last words: a word",
        ),
        (&["sleep", "600"], "it said nothing within 0.5 s"),
        // PHP's error.
        (
            &["sh", "-c", "echo Could not open input file; read -r line"],
            "it said Could not open input file",
        ),
        (
            &["sh", "-c", "trap '' TERM; exec >&-; sleep 600"],
            "it said nothing|closed its output",
        ),
        (
            &["sh", "-c", "while :; do printf xxxxxxxx; done"],
            "it said nothing|longer than",
        ),
    ] {
        let arguments = [&["--timeout", "0.5", "--"][..], command].concat();
        let output = conform(&arguments);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(output.stdout.is_empty(), "{command:?}");
        let complaint = text(&output.stderr);
        assert!(
            why.split('|').any(|why| complaint.contains(why)),
            "{command:?}: {complaint}"
        );
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(
            complaint.contains("in a cell (--sandbox standard)"),
            "{complaint}"
        );
        let arguments = [&["--timeout", "0.5", "--json", "--"][..], command].concat();
        let report = report(&conform(&arguments));
        assert!(report["problem"].is_string());
        assert_eq!(report["cases"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn a_script_in_the_current_folder_can_be_read_with_the_files_beside_it() {
    let folder = open_folder();
    let folder = folder.path().join("own");
    fs::create_dir(&folder).unwrap();
    fs::write(
        folder.join("answers"),
        "while read -r line; do echo true; done\n",
    )
    .unwrap();
    fs::write(folder.join("server"), ". ./answers\n").unwrap();
    let run = |script: &str| {
        let arguments = ["conform", "--language", "none", "--", "sh", script];
        let mut command = Command::new(SETTEE);
        let command = command.args(arguments).current_dir(&folder);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = run("server");
    let printed = text(&output.stdout);
    assert!(printed.contains("\nok    reset"), "{output:?}");
    fs::write(folder.join("mute"), "exit 3\n").unwrap();
    let output = run("mute");
    let complaint = text(&output.stderr);
    let folder = folder.canonicalize().unwrap();
    let reads = format!("where it can read {}, the folder", folder.display());
    assert!(complaint.contains(&reads), "{complaint}");
}

#[test]
fn a_junit_file_is_written_beside_the_lines_and_a_failed_write_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conform.xml");
    let run = |file: &Path, command: &[&str]| {
        let file = file.to_str().unwrap();
        conform(&[&["-k", "basic/map", "--junit", file, "--"], command].concat())
    };
    let output = run(&file, &[SETTEE, "couchjs"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("ok    map            basic/map/one-row\n"));
    let written = fs::read_to_string(&file).unwrap();
    let case = "<testcase classname=\"map\" name=\"basic/map/one-row\" time=\"";
    let (_, rest) = written
        .split_once(case)
        .unwrap_or_else(|| panic!("{written}"));
    let (time, rest) = rest.split_once('"').unwrap();
    assert!(time.parse::<f64>().unwrap() > 0.0, "{time}");
    assert!(rest.starts_with("></testcase>"), "{written}");
    assert_eq!(run(&file, &["true"]).status.code(), Some(1));
    let error = "<error message=\"it exited with status 0";
    assert!(fs::read_to_string(&file).unwrap().contains(error));
    let output = run(&folder.path().join("no/such.xml"), &[SETTEE, "couchjs"]);
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    assert!(text(&output.stderr).contains("no/such.xml"), "{output:?}");
}

#[test]
fn a_junit_file_is_written_even_if_nobody_reads_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conform.xml");
    let (_, unread) = std::io::pipe().unwrap();
    let mut command = Command::new(SETTEE);
    command.args(["conform", "-k", "basic/map", "--junit"]);
    command.arg(&file).args(["--", SETTEE, "couchjs"]);
    let status = command.stdin(Stdio::null()).stdout(unread).status();
    assert_eq!(status.unwrap().code(), Some(0));
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("basic/map/one-row"), "{written}");
}

#[test]
fn a_flood_of_lines_fails_every_case() {
    let output = conform(&["--json", "--", "yes", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report(&output)["passed"], 0);
}

/// A server that hangs, with a child of its own that holds its pipes.
const HANGING: &str = r#"
echo $$ >>"$1"
sleep 600 & echo $! >>"$1"
trap '' TERM
read -r line; echo true
while :; do sleep 600; done
"#;

#[test]
fn a_server_that_hangs_costs_a_few_timeouts_and_leaves_no_child() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let pids = pids.to_str().unwrap();
    let command = ["sh", "-c", HANGING, "sh", pids];
    let arguments = [
        // The server writes a file.
        "--sandbox",
        "off",
        "--timeout",
        "0.2",
        "--language",
        "python",
        "-k",
        "map",
        "--json",
        "--",
    ];
    let output = conform(&[&arguments[..], &command].concat());
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    assert_eq!(report["passed"], 0);
    assert!(report["not_run"].as_u64().unwrap() > 0, "the run gave up");
    let silent = &report["cases"][0];
    assert_eq!(silent["got"], "nothing within 0.2 s");
    let pids = fs::read_to_string(pids).unwrap();
    assert!(pids.lines().count() >= 2);
    for pid in pids.lines() {
        let command = Path::new("/proc").join(pid).join("cmdline");
        // An orphan may be reaped late, by another process.
        wait_until("the end of the processes", || {
            let left = fs::read_to_string(&command).unwrap_or_default();
            !left.contains("sleep") && !left.contains("read -r")
        });
    }
}

#[test]
fn a_filter_that_matches_no_case_is_a_failure() {
    let output = conform(&["-k", "nonsense", "--", SETTEE, "couchjs"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no case for 'javascript' has 'nonsense'"));
}

#[test]
fn a_built_in_language_is_tested_through_a_pool() {
    let output = conform(&["--language", "JavaScript", "-k", "ddoc.lists"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.starts_with("language: javascript"), "{printed}");
    assert!(
        printed.contains("\nok    ddoc.lists     basic/ddoc.lists/rows\n"),
        "{printed}"
    );
    // Mango has no `unknown_command` error.
    let output = conform(&["--language", "query", "-k", "unknown-command-says-so"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_wrong_command_line_ends_with_64() {
    for arguments in [
        &[][..],
        &["--language", "cobol"],
        &["couchjs"],
        &["--timeout", "0", "--", "true"],
        &["--language", "cobol", "--", "true"],
    ] {
        assert_eq!(conform(arguments).status.code(), Some(64), "{arguments:?}");
    }
}

#[test]
fn a_closed_output_ends_conform_quietly() {
    let mut child = Command::new(SETTEE)
        .args(["conform", "-k", "map", "--", SETTEE, "couchjs"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// Knows the protocol of views and nothing of design documents, in a language without cases.
const OTHER_LANGUAGE: &str = r#"
while read -r line; do
    case "$line" in
        '["reset"'*) echo true; funs="" ;;
        '["add_fun","up"]') echo true; funs="${funs}x" ;;
        '["map_doc"'*) if [ -n "$funs" ]; then echo '[[["UP",1]]]'; else echo '[]'; fi ;;
        *) echo '["error","unknown_command","what is this"]' ;;
    esac
done
"#;

#[test]
fn missing_optional_abilities_of_a_language_without_cases_are_not_failures() {
    for language in [&["--language", "none"][..], &[]] {
        let arguments = [language, &["-k", "ddoc", "--", "sh", "-c", OTHER_LANGUAGE]].concat();
        let output = conform(&arguments);
        let lines: Vec<&str> = text(&output.stdout).lines().collect();
        assert!(lines[0].starts_with("language: none"), "{lines:?}");
        let known = "of 475 cases apply: those without functions; --cases FILE adds some";
        assert!(
            lines[1].starts_with("19 ") && lines[1].contains(known),
            "{lines:?}"
        );
        let refused =
            |line: &&&str| line.starts_with("no    ddoc") && line.contains("not supported");
        assert_eq!(lines.iter().filter(refused).count(), 3, "{lines:?}");
        assert!(
            lines.contains(&"ddoc                   0       3  not supported"),
            "{lines:?}"
        );
        let counts = "0 passed, 0 failed, 3 not supported";
        assert_eq!(lines[lines.len() - 2..], [counts, "conform: 0 of 3 cases"]);
        let refuses = "the daemon will do without: add_lib ddoc index_doc";
        assert!(lines.contains(&refuses), "{lines:?}");
        let tries =
            "the daemon will try, undecided by its probes: reduce reduce_context several_reducers";
        assert!(lines.contains(&tries), "{lines:?}");
        assert!(
            text(&output.stderr).contains("no case passed"),
            "{output:?}"
        );
    }
    let output = conform(&[
        "--json",
        "--language",
        "none",
        "--",
        "sh",
        "-c",
        OTHER_LANGUAGE,
    ]);
    let report = report(&output);
    assert_eq!(
        (&report["known"], &report["applying"]),
        (&475.into(), &19.into())
    );
    let abilities = report["abilities"].as_array().unwrap();
    let verdict = |name: &str| {
        let mut found = abilities.iter().filter(|ability| ability["name"] == name);
        found.next().unwrap()["verdict"].clone()
    };
    assert_eq!(
        (verdict("map"), verdict("reset")),
        ("able".into(), "able".into())
    );
    for name in ["ddoc", "lib", "index"] {
        assert_eq!(verdict(name), "not_supported", "{name}");
    }
}

#[test]
fn additional_cases_run_only_in_their_own_language() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.jsonl");
    let source = r#"{"$source": {"shell": "up"}}"#;
    let case = |id: &str, key: &str| {
        format!(
            "{{\"id\": \"{id}\", \"category\": \"map\", \"why\": \"Why.\", \"exit\": 0, \"steps\": [\
             {{\"in\": [\"reset\"]}}, {{\"out\": true}}, {{\"in\": [\"add_fun\", {source}]}}, {{\"out\": true}}, \
             {{\"in\": [\"map_doc\", {{\"_id\": \"a\"}}]}}, {{\"out\": [[[\"{key}\", 1]]]}}]}}"
        )
    };
    fs::write(
        &file,
        format!(
            "{}\n\n{}\n",
            case("own/good", "UP"),
            case("own/bad", "DOWN")
        ),
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let run = |name: &str, language: &str| {
        conform(&[
            "--language",
            language,
            "--cases",
            path,
            "-k",
            name,
            "--",
            "sh",
            "-c",
            OTHER_LANGUAGE,
        ])
    };
    let output = run("own/good", "shell");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.contains("21 of 477 cases apply"), "{printed}");
    assert!(
        printed.contains("ok    map            own/good\n"),
        "{printed}"
    );
    assert_eq!(run("own/", "shell").status.code(), Some(1));
    // The cases have no function in this language.
    let output = run("own/", "none");
    assert!(
        text(&output.stderr).contains("no case for 'none'"),
        "{output:?}"
    );
    fs::write(&file, "{\"id\": \"x\"}\n").unwrap();
    let output = run("own", "shell");
    assert_eq!(output.status.code(), Some(65));
    assert!(
        text(&output.stderr).contains("own.jsonl: case x: it has no steps"),
        "{output:?}"
    );
    fs::remove_file(&file).unwrap();
    assert_eq!(run("own", "shell").status.code(), Some(65));
}
