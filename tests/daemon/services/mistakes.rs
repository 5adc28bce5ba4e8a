//! Invalid service configurations: each mistake is reported with its place.

use settee::config::{Sources, load};

use crate::services::harness::Daemon;

/// Returns the error of a configuration file with this text.
fn mistakes(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.toml");
    std::fs::write(&file, text).unwrap();
    let sources = Sources {
        files: vec![file],
        ..Sources::default()
    };
    let error = load(&sources).map(|_| ()).unwrap_err();
    error.to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn every_mistake_in_a_service_is_reported_with_its_place() {
    let cases = [
        (
            "pool = \"p\"",
            &["does not say where it listens", "unix:/PATH"][..],
        ),
        (
            "listen = \"unix:/x/a.sock\"",
            &["neither a pool nor a language"],
        ),
        (
            "listen = \"unix:/x/a.sock\"\npool = \"p\"\nlanguage = \"javascript\"",
            &["are both set", "keep one"],
        ),
        (
            "listen = \"unix:/x/a.sock\"\npool = \"q\"",
            &["no such pool"],
        ),
        (
            "listen = \"unix:/x/a.sock\"\nlanguage = \"javascrip\"",
            &["no such language", "did you mean \"javascript\""],
        ),
        (
            "listen = \"/x/a.sock\"\npool = \"p\"",
            &["neither unix:PATH nor"],
        ),
        ("listen = \"unix:a.sock\"\npool = \"p\"", &["absolute"]),
        (
            "listen = \"example.org:99\"\npool = \"p\"",
            &["an IP address or localhost"],
        ),
        (
            "listen = \"0.0.0.0:5996\"\npool = \"p\"\nlocal_only = true",
            &["other machines", "leave local_only out"],
        ),
        (
            "listen = \"0.0.0.0:5996\"\npool = \"p\"",
            &["other machines", "without a login", "open = true"],
        ),
        (
            "listen = \"[::]:5996\"\npool = \"p\"\nlocal_only = false",
            &["other machines", "open = true"],
        ),
        (
            "listen = \"192.0.2.7:5996\"\npool = \"p\"\nopen = false",
            &["other machines", "open = true"],
        ),
        (
            "listen = \"127.0.0.1:5995\"\npool = \"p\"",
            &["[server] http listens there", "another address"],
        ),
        (
            "listen = \"unix:/x/b.sock\"\npool = \"p\"",
            &["[services.a] listens there"],
        ),
        (
            "listen = \"unix:/x/a.sock\"\npool = \"p\"\nstress = 3",
            &["one of yes, no"],
        ),
        (
            "listen = \"unix:/x/a.sock\"\npool = \"p\"\nclient_timeout = \"${stress?{10}:{300}}\"",
            &["client_timeout", "a whole number of seconds"],
        ),
        (
            "listen = \"unix:/x/a.sock\"\npool = \"p\"\nbacklock = 3",
            &["did you mean \"backlog\""],
        ),
    ];
    for (keys, words) in cases {
        let text = format!(
            "[pools.p]\nlanguage = \"javascript\"\n\
             [services.a]\nlisten = \"unix:/x/b.sock\"\npool = \"p\"\n[services.s]\n{keys}\n"
        );
        let told = mistakes(&text);
        for word in words {
            assert!(told.contains(word), "{keys}: {word} in {told}");
        }
        assert!(told.contains("c.toml:"), "{told}");
    }
}

#[test]
fn the_shown_settings_of_a_service_can_be_read_back() {
    let keys = "listen = \"localhost:0\"\nlanguage = \"javascript\"\nstress = true\n\
                client_timeout_stress = \"2min\"\nprompt_timeout = 5\n\
                throttle_delay = 30\nlocal_only = true\n";
    let read = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c.toml");
        std::fs::write(&file, text).unwrap();
        let sources = Sources {
            files: vec![file],
            ..Sources::default()
        };
        load(&sources)
            .unwrap_or_else(|e| panic!("{text} {e}"))
            .config
    };
    let config = read(&format!("[services.s]\n{keys}"));
    let shown: Vec<_> = config
        .settings()
        .iter()
        .filter(|setting| setting.section == "services.s")
        .map(|setting| setting.toml())
        .collect();
    assert!(
        shown.iter().any(|line| line == "stress = \"yes\""),
        "{shown:?}"
    );
    let again = read(&format!("[services.s]\n{}\n", shown.join("\n")));
    assert_eq!(again.services, config.services);
}

#[test]
fn a_local_service_needs_no_open_and_one_for_other_machines_may_set_it() {
    let read = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c.toml");
        std::fs::write(&file, text).unwrap();
        let sources = Sources {
            files: vec![file],
            ..Sources::default()
        };
        load(&sources).map(|loaded| loaded.config)
    };
    let service = "[services.s]\nlanguage = \"javascript\"\n";
    for local in [
        "127.0.0.1:5996",
        "[::1]:5996",
        "localhost:5996",
        "unix:/x/a.sock",
    ] {
        read(&format!("{service}listen = \"{local}\"\n")).unwrap();
    }
    let open = read(&format!(
        "{service}listen = \"0.0.0.0:5996\"\nopen = true\n"
    ));
    assert!(open.unwrap().services["s"].open);
}

#[actix_rt::test]
async fn the_folder_of_a_services_socket_is_not_created() {
    let pool = "[query_servers]\npython = \"SCRIPTED\"\n";
    let daemon = Daemon::start(pool).await;
    let service = "[services.a]\nlanguage = \"python\"\nlisten = \"unix:DIR/mistyped/a.sock\"\n";
    let error = daemon
        .reload(&format!("{pool}{service}"))
        .await
        .unwrap_err();
    let told = error.to_string();
    for word in [
        "[services.a] listen",
        "mistyped does not exist",
        "create the folder",
    ] {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert!(!daemon.path("mistyped").exists());
    // The folder of [server] socket is created before services start.
    let service = service.replace("mistyped", "run");
    daemon.reload(&format!("{pool}{service}")).await.unwrap();
    daemon.connect("run/a.sock").await.pid().await;
    daemon.stop().await;
}
