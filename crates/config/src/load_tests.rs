//! Tests of [`super`]: layers, origins, languages, defaults.

use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use super::super::Setting;
use super::super::keys;
use super::super::types::{LanguageCommand, LogLevel, ReduceLimit};
use super::*;
use crate::{PoolConfig, own_folder};

/// Configuration files in a temporary directory, and environment variables.
struct Fixture {
    directory: tempfile::TempDir,
    sources: Sources,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self {
            directory,
            sources: Sources::default(),
        }
    }

    fn file(mut self, name: &str, text: &str) -> Self {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        self.sources.files.push(path);
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources
            .surroundings
            .variables
            .push((name.into(), value.into()));
        self
    }

    fn load(&self) -> Loaded {
        load(&self.sources).unwrap_or_else(|error| panic!("refused:\n{error}"))
    }

    /// Returns the problems, without the directory in their places.
    fn problems(&self) -> Vec<String> {
        let directory = format!("{}/", self.directory.path().display());
        let error = load(&self.sources).expect_err("the configuration is wrong");
        error
            .problems
            .iter()
            .map(|p| p.to_string().replace(&directory, ""))
            .collect()
    }
}

#[test]
fn the_defaults_are_couchdbs() {
    let config = Config::default();
    assert_eq!(
        config.couchdb.os_process_timeout,
        Duration::from_millis(5000)
    );
    let limits = &config.query_server_config;
    assert_eq!(
        (limits.os_process_limit, limits.os_process_soft_limit),
        (100, 100)
    );
    assert_eq!(limits.os_process_idle_limit, Duration::from_secs(300));
    assert_eq!(limits.revs_limit, 20);
    assert_eq!(config.languages["javascript"], LanguageCommand::Builtin);
    assert!(!config.native_languages["echo"]);
    assert_eq!(config.server.tcp, None);
}

#[test]
fn the_reset_config_is_the_one_couchdb_sends() {
    let mut config = Config::default();
    let expected = "{\"reduce_limit\":true,\"reduce_limit_threshold\":5000,\
                    \"reduce_limit_ratio\":2.0,\"timeout\":5000}";
    assert_eq!(config.reset_config(), expected);
    config.query_server_config.reduce_limit = ReduceLimit::Log;
    assert!(
        config
            .reset_config()
            .starts_with("{\"reduce_limit\":\"log\",\"")
    );
    config.query_server_config.reduce_limit = ReduceLimit::False;
    assert!(
        config
            .reset_config()
            .starts_with("{\"reduce_limit\":false,\"")
    );
    config.query_server_config.reduce_limit_ratio = 1e300;
    let parsed: serde_json::Value =
        serde_json::from_str(&config.reset_config()).expect("the reset configuration is JSON");
    assert_eq!(parsed["reduce_limit_ratio"], 1e300);
}

#[test]
fn the_default_settings_list_every_declared_key() {
    let settings = Config::default().settings();
    let listed: Vec<_> = settings
        .iter()
        .map(|s| (s.section.as_str(), s.key.as_str()))
        .filter(|(section, _)| keys::kind(section, "any").is_none())
        .collect();
    let declared: Vec<_> = keys::fixed()
        .map(|(section, key)| (section, key.name))
        .collect();
    assert_eq!(listed, declared);
    assert!(
        settings
            .iter()
            .all(|setting| setting.origin == Origin::Default)
    );
}

#[test]
fn later_layers_win_and_every_value_knows_its_origin() {
    let fixture = Fixture::new()
        .file(
            "a.toml",
            "[couchdb]\nos_process_timeout = 1\n[log]\nlevel = 'error'\n",
        )
        .file(
            "b.ini",
            "[couchdb]\nos_process_timeout = 2\n[server]\nline_max = 2MiB\n",
        )
        .variable("SETTEE__SERVER__LINE_MAX", "3000000")
        .variable("SETTEE__SERVER__SOCKET", "/seven")
        .variable("SETTEE__SERVER__MAX_CONNECTIONS", "7");
    let sources = Sources {
        socket: Some("/eight".into()),
        overlay: [(("log".to_owned(), "format".to_owned()), "json".to_owned())].into(),
        ..fixture.sources.clone()
    };
    let config = load(&sources).unwrap().config;
    assert_eq!(config.couchdb.os_process_timeout, Duration::from_millis(2));
    assert_eq!(config.log.level, LogLevel::Error);
    assert_eq!(config.server.line_max, 3_000_000);
    assert_eq!(config.server.max_connections, 7);
    assert_eq!(config.server.socket, Path::new("/eight"));
    let origin = |section, key| {
        let text = config.origin(section, key).to_string();
        text.rsplit('/').next().unwrap_or_default().to_owned()
    };
    assert_eq!(origin("couchdb", "os_process_timeout"), "b.ini:2");
    assert_eq!(origin("log", "level"), "a.toml:4");
    let variable = "environment variable SETTEE__SERVER__LINE_MAX";
    assert_eq!(origin("server", "line_max"), variable);
    assert_eq!(origin("server", "socket"), "option --socket");
    assert_eq!(origin("log", "format"), "set over HTTP");
    assert_eq!(origin("server", "tcp"), "default");
}

