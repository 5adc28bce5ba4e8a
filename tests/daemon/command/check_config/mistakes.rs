//! Configurations that `settee check-config` refuses: every mistake with its place and a remedy.

use super::*;

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
        &["[wholly_unknown]", "take one of"],
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
    let couchdb = Fixture::toml("[couchdb]\ndatabase_dir = '/x'\n");
    let all = "leave out what is CouchDB's alone, or take one of os_process_timeout";
    refuses(&couchdb, "c.toml:2", &["\"database_dir\"", all]);
    let dotted = Fixture::toml("log.levle = 'info'\n");
    refuses(&dotted, "c.toml:1", &["did you mean \"level\"?"]);
    let nested = Fixture::toml("[log.colour]\nname = 'x'\n");
    refuses(&nested, "c.toml:1", &["\"colour\"", "[log]"]);
    let variable = Fixture::new().variable("SETTEE__LOG__LEVLE", "info");
    refuses(
        &variable,
        "environment variable SETTEE__LOG__LEVLE",
        &["\"level\""],
    );
}

#[test]
fn a_key_outside_of_any_section_is_reported_with_the_section_it_belongs_in() {
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
query_server_config.os_process_limit = [1] => a list is not valid for this key
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
query_servers.python = "a\u0000b" => is not valid for this key
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
server.open = 'yes' => true or false
server.hosts = 'a:80' => names of hosts without ports
server.hosts = ['a', 5] => names of hosts without ports
users.carol = { roles = ['viewer'] } => has no password
users.carol = { password = 'x', roles = 'viewer', color = 1 } => there is no key
users.carol = { password = 'x' } => has no roles
users.carol = { password = 'x', roles = 'viewer', pools = ['a'] } => without the role caller
users.carol = { password = 'x', roles = 'caller', pools = ['a b'] } => names of pools
users.'a:b' = { password = 'x', roles = 'viewer' } => could never log in
server.http = 'localhost' => an IP address with a port
server.body_max = 10 => is too small
chttpd_auth.timeout = 0 => is too small
chttpd_auth.secret = 5 => a secret is text
admins.ann = 5 => a password is text
admins.ann = '' => the password is empty
admins.ann = '***' => this is how a password is shown
admins.ann = '-pbkdf2-zz,salt,10' => it is not a hash as CouchDB writes them
admins.'a:b' = 'secret' => without colons
server.tcp = false => "off"
server.line_max = 10 => is too small
server.line_max = '64 mebibytes' => "64MiB"
server.line_max = '9999999999999999999999999999999999999999GiB' => it must be
server.max_connections = 0 => is too small
server.shutdown_grace = '2h' => is too large
server.stop_grace = -1 => is negative
log.level = 'loud' => one of off, critical, error, warning, info, debug, trace
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
fn a_value_of_the_wrong_type_or_range_is_refused_with_the_valid_ones() {
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
fn an_ini_follows_the_same_rules() {
    for (section, setting, part) in cases(WRONG_INI_VALUES) {
        let fixture = Fixture::ini(&format!("; ours\n[{section}]\n{setting} ; why\n"));
        refuses(&fixture, "c.ini:3", &[part]);
    }
}

#[test]
fn a_syntax_error_is_refused_with_its_line() {
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
        &["nor a ; comment"],
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
fn conflicting_values_are_refused() {
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
fn commands_that_cannot_be_started_are_listed_in_comments() {
    let fixture = Fixture::toml(
        "[query_servers]\nperl = \"no-such-program server\"\nlua = \"lua 'server\"\npython = \"sh 'server'\"\n",
    );
    let run = fixture.run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let (_, listed) = run
        .stdout
        .split_once("# Commands that cannot be started:\n")
        .unwrap();
    let [lua, perl] = listed.lines().collect::<Vec<_>>()[..] else {
        panic!("{listed}");
    };
    assert!(
        lua.starts_with("# [query_servers] lua: ") && lua.contains("nterminated"),
        "{lua}"
    );
    let missing = "# [query_servers] perl: the program 'no-such-program' was not found";
    assert!(perl.starts_with(missing), "{perl}");
}

#[test]
fn a_mistake_is_refused_even_if_a_later_layer_overrides_it() {
    let fixture = Fixture::toml("[log]\nlevel = 'loud'\n").file("d.toml", b"[log]\nlevel='info'\n");
    refuses(&fixture, "c.toml:2", &["\"loud\""]);
}

#[test]
fn a_file_that_serve_cannot_open_is_refused_with_the_same_message() {
    let pem =
        "[ssl]\nenable = true\nport = 0\ncert_file = \"DIR/c.pem\"\nkey_file = \"DIR/k.pem\"\n";
    let service = "[services.a]\nlanguage = \"javascript\"\nlisten = \"unix:DIR/none/a.sock\"\n";
    for (text, says) in [
        (pem, ".pem: "),
        (
            "[replicator]\nssl_trusted_certificates_file = \"DIR/c.pem\"\n",
            "c.pem",
        ),
        ("[log]\nfile = \"DIR/none/log\"\n", "[log] file"),
        ("[log]\naudit = \"DIR\"\n", "[log] audit"),
        (service, "none does not exist"),
    ] {
        for is_there in [false, true] {
            let mut fixture = Fixture::new();
            let folder = fixture.directory.path().to_owned();
            let text = text.replace("DIR", folder.to_str().expect("UTF-8"));
            let socket = folder.join("s.sock");
            let text = format!(
                "[server]\nsocket = {socket:?}\nhttp = \"off\"\n[store]\npath = \"memory\"\n{text}"
            );
            if is_there {
                // An invalid certificate.
                std::fs::write(folder.join("c.pem"), "x").expect("it is written");
            }
            fixture = fixture.file("c.toml", text.as_bytes());
            let refusal = fixture.refused();
            assert!(refusal[0].contains(says), "{refusal:?}");
            let mut serve = program();
            serve.args(["serve", "-c", "c.toml"]).current_dir(&folder);
            std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .expect("it is this user's");
            let serve = Run::of(serve.output().expect("it ends"));
            let strip = |line: &str| line.strip_prefix("settee: ").map(str::to_owned);
            let served: Vec<String> = serve.stderr.lines().filter_map(strip).collect();
            assert_eq!((serve.code, served), (78, refusal));
        }
    }
}
