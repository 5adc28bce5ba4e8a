//! `settee attach` against a running service: the same bytes as `couchjs`, and a clean pool
//! afterwards.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::daemon::Service;
use crate::support::program::{exit_code, program, read_lines, run};
use serde_json::{Value, json};
use test_support::{TestRandom, effort};

const RESET: &str = "[\"reset\"]\n";

fn attached(service: &Service) -> (Child, ChildStdin, ChildStdout) {
    spawned(&mut service.client(&["attach"]))
}

fn spawned(command: &mut Command) -> (Child, ChildStdin, ChildStdout) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (child, input, output)
}

/// Replaces `{"$repeat": text, "times": n}` by the long string it stands for.
fn expand(value: &mut Value) {
    if let (Some(text), Some(times)) = (value["$repeat"].as_str(), value["times"].as_u64()) {
        *value = json!(text.repeat(usize::try_from(times).unwrap()));
        return;
    }
    match value {
        Value::Array(values) => values.iter_mut().for_each(expand),
        Value::Object(members) => members.values_mut().for_each(expand),
        _ => {}
    }
}

/// The id and prompts of each transcript that has only valid prompts.
fn conversations() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir("crates/conform/src/cases/javascript").unwrap() {
        files.insert(entry.unwrap().path());
    }
    for line in files.iter().flat_map(|file| {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    }) {
        let mut case: Value = serde_json::from_str(&line).unwrap();
        let steps = case["steps"].as_array_mut().unwrap();
        // The service refuses invalid prompts, and the exit of a process is not an answer.
        let is_other = |step: &Value| {
            let is_invalid = step.get("in").is_some_and(|prompt| !prompt.is_array());
            is_invalid || step.get("in_raw").is_some() || step.get("closed").is_some()
        };
        if steps.iter().any(is_other) {
            continue;
        }
        let mut text = String::new();
        for prompt in steps.iter_mut().filter_map(|step| step.get_mut("in")) {
            expand(prompt);
            text.push_str(&format!("{prompt}\n"));
        }
        all.push((case["id"].as_str().unwrap().to_owned(), text));
    }
    all
}

