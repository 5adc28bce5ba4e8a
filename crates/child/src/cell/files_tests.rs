use std::os::unix::fs::symlink;

use super::*;
use crate::cell::SandboxMode;

fn spec(hidden: &[&Path]) -> CellSpec {
    CellSpec {
        mode: SandboxMode::Standard,
        user: None,
        user_range: None,
        read_paths: Vec::new(),
        hidden_paths: hidden.iter().map(|path| path.to_path_buf()).collect(),
        network: false,
        refused_ports: Vec::new(),
        system_calls: Vec::new(),
        memory_max: 0,
        processes_max: 0,
        cpu_max: 0,
    }
}

/// A folder with files in it.
fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    for (file, text) in files {
        fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
        fs::write(path.join(file), text).unwrap();
    }
    (folder, path)
}

fn found(program: &Path, arguments: &[&str], spec: &CellSpec) -> Vec<PathBuf> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    readable(program, &arguments, spec)
}

#[test]
fn the_folders_of_the_program_and_of_the_files_of_its_command_are_readable() {
    let (_kept, root) = folder(&[("a/server", ""), ("b/script.py", ""), ("c/other", "")]);
    let script = root.join("b/script.py").display().to_string();
    let command = format!("exec env X={script} y");
    for argument in [script.as_str(), command.as_str()] {
        let paths = found(&root.join("a/server"), &[argument], &spec(&[]));
        assert!(paths.contains(&root.join("a")), "{paths:?}");
        assert!(paths.contains(&root.join("b")), "{paths:?}");
        assert!(
            !paths.iter().any(|path| root.join("c").starts_with(path)),
            "{paths:?}"
        );
    }
}

#[test]
fn a_program_in_bin_can_read_its_libraries_and_the_target_of_its_link() {
    let files = [
        ("real/bin/python", ""),
        ("real/lib/x", ""),
        ("real/secret/x", ""),
    ];
    let (_kept, root) = folder(&files);
    fs::create_dir_all(root.join("venv/bin")).unwrap();
    fs::write(root.join("venv/pyvenv.cfg"), "").unwrap();
    let program = root.join("venv/bin/python");
    symlink(root.join("real/bin/python"), &program).unwrap();
    let paths = found(&program, &[], &spec(&[]));
    for expected in ["venv/bin", "venv/pyvenv.cfg", "real/bin", "real/lib"] {
        assert!(
            paths.contains(&root.join(expected)),
            "{expected}: {paths:?}"
        );
    }
    assert!(
        !paths
            .iter()
            .any(|path| root.join("real/secret").starts_with(path))
    );
}

#[test]
fn the_interpreter_of_a_script_is_readable_with_its_folder() {
    let (_kept, root) = folder(&[("a/interpreter", ""), ("b/script", "")]);
    let line = format!("#! {} -x\n", root.join("a/interpreter").display());
    fs::write(root.join("b/script"), line).unwrap();
    let paths = found(&root.join("b/script"), &[], &spec(&[]));
    assert!(paths.contains(&root.join("a")), "{paths:?}");
    let named = interpreters(Path::new("/no/such/file"));
    assert_eq!(named, [] as [PathBuf; 0]);
}

#[test]
fn in_hidden_folders_only_the_files_of_the_command_are_readable() {
    let (_kept, data) = folder(&[("store", ""), ("run.sh", "")]);
    let paths = found(&data.join("run.sh"), &[], &spec(&[&data]));
    assert!(
        paths.contains(&data.join("run.sh")) && !paths.contains(&data),
        "{paths:?}"
    );
}

#[test]
fn a_folder_is_readable_except_for_hidden_ones_in_it_and_for_what_its_links_lead_to() {
    let (_kept, root) = folder(&[("app/x/run.sh", ""), ("app/conf/c", ""), ("other/o", "")]);
    symlink(root.join("other"), root.join("app/link")).unwrap();
    let mut spec = spec(&[&root.join("app/conf")]);
    spec.read_paths = vec![root.join("app")];
    let paths = found(Path::new("/bin/sh"), &[], &spec);
    assert!(paths.contains(&root.join("app/x")), "{paths:?}");
    for closed in ["app/conf", "other"].map(|path| root.join(path)) {
        assert!(
            !paths.iter().any(|path| closed.starts_with(path)),
            "{paths:?}"
        );
    }
}

#[test]
fn a_file_in_a_shared_folder_is_readable_but_not_the_folder() {
    let found = Found {
        hidden: &[],
        paths: Vec::new(),
    };
    for shared in [
        "/",
        "/tmp",
        "/etc",
        "/root",
        "/home",
        "/home/user",
        "/var/lib",
    ] {
        assert!(!found.is_own(Path::new(shared)), "{shared}");
    }
    for own in ["/opt/couchpy", "/home/user/app", "/usr", "/usr/local/bin"] {
        assert!(found.is_own(Path::new(own)), "{own}");
    }
    let paths = self::found(Path::new("/bin/sh"), &["/etc/passwd"], &spec(&[]));
    assert!(paths.contains(&"/etc/passwd".into()), "{paths:?}");
    assert!(!paths.contains(&"/etc".into()), "{paths:?}");
}
