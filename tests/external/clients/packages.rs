//! The built packages are complete: version, licence, minimum versions, types, and no dependency.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::site::{self, run};
use super::{Site, node, python};
use crate::support::program::project;

#[test]
fn the_wheel_has_the_version_the_licence_and_no_requirement() {
    let wheel = &site::python().package;
    let name = format!("settee-{}-py3-none-any.whl", version());
    assert_eq!(wheel.file_name().unwrap().to_string_lossy(), name);
    let read = "import zipfile, sys; archive = zipfile.ZipFile(sys.argv[1]); names = archive.namelist(); \
                print(*names); print(archive.read(next(n for n in names if n.endswith('METADATA'))).decode())";
    let printed = run(python().args(["-c", read]).arg(wheel));
    assert!(printed.contains("/LICENSE"), "{printed}");
    assert!(printed.contains("settee/py.typed"), "{printed}");
    assert!(printed.contains("\nLicense: Apache-2.0\n"), "{printed}");
    assert!(printed.contains("Requires-Python: >=3.9\n"), "{printed}");
    assert!(!printed.contains("Requires-Dist"), "{printed}");
    assert!(!printed.contains("tests/"), "{printed}");
    let own = run(python().args(["-c", "import settee; print(settee.__version__)"]));
    assert_eq!(own.trim_end(), version());
}

#[test]
fn the_npm_package_has_the_version_the_licence_the_types_and_no_dependency() {
    let folder = site::node().folder.join("node_modules/settee");
    let manifest = fs::read(folder.join("package.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["version"], version().as_str());
    assert_eq!(manifest["license"], "Apache-2.0");
    assert!(manifest.get("dependencies").is_none());
    for file in ["LICENSE", "README.md", "index.d.ts"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    assert!(!folder.join("tests").exists());
}

/// Returns the version of everything that the project publishes.
fn version() -> String {
    let manifest = fs::read_to_string(project().join("Cargo.toml")).unwrap();
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \""));
    line.unwrap().trim_end_matches('"').to_owned()
}

/// Returns a command for `mypy --strict` in the folder of the tests, where the client is installed.
fn mypy(what: &str) -> Command {
    let folder = &site::python().folder;
    let mut command = Command::new(site::mypy());
    command
        .current_dir(folder)
        .args(["--strict", "--python-executable"]);
    command.arg(folder.join("bin/python")).arg(what);
    command
}

#[test]
fn mypy_accepts_the_python_client_and_a_typed_program_and_rejects_a_wrong_one() {
    run(&mut mypy("sources/settee"));
    run(&mut mypy("tests/typed.py"));
    let site = Site::start();
    let mut typed = python();
    site.pass_addresses(&mut typed);
    run(typed.args(["-m", "tests.typed"]));
    site.service.stop();
    let wrong = mypy("tests/wrong.py").output().unwrap();
    let printed = String::from_utf8_lossy(&wrong.stdout).into_owned();
    let text = fs::read_to_string(site::python().folder.join("tests/wrong.py")).unwrap();
    let expected = text.matches("# wrong").count();
    assert_eq!(printed.matches(": error: ").count(), expected, "{printed}");
}

fn tsc(arguments: &[&str]) -> Command {
    let modules = site::typescript();
    let mut command = node();
    command.arg(modules.join("typescript/bin/tsc"));
    let types = modules.join("@types").display().to_string();
    command.args(["--strict", "--target", "es2022", "--module", "nodenext"]);
    command.args(["--typeRoots", &types, "--types", "node"]);
    command.args(arguments);
    command
}

#[test]
fn tsc_compiles_a_typed_program_which_runs_and_rejects_a_wrong_one() {
    run(&mut tsc(&["--outDir", "typed", "tests/typed.mts"]));
    let site = Site::start();
    let mut typed = node();
    site.pass_addresses(&mut typed);
    run(typed.arg("typed/typed.mjs"));
    site.service.stop();
    let wrong = tsc(&["--noEmit", "tests/wrong.mts"]).output().unwrap();
    let printed = String::from_utf8_lossy(&wrong.stdout).into_owned();
    let text = fs::read_to_string(site::node().folder.join("tests/wrong.mts")).unwrap();
    let expected = text.matches("// wrong").count();
    assert_eq!(printed.matches("error TS").count(), expected, "{printed}");
}
