//! `settee couchjs` as a program: options, the name of a link, streams, the death of its parent.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::program::SETTEE;

const DEADLINE: Duration = Duration::from_secs(60);

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn play(program: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = command(program, arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // The program need not read its whole input.
    let writer = thread::spawn(move || stdin.write_all(input.as_bytes()).is_ok());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn settee(arguments: &[&str], input: &str) -> Output {
    play(
        Path::new(SETTEE),
        &[&["couchjs"], arguments].concat(),
        input,
    )
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn ends(mut child: Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    while begin.elapsed() < DEADLINE {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::yield_now();
    }
    child.kill().unwrap();
    panic!("the server does not end");
}

#[test]
fn help_and_version_go_to_the_output() {
    let help = settee(&["-h"], "");
    assert!(help.status.success());
    assert!(text(&help.stdout).starts_with("Usage: couchjs"));
    for part in [
        "\nExit codes:\n  0 ",
        "\n  255 ",
        "\nExample:\n  ",
        "| couchjs -S",
    ] {
        assert!(text(&help.stdout).contains(part), "{part}");
    }
    let version = settee(&["-V"], "");
    assert!(version.status.success());
    assert_eq!(
        text(&version.stdout),
        format!("settee {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn scripts_and_unknown_options_are_ignored() {
    let output = settee(
        &["--eval", "-S", "67108864", "--what", "/no/main.js"],
        "[\"reset\"]\n",
    );
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "true\n")
    );
}

#[test]
fn an_invalid_memory_limit_is_refused_with_a_reason() {
    let output = settee(&["-S", "none"], "[\"reset\"]\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert!(text(&output.stderr).contains("-S needs a memory limit of at least"));
}

#[test]
fn the_requested_memory_limit_applies() {
    let map =
        r#"["add_fun","function(doc) { emit(new Array(doc.n).join('xxxxxxxx').length, 1); }"]"#;
    let input = format!("{map}\n[\"map_doc\",{{\"n\":1000001}}]\n");
    let enough = settee(&["-M", "33554432"], &input);
    assert_eq!(
        (enough.status.code(), text(&enough.stdout)),
        (Some(0), "true\n[[[8000000,1]]]\n")
    );
    let little = settee(&["-M", "4194304"], &input);
    assert_eq!(
        (little.status.code(), text(&little.stdout)),
        (
            Some(255),
            "true\n[\"error\",\"InternalError\",\"out of memory\"]\n"
        )
    );
    let little = settee(&["-M", "4194304", "--text-reasons"], &input);
    assert_eq!(little.status.code(), Some(255));
    let answer = text(&little.stdout).lines().nth(1).unwrap();
    assert!(
        answer.starts_with("[\"error\",\"out_of_memory\",\"map function 1 of 1"),
        "{answer}"
    );
    assert!(answer.contains("4194304 bytes"), "{answer}");
}

#[test]
fn a_link_named_couchjs_is_the_query_server() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("couchjs");
    std::os::unix::fs::symlink(SETTEE, &link).unwrap();
    let output = play(&link, &["share/server/main.js"], "[\"reset\"]\n");
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "true\n")
    );
}

/// Whether all threads of a process sleep.
fn is_asleep(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let sleeps = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    threads.map(Result::unwrap).all(sleeps)
}

#[test]
fn a_peer_may_send_ten_thousand_prompts_before_it_reads() {
    let mut child = command(Path::new(SETTEE), &["couchjs"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let prompts = |numbers: Range<usize>| -> String {
        let prompt = |n| format!("[\"map_doc\",{{\"_id\":\"document {n}\",\"n\":{n}}}]\n");
        numbers.map(prompt).collect()
    };
    let first = "[\"add_fun\",\"function(doc) { emit(doc._id, doc.n); }\"]\n".to_owned();
    let (pid, (sent, all_sent)) = (child.id(), mpsc::channel());
    thread::spawn(move || {
        input
            .write_all((first + &prompts(0..5_000)).as_bytes())
            .unwrap();
        // All threads of the server wait, while more answers are pending than a pipe takes.
        while rustix::io::ioctl_fionread(&input).unwrap() > 0 || !is_asleep(pid) {
            thread::yield_now();
        }
        input.write_all(prompts(5_000..10_000).as_bytes()).unwrap();
        sent.send(()).unwrap();
    });
    let sent = all_sent.recv_timeout(DEADLINE);
    sent.expect("the server reads while its answers are not read");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "true");
    for n in 0..10_000 {
        assert_eq!(
            lines.next().unwrap().unwrap(),
            format!("[[[\"document {n}\",{n}]]]")
        );
    }
    assert!(ends(child).success());
}

#[test]
fn every_reset_is_answered_and_clears_all_state() {
    let mut child = command(Path::new(SETTEE), &["couchjs"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut prompt = |line: &str| {
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    };
    let map = r#"["add_fun","function(doc) { seen = typeof seen; emit(seen, 1); }"]"#;
    for _ in 0..200 {
        assert_eq!(prompt("[\"reset\"]"), "true");
        assert_eq!(prompt("[\"reset\"]"), "true");
        assert_eq!(prompt(map), "true");
        assert_eq!(prompt("[\"map_doc\",{}]"), "[[[\"undefined\",1]]]");
        assert_eq!(prompt("[\"map_doc\",{}]"), "[[[\"string\",1]]]");
    }
    drop(input);
    assert!(ends(child).success());
}

#[test]
fn what_a_function_logs_is_written_although_it_hangs_then() {
    let mut child = command(Path::new(SETTEE), &["couchjs"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        output
            .lines()
            .try_for_each(|line| sender.send(line.unwrap()))
    });
    let function = r#"["add_fun","function(doc) { log('hi'); for (;;); }"]"#;
    for (line, answer) in [(function, "true"), ("[\"map_doc\",{}]", r#"["log","hi"]"#)] {
        writeln!(input, "{line}").unwrap();
        assert_eq!(lines.recv_timeout(DEADLINE).as_deref(), Ok(answer));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap().unwrap();
}

#[test]
fn a_child_of_settee_dies_with_the_thread_that_started_it() {
    let start = || {
        let mut command = command(Path::new(SETTEE), &["couchjs", "--die-with-parent"]);
        let mut child = command.spawn().unwrap();
        // The child has requested the signal by its first answer.
        let mut input = child.stdin.take().unwrap();
        input
            .write_all(b"[\"reset\"]\n[\"add_fun\",\"while (true) {}\"]\n")
            .unwrap();
        let mut answer = [0; 5];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        (child, input)
    };
    let (child, _input) = thread::spawn(start).join().unwrap();
    assert_eq!(ends(child).signal(), Some(9));
}