#[test]
fn a_value_hidden_by_one_set_over_http_is_reported_with_its_place() {
    let mut fixture = Fixture::new()
        .file("a.toml", "[couchdb]\nos_process_timeout = 1\n")
        .file(
            "b.toml",
            "[couchdb]\nos_process_timeout = 2\n[log]\nformat = \"json\"\n",
        );
    let set = |section: &str, key: &str, value: &str| ((section.into(), key.into()), value.into());
    fixture.sources.overlay = [
        set("couchdb", "os_process_timeout", "7"),
        set("log", "format", "json"),
        set("query_server_config", "os_process_limit", "8"),
    ]
    .into();
    let loaded = fixture.load();
    assert_eq!(
        loaded.config.couchdb.os_process_timeout,
        Duration::from_millis(7)
    );
    let [notice] = &loaded.notices[..] else {
        panic!("{:?}", loaded.notices)
    };
    let text = notice.to_string();
    assert!(
        text.contains("b.toml:2: [couchdb] os_process_timeout: another value"),
        "{text}"
    );
    assert!(
        text.contains("DELETE /_node/_local/_config/couchdb/os_process_timeout"),
        "{text}"
    );
}

#[test]
fn sections_of_pools_and_services_may_name_languages_of_the_program() {
    let fixture = Fixture::new().file(
        "a.toml",
        "[pools.t]\nlanguage = \"tally\"\n[pools.tally]\nmax = 2\n[services.s]\nlanguage = \"tally\"\n\
         listen = \"unix:/tmp/s\"\n[services.p]\npool = \"tally\"\nlisten = \"unix:/tmp/p\"\n",
    );
    let unknown = fixture.problems().join("\n");
    assert!(
        unknown.contains("no such language is configured"),
        "{unknown}"
    );
    let sources = Sources {
        languages: vec!["tally".to_owned()],
        ..fixture.sources.clone()
    };
    let loaded = load(&sources).unwrap_or_else(|error| panic!("refused:\n{error}"));
    assert!(loaded.config.pools.contains_key("t"));
    let later = loaded.config.terms_of_later_pools();
    assert!(
        later.is_empty(),
        "the pool of a language exists from the start: {later:?}"
    );
}

/// Returns sources that name no file, with this text in the usual file.
fn usual(text: &str) -> Fixture {
    let mut fixture = Fixture::new().file("usual.toml", text);
    fixture.sources.usual_file = fixture.sources.files.pop();
    fixture
}

#[test]
fn the_usual_file_is_read_if_none_is_named() {
    let fixture = usual("[log]\nlevel = 'error'\n");
    let config = fixture.load().config;
    assert_eq!(config.log.level, LogLevel::Error);
    assert_eq!(Some(&config.files[0]), fixture.sources.usual_file.as_ref());
    let named = fixture.file("named.toml", "[server]\ntcp = '127.0.0.1:1'\n");
    let config = named.load().config;
    assert_eq!(config.origin("log", "level"), Origin::Default);
    assert_eq!(config.files, named.sources.files);
}

#[test]
fn a_missing_usual_file_is_ignored() {
    let mut fixture = Fixture::new();
    fixture.sources.usual_file = Some(fixture.directory.path().join("none.toml"));
    let loaded = fixture.load();
    assert!(loaded.config.files.is_empty() && loaded.notices.is_empty());
}

