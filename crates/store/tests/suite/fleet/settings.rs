//! Settings changed while daemons run, and secrets.

use super::*;
use crate::fleet::{Override, Topic};

fn setting(key: &str, value: Option<&str>) -> Override {
    Override {
        section: "s".to_owned(),
        key: key.to_owned(),
        value: value.map(str::to_owned),
    }
}

/// A setting of one daemon is visible to all, the last value wins, and all are notified.
pub async fn a_setting_of_one_daemon_is_visible_to_all(place: &TestPlace) {
    let (_store, fleet) = fleet_of(place);
    let (_other, other) = fleet_of(place);
    assert_eq!(other.overrides().await.unwrap(), []);
    let mut told = other.told(Topic::Overrides);
    let made = vec![
        setting("b", Some("1")),
        setting("a", Some("2")),
        setting("b", Some("3")),
    ];
    fleet.set_overrides(made).await.unwrap();
    let heard = async {
        while other.overrides().await.unwrap().is_empty() {
            told.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, heard)
        .await
        .expect("a notification");
    let all = [setting("a", Some("2")), setting("b", Some("3"))];
    assert_eq!(other.overrides().await.unwrap(), all);
    other.set_overrides(vec![setting("a", None)]).await.unwrap();
    let all = [setting("a", None), setting("b", Some("3"))];
    assert_eq!(fleet.overrides().await.unwrap(), all);
}

/// Daemons that propose secrets at the same time get the same one.
pub async fn daemons_that_propose_secrets_at_the_same_time_get_the_same_one(place: &TestPlace) {
    let proposals = (0..6).map(|n| {
        let (store, fleet) = fleet_of(place);
        async move {
            let _store = store;
            fleet.secret("cookie", n.to_string()).await.unwrap()
        }
    });
    let answers = futures_util::future::join_all(proposals).await;
    assert!(answers.iter().all(|one| *one == answers[0]), "{answers:?}");
    let (_store, fleet) = fleet_of(place);
    let other = fleet.secret("admin", "mine".to_owned()).await;
    assert_eq!(other.unwrap(), "mine");
}
