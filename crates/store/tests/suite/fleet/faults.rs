//! Leases when the database is slow, silent, or handles concurrent requests.

use std::time::Instant;

use super::*;
use crate::StoreError;
use policy::ownership::ListedDoc;

/// `begin` runs a renewal that is in time and leaves its transaction open; `commit` commits it once the claim waits for
/// it.
pub async fn documents_kept_by_a_renewal_in_flight_are_not_claimed(
    place: &TestPlace,
    end_lease: impl Fn(u64),
    begin: impl FnOnce(u64),
    commit: impl FnOnce(),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a", "b"]).await;
    let ((first, _), (second, _)) = (enter(fleet, 1).await, enter(fleet, 2).await);
    assert_eq!(claim(fleet, first, 1, 9).await.len(), 2);
    end_lease(first.0);
    begin(first.0);
    let claiming = fleet.claim(second, Request(1), 9);
    let (claimed, ()) = futures_util::future::join(claiming, async { commit() }).await;
    // The claim may have timed out.
    if let Ok(claimed) = claimed {
        assert_eq!(claimed.docs, []);
    }
    assert_eq!(claim(fleet, second, 2, 9).await, []);
    let (docs, _) = fleet
        .renew(first, false, Reach::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(docs.len(), 2);
}

type Renewed = Result<Option<(Vec<ListedDoc>, Counts)>, StoreError>;

async fn until_renewed(fleet: &dyn FleetStore, epoch: Epoch) -> Renewed {
    let begun = Instant::now();
    loop {
        let renewed = fleet.renew(epoch, false, Reach::default()).await;
        if renewed.is_ok() || begun.elapsed() > PATIENCE {
            return renewed;
        }
        tokio::task::yield_now().await;
    }
}

/// The next renewal does not wait for an answer to the one that timed out. `pause` suspends the existing connections of
/// the database, `resume` resumes them.
pub async fn a_renewal_times_out_and_does_not_delay_the_next_one(
    place: &TestPlace,
    pause: impl FnOnce(),
    resume: impl FnOnce(),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a"]).await;
    let (first, _) = enter(fleet, 1).await;
    claim(fleet, first, 1, 9).await;
    pause();
    let error = fleet
        .renew(first, false, Reach::default())
        .await
        .unwrap_err();
    // New connections are answered.
    let renewed = until_renewed(fleet, first).await;
    resume();
    let text = error.to_string();
    assert!(text.contains("nothing came back within 5 s"), "{text}");
    let (docs, _) = renewed.unwrap().expect("its lease has not expired");
    assert_eq!(docs.len(), 1);
}