#[test]
fn a_mistake_in_the_usual_file_is_reported_with_its_place() {
    let problems = usual("[log]\nlevel = 7\n").problems();
    assert!(problems[0].starts_with("usual.toml:2: "), "{problems:?}");
}

#[test]
fn names_of_languages_ignore_case_and_later_layers_win() {
    let fixture = Fixture::new()
        .file(
            "a.toml",
            "[query_servers]\nPython = 'one'\n'my.lang' = 'dots'\n",
        )
        .variable("COUCHDB_QUERY_SERVER_PYTHON", "two")
        .variable("COUCHDB_QUERY_SERVER_JAVASCRIPT", "couchjs main.js");
    let languages = fixture.load().config.languages;
    let command = |text: &str| LanguageCommand::Command(text.to_owned());
    assert_eq!(languages["python"], command("two"));
    assert_eq!(languages["my.lang"], command("dots"));
    assert_eq!(languages["javascript"], command("couchjs main.js"));
    assert_eq!(languages.len(), 3);
}

#[test]
fn an_empty_value_in_an_ini_restores_the_default() {
    let fixture = Fixture::new()
        .file(
            "a.toml",
            "[query_servers]\npython='x'\njavascript='y'\n[log]\nlevel='off'\n",
        )
        .file(
            "b.ini",
            "[query_servers]\npython =\njavascript = ; none\n[log]\nlevel=\n",
        );
    let config = fixture.load().config;
    assert_eq!(config.languages.len(), 1);
    assert_eq!(config.languages["javascript"], LanguageCommand::Builtin);
    assert_eq!(config.log.level, LogLevel::Info);
    assert_eq!(config.origin("log", "level"), Origin::Default);
}

#[test]
fn a_default_soft_limit_follows_the_hard_limit_and_a_set_one_is_checked() {
    let fixture = Fixture::new().file("a.toml", "[query_server_config]\nos_process_limit=0\n");
    assert_eq!(
        fixture
            .load()
            .config
            .query_server_config
            .os_process_soft_limit,
        0
    );
    let text = "[query_server_config]\nos_process_limit=3\nos_process_soft_limit = 4\n";
    let problems = Fixture::new().file("a.toml", text).problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("a.toml:3: [query_server_config] os_process_soft_limit (4)"));
    assert!(problems[0].contains("a.toml:2"), "{problems:?}");
}

#[test]
fn a_soft_limit_above_the_hard_one_in_an_ini_is_lowered_with_a_notice() {
    let text = "[query_server_config]\nos_process_limit=3\nos_process_soft_limit = 4\n";
    let loaded = Fixture::new().file("a.ini", text).load();
    let limits = &loaded.config.query_server_config;
    assert_eq!(
        (limits.os_process_limit, limits.os_process_soft_limit),
        (3, 3)
    );
    assert_eq!(loaded.notices.len(), 1);
    let text = loaded.notices[0].to_string();
    assert!(text.contains("a.ini:3: "), "{text}");
    assert!(text.contains("os_process_soft_limit (4)"), "{text}");
    assert!(text.contains("counts as 3"), "{text}");
}

#[test]
fn every_problem_of_every_source_is_reported_at_once() {
    let fixture = Fixture::new()
        .file("a.toml", "[lgo]\n[log]\nlevle = 1\nformat = 'xml'\n")
        .file("b.toml", "x = [\n")
        .variable("SETTEE__LOG__LEVEL", "loud");
    let problems = fixture.problems();
    let starts = ["a.toml:1: ", "a.toml:3: ", "a.toml:4: ", "b.toml:"];
    for (problem, start) in problems.iter().zip(starts) {
        assert!(
            problem.starts_with(start),
            "{problem:?} does not start with {start:?}"
        );
    }
    assert!(
        problems
            .last()
            .is_some_and(|p| p.contains("SETTEE__LOG__LEVEL")),
        "{problems:?}"
    );
}

#[test]
fn the_log_file_of_couchdb_is_not_the_services() {
    let text = "[log]\nfile = /var/log/couchdb/couch.log\n";
    let loaded = Fixture::new().file("a.ini", text).load();
    assert_eq!(loaded.config.log.file, None);
    let text = loaded.notices[0].to_string();
    assert!(
        text.contains("a.ini:2: [log] file is where CouchDB logs"),
        "{text}"
    );
}