#[test]
fn attach_prints_the_same_bytes_as_couchjs() {
    let service = Service::start("");
    let conversations = conversations();
    assert!(conversations.len() > 300, "{}", conversations.len());
    let mut failures = Vec::new();
    let mut random = TestRandom::for_test("attach_prints_the_same_bytes_as_couchjs");
    for (id, text) in conversations {
        if random.below(effort(5, 1)) > 0 {
            continue;
        }
        let couchjs = run(&mut program(&["couchjs"]), text.as_bytes());
        let through = run(&mut service.client(&["attach"]), text.as_bytes());
        let direct = couchjs.stdout;
        // 255 if `couchjs` died of its last command, or reported a fatal error, after which the service stops it.
        let is_fatal = direct
            .split(|byte| *byte == b'\n')
            .any(|line| line.starts_with(b"[\"fatal\""));
        let code = if couchjs.status.success() && !is_fatal {
            0
        } else {
            255
        };
        if through.stdout != direct || through.status.code() != Some(code) {
            let text = |bytes: &[u8]| {
                String::from_utf8_lossy(bytes)
                    .chars()
                    .take(300)
                    .collect::<String>()
            };
            failures.push(format!(
                "{id} ({:?}):\n{}\n{}",
                through.status,
                text(&direct),
                text(&through.stdout)
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    service.wait_for_first_pool("all returned", |pool| {
        pool["used"] == 0 && pool["stopping"] == 0
    });
}

#[test]
fn each_answer_is_printed_as_soon_as_it_is_ready() {
    let service = Service::start("");
    let (mut child, mut input, mut output) = attached(&service);
    for (prompt, answer) in [
        (RESET, "true\n"),
        (
            "[\"add_fun\",\"function(d) { emit(d._id, '\u{e4}\u{1f600}') }\"]\n",
            "true\n",
        ),
        (
            "[\"map_doc\",{\"_id\":\"a\"}]\n",
            "[[[\"a\",\"\u{e4}\u{1f600}\"]]]\n",
        ),
    ] {
        input.write_all(prompt.as_bytes()).unwrap();
        assert_eq!(read_lines(&mut output, 1), answer);
    }
    drop(input);
    assert_eq!(exit_code(&mut child), Some(0));
    service.wait_for_first_pool("returned", |pool| pool["used"] == 0 && pool["free"] == 1);
}

#[test]
fn megabytes_pass_in_both_directions_at_once() {
    let service = Service::start("");
    let mut text = format!("{RESET}[\"add_fun\",\"function(d) {{ emit(d._id, d.x) }}\"]\n");
    let mut expected = String::from("true\ntrue\n");
    let filler = "0123456789".repeat(1000);
    for number in 0..500 {
        text.push_str(&format!(
            "[\"map_doc\",{{\"_id\":\"{number}\",\"x\":\"{filler}\"}}]\n"
        ));
        expected.push_str(&format!("[[[\"{number}\",\"{filler}\"]]]\n"));
    }
    let output = run(&mut service.client(&["attach"]), text.as_bytes());
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == expected.as_bytes(),
        "{} bytes",
        output.stdout.len()
    );
}

#[test]
fn an_empty_input_gives_no_output() {
    let service = Service::start("");
    let output = run(
        &mut service.client(&["attach", "/usr/share/couchdb/main.js"]),
        b"",
    );
    assert_eq!(
        (
            output.status.code(),
            output.stdout.len(),
            output.stderr.len()
        ),
        (Some(0), 0, 0)
    );
}

#[test]
fn the_last_output_of_a_process_that_exits_is_printed_with_exit_code_255() {
    let service = Service::start("");
    let (mut child, mut input, mut output) = attached(&service);
    input.write_all(b"[\"reset\"]\n[\"bogus\"]\n").unwrap();
    let text = read_lines(&mut output, 2);
    assert_eq!(
        text,
        "true\n[\"error\",\"unknown_command\",\"unknown command 'bogus'\"]\n"
    );
    // The input is still open: only the process has ended.
    assert_eq!(exit_code(&mut child), Some(255));
    drop(input);
    service.wait_for_first_pool("gone", |pool| pool["used"] == 0 && pool["free"] == 0);
}

#[test]
fn an_empty_line_ends_couchjs() {
    let service = Service::start("");
    let (mut child, mut input, mut output) = attached(&service);
    input.write_all(RESET.as_bytes()).unwrap();
    assert_eq!(read_lines(&mut output, 1), "true\n");
    // The input is still open.
    input.write_all(b"\n").unwrap();
    assert_eq!(exit_code(&mut child), Some(255));
    drop(input);
    service.stop();
}

#[test]
fn a_process_that_dies_over_the_last_command_is_exit_code_255() {
    let service = Service::start("");
    let output = run(
        &mut service.client(&["attach"]),
        b"[\"reset\"]\n[\"bogus\"]\n",
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "true\n[\"error\",\"unknown_command\",\"unknown command 'bogus'\"]\n";
    assert_eq!(text, expected);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(255), "{said}");
    assert!(said.contains("exited with status"), "{said}");
    service.wait_for_first_pool("gone", |pool| pool["used"] == 0 && pool["free"] == 0);
}

#[test]
fn the_refused_system_call_that_killed_a_process_is_reported() {
    let service = Service::start("");
    let output = run(
        &mut service.client(&["attach", "--language", "python"]),
        b"[\"reset\"]\n[\"refused\",\"ptrace\"]\n",
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(255), "{said}");
    assert!(said.contains("SIGSYS"), "{said}");
    assert!(said.contains("refused system call ptrace"), "{said}");
    service.stop();
}

#[test]
fn the_state_of_the_process_is_reported_only_on_request() {
    let service = Service::start("");
    for (member, reported) in [
        (", \"end\": true", true),
        (", \"end\": false", false),
        ("", false),
    ] {
        let mut stream = UnixStream::connect(service.socket()).unwrap();
        let request =
            format!("{{\"call\": \"attach\", \"lang\": \"javascript\"{member}}}\n{RESET}");
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (reply, rest) = text.split_once('\n').unwrap();
        let reply: Value = serde_json::from_str(reply).unwrap();
        assert_eq!(reply["ok"].get("end"), reported.then_some(&json!(true)));
        let expected = if reported {
            "true\n\0{\"alive\":true}\n"
        } else {
            "true\n"
        };
        assert_eq!(rest, expected);
    }
    service.wait_for_first_pool("returned", |pool| pool["used"] == 0);
}

#[test]
fn the_process_of_a_client_killed_during_a_prompt_is_replaced() {
    let service = Service::start("");
    let (mut child, mut input, mut output) = attached(&service);
    input
        .write_all(b"[\"reset\"]\n[\"add_fun\",\"function(d) { for (;;); }\"]\n")
        .unwrap();
    read_lines(&mut output, 2);
    input.write_all(b"[\"map_doc\",{}]\n").unwrap();
    let looping = service.status()["pools"][0]["procs"][0]["os_pid"].clone();
    child.kill().unwrap();
    child.wait().unwrap();
    service.wait_for_first_pool("process stopped", |pool| {
        pool["used"] == 0 && pool["stopping"] == 0
    });
    let again = run(&mut service.client(&["attach"]), RESET.as_bytes());
    assert_eq!(again.stdout, b"true\n");
    service.wait_for_first_pool("another process", |pool| {
        pool["free"] == 1 && pool["procs"][0]["os_pid"] != looping
    });
}

#[test]
fn the_process_of_a_client_killed_during_a_list_is_replaced() {
    let service = Service::start("");
    let (mut child, mut input, mut output) = attached(&service);
    let ddoc = r#"["ddoc","new","_design/d",{"lists":{"l":"function(h,r){start({});var row;while(row=getRow())send('x');return 'end'}"}}]"#;
    let list = r#"["ddoc","_design/d",["lists","l"],[{"total_rows":1},{"headers":{}}]]"#;
    write!(input, "{RESET}{ddoc}\n{list}\n").unwrap();
    assert!(read_lines(&mut output, 3).contains("\"start\""));
    child.kill().unwrap();
    child.wait().unwrap();
    service.wait_for_first_pool("stopped", |pool| {
        pool["used"] == 0 && pool["free"] == 0 && pool["stopping"] == 0
    });
    let again = run(&mut service.client(&["attach"]), RESET.as_bytes());
    assert_eq!(again.stdout, b"true\n");
}

#[test]
fn the_next_client_sees_nothing_of_the_previous_one() {
    let service = Service::start(
        "os_process_limit = 1\n"
            .replace("os_", "[query_server_config]\nos_")
            .as_str(),
    );
    let leave = "[\"reset\"]\n[\"add_fun\",\"function(d) { emit('left behind') }\"]\n";
    assert_eq!(
        run(&mut service.client(&["attach"]), leave.as_bytes()).stdout,
        b"true\ntrue\n"
    );
    let look = run(
        &mut service.client(&["attach"]),
        b"[\"map_doc\",{\"_id\":\"a\"}]\n",
    );
    assert_eq!(String::from_utf8(look.stdout).unwrap(), "[]\n");
}

#[test]
fn fifty_clients_at_a_limit_of_four_are_all_served() {
    let configuration =
        "[query_server_config]\nos_process_limit = 4\n[couchdb]\nos_process_timeout = 30000\n";
    let service = Service::start(configuration);
    let text = "[\"reset\"]\n[\"add_fun\",\"function(d) { emit(d._id, d.n + 1) }\"]\n";
    std::thread::scope(|scope| {
        for number in 0..50 {
            let service = &service;
            scope.spawn(move || {
                let text = format!("{text}[\"map_doc\",{{\"_id\":\"{number}\",\"n\":{number}}}]\n");
                let output = run(&mut service.client(&["attach"]), text.as_bytes());
                let expected = format!("true\ntrue\n[[[\"{number}\",{}]]]\n", number + 1);
                assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
                assert_eq!(output.status.code(), Some(0));
            });
        }
    });
    assert!(service.status()["proc_count"].as_u64().unwrap() <= 4);
}

#[test]
fn a_dead_service_is_exit_code_255() {
    let mut service = Service::start("");
    let (mut child, mut input, mut output) = attached(&service);
    input.write_all(RESET.as_bytes()).unwrap();
    assert_eq!(read_lines(&mut output, 1), "true\n");
    service.kill();
    assert_eq!(exit_code(&mut child), Some(255));
}

#[test]
fn a_closed_output_is_not_an_error() {
    let service = Service::start("");
    let (mut child, mut input, output) = attached(&service);
    drop(output);
    input.write_all(RESET.as_bytes()).unwrap();
    assert_eq!(exit_code(&mut child), Some(0));
    service.wait_for_first_pool("returned", |pool| pool["used"] == 0);
}

#[test]
fn without_a_service_attach_exits_with_69_and_names_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none.sock");
    let output = run(
        program(&["attach", "--timeout", "50", "--socket"]).arg(&socket),
        b"",
    );
    assert_eq!((output.status.code(), output.stdout.len()), (Some(69), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("none.sock") && said.contains("settee serve"),
        "{said}"
    );
}

#[test]
fn a_language_whose_command_is_missing_ends_with_78_and_names_it() {
    let service = Service::start("[query_servers]\nlost = \"/no/such/program\"\n");
    let output = run(
        &mut service.client(&["attach", "--language", "lost"]),
        b"[\"reset\"]\n",
    );
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{complaint}");
    assert!(complaint.contains("/no/such/program"), "{complaint}");
    assert!(complaint.contains("[query_servers]"), "{complaint}");
}

#[test]
fn an_unknown_language_ends_with_78() {
    let service = Service::start("");
    let output = run(
        &mut service.client(&["attach", "--language", "klingon"]),
        b"",
    );
    assert_eq!(output.status.code(), Some(78));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("klingon")
    );
}
