//! `settee status` against a running service.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::support::daemon::{Service, wait_until};
use crate::support::program::{exit_code, program, read_lines, run};

#[test]
fn the_table_shows_pools_and_processes() {
    let service =
        Service::start("[query_server_config]\nos_process_limit = 7\nos_process_soft_limit = 3\n");
    assert_eq!(
        run(&mut service.client(&["attach"]), b"[\"reset\"]\n").stdout,
        b"true\n"
    );
    service.wait_for_first_pool("returned", |pool| pool["free"] == 1);
    let output = run(&mut service.client(&["status"]), b"");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("1 process, 0 of them stale; 3 pools\n"),
        "{text}"
    );
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let pool = words(text.lines().nth(3).unwrap());
    assert_eq!(
        pool[..5],
        ["javascript", "javascript", "-", "7", "3"],
        "{text}"
    );
    assert!(text.contains("couchjs -S"), "{text}");
    let proc = words(text.lines().last().unwrap());
    assert_eq!(
        (proc[0].as_str(), proc[2].as_str()),
        ("javascript", "idle"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no terminal, no escapes");
}

/// Returns a program's output on a terminal of 80 columns.
fn on_terminal(mut command: Command) -> String {
    let mut screen = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let mut child = command
        .stdout(terminal)
        .env("TERM", "xterm")
        .spawn()
        .unwrap();
    // Reading fails once the last program that has the terminal open has ended.
    drop(command);
    let mut shown = Vec::new();
    assert!(screen.read_to_end(&mut shown).is_err());
    assert_eq!(exit_code(&mut child), Some(0));
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_table_obeys_no_color_and_fits_the_terminal_unless_wide() {
    let service = Service::start("[server]\nsocket_mode = \"0600\"\n");
    let mut client = service.connect();
    client.get_proc("javascript");
    for command in [
        &["status"][..],
        &["pool", "list"],
        &["ps"],
        &["top"],
        &["jobs"],
    ] {
        let mut plain = service.client(command);
        plain.env("NO_COLOR", "1");
        let shown = on_terminal(plain);
        assert!(!shown.contains('\x1b'), "{command:?}: {shown:?}");
        let longest = shown
            .lines()
            .map(|line| line.trim_end().chars().count())
            .max();
        assert!(longest <= Some(80), "{command:?}: {shown}");
        let wide = on_terminal(service.client(&[command, &["--wide"]].concat()));
        let whole = String::from_utf8(run(&mut service.client(command), b"").stdout).unwrap();
        let titles = |text: &str| -> usize {
            let words = text.lines().map(|line| line.split_whitespace().count());
            words.max().unwrap_or_default()
        };
        assert_eq!(titles(&wide), titles(&whole), "{wide} {whole}");
    }
    let mut coloured = service.client(&["ps"]);
    coloured.env_remove("NO_COLOR");
    let shown = on_terminal(coloured);
    assert!(shown.contains("\x1b[33mlent\x1b[0m"), "{shown:?}");
    drop(client);
    service.stop();
}

#[test]
fn json_is_one_value_on_one_line_with_the_documented_members() {
    let service = Service::start("");
    let output = run(&mut service.client(&["status", "--json"]), b"");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["proc_count"], 0);
    assert_eq!(value["pools"][0]["name"], "javascript");
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(value["jobs"]["total_rows"], 0);
    let page = include_str!("../../../docs/operations.md");
    let (_, table) = page.split_once("\n| member |").unwrap();
    let first = table
        .lines()
        .take_while(|line| !line.is_empty())
        .skip(2)
        .map(|row| row.split('|').nth(1).unwrap());
    let names = first.flat_map(|names| names.split('`').skip(1).step_by(2));
    let documented: BTreeSet<&str> = names.collect();
    let members = value.as_object().unwrap().keys().map(String::as_str);
    assert_eq!(members.collect::<BTreeSet<_>>(), documented);
}

#[test]
fn watching_continues_until_the_output_is_closed() {
    let service = Service::start("");
    let mut child = service
        .client(&["status", "--watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    for line in read_lines(&mut output, 2).lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    drop(output);
    assert_eq!(exit_code(&mut child), Some(0));
}

#[test]
fn watching_exits_with_69_when_the_service_dies() {
    let mut service = Service::start("");
    let mut child = service
        .client(&["status", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    read_lines(child.stdout.as_mut().unwrap(), 1);
    service.kill();
    assert_eq!(exit_code(&mut child), Some(69));
}

#[test]
fn status_exits_with_69_if_there_is_no_service() {
    let output = run(
        &mut program(&["status", "--socket", "/nonexistent/s.sock"]),
        b"",
    );
    assert_eq!((output.status.code(), output.stdout.len()), (Some(69), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/nonexistent/s.sock"), "{said}");
}

#[test]
fn a_check_lists_the_problems_and_its_exit_code_is_the_severity() {
    let broken = "[query_servers]\nbroken = \"sh -c 'exit 7'\"\n[pools.broken]\ninit_size = 1\n";
    let service = Service::start(&format!(
        "[query_server_config]\nsandbox = \"off\"\n{broken}"
    ));
    let mut printed = String::new();
    wait_until("a problem", || {
        let output = run(&mut service.client(&["status", "--check"]), b"");
        printed = String::from_utf8(output.stdout).unwrap();
        let code = if printed.is_empty() { 0 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{printed}");
        !printed.is_empty()
    });
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(
        printed.starts_with("CRITICAL: pool failing: broken: its processes cannot be started: "),
        "{printed}"
    );
    assert!(
        printed.contains("settee pool unthrottle broken"),
        "{printed}"
    );
    let web = service.connect().operator.get("/_health");
    assert_eq!(web["status"], "critical", "{web}");
    assert_eq!(web["problems"][0]["subject"], "broken", "{web}");
    // Without a fleet, this daemon is the whole fleet.
    let output = run(&mut service.client(&["status", "--check", "--fleet"]), b"");
    let of_all = String::from_utf8(output.stdout).unwrap();
    let named = format!(
        "CRITICAL: {}: pool failing: broken: ",
        web["daemon"].as_str().unwrap()
    );
    assert_eq!(
        (output.status.code(), of_all.lines().count()),
        (Some(2), 1),
        "{of_all}"
    );
    assert!(of_all.starts_with(&named), "{of_all}");
    let mut after = service.client(&["status", "--check"]);
    service.stop();
    let output = run(&mut after, b"");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(69), 0));
}

#[test]
fn a_check_warns_of_a_pool_whose_processes_repeatedly_exit() {
    let service = Service::start("");
    let mut client = service.connect();
    let checked = || {
        let output = run(&mut service.client(&["status", "--check"]), b"");
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), printed)
    };
    // The daemon must sample the pool before its processes exit.
    client.get_proc("python");
    wait_until("nothing is wrong", || checked() == (Some(0), String::new()));
    for _ in 0..5 {
        let proc = client.get_proc("python");
        let exits = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["exit", 7]});
        assert_eq!(client.error(&exits)["name"], "os_process_error");
    }
    let warning = "warning: pool dying: python: 5 of its processes ended by themselves within 60 s";
    wait_until("a warning", || {
        let (code, printed) = checked();
        assert_eq!(code, Some(i32::from(!printed.is_empty())), "{printed}");
        printed.to_lowercase().starts_with(warning)
    });
    service.stop();
}

#[test]
fn another_program_behind_the_socket_is_not_mistaken_for_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let managing = directory.path().join("s.http.sock");
    let listener = std::os::unix::net::UnixListener::bind(&managing).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        // The server waits for more input, like a mail server.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let output = run(program(&["status", "--socket"]).arg(&socket), b"");
    server.join().unwrap();
    assert_eq!(output.status.code(), Some(69));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("did not keep to the protocol"), "{said}");
}

#[test]
fn output_to_a_full_device_exits_with_74() {
    let service = Service::start("");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = service
        .client(&["status"])
        .stdout(full)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(exit_code(&mut child), Some(74));
}
