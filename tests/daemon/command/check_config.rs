//! `settee check-config`, the real program: its output for valid configurations; [`mistakes`] has the refused ones.

mod against_running;
mod mistakes;
mod sandbox;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::program::SETTEE;

/// A directory of configuration files, and the environment of the program.
struct Fixture {
    directory: tempfile::TempDir,
    files: Vec<PathBuf>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self {
            directory,
            files: Vec::new(),
            variables: Vec::new(),
        }
    }

    fn toml(text: &str) -> Self {
        Self::new().file("c.toml", text.as_bytes())
    }

    fn ini(text: &str) -> Self {
        Self::new().file("c.ini", text.as_bytes())
    }

    fn file(mut self, name: &str, text: &[u8]) -> Self {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        self.files.push(path);
        self
    }

    fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    fn run(&self) -> Run {
        let mut command = program();
        command
            .arg("check-config")
            .current_dir(self.directory.path());
        for path in &self.files {
            // A relative path, so that messages can be compared.
            command
                .arg("-c")
                .arg(path.file_name().expect("it has a name"));
        }
        command.envs(self.variables.iter().copied());
        Run::of(command.output().expect("the program runs"))
    }

    /// Runs it, expects a refusal, and returns its lines without the program's name.
    fn refused(&self) -> Vec<String> {
        let run = self.run();
        assert_eq!((run.code, run.stdout.as_str()), (78, ""), "{}", run.stderr);
        let strip = |line: &str| line.strip_prefix("settee: ").map(str::to_owned);
        let lines: Option<Vec<_>> = run.stderr.lines().map(strip).collect();
        lines.unwrap_or_else(|| panic!("a line without the program's name in {}", run.stderr))
    }

    /// Runs it, expects success, and returns the line of a key.
    fn line(&self, key: &str) -> String {
        let run = self.accepted();
        let line = run
            .lines()
            .find(|line| line.starts_with(&format!("{key} = ")));
        line.unwrap_or_else(|| panic!("no {key} in {run}"))
            .to_owned()
    }

    fn accepted(&self) -> String {
        let run = self.run();
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        run.stdout
    }
}

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("no signal ended it"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

fn program() -> Command {
    let mut command = Command::new(SETTEE);
    command
        .env_clear()
        .env("HOME", "/home/ann")
        .stdin(Stdio::null());
    command
}

/// Asserts that the configuration is refused with one message that starts with `place` and
/// contains all of `parts`.
#[track_caller]
fn refuses(fixture: &Fixture, place: &str, parts: &[&str]) {
    let lines = fixture.refused();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let expected = format!("{place}: ");
    assert!(
        lines[0].starts_with(&expected),
        "{:?} does not start with {expected:?}",
        lines[0]
    );
    for part in parts {
        assert!(
            lines[0].contains(part),
            "{:?} does not contain {part:?}",
            lines[0]
        );
    }
}

#[test]
fn the_defaults_are_valid_and_marked_as_defaults() {
    let printed = Fixture::new().accepted();
    let values: Vec<_> = printed
        .lines()
        .filter(|line| line.contains(" = "))
        .collect();
    assert!(values.len() >= 20, "{printed}");
    assert!(
        values.iter().all(|line| line.contains("  # default")),
        "{printed}"
    );
    let parts = || values.iter().filter_map(|line| line.split_once("  # "));
    let column = parts().map(|(value, _)| value.len()).min().unwrap();
    // A very long value does not move the others.
    assert!(
        parts().all(|(value, _)| value.len() == column || value.trim_end().len() > column),
        "not aligned:\n{printed}"
    );
    let aligned = parts().filter(|(value, _)| value.len() == column).count();
    assert!(aligned + 3 > values.len(), "not aligned:\n{printed}");
}

#[test]
fn values_are_printed_with_their_file_and_line_or_variable() {
    let fixture = Fixture::toml("[log]\n\n# quiet\nlevel = \"error\"\n")
        .file(
            "local.ini",
            b"[couchdb]\nos_process_timeout = 7000 ; slow box\n",
        )
        .variable("SETTEE__QUERY_SERVER_CONFIG__OS_PROCESS_LIMIT", "7")
        .variable("COUCHDB_QUERY_SERVER_PYTHON", "couchpy");
    assert!(fixture.line("level").ends_with("# c.toml:4"));
    let timeout = fixture.line("os_process_timeout");
    assert!(
        timeout.starts_with("os_process_timeout = 7000 "),
        "{timeout}"
    );
    assert!(timeout.ends_with("# local.ini:2 (ms)"), "{timeout}");
    let variable = "SETTEE__QUERY_SERVER_CONFIG__OS_PROCESS_LIMIT";
    assert!(fixture.line("os_process_limit").ends_with(variable));
    assert!(
        fixture
            .line("python")
            .contains("COUCHDB_QUERY_SERVER_PYTHON")
    );
}

#[test]
fn a_log_file_in_the_current_directory_is_accepted() {
    let shown = Fixture::toml("[log]\nfile = 'x.log'\n").line("file");
    assert!(shown.contains("/x.log\""), "{shown}");
}

#[test]
fn durations_and_sizes_may_have_units() {
    let text = "[couchdb]\nos_process_timeout='2min'\n[query_server_config]\n\
                os_process_idle_limit='200ms'\n[server]\nline_max='1MiB'\nshutdown_grace='1h'\n";
    let fixture = Fixture::toml(text);
    assert!(
        fixture
            .line("os_process_timeout")
            .starts_with("os_process_timeout = 120000 ")
    );
    assert!(fixture.line("os_process_idle_limit").contains("\"200 ms\""));
    assert!(fixture.line("line_max").starts_with("line_max = 1048576 "));
    assert!(
        fixture
            .line("shutdown_grace")
            .starts_with("shutdown_grace = 3600 ")
    );
}

#[test]
fn the_output_can_be_read_back() {
    let text = "[query_servers]\n\"my.lang\" = 'run \"me\" \\now'\n[query_server_config]\n\
                reduce_limit = \"log\"\nreduce_limit_ratio = 3\nos_process_idle_limit=\"1500ms\"\n";
    let values = |printed: &str| {
        let value = |line: &str| line.split("  # ").next().map(|v| v.trim_end().to_owned());
        printed
            .lines()
            .filter(|line| line.contains(" = "))
            .map(value)
            .collect::<Vec<_>>()
    };
    let first = Fixture::toml(text).accepted();
    assert_eq!(values(&Fixture::toml(&first).accepted()), values(&first));
}

#[test]
fn public_addresses_are_accepted_with_an_admin_whose_password_is_hidden() {
    let text = "[server]\ntcp = '0.0.0.0:5994'\nhttp = '[::]:5995'\n\
                [chttpd_auth]\nsecret = 'rosebud'\n[admins]\nann = 'open sesame'\n\
                bob = '-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096'\n";
    let printed = Fixture::toml(text).accepted();
    for hidden in ["rosebud", "sesame", "4b0079", "pbkdf2"] {
        assert!(!printed.contains(hidden), "{printed}");
    }
    for shown in ["ann = \"***\"", "bob = \"***\"", "secret = \"***\""] {
        assert!(printed.contains(shown), "{printed}");
    }
    let ini = Fixture::ini(
        "[admins]\nann = -pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096\n[chttpd_auth]\nauthentication_redirect = /x\n",
    );
    assert!(ini.accepted().contains("ann = \"***\""));
}

#[test]
fn a_hard_limit_of_zero_is_valid_and_lowers_the_default_soft_limit() {
    let fixture = Fixture::toml("[query_server_config]\nos_process_limit = 0\n");
    assert!(
        fixture
            .line("os_process_soft_limit")
            .starts_with("os_process_soft_limit = 0 ")
    );
}

#[test]
fn settings_of_other_parts_of_couchdb_are_ignored_and_listed() {
    let text = "[couchdb]\nuuid = 1234\nos_process_timeout = 6000\n[chttpd]\nport = 5984\n\
                [vendor]\nname = x\n[query_server_config]\ncommit_freq = 5\n[ioq.bypass]\n\
                os_process = true\n[log]\nwriter = stderr\nlevel = notice\n\
                [native_query_servers]\nenable_erlang_query_server = false\n";
    let printed = Fixture::ini(text).accepted();
    for ignored in [
        "c.ini:2: [couchdb] uuid",
        "c.ini:4: [chttpd]",
        "c.ini:6: [vendor]",
        "c.ini:9: [query_server_config] commit_freq",
        "c.ini:10: [ioq.bypass]",
        "c.ini:13: [log] writer",
        "c.ini:16: [native_query_servers] enable_erlang_query_server",
    ] {
        assert!(
            printed.contains(&format!("# {ignored} ")),
            "{ignored} in {printed}"
        );
    }
    assert!(printed.contains("os_process_timeout = 6000 "), "{printed}");
    assert!(printed.contains("level = \"info\" "), "{printed}");
    refuses(
        &Fixture::toml("[chttpd]\nport = 5984\n"),
        "c.toml:1",
        &["[chttpd]"],
    );
}

#[test]
fn couchdb_variables_without_a_language_are_ignored_and_listed() {
    let fixture = Fixture::new().variable("COUCHDB_QUERY_SERVER_", "x");
    let printed = fixture.accepted();
    assert!(printed.contains("COUCHDB_QUERY_SERVER_: the name of the language is empty"));
}

#[test]
fn mango_is_always_on() {
    let printed = Fixture::toml("[native_query_servers]\nquery = true\n").accepted();
    assert!(
        printed.contains("is always on; the key has no effect"),
        "{printed}"
    );
    let ini = Fixture::ini("[query_servers]\nquery = /usr/bin/mango\n");
    refuses(&ini, "c.ini:2", &["takes no command", "leave it out"]);
    let own = Fixture::toml("").variable("SETTEE__QUERY_SERVERS__QUERY", "mango");
    refuses(
        &own,
        "environment variable SETTEE__QUERY_SERVERS__QUERY",
        &["takes no command"],
    );
    let couchdb = Fixture::toml("").variable("COUCHDB_QUERY_SERVER_QUERY", "mango");
    let printed = couchdb.accepted();
    assert!(
        printed.contains("COUCHDB_QUERY_SERVER_QUERY: Mango is inside"),
        "{printed}"
    );
}

#[test]
fn any_shell_command_is_accepted_and_its_passwords_are_hidden() {
    let text = "[query_servers]\npython = A=1 sh -c 'a;b' --x=y\nr = run https://me:sesame@h/p\n";
    let printed = Fixture::ini(text).accepted();
    assert!(printed.contains("A=1 sh -c 'a;b' --x=y"), "{printed}");
    assert!(printed.contains("https://me:***@h/p"), "{printed}");
    assert!(!printed.contains("sesame"), "{printed}");
}

#[test]
fn javascript_is_built_in_unless_a_command_is_configured() {
    for text in ["javascript = ''", "JavaScript = 'builtin'", ""] {
        let fixture = Fixture::toml(&format!("[query_servers]\n{text}\n"));
        assert!(
            fixture
                .line("javascript")
                .starts_with("javascript = \"builtin\" ")
        );
    }
    let fixture = Fixture::toml("").variable("COUCHDB_QUERY_SERVER_JAVASCRIPT", "couchjs main.js");
    assert!(
        fixture
            .line("javascript")
            .starts_with("javascript = \"couchjs main.js\" ")
    );
}

#[test]
fn an_ini_without_the_key_gets_a_note_that_certificates_are_verified_by_default() {
    let note = "verify_ssl_certificates is true by default, and false in CouchDB";
    let silent = Fixture::ini("[replicator]\nmax_jobs = 3\n").run().stdout;
    assert!(silent.contains(note), "{silent}");
    assert!(
        silent.contains("verify_ssl_certificates = true"),
        "{silent}"
    );
    let named = Fixture::ini("[replicator]\nverify_ssl_certificates = false\n");
    let named = named.run().stdout;
    assert!(!named.contains(note), "{named}");
    assert!(named.contains("verify_ssl_certificates = false"), "{named}");
    assert!(
        !Fixture::toml("[replicator]\nmax_jobs = 3\n")
            .run()
            .stdout
            .contains(note)
    );
}

#[test]
fn endpoint_rules_are_read_from_lists_and_from_strings() {
    let text = "[replicator]\nendpoints_allowed = [\"*.example.org\", \"10.0.0.0/8\", \"[::1]:5984\"]\n\
                endpoints_denied = \"10.6.0.0/16, bad.example.org\"\nredirects_to = [\"https://b.example\"]\n";
    let printed = Fixture::toml(text).run().stdout;
    for line in [
        "endpoints_allowed = \"*.example.org,10.0.0.0/8,[::1]:5984\"",
        "endpoints_denied = \"10.6.0.0/16,bad.example.org\"",
        "redirects_to = \"https://b.example\"",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    for wrong in [
        "endpoints_allowed = \"http://h/\"",
        "endpoints_denied = [\"10.0.0.0/40\"]",
        "redirects_to = \"b.example\"",
        "redirects_to = \"https://b.example/db\"",
    ] {
        let run = Fixture::toml(&format!("[replicator]\n{wrong}\n")).run();
        assert_eq!(run.code, 78, "{wrong}");
    }
}