#[test]
fn a_duplicate_key_of_an_ini_takes_the_last_value_and_is_listed() {
    let fixture = Fixture::new().file("a.ini", "[log]\nlevel=off\nlevel=error\n");
    let loaded = fixture.load();
    assert_eq!(loaded.config.log.level, LogLevel::Error);
    assert_eq!(loaded.notices.len(), 1);
    let text = loaded.notices[0].to_string();
    assert!(
        text.contains("a.ini:3: [log] level is also set at"),
        "{text}"
    );
}

#[test]
fn a_soft_limit_that_need_not_follow_keeps_its_origin() {
    let text = "[query_server_config]\nos_process_limit=100\n";
    let config = Fixture::new().file("a.toml", text).load().config;
    let origin = config.origin("query_server_config", "os_process_soft_limit");
    assert_eq!(origin, Origin::Default);
}

#[test]
fn a_pool_has_a_section_of_its_name_in_every_source() {
    let fixture = Fixture::new()
        .file(
            "a.toml",
            "[query_servers]\npython = 'couchpy'\n[pools.Py-1]\nlanguage = 'Python'\nmax = 3\n\
             max_age = '1h'\n[pools.javascript]\nmin_free = 2\n",
        )
        .file(
            "b.ini",
            "[pools.py-1]\nmax = 5 ; more\nqueue_max = off\n[pools.b]\nlanguage=query\n",
        )
        .variable("SETTEE__POOLS__B__MAX", "7");
    let config = fixture.load().config;
    let names: Vec<&str> = config.pools.keys().map(String::as_str).collect();
    assert_eq!(names, ["b", "javascript", "py-1"]);
    let pool = &config.pools["py-1"];
    assert_eq!(pool.language.as_deref(), Some("python"));
    assert_eq!((pool.max, pool.queue_max), (Some(5), None));
    assert_eq!(pool.max_age, Duration::from_secs(3600));
    assert_eq!(config.pools["javascript"].min_free, 2);
    assert_eq!(config.pools["javascript"].max, None);
    let origin = |section: &str, key: &str| config.origin(section, key).to_string();
    assert!(origin("pools.py-1", "max").ends_with("b.ini:2"));
    assert!(origin("pools.py-1", "language").ends_with("a.toml:4"));
    assert_eq!(
        origin("pools.b", "max"),
        "environment variable SETTEE__POOLS__B__MAX"
    );
    assert_eq!(origin("pools.b", "min_free"), "default");
    // The output can be read again.
    let shown: Vec<String> = config.settings().iter().map(Setting::toml).collect();
    assert!(shown.contains(&"max_age = 3600".to_owned()), "{shown:?}");
    assert!(
        shown.contains(&"queue_max = \"off\"".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn names_of_pools_and_services_are_letters_digits_underscores_dashes_and_inner_dots() {
    let good = Fixture::new()
        .file(
            "a.toml",
            "[pools.\"eu.Re-port_1\"]\nlanguage = 'query'\nmax = 3\ngroup = 'eu.all'\n\
             [services.\"eu.re\"]\nlisten = 'unix:/x/a.sock'\npool = 'eu.re-port_1'\n",
        )
        .file("b.ini", "[pools.eu.re-port_1]\nmax = 5\n");
    let config = good.load().config;
    assert_eq!(config.pools["eu.re-port_1"].max, Some(5));
    let mut shown = config.settings();
    shown.retain(|setting| setting.key == "max" || setting.key == "listen");
    let headings: Vec<_> = shown.iter().map(Setting::heading).collect();
    assert_eq!(headings, ["pools.\"eu.re-port_1\"", "services.\"eu.re\""]);
    for name in [
        "a b", "a/b", "..", ".a", "a.", "_a", "-a", "ä", "a:b", "a,b", "a$(b)", "a'b", "a;b",
        "a%2fb", "a\\u001b", "a<b>", "",
    ] {
        for section in [
            format!("[pools.\"{name}\"]\nlanguage = 'query'\n"),
            format!("[services.\"{name}\"]\nlisten = 'unix:/x/a.sock'\nlanguage = 'query'\n"),
            format!("[pools.p]\nlanguage = 'query'\ngroup = \"{name}\"\n"),
            format!("[services.s]\nlisten = 'unix:/x/a.sock'\npool = \"{name}\"\n"),
            format!("[query_servers]\n\"{name}\" = 'x'\n"),
        ] {
            let problems = Fixture::new().file("a.toml", &section).problems();
            let told = problems.iter().any(|told| told.contains("inner dots"));
            assert!(told, "{section} {problems:?}");
        }
    }
    let long = format!("[pools.{}]\nlanguage = 'query'\n", "a".repeat(101));
    let problems = Fixture::new().file("a.toml", &long).problems();
    assert!(problems[0].contains("1 to 100"), "{problems:?}");
    // User names follow different rules.
    let user = "[users.\"ann@example.org\"]\npassword = 'x'\nroles = 'viewer'\n";
    Fixture::new().file("a.toml", user).load();
}

#[test]
fn the_socket_s_path_leaves_room_for_the_longer_http_path() {
    let with = |length: usize| {
        let text = format!("[server]\nsocket = '/{}'\n", "x".repeat(length - 1));
        Fixture::new().file("a.toml", &text)
    };
    with(93).load();
    let problems = with(94).problems();
    assert!(problems[0].contains("94 bytes"), "{problems:?}");
}

#[test]
fn the_folder_of_a_relative_store_is_closed_to_query_servers() {
    let here = std::env::current_dir().unwrap();
    let cells = format!("[query_server_config]\nread_paths = {here:?}\n");
    let text = format!("[store]\npath = 's.redb'\n{cells}");
    let problems = Fixture::new().file("a.toml", &text).problems();
    assert!(
        problems[0].contains("the place of the store"),
        "{problems:?}"
    );
}

#[test]
fn a_directory_named_as_the_store_has_the_store_and_the_generated_files() {
    let mut fixture = Fixture::new();
    fixture.sources.is_for_service = true;
    let data = fixture.directory.path().join("data");
    own_folder::make(&data).unwrap();
    let text = format!("[store]\npath = {data:?}\n");
    let config = fixture.file("a.toml", &text).load().config;
    assert_eq!(config.store.path, data.join("settee.redb"));
    let password = config.admin_password_file();
    assert_eq!(password, Some(data.join(generated::FILE)));
}

#[test]
fn a_home_that_is_not_utf8_is_a_problem_that_names_it() {
    let mut sources = Sources::default();
    let home = std::ffi::OsString::from_vec(b"/h\xff".to_vec());
    sources.surroundings.variables = vec![("HOME".into(), home)];
    sources.surroundings.user_id = 7;
    let error = load(&sources).unwrap_err().to_string();
    assert!(error.starts_with("/h\u{fffd}/.local/"), "{error}");
}

#[test]
fn an_unquoted_name_with_dots_is_reported_with_its_right_form() {
    let text = "[pools.eu.reports]\nlanguage = 'query'\n";
    let problems = Fixture::new().file("a.toml", text).problems();
    assert!(
        problems[0].contains("write it [pools.\"eu.reports\"]"),
        "{problems:?}"
    );
}

#[test]
fn mistakes_in_the_sections_of_pools_are_reported_with_their_place_and_the_nearest_key() {
    let text = "[pools.a]\nlanguage = 'perl'\n[pools.b]\nmax = 2\n\
                [pools.c]\nlanguage = 'query'\nmaxx = 1\n[pools.d]\nlanguage = 'query'\n\
                init_size = 3\nmax = 2\n[pools.javascript]\nlanguage = 'query'\n\
                [pools._x]\nmax = 1\n[pool.y]\nmax = 1\n[pools.e]\nlanguage='query'\nmax='many'\n\
                max_memory = '2MiB'\nmax_memory_hard = '1MiB'\n";
    let problems = Fixture::new().file("a.toml", text).problems();
    let expected = [
        "a.toml:16: there is no section [pool]: did you mean [pools.NAME]?",
        "a.toml:14: \"_x\" cannot be the name of a section [pools.NAME]: use 1 to 100 of \
         a to z, digits, _, - and inner dots, beginning with a letter or a digit",
        "a.toml:7: there is no key \"maxx\" in section [pools.c]: did you mean \"max\"?",
        "a.toml:20: [pools.e] max: the text \"many\" is not valid for this key: it must be a whole \
         number from 0 to 1000000",
        "a.toml:2: [pools.a] language = \"perl\": no such language is configured: name its command \
         in [query_servers], or take one of javascript, query",
        "a.toml:4: [pools.b] language is missing: add language = \"NAME\", one of javascript, query",
        "a.toml:10: [pools.d] init_size (3) is above max (2): lower init_size to 2 or less, or raise \
         max",
        "a.toml:21: [pools.e] max_memory (2097152 bytes) is above max_memory_hard (1048576 bytes): \
         raise max_memory_hard, or lower max_memory",
        "a.toml:13: [pools.javascript] language = \"query\": the section is that of the language \
         \"javascript\" itself: leave the key out, or give the pool another name",
    ];
    let (found, wanted): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) = (
        problems.iter().map(String::as_str).collect(),
        expected.into_iter().collect(),
    );
    assert_eq!(found, wanted);
}

#[test]
fn the_pools_of_a_group_speak_one_language() {
    let text = "[pools.a]\nlanguage = 'javascript'\ngroup = 'g'\n\
                [pools.b]\nlanguage = 'query'\ngroup = 'G'\n\
                [pools.javascript]\ngroup = 'g'\n";
    let problems = Fixture::new().file("a.toml", text).problems();
    assert_eq!(
        problems,
        [
            "a.toml:6: [pools.b] group = \"g\": the pool \"a\" of this group speaks \"javascript\" and \
          not \"query\", but a group has one language: take another group"
        ]
    );
}

#[test]
fn variables_of_pools_need_name_and_key_and_empty_sections_get_a_notice() {
    let problems = Fixture::new()
        .variable("SETTEE__POOLS__MAX", "1")
        .problems();
    assert_eq!(
        problems,
        [
            "environment variable SETTEE__POOLS__MAX: the name lacks the NAME and KEY of a section [pools.NAME]: \
          name it SETTEE__POOLS__NAME__KEY"
        ]
    );
    let loaded = Fixture::new().file("a.ini", "[pools.javascript]\n").load();
    assert!(loaded.config.pools.is_empty());
    assert!(
        loaded.notices[0]
            .text
            .ends_with("is empty and has no effect")
    );
    let problems = Fixture::new()
        .file("a.toml", "[pools]\nmax = 1\n")
        .problems();
    assert!(
        problems[0].contains("which has sections only"),
        "{problems:?}"
    );
}

#[test]
fn couchdbs_replicator_keys_are_accepted_and_meaningless_ones_in_an_ini_get_a_notice() {
    let ini = "[replicator]\nibrowse_options = [{x, y}]\nmax_jobs = 7\nrequest_timeout = 9\n\
               interval = infinity\n[replicator.shares]\nMy/_replicator = 200\n";
    let problems = Fixture::new().file("local.ini", ini).problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("[replicator] interval"),
        "{problems:?}"
    );
    let ini = ini.replace("interval = infinity\n", "");
    let loaded = Fixture::new().file("local.ini", &ini).load();
    let settings = &loaded.config.replicator;
    assert_eq!((settings.max_jobs, settings.max_churn), (7, 20));
    assert_eq!(settings.request_timeout, Some(Duration::from_millis(9)));
    assert_eq!(settings.shares["My/_replicator"], 200);
    let notices: Vec<_> = loaded.notices.iter().map(ToString::to_string).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("ibrowse_options has no meaning here"));
}

