//! The packaged configuration is valid, and the unit is as hardened as docs/install.md says.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use settee::client::operator_socket;
use settee::config::{Config, Sources, load};

use crate::docs::read;
use crate::support::program::SETTEE;

fn packaged_configuration() -> Config {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/settee.toml");
    let sources = Sources {
        files: vec![file],
        ..Sources::default()
    };
    load(&sources)
        .expect("the packaged configuration is valid")
        .config
}

#[test]
fn the_packaged_configuration_is_valid_and_its_paths_are_those_of_the_units() {
    let config = packaged_configuration();
    let unit = read("packaging/systemd/settee.service");
    for (folder, path) in [
        ("RuntimeDirectory=settee\n", &config.server.socket),
        ("StateDirectory=settee\n", &config.store.path),
    ] {
        assert!(unit.contains(folder), "{folder}");
        let parent = path.parent().expect("a folder");
        assert!(parent.ends_with("settee"), "{}", path.display());
    }
    let socket = config.server.socket.as_path();
    for (unit, name, path) in [
        ("settee.socket", "socket", socket.to_owned()),
        (
            "settee-http-unix.socket",
            "http-socket",
            operator_socket(socket),
        ),
    ] {
        let unit = read(format!("packaging/systemd/{unit}"));
        for line in [
            format!("ListenStream={}\n", path.display()),
            format!("FileDescriptorName={name}\n"),
        ] {
            assert!(unit.contains(&line), "{line}");
        }
    }
}

#[test]
fn the_unit_restarts_forever_after_temporary_failures_and_never_after_others() {
    let unit = read("packaging/systemd/settee.service");
    let (start, service) = unit.split_once("[Service]").expect("a section");
    assert!(start.contains("\nStartLimitIntervalSec=0\n"));
    assert!(service.contains("\nRestart=on-failure\nRestartSec=5\n"));
    // Usage, permission and configuration errors.
    assert!(service.contains("\nRestartPreventExitStatus=64 77 78\n"));
    // Nor does socket activation retry them without a pause.
    assert!(service.contains("\"$$EXIT_STATUS\" in 64|77|78) exec sleep 5;; esac'\n"));
}

#[test]
fn a_stop_signals_only_the_daemon_and_waits_longer_than_its_grace() {
    let unit = read("packaging/systemd/settee.service");
    let value = |key: &str| {
        let mut values = unit.lines().filter_map(|line| line.strip_prefix(key));
        values.next().unwrap_or_else(|| panic!("no {key}"))
    };
    assert_eq!(value("KillMode="), "mixed");
    let seconds = value("TimeoutStopSec=").parse().expect("seconds");
    let server = packaged_configuration().server;
    assert!(Duration::from_secs(seconds) > server.shutdown_grace + server.stop_grace);
}

#[test]
fn the_units_exposure_is_at_most_2_5_where_systemd_analyze_is_installed() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/settee.service");
    let mut analyze = Command::new("systemd-analyze");
    // The threshold is ten times the exposure, of which half a point is for giving cells their own users.
    analyze.args(["security", "--offline=true", "--no-pager", "--threshold=25"]);
    let Ok(done) = analyze.arg(unit).output() else {
        return;
    };
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn the_program_is_position_independent() {
    const SHARED_OBJECT: u16 = 3;
    let program = std::fs::read(SETTEE).unwrap();
    // ELF `e_type`: an executable with a fixed address would be 2.
    assert_eq!(
        u16::from_le_bytes([program[16], program[17]]),
        SHARED_OBJECT
    );
}
