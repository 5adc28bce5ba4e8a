//! `settee check-config --sandbox`, on this machine.

use super::{Fixture, Run, program};
use crate::support::daemon::Service;

const POOLS: &str =
    "[query_servers]\npython = \"sh server\"\n[pools.reports]\nlanguage = \"python\"\n";

fn tried(text: &str) -> Run {
    let fixture = Fixture::toml(text);
    let mut command = program();
    command
        .args(["check-config", "--sandbox", "-c"])
        .arg(&fixture.files[0])
        .env("PATH", "/usr/bin:/bin");
    Run::of(command.output().expect("the program runs"))
}

#[test]
fn the_cell_of_each_pool_is_tried_and_its_layers_are_printed_as_comments() {
    let run = tried(POOLS);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let (_, cells) = run
        .stdout
        .split_once("# Cells of pools:\n")
        .expect("a part");
    for pool in ["javascript", "python", "reports"] {
        let holds = format!("# {pool} (standard): holds ");
        let line = cells.lines().find(|line| line.starts_with(&holds));
        let line = line.unwrap_or_else(|| panic!("no {pool} in {cells}"));
        assert!(
            line.contains("environment") && line.contains("descriptors"),
            "{line}"
        );
    }
    // Mango runs inside the service.
    assert!(!cells.contains("query"), "{cells}");
    let printed: Result<toml::Table, _> = run.stdout.parse();
    assert!(printed.is_ok(), "{}", run.stdout);
}

#[test]
fn a_strict_pool_is_a_mistake_only_if_a_layer_is_missing() {
    // Half a core: CPU limits are the layer that is missing most often.
    let strict = format!("{POOLS}sandbox = \"strict\"\ncpu_max = 50\n");
    let run = tried(&strict);
    let of_strict = |line: &&str| line.starts_with("# reports (strict): ");
    let lines: Vec<&str> = run.stdout.lines().filter(of_strict).collect();
    assert!(!lines.is_empty(), "{}", run.stdout);
    let is_whole = lines.iter().all(|line| line.contains(": holds "));
    assert_eq!(run.code, if is_whole { 0 } else { 78 }, "{lines:?}");
    assert_eq!(
        run.stderr.contains("[pools.reports] sandbox = \"strict\""),
        !is_whole
    );
}

#[test]
fn a_missing_or_non_executable_program_is_a_mistake_with_or_without_a_cell() {
    for mode in ["standard", "off"] {
        let text = format!(
            "[query_server_config]\nsandbox = \"{mode}\"\n[query_servers]\nperl = \"no-such-program server\"\n\
             php = \"/no/such/php\"\nlua = \"/etc/passwd x\"\nruby = \"/etc x\"\npython = \"sh server\"\n"
        );
        let run = tried(&text);
        assert_eq!(run.code, 78, "{}", run.stdout);
        for (pool, why) in [
            ("perl", "the program 'no-such-program' was not found"),
            ("php", "the program '/no/such/php' was not found"),
            ("lua", "the program '/etc/passwd' cannot be executed"),
            ("ruby", "the program '/etc' cannot be executed"),
        ] {
            let expected = format!("the pool \"{pool}\": {why}");
            assert!(run.stderr.contains(&expected), "{}", run.stderr);
            let comment = format!("# {pool} ({mode}): {why}");
            assert!(run.stdout.contains(&comment), "{}", run.stdout);
        }
        assert!(!run.stderr.contains("python"), "{}", run.stderr);
    }
}

#[test]
fn pools_without_a_cell_are_not_tried() {
    let off = "[query_server_config]\nsandbox = \"off\"\n[query_servers]\npython = \"sh server\"\n";
    let run = tried(off);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(
        run.stdout
            .contains("# javascript (off): no cell\n# python (off): no cell\n")
    );
}

#[test]
fn a_strict_pool_without_users_for_its_cells_is_a_mistake() {
    let text = format!("[query_server_config]\nuser_range = \"\"\n{POOLS}sandbox = \"strict\"\n");
    let run = tried(&text);
    assert_eq!(run.code, 78, "{}", run.stdout);
    let expected = "misses user: user_range of [query_server_config] is empty";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

#[test]
fn read_paths_that_others_cannot_read_are_a_mistake_with_a_remedy() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: cells run as the user of these tests");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("views");
    std::fs::create_dir(&path).unwrap();
    let open_to = |mode| {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open_to(0o700);
    let text = format!("{POOLS}read_paths = {path:?}\n");
    let run = tried(&text);
    assert_eq!(run.code, 78, "{}", run.stdout);
    let remedy = format!("`chmod o+rx '{}'`", folder.path().display());
    assert!(run.stderr.contains(&remedy), "{}", run.stderr);
    assert!(
        run.stderr.contains("the pool \"reports\""),
        "{}",
        run.stderr
    );
    open_to(0o755);
    let run = tried(&text);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
}

#[test]
fn the_cells_of_the_running_service_are_listed_after_those_of_this_user() {
    let service = Service::start("[query_server_config]\nsandbox = \"standard\"\n");
    let mut command = service.client(&["check-config", "--sandbox", "-c"]);
    let run = Run::of(command.arg(service.path("settee.toml")).output().unwrap());
    let (own, of_service) = run
        .stdout
        .split_once("# Cells of the running service:\n")
        .unwrap();
    for part in [own, of_service] {
        assert!(
            part.contains("# javascript (standard): holds "),
            "{}",
            run.stdout
        );
    }
    service.stop();
}
