//! `settee check-config`, the real program: every mistake is told with its place, and ends with 78.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory of configuration files and a program with an environment of its own.
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
            // As named, so that messages can be compared.
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
    command
        .env_clear()
        .env("HOME", "/home/ann")
        .stdin(Stdio::null());
    command
}

/// Asserts that `text`, as the named file, is refused with one message that starts with the place
/// and contains all of `parts`.
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
fn the_defaults_are_valid_and_every_value_says_so() {
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
    // A value that is very long does not move the others.
    assert!(
        parts().all(|(value, _)| value.len() == column || value.trim_end().len() > column),
        "not aligned:\n{printed}"
    );
    let aligned = parts().filter(|(value, _)| value.len() == column).count();
    assert!(aligned + 3 > values.len(), "not aligned:\n{printed}");
}

#[test]
fn values_come_with_file_and_line_or_the_name_of_the_variable() {
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
fn what_it_prints_can_be_read_back() {
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
fn an_unknown_section_names_the_nearest_known_one() {
    let fixture = Fixture::toml("\n[query_server_confg]\nx = 1\n");
    refuses(
        &fixture,
        "c.toml:2",
        &[
            "[query_server_confg]",
            "did you mean \"query_server_config\"?",
        ],
    );
    refuses(
        &Fixture::toml("[wholly_unknown]\n"),
        "c.toml:1",
        &["[wholly_unknown]", "the nearest known one"],
    );
    let in_ini = Fixture::ini("[query_server_confg]\nx = 1\n");
    refuses(
        &in_ini,
        "c.ini:1",
        &["did you mean \"query_server_config\"?"],
    );
    let variable = Fixture::new().variable("SETTEE__SERVR__SOCKET", "/x");
    refuses(
        &variable,
        "environment variable SETTEE__SERVR__SOCKET",
        &["\"server\""],
    );
}

#[test]
fn an_unknown_key_names_the_nearest_known_one() {
    let fixture = Fixture::toml("[query_server_config]\nos_proces_limit = 3\n");
    refuses(
        &fixture,
        "c.toml:2",
        &["\"os_proces_limit\"", "did you mean \"os_process_limit\"?"],
    );
    let case = Fixture::toml("[log]\nLevel = 'info'\n");
    refuses(&case, "c.toml:2", &["did you mean \"level\"?"]);
    let elsewhere = Fixture::toml("[query_server_config]\nos_process_timeout = 3\n");
    refuses(&elsewhere, "c.toml:2", &["it belongs in section [couchdb]"]);
    let ini = Fixture::ini("[couchdb]\nos_process_timout = 3\n");
    refuses(&ini, "c.ini:2", &["did you mean \"os_process_timeout\"?"]);
    let ini = Fixture::ini("[query_server_config]\nfrobnicate = 3\n");
    refuses(&ini, "c.ini:2", &["\"frobnicate\""]);
    let dotted = Fixture::toml("log.levle = 'info'\n");
    refuses(&dotted, "c.toml:1", &["did you mean \"level\"?"]);
    let nested = Fixture::toml("[log.file]\nname = 'x'\n");
    refuses(&nested, "c.toml:1", &["\"file\"", "[log]"]);
    let variable = Fixture::new().variable("SETTEE__LOG__LEVLE", "info");
    refuses(
        &variable,
        "environment variable SETTEE__LOG__LEVLE",
        &["\"level\""],
    );
}

#[test]
fn a_key_outside_of_any_section_is_told_where_it_belongs() {
    let home = "put os_process_limit under [query_server_config]";
    refuses(
        &Fixture::toml("os_process_limit = 3\n"),
        "c.toml:1",
        &[home],
    );
    refuses(&Fixture::ini("os_process_limit = 3\n"), "c.ini:1", &[home]);
    refuses(
        &Fixture::toml("[[log]]\nlevel='info'\n"),
        "c.toml:1",
        &["write it once, as [log]"],
    );
    let variable = Fixture::new().variable("SETTEE__SOCKET", "/x");
    refuses(
        &variable,
        "environment variable SETTEE__SOCKET",
        &["SETTEE__SECTION__KEY"],
    );
}

/// `section.key = value => part of the message`.
const WRONG_VALUES: &str = r#"
query_server_config.os_process_limit = -1 => is negative
query_server_config.os_process_limit = 1_000_001 => a whole number from 0 to 1000000
query_server_config.os_process_limit = 99999999999999999999999 => it must be
query_server_config.os_process_limit = 9999999999999999999999999999999999999999999 => it must be
query_server_config.os_process_limit = 2.5 => a whole number from 0 to 1000000
query_server_config.os_process_limit = true => a whole number from 0 to 1000000
query_server_config.os_process_limit = [1] => a list is not what this key takes
query_server_config.os_process_limit = { a = 1 } => a table
query_server_config.os_process_limit = 2026-01-01 => a date
query_server_config.os_process_limit = '' => the text ""
query_server_config.os_process_limit = 'many' => the text "many"
query_server_config.os_process_idle_limit = 0 => is too small
query_server_config.os_process_idle_limit = '5 weeks' => "5s"
query_server_config.os_process_idle_limit = 's' => "5s"
query_server_config.reduce_limit = 'maybe' => one of true, false, log
query_server_config.reduce_limit = 1 => one of true, false, log
query_server_config.reduce_limit_threshold = -5 => is negative
query_server_config.reduce_limit_ratio = nan => a number that is not negative
query_server_config.reduce_limit_ratio = inf => a number that is not negative
query_server_config.reduce_limit_ratio = -0.5 => is negative
query_server_config.reduce_limit_ratio = 'NaN' => a number that is not negative
query_server_config.db_tag = 'database' => one of name, prefix, none
query_server_config.db_tag = true => one of name, prefix, none
couchdb.os_process_timeout = 0 => is too small
couchdb.os_process_timeout = 'infinity' => milliseconds
couchdb.os_process_timeout = '-5s' => is negative
couchdb.os_process_timeout = '99999999999999999h' => is too large
query_servers.python = 5 => the command that starts the query server
query_servers.python = '' => the command is empty
query_servers.python = 'builtin' => only javascript is built in
query_servers.python = "a\u0000b" => is not what this key takes
query_servers.query = 'mango' => "query", Mango, is inside this program and takes no command
query_servers.Query = 'builtin' => takes no command
native_query_servers.query = false => query, Mango, is always on
query_servers.'' = 'x' => cannot be the name of a language
query_servers.'a b' = 'x' => cannot be the name of a language
native_query_servers.echo = 'yes' => true or false
native_query_servers.ecko = true => did you mean "echo"?
server.socket = 5 => the path of a Unix socket
server.tcp = 'localhost' => an IP address with a port
server.tcp = '127.0.0.1' => an IP address with a port
server.tcp = '127.0.0.1:70000' => an IP address with a port
server.tcp = '127.0.0.1:5994' => name one in [admins]
server.http = '0.0.0.0:5995' => can be reached from other machines
server.http = 'localhost' => an IP address with a port
server.body_max = 10 => is too small
chttpd_auth.timeout = 0 => is too small
chttpd_auth.secret = 5 => a secret is text
admins.ann = 5 => a password is text
admins.ann = '' => the password is empty
admins.ann = '***' => this is how a password is shown
admins.ann = '-pbkdf2-zz,salt,10' => it is no hash as CouchDB writes them
admins.'a:b' = 'secret' => without colons
server.tcp = false => "off"
server.line_max = 10 => is too small
server.line_max = '64 mebibytes' => "64MiB"
server.line_max = '9999999999999999999999999999999999999999GiB' => it must be
server.max_connections = 0 => is too small
server.shutdown_grace = '2h' => is too large
server.stop_grace = -1 => is negative
log.level = 'loud' => one of trace, debug, info, warning, error, critical, off
log.format = 'xml' => one of auto, terminal, json
sandbox.javascript_memory_max = 1 => is too small
"#;

/// Splits cases into section, setting and part of the message.
fn cases(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.trim().lines().map(|case| {
        let (setting, part) = case.split_once(" => ").expect("a case has an arrow");
        let (section, setting) = setting.split_once('.').expect("a case has a section");
        (section, setting, part)
    })
}

#[test]
fn a_value_of_the_wrong_type_or_range_says_what_would_be_right() {
    for (section, setting, part) in cases(WRONG_VALUES) {
        let fixture = Fixture::toml(&format!("[{section}]\n{setting}\n"));
        refuses(&fixture, "c.toml:2", &[part]);
    }
}

/// The same for an `.ini`.
const WRONG_INI_VALUES: &str = r#"
query_server_config.os_process_limit = -1 => is negative
query_server_config.os_process_limit = 1e3 => a whole number
query_server_config.os_process_limit = "5" => a whole number
query_server_config.reduce_limit_ratio = two => a number
query_server_config.reduce_limit = yes => one of true, false, log
couchdb.os_process_timeout = 5 seconds => milliseconds
native_query_servers.enable_erlang_query_server = true => no in-process language
"#;

#[test]
fn an_ini_is_held_to_the_same_rules() {
    for (section, setting, part) in cases(WRONG_INI_VALUES) {
        let fixture = Fixture::ini(&format!("; ours\n[{section}]\n{setting} ; why\n"));
        refuses(&fixture, "c.ini:3", &[part]);
    }
}

#[test]
fn text_that_is_not_the_format_is_refused_with_its_line() {
    refuses(
        &Fixture::toml("[log]\nlevel = info\n"),
        "c.toml:2",
        &["this is not TOML"],
    );
    refuses(
        &Fixture::toml("[log]\nlevel = \"info\n"),
        "c.toml:2",
        &["this is not TOML"],
    );
    refuses(
        &Fixture::toml("[log]\nlevel='info'\nlevel='off'\n"),
        "c.toml:3",
        &["not TOML"],
    );
    refuses(
        &Fixture::toml("[log]\n[server]\n[log]\n"),
        "c.toml:3",
        &["this is not TOML"],
    );
    refuses(
        &Fixture::ini("[log\nlevel = info\n"),
        "c.ini:1",
        &["closing bracket", "[log]"],
    );
    refuses(
        &Fixture::ini("[log]\nlevel info\n"),
        "c.ini:2",
        &["\"level info\""],
    );
    let bytes = Fixture::new().file("c.toml", b"[log]\n# caf\xe9\n");
    refuses(&bytes, "c.toml:2", &["not UTF-8"]);
}

#[test]
fn a_file_that_cannot_be_read_is_refused_by_name() {
    let mut missing = Fixture::new();
    missing.files.push(PathBuf::from("missing.toml"));
    refuses(
        &missing,
        "missing.toml",
        &["No such file", "name a file that exists"],
    );
    refuses(
        &Fixture::new().file("c.yaml", b""),
        "c.yaml",
        &[".toml or .ini"],
    );
    refuses(&Fixture::new().file("ini", b""), "ini", &[".toml or .ini"]);
    let mut directory = Fixture::new();
    std::fs::create_dir(directory.directory.path().join("d.toml")).expect("a directory");
    directory.files.push(PathBuf::from("d.toml"));
    refuses(&directory, "d.toml", &["directory"]);
    if Path::new("/dev/zero").exists() {
        let endless = Fixture::new();
        let link = endless.directory.path().join("z.ini");
        std::os::unix::fs::symlink("/dev/zero", link).expect("a link");
        let endless = Fixture {
            files: vec!["z.ini".into()],
            ..endless
        };
        refuses(&endless, "z.ini", &["larger than 16 MiB"]);
    }
}

#[test]
fn two_spellings_of_a_language_in_one_layer_are_refused() {
    let fixture = Fixture::toml("[query_servers]\nPython = 'a'\npython = 'b'\n");
    refuses(
        &fixture,
        "c.toml:3",
        &["\"Python\" at c.toml:2", "keep one of the two"],
    );
    let fixture = Fixture::ini("[query_servers]\nPython = a\npython = b\n");
    refuses(&fixture, "c.ini:3", &["\"Python\" at c.ini:2"]);
    let twice = Fixture::new()
        .variable("COUCHDB_QUERY_SERVER_Python", "a")
        .variable("COUCHDB_QUERY_SERVER_PYTHON", "b");
    assert_eq!(twice.refused().len(), 1);
    let layers = Fixture::toml("[query_servers]\nPython = 'a'\n")
        .file("d.ini", b"[query_servers]\nPYTHON = b\n");
    assert!(layers.line("python").starts_with("python = \"b\""));
}

#[test]
fn addresses_for_others_are_fine_once_there_is_an_admin_whose_password_is_not_shown() {
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
fn values_that_do_not_fit_together_are_refused() {
    let soft = "[query_server_config]\nos_process_limit = 5\nos_process_soft_limit = 6\n";
    refuses(
        &Fixture::toml(soft),
        "c.toml:3",
        &["(6) is above os_process_limit (5, c.toml:2)"],
    );
    let only_soft = Fixture::toml("[query_server_config]\nos_process_soft_limit = 101\n");
    refuses(&only_soft, "c.toml:2", &["os_process_limit (100, default)"]);
    let both = "[query_servers]\necho = 'cat'\n[native_query_servers]\necho = true\n";
    refuses(&Fixture::toml(both), "c.toml:2", &["\"echo\"", "c.toml:4"]);
    let long = format!("[server]\nsocket = '/{}'\n", "x".repeat(120));
    refuses(
        &Fixture::toml(&long),
        "c.toml:2",
        &["121 bytes", "use a shorter path"],
    );
}

#[test]
fn a_hard_limit_of_zero_is_fine_and_lowers_the_default_soft_limit() {
    let fixture = Fixture::toml("[query_server_config]\nos_process_limit = 0\n");
    assert!(
        fixture
            .line("os_process_soft_limit")
            .starts_with("os_process_soft_limit = 0 ")
    );
}

#[test]
fn every_problem_is_reported_and_counted() {
    let fixture = Fixture::toml("[lgo]\n[log]\nlevle = 1\nformat = 2\n")
        .file("d.ini", b"what\n[couchdb]\nos_process_timeout = never\n")
        .variable("SETTEE__SERVER__TCP", "on");
    let lines = fixture.refused();
    let places = [
        "c.toml:1: ",
        "c.toml:3: ",
        "c.toml:4: ",
        "d.ini:1: ",
        "d.ini:3: ",
        "environ",
    ];
    assert_eq!(lines.len(), places.len() + 1, "{lines:#?}");
    for (line, place) in lines.iter().zip(places) {
        assert!(
            line.starts_with(place),
            "{line:?} does not start with {place:?}"
        );
    }
    assert_eq!(lines[places.len()], "6 problems in the configuration");
}

#[test]
fn a_mistake_counts_even_where_a_later_layer_overrides_it() {
    let fixture = Fixture::toml("[log]\nlevel = 'loud'\n").file("d.toml", b"[log]\nlevel='info'\n");
    refuses(&fixture, "c.toml:2", &["\"loud\""]);
}

#[test]
fn other_parts_of_couchdb_are_passed_over_and_listed() {
    let text = "[couchdb]\nuuid = 1234\nos_process_timeout = 6000\n[chttpd]\nport = 5984\n\
                [vendor]\nname = x\n[query_server_config]\ncommit_freq = 5\n[ioq.bypass]\n\
                os_process = true\n[log]\nwriter = stderr\nlevel = notice\n\
                [native_query_servers]\nenable_erlang_query_server = false\n";
    let printed = Fixture::ini(text).accepted();
    for passed_over in [
        "c.ini:2: [couchdb] uuid",
        "c.ini:4: [chttpd]",
        "c.ini:6: [vendor]",
        "c.ini:9: [query_server_config] commit_freq",
        "c.ini:10: [ioq.bypass]",
        "c.ini:13: [log] writer",
        "c.ini:16: [native_query_servers] enable_erlang_query_server",
    ] {
        assert!(
            printed.contains(&format!("# {passed_over} ")),
            "{passed_over} in {printed}"
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
fn variables_of_couchdb_without_a_name_are_listed_and_ignored() {
    let fixture = Fixture::new().variable("COUCHDB_QUERY_SERVER_", "x");
    let printed = fixture.accepted();
    assert!(printed.contains("COUCHDB_QUERY_SERVER_: the name of the language is empty"));
}

#[test]
fn mango_is_always_there() {
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
fn a_command_may_be_anything_a_shell_takes_and_passwords_are_hidden() {
    let text = "[query_servers]\npython = A=1 sh -c 'a;b' --x=y\nr = run https://me:sesame@h/p\n";
    let printed = Fixture::ini(text).accepted();
    assert!(printed.contains("A=1 sh -c 'a;b' --x=y"), "{printed}");
    assert!(printed.contains("https://me:***@h/p"), "{printed}");
    assert!(!printed.contains("sesame"), "{printed}");
}

#[test]
fn javascript_is_built_in_unless_a_command_says_otherwise() {
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