#[test]
fn tenants_are_configured_by_name_and_by_pattern() {
    let toml = "[tenants.\"*\"]\nprocesses_max = 4\nqueue_max = 50\n\
                [tenants.\"Acme-*\"]\nprocesses_max = 8\n[tenants.shop]\nqueue_max = 0\n";
    let loaded = Fixture::new().file("a.toml", toml).load();
    let tenants = loaded.config.tenants.iter();
    let tenants = tenants
        .map(|(name, tenant)| (name.as_str(), tenant.processes_max, tenant.queue_max))
        .collect::<Vec<_>>();
    let expected = [
        ("*", Some(4), Some(50)),
        ("Acme-*", Some(8), None),
        ("shop", None, Some(0)),
    ];
    assert_eq!(tenants, expected);
    let settings = loaded.config.settings();
    let shown = settings
        .iter()
        .filter(|one| one.section == "tenants.Acme-*");
    let shown: Vec<_> = shown.map(|one| (one.heading(), one.toml())).collect();
    let heading = "tenants.\"Acme-*\"".to_owned();
    assert_eq!(shown, [(heading, "processes_max = 8".to_owned())]);
    let wrong = "[tenants.\"a*b\"]\nprocesses_max = 1\n";
    let problems = Fixture::new().file("a.toml", wrong).problems();
    assert!(problems[0].contains("only at the end"), "{problems:?}");
}

