//! hadolint reports no problem in the Containerfile.

use std::process::Command;

use crate::pip::hadolint;
use crate::support::program::{project, run};

#[test]
fn hadolint_accepts_the_containerfile() {
    let file = project().join("packaging/Containerfile");
    let output = run(Command::new(hadolint()).arg(file), b"");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}
