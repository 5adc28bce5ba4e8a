//! What packaging/ installs: the configuration is valid, and the unit is as hardened as docs/install.md says.

use std::path::Path;
use std::process::Command;

use settee::config::{Sources, load};

use crate::docs::read;

#[test]
fn the_packaged_configuration_is_valid_and_puts_everything_where_the_unit_allows_it() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/settee.toml");
    let sources = Sources {
        files: vec![file],
        ..Sources::default()
    };
    let config = load(&sources).expect("it is valid").config;
    let unit = read("packaging/systemd/settee.service");
    for (folder, path) in [
        ("RuntimeDirectory=settee\n", &config.server.socket),
        ("StateDirectory=settee\n", &config.store.path),
    ] {
        assert!(unit.contains(folder), "{folder}");
        let parent = path.parent().expect("a folder");
        assert!(parent.ends_with("settee"), "{}", path.display());
    }
    let socket = read("packaging/systemd/settee.socket");
    let listens = format!("ListenStream={}\n", config.server.socket.display());
    assert!(socket.contains(&listens), "{listens}");
}

#[test]
fn the_exposure_of_the_unit_is_at_most_two_where_systemd_can_tell() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/settee.service");
    let mut analyze = Command::new("systemd-analyze");
    // The threshold is ten times the exposure.
    analyze.args(["security", "--offline=true", "--no-pager", "--threshold=20"]);
    let Ok(done) = analyze.arg(unit).output() else {
        return;
    };
    assert!(done.status.success(), "{done:?}");
}