#[test]
fn shares_have_a_section_of_their_own_in_toml_too() {
    let toml = "[replicator.shares]\n_replicator = 1\n\"a/_replicator\" = \"1000\"\n";
    let loaded = Fixture::new().file("a.toml", toml).load();
    let shares: Vec<_> = loaded.config.replicator.shares.into_iter().collect();
    let expected = [
        ("_replicator".to_owned(), 1),
        ("a/_replicator".to_owned(), 1000),
    ];
    assert_eq!(shares, expected.map(|(name, share)| (name, share)));
    for wrong in ["0", "1001", "\"x\"", "{}"] {
        let toml = format!("[replicator.shares]\nx = {wrong}\n");
        let problems = Fixture::new().file("a.toml", &toml).problems();
        assert!(
            problems[0].contains("[replicator.shares] x"),
            "{problems:?}"
        );
    }
    let variable = "SETTEE__REPLICATOR__SHARES__Ann_B";
    let loaded = Fixture::new().variable(variable, "7").load();
    assert_eq!(loaded.config.replicator.shares["Ann_B"], 7);
    let problems = Fixture::new()
        .file("a.toml", "[replicator.share]\nx = 1\n")
        .problems();
    assert!(
        problems[0].contains("there is no key \"share\""),
        "{problems:?}"
    );
}

