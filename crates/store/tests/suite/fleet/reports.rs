//! Problems that daemons report.

use super::*;

/// Returns each daemon's report, by epoch.
async fn reports(fleet: &dyn FleetStore) -> Vec<(Epoch, Option<String>)> {
    let daemons = fleet.daemons().await.unwrap();
    let mut reports: Vec<_> = daemons
        .into_iter()
        .map(|(daemon, _)| {
            let report = daemon.report;
            assert!(report.as_ref().is_none_or(|report| report.age < PATIENCE));
            (daemon.epoch, report.map(|report| report.body))
        })
        .collect();
    reports.sort();
    reports
}

/// A daemon's report replaces its last one, and is removed when the daemon departs.
pub async fn a_report_lasts_as_long_as_its_daemon(place: &TestPlace) {
    let (_store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let (first, second) = (enter(fleet, 1).await.0, enter(fleet, 2).await.0);
    assert_eq!(reports(fleet).await, [(first, None), (second, None)]);
    for text in ["bad", "worse \u{1f525}\\u0000"] {
        fleet.write_report(first, text.to_owned()).await.unwrap();
        let both = [(first, Some(text.to_owned())), (second, None)];
        assert_eq!(reports(fleet).await, both);
    }
    fleet.depart(first).await.unwrap();
    fleet.write_report(first, "late".to_owned()).await.unwrap();
    assert_eq!(reports(fleet).await, [(second, None)]);
    // A restarted daemon has no report yet.
    fleet.write_report(second, "old".to_owned()).await.unwrap();
    let third = Epoch(3);
    let entered = fleet.take_epoch(name("host:1"), third, vec![second]).await;
    entered.unwrap();
    assert_eq!(reports(fleet).await, [(third, None)]);
}

/// The report of an expired lease is removed when another lease begins.
pub async fn a_report_ends_with_its_lease(place: &TestPlace, end_lease: impl Fn(u64)) {
    let (_store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let lost = enter(fleet, 1).await.0;
    fleet.write_report(lost, "bad".to_owned()).await.unwrap();
    end_lease(lost.0);
    let next = enter(fleet, 2).await.0;
    assert_eq!(reports(fleet).await, [(next, None)]);
}
