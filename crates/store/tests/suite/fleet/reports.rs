//! What daemons say is wrong at them.

use super::*;

/// Returns what each daemon says, by its epoch.
async fn said(fleet: &dyn FleetStore) -> Vec<(Epoch, Option<String>)> {
    let daemons = fleet.daemons().await.unwrap();
    let mut said: Vec<_> = daemons
        .into_iter()
        .map(|(daemon, _)| {
            let report = daemon.report;
            assert!(report.as_ref().is_none_or(|report| report.age < PATIENCE));
            (daemon.epoch, report.map(|report| report.body))
        })
        .collect();
    said.sort();
    said
}

/// A daemon's report replaces its last one, and goes when the daemon goes.
pub async fn a_report_lasts_as_long_as_its_daemon(place: &TestPlace) {
    let (_store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let (first, second) = (enter(fleet, 1).await.0, enter(fleet, 2).await.0);
    assert_eq!(said(fleet).await, [(first, None), (second, None)]);
    for text in ["bad", "worse \u{1f525}\\u0000"] {
        fleet.write_report(first, text.to_owned()).await.unwrap();
        let both = [(first, Some(text.to_owned())), (second, None)];
        assert_eq!(said(fleet).await, both);
    }
    fleet.depart(first).await.unwrap();
    fleet.write_report(first, "late".to_owned()).await.unwrap();
    assert_eq!(said(fleet).await, [(second, None)]);
    // One that restarts has said nothing yet.
    fleet.write_report(second, "old".to_owned()).await.unwrap();
    let third = Epoch(3);
    let entered = fleet.take_epoch(name("host:1"), third, vec![second]).await;
    entered.unwrap();
    assert_eq!(said(fleet).await, [(third, None)]);
}

/// What a daemon said whose lease is over goes when another one begins.
pub async fn a_report_ends_with_its_lease(place: &TestPlace, end_lease: impl Fn(u64)) {
    let (_store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let lost = enter(fleet, 1).await.0;
    fleet.write_report(lost, "bad".to_owned()).await.unwrap();
    end_lease(lost.0);
    let next = enter(fleet, 2).await.0;
    assert_eq!(said(fleet).await, [(next, None)]);
}
