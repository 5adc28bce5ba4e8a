//! The README's shell lines print the output it shows; those of docs/http.md work unchanged, alone and together.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use settee::client::operator_socket;

use crate::support::daemon::{Service, configure, directory, serve_command};
use crate::support::pages::blocks;
use crate::support::program::{SETTEE, project};
use crate::tutorial::assert_prints_what_it_says;

/// Starts a service with HTTP in a folder that has the command `settee` and `examples`.
fn start() -> (Service, SocketAddr) {
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut command = serve_command(&config);
    command.env("SETTEE__SERVER__HTTP", "127.0.0.1:0");
    // The password file is below the home directory.
    command.env("HOME", directory.path());
    command.env_remove("XDG_STATE_HOME");
    let state = directory.path().join(".local/state/settee");
    command.env("SETTEE__STORE__PATH", state.join("settee.redb"));
    symlink(SETTEE, directory.path().join("settee")).unwrap();
    let examples = project().join("examples");
    symlink(examples, directory.path().join("examples")).unwrap();
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    (service, address)
}

/// Runs shell lines, with the addresses of this test's service.
fn run(lines: &str, service: &Service, address: SocketAddr) {
    let http_socket = operator_socket(&service.socket()).display().to_string();
    let lines = lines
        .replace("127.0.0.1:5995", &address.to_string())
        .replace("/run/settee/settee.http.sock", &http_socket)
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
    // One function answers `forbidden`, as the page says.
    let forbidden = out.matches("\"error\":\"forbidden\"").count();
    let errors = out.matches("\"error\":").count();
    assert_eq!(errors, forbidden, "{lines}\n{out}");
    assert!(
        !out.contains(",null]"),
        "a key without a value: {lines}\n{out}"
    );
}

/// Returns whether a block neither runs as the user `ann` nor adds a group.
fn can_run(block: &str) -> bool {
    let missing = ["-u ann", "groupadd"];
    !missing.iter().any(|part| block.contains(part))
}

fn assert_blocks_work_alone_and_together(page: &str) {
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
fn every_block_of_the_readme_prints_the_output_below_it() {
    let skipped = ["cargo test", "packaging/build"];
    assert_prints_what_it_says("README.md", "target/try/log", &skipped);
}

#[test]
fn the_shell_lines_of_the_http_page_work_alone_and_together() {
    assert_blocks_work_alone_and_together("docs/http.md");
}
