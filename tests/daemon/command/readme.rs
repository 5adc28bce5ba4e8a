//! The examples of the README and of the pages on the service work as they stand, alone and together.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::daemon::{Service, configure, directory, serve_command};

/// Returns the blocks of a page that are in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(path).unwrap();
    let mut blocks = Vec::new();
    for piece in text.split(&format!("```{language}\n")).skip(1) {
        let (block, _) = piece.split_once("```").unwrap();
        blocks.push(block.to_owned());
    }
    assert!(!blocks.is_empty(), "{page} has no {language}");
    blocks
}

/// A service with HTTP, and a folder in which `settee` is a command and `examples` are at hand.
fn start() -> (Service, SocketAddr) {
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut command = serve_command(&config);
    command.env("SETTEE__SERVER__HTTP", "127.0.0.1:0");
    // The password is below the home.
    command.env("HOME", directory.path());
    command.env_remove("XDG_STATE_HOME");
    let state = directory.path().join(".local/state/settee");
    command.env("SETTEE__STORE__PATH", state.join("settee.redb"));
    symlink(
        env!("CARGO_BIN_EXE_settee"),
        directory.path().join("settee"),
    )
    .unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    symlink(examples, directory.path().join("examples")).unwrap();
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    (service, address)
}

/// Runs lines of a shell as they stand, but for where this test's service listens.
fn run(lines: &str, service: &Service, address: SocketAddr) {
    let lines = lines
        .replace("cargo run --release --locked --", "settee")
        .replace("settee serve &", "settee status #")
        .replace("127.0.0.1:5995", &address.to_string())
        .replace("curl ", "curl -sS ");
    let folder = service.directory.path();
    let path = format!("{}:{}", folder.display(), env!("PATH"));
    let output = Command::new("sh")
        .args(["-ec", &lines])
        .current_dir(folder)
        .env("PATH", path)
        .env("SETTEE__SERVER__SOCKET", service.socket())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{lines}\n{out}\n{error}");
    // One function says no, as the page tells.
    let said_no = out.matches("\"error\":\"forbidden\"").count();
    let errors = out.matches("\"error\":").count();
    assert_eq!(errors, said_no, "{lines}\n{out}");
}

/// Not what takes another clone of the project, databases that are not there, or an admin; and nothing
/// that changes the machine.
fn can_run(block: &str) -> bool {
    let missing = ["cargo test", "settee replicate", "-u ann", "groupadd"];
    !missing.iter().any(|part| block.contains(part))
}

fn assert_alone_and_together(page: &str) {
    let mut blocks = blocks(page, "sh");
    blocks.retain(|block| can_run(block));
    for block in &blocks {
        let (service, address) = start();
        run(block, &service, address);
        service.stop();
    }
    let (service, address) = start();
    run(&blocks.concat(), &service, address);
    service.stop();
}

#[test]
fn the_shell_lines_of_the_readme_work_alone_and_together() {
    assert_alone_and_together("README.md");
}

#[test]
fn the_shell_lines_of_the_page_on_http_work_alone_and_together() {
    assert_alone_and_together("docs/http.md");
}

#[test]
fn the_socket_lines_of_the_readme_work_when_they_are_sent_together() {
    let block = blocks("README.md", "json");
    let lines = block
        .iter()
        .find(|block| block.contains("\"call\""))
        .unwrap();
    let service = Service::start("");
    let mut client = service.connect();
    client.send_raw(lines.as_bytes());
    for _ in lines.lines() {
        let reply = client.reply();
        assert!(reply.get("ok").is_some(), "{reply}");
    }
    service.stop();
}

#[test]
fn the_configurations_of_the_readme_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settee.toml");
    for block in blocks("README.md", "toml") {
        fs::write(&file, &block).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_settee"))
            .args(["check-config", "-c"])
            .arg(&file)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{block}\n{error}");
    }
}

#[test]
fn a_script_in_the_place_of_couchdbs_own_program_is_a_query_server() {
    let page = blocks("docs/couchdb.md", "sh").concat();
    let script = page.lines().find_map(|line| line.strip_prefix("printf '"));
    let (script, _) = script.unwrap().split_once("' >").unwrap();
    let script = script.replace("\\n", "\n");
    let script = script.replace("/usr/bin/settee", env!("CARGO_BIN_EXE_settee"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("couchjs_mainjs");
    fs::write(&program, script).unwrap();
    // As CouchDB starts it, with and without a limit of its own.
    for arguments in ["", " -M 67108864"] {
        let line = format!(
            "echo '[\"reset\",{{}}]' | sh {}{arguments}",
            program.display()
        );
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(output.stdout, b"true\n", "{output:?}");
    }
}