#[test]
fn invalid_and_contradictory_replicator_keys_are_reported() {
    for (toml, key) in [
        (
            "[replicator]\nbackoff_base = 10\nbackoff_max = 9\n",
            "backoff_max",
        ),
        ("[replicator]\ncert_file = \"a\"\n", "cert_file"),
        ("[replicator]\nworker_processes = 0\n", "worker_processes"),
        ("[replicator]\nusage_coeff = 1.5\n", "usage_coeff"),
        ("[replicator]\npassword = \"x\"\n", "openssl pkey"),
        ("[replicator]\nauth_plugins = \"session\"\n", "auth_plugins"),
    ] {
        let problems = Fixture::new().file("a.toml", toml).problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(key), "{problems:?}");
    }
}

#[test]
fn a_bad_store_url_is_reported_with_its_line_and_without_its_password() {
    let text = "[store]\n\nurl = \"postgres://u:secret@host:port/db\"\n";
    let problems = Fixture::new().file("a.toml", text).problems();
    let expected =
        "a.toml:3: [store] url: a host's port is not a number from 1 to 65535: it must be text";
    assert!(problems[0].starts_with(expected), "{problems:?}");
    assert!(!problems[0].contains("secret"), "{problems:?}");
}

#[test]
fn the_url_of_the_store_comes_from_the_environment_and_is_shown_without_its_password() {
    let url = "postgres://u:hunter2@host/db?sslmode=require";
    let loaded = Fixture::new().variable("SETTEE__STORE__URL", url).load();
    let settings = loaded.config.settings();
    let shown = settings
        .iter()
        .find(|setting| setting.key == "url")
        .map(Setting::shown);
    let expected = "postgres://u:***@host/db?sslmode=require";
    assert_eq!(shown.as_deref(), Some(expected));
    assert!(!format!("{:?}", loaded.config).contains("hunter2"));
    assert_eq!(Config::default().store.url, None);
}

#[test]
fn an_unknown_system_call_is_reported_with_its_place() {
    let names = "[query_server_config]\nsystem_calls_allowed = \"flock, inotify_init1\"\n";
    let wrong = "[pools.python]\nsystem_calls_allowed = [\"flock\", \"floc\"]\n";
    let problems = Fixture::new()
        .file("a.toml", &format!("{names}{wrong}"))
        .problems();
    let expected = "a.toml:4: [pools.python] system_calls_allowed: there is no system call 'floc': it must be names of \
                    system calls of this machine's processor, as a list or with commas";
    assert_eq!(problems, [expected]);
    let loaded = Fixture::new().file("a.toml", names).load();
    let (cell, _) = loaded.config.cell(&PoolConfig::default().cell);
    assert_eq!(cell.system_calls, ["flock", "inotify_init1"]);
}
