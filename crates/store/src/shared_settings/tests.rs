#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::suite::fake_fleet::FakeFleet;
use settee_config::load;

/// The sources of a daemon with a data folder and this configuration.
fn sources(folder: &Path, text: &str) -> Sources {
    let file = folder.join("settee.toml");
    fs::write(
        &file,
        format!(
            "[store]\npath = \"{}/data/s.redb\"\n{text}",
            folder.display()
        ),
    )
    .unwrap();
    Sources {
        files: vec![file],
        socket: Some(folder.join("s.sock")),
        is_for_service: true,
        ..Sources::default()
    }
}

fn config(folder: &Path, text: &str) -> Config {
    load(&sources(folder, text)).unwrap().config
}

#[tokio::test]
async fn the_first_daemon_creates_the_secrets_and_the_others_adopt_them() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fleet = FakeFleet::default();
    let first = config(one.path(), "");
    assert!(!join(&fleet, &first).await.unwrap());
    let second = config(two.path(), "");
    assert_ne!(second.chttpd_auth.secret, first.chttpd_auth.secret);
    assert!(join(&fleet, &second).await.unwrap());
    let second = config(two.path(), "");
    assert_eq!(second.chttpd_auth.secret, first.chttpd_auth.secret);
    assert_eq!(second.admins, first.admins);
    assert!(!join(&fleet, &second).await.unwrap());
    // The first daemon restarts without its folder.
    fs::remove_dir_all(one.path().join("data")).unwrap();
    assert!(join(&fleet, &config(one.path(), "")).await.unwrap());
    assert_eq!(config(one.path(), "").admins, first.admins);
}

const ANN: &str = "[admins]\nann = \"sesame-one\"\n[chttpd_auth]\nsecret = \"of cookies\"\n";

#[tokio::test]
async fn explicit_secrets_override_generated_ones_and_are_never_stored_in_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = FakeFleet::default();
    join(&fleet, &config(folder.path(), ANN)).await.unwrap();
    assert!(!folder.path().join("data").exists());
    let kept = format!("{fleet:?}");
    assert!(
        !kept.contains("sesame") && !kept.contains("cookies"),
        "{kept}"
    );
    assert!(kept.contains("[admins] ann"), "{kept}");
}

#[tokio::test]
async fn an_explicit_secret_that_differs_from_that_of_a_running_daemon_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = FakeFleet::default();
    let same = config(folder.path(), ANN);
    join(&fleet, &same).await.unwrap();
    fleet.set_running(1);
    join(&fleet, &same).await.unwrap();
    for (other, key) in [
        (ANN.replace("-one", "-two"), "[admins] ann: "),
        (ANN.replace("cookies", "biscuits"), "[chttpd_auth] secret: "),
    ] {
        let error = join(&fleet, &config(folder.path(), &other)).await;
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
        assert!(error.contains("both must be the same"), "{error}");
        assert!(
            !error.contains("sesame") && !error.contains("cookies"),
            "{error}"
        );
    }
    // An additional admin is not a conflict.
    let more = ANN.replace("[chttpd", "bob = \"fine\"\n[chttpd");
    join(&fleet, &config(folder.path(), &more)).await.unwrap();
    let other = more.replace("fine", "three");
    join(&fleet, &config(folder.path(), &other))
        .await
        .unwrap_err();
}

#[tokio::test]
async fn an_explicit_secret_may_change_while_no_other_daemon_runs_or_by_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = FakeFleet::default();
    join(&fleet, &config(folder.path(), ANN)).await.unwrap();
    let second = config(folder.path(), &ANN.replace("-one", "-two"));
    join(&fleet, &second).await.unwrap();
    fleet.set_running(1);
    let third = config(folder.path(), &ANN.replace("-one", "-three"));
    join(&fleet, &third).await.unwrap_err();
    tell_explicit(&fleet, &third).await.unwrap();
    join(&fleet, &third).await.unwrap();
    join(&fleet, &second).await.unwrap_err();
    // A lone daemon drops secrets that are no longer configured.
    fleet.set_running(0);
    let folder = tempfile::tempdir().unwrap();
    join(&fleet, &config(folder.path(), "")).await.unwrap();
    assert!(!format!("{fleet:?}").contains("[admins] ann"));
}

#[tokio::test]
async fn database_overrides_apply_except_to_daemon_specific_keys_and_keys_closed_to_http() {
    let fleet: Arc<dyn FleetStore> = Arc::new(FakeFleet::default());
    let set = |section: &str, key: &str, value: Option<&str>| Override {
        section: section.to_owned(),
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let made = vec![
        set("couchdb", "os_process_timeout", Some("7000")),
        set("replicator", "max_jobs", None),
        set("query_servers", "evil", Some("/bin/sh")),
        set("admins", "eve", Some("password")),
        set("log", "level", Some("debug")),
        set("server", "body_max", Some("2048")),
        set("services.js", "stress", Some("yes")),
    ];
    fleet.set_overrides(made).await.unwrap();
    let own = (("log".to_owned(), "level".to_owned()), "error".to_owned());
    let gone = (
        ("replicator".to_owned(), "max_jobs".to_owned()),
        "3".to_owned(),
    );
    let sources = Sources {
        overlay: [own.clone(), gone].into(),
        ..Sources::default()
    };
    let (sources, without_effect) = take_overrides(&*fleet, &sources).await.unwrap();
    let shared = ("couchdb".to_owned(), "os_process_timeout".to_owned());
    assert_eq!(sources.overlay, [own, (shared, "7000".to_owned())].into());
    let expected = [
        "[admins] eve",
        "[log] level",
        "[query_servers] evil",
        "[server] body_max",
        "[services.js] stress",
    ];
    assert_eq!(without_effect, expected);
}
